//! The settings file, `redlock.toml`.

use crate::exit::ExitError;
use serde::{Deserialize, Deserializer};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The content of the settings file. An unknown name is an error, because it may be misspelled.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct ConfigFile {
    pub(super) nodes: Vec<String>,
    pub(super) sentinel: Vec<SentinelEntry>,
    pub(super) prefix: Option<String>,
    #[serde(deserialize_with = "duration")]
    pub(super) ttl: Option<Duration>,
    pub(super) label: Option<String>,
    #[serde(deserialize_with = "duration")]
    pub(super) node_timeout: Option<Duration>,
    #[serde(deserialize_with = "duration")]
    pub(super) connect_timeout: Option<Duration>,
    pub(super) queue: Option<bool>,
    pub(super) username: Option<String>,
    pub(super) password: Option<String>,
    pub(super) password_file: Option<PathBuf>,
    pub(super) password_env: Option<String>,
    pub(super) tls: Option<TlsEntry>,
}

/// A node that is the master of a Sentinel group.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SentinelEntry {
    pub(super) master: String,
    pub(super) urls: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsEntry {
    pub(super) ca: Option<PathBuf>,
    pub(super) cert: Option<PathBuf>,
    pub(super) key: Option<PathBuf>,
}

/// Reads a duration. TOML has no durations, so they are strings in the file.
fn duration<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    crate::duration::parse(&text).map(Some).map_err(serde::de::Error::custom)
}

impl ConfigFile {
    /// Reads the named file, which must exist, or else the first default file that exists.
    pub(super) fn load(named: Option<&Path>) -> Result<Self, ExitError> {
        if let Some(path) = named {
            let text = std::fs::read_to_string(path).map_err(|error| super::unreadable(path, &error))?;
            return Self::parse(path, &text);
        }
        for path in default_paths() {
            match std::fs::read_to_string(&path) {
                Ok(text) => return Self::parse(&path, &text),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
                Err(error) => return Err(super::unreadable(&path, &error)),
            }
        }
        Ok(Self::default())
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ExitError> {
        let mut file: Self = toml::from_str(text).map_err(|error| {
            // The parser's own message quotes the line, which may contain the password.
            let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
            let line = before.matches('\n').count() + 1;
            let message = error.message().lines().next().unwrap_or_default();
            ExitError::usage(format!("{}, line {line}: {message}", path.display()))
        })?;
        file.resolve_paths(path.parent().unwrap_or(Path::new("")));
        Ok(file)
    }

    /// Resolves relative paths in the file against the folder of the file.
    fn resolve_paths(&mut self, folder: &Path) {
        let certificates = self.tls.iter_mut().flat_map(|tls| [&mut tls.ca, &mut tls.cert, &mut tls.key]);
        for path in certificates.chain([&mut self.password_file]).flatten() {
            *path = folder.join(&*path);
        }
    }
}

fn default_paths() -> Vec<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let settings = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")));
    let user_file = settings.map(|folder| folder.join("redlock").join("redlock.toml"));
    [Some(PathBuf::from("redlock.toml")), user_file].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<ConfigFile, String> {
        ConfigFile::parse(Path::new("/etc/redlock.toml"), text).map_err(|failure| failure.message)
    }

    #[test]
    fn every_setting_is_read() {
        let file = parse(
            r#"
            nodes = ["redis://one", "redis://two"]
            prefix = "app:"
            ttl = "45s"
            label = "nightly"
            node-timeout = "400ms"
            connect-timeout = "2s"
            queue = false
            username = "app"
            password-file = "password"
            [tls]
            ca = "/etc/ca.pem"
            cert = "cert.pem"
            [[sentinel]]
            master = "locks"
            urls = ["redis://s1:26379"]
            "#,
        )
        .expect("a valid settings file");
        assert_eq!(file.nodes, ["redis://one", "redis://two"]);
        assert_eq!(file.ttl, Some(Duration::from_secs(45)));
        assert_eq!(file.password_file.as_deref(), Some(Path::new("/etc/password")));
        let tls = file.tls.expect("certificates");
        assert_eq!(tls.ca.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert_eq!(tls.cert.as_deref(), Some(Path::new("/etc/cert.pem")));
        assert_eq!(file.sentinel.len(), 1);
    }

    #[test]
    fn an_error_names_the_mistake_and_no_secret() {
        let error = parse("nodes = []\nnode-timout = \"1s\"\n").expect_err("a misspelled name");
        assert!(error.contains("line 2") && error.contains("node-timout"), "{error}");
        let error = parse("password = hush\n").expect_err("a string without quotes");
        assert!(error.contains("line 1") && !error.contains("hush"), "{error}");
        let error = parse("ttl = \"soon\"\n").expect_err("not a duration");
        assert!(error.contains("soon"), "{error}");
        assert!(parse("[tls]\nca_file = \"x\"\n").expect_err("an unknown name").contains("ca_file"));
    }
}
