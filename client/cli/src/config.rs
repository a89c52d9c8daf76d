//! Nodes and settings. An option overrides a variable, and a variable overrides the settings file.

mod file;

use crate::args::{CommonArgs, WaitLimit};
use crate::exit::ExitError;
use file::ConfigFile;
use redlock_client::{Builder, LockManager, Node, Retry, Tls, WaitPolicy};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The default time to live.
const TTL: Duration = Duration::from_secs(30);

/// The time limit for `forever`: 30 years.
pub(crate) const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// The effective nodes and settings.
#[derive(Debug)]
pub(crate) struct Config {
    nodes: Vec<Node>,
    prefix: String,
    ttl: Duration,
    label: Option<String>,
    node_timeout: Option<Duration>,
    connect_timeout: Option<Duration>,
    queues: bool,
    tls: Option<Tls>,
    /// The variable with the password that the settings file names.
    password_env: Option<String>,
}

impl Config {
    pub(crate) fn load(common: &CommonArgs) -> Result<Self, ExitError> {
        let file = ConfigFile::load(common.config.as_deref())?;
        let credentials = credentials(common, &file)?;
        let login = |node: Node| match &credentials {
            Some((user, password)) => node.login(user, password),
            None => node,
        };
        let url = |url: &String| if has_login(url) { Node::new(url) } else { login(Node::new(url)) };
        let given: Vec<&String> = common.nodes.iter().filter(|url| !url.trim().is_empty()).collect();
        let nodes: Vec<Node> = if given.is_empty() {
            let watched = file.sentinel.iter().map(|node| login(Node::sentinel(&node.urls, &node.master)));
            file.nodes.iter().map(url).chain(watched).collect()
        } else {
            given.into_iter().map(url).collect()
        };
        let is_sentinel =
            |url: &&String| url.split_once("://").is_some_and(|(scheme, _)| scheme.contains("sentinel"));
        if common.nodes.iter().chain(&file.nodes).any(|url| is_sentinel(&url)) {
            return Err(ExitError::usage(
                "a Sentinel URL is not supported: write a section [[sentinel]] with master and urls into the settings file",
            ));
        }
        if nodes.is_empty() {
            return Err(ExitError::usage(
                "no nodes are configured: use --nodes, REDLOCK_NODES or a settings file (see redlock --help)",
            ));
        }
        Ok(Self {
            nodes,
            tls: tls(common, &file)?,
            prefix: common.prefix.clone().or(file.prefix).unwrap_or_default(),
            ttl: file.ttl.unwrap_or(TTL),
            label: file.label,
            node_timeout: common.node_timeout.or(file.node_timeout),
            connect_timeout: common.connect_timeout.or(file.connect_timeout),
            queues: file.queue.unwrap_or(true),
            password_env: file.password_env,
        })
    }

    /// The environment variables that contain a password of the nodes.
    pub(crate) fn secret_variables(&self) -> Vec<String> {
        let is_secret = |urls: std::ffi::OsString| {
            let urls = urls.to_string_lossy();
            // A URL that cannot be parsed may contain a password all the same.
            urls.contains('@') || urls.split(',').any(has_login)
        };
        let nodes = std::env::var_os("REDLOCK_NODES").filter(|urls| is_secret(urls.clone()));
        let names = ["REDLOCK_PASSWORD".to_owned()].into_iter().chain(self.password_env.clone());
        names.chain(nodes.map(|_| "REDLOCK_NODES".to_owned())).collect()
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The given time to live, or else the configured one.
    pub(crate) fn ttl(&self, asked: Option<Duration>) -> Duration {
        asked.unwrap_or(self.ttl)
    }

    pub(crate) fn builder(&self) -> Builder {
        let mut builder = LockManager::builder().nodes(self.nodes.clone()).key_prefix(self.prefix.as_bytes());
        if let Some(timeout) = self.node_timeout {
            builder = builder.node_timeout(timeout);
        }
        if let Some(timeout) = self.connect_timeout {
            builder = builder.connect_timeout(timeout);
        }
        if let Some(tls) = &self.tls {
            builder = builder.tls(tls.clone());
        }
        builder
    }

    /// A manager for commands that do not acquire locks.
    pub(crate) fn manager(&self) -> Result<LockManager, ExitError> {
        Ok(self.builder().build()?)
    }

    /// A manager for commands that acquire locks and may wait for them.
    pub(crate) fn locker(&self, label: Option<&str>, wait: WaitLimit) -> Result<LockManager, ExitError> {
        let label = label.map(str::to_owned).or_else(|| self.label.clone()).unwrap_or_else(default_label);
        let queues = self.queues && wait != WaitLimit::Not;
        let policy = if queues { WaitPolicy::Queue } else { WaitPolicy::Poll };
        Ok(self.builder().label(label).wait_policy(policy).retry(Retry::without_limit()).build()?)
    }
}

/// The label of a lock without `--label`: host and process id.
fn default_label() -> String {
    let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned());
    let host: String = host.unwrap_or_else(|_| "a host".to_owned()).chars().take(128).collect();
    format!("{host} pid {}", std::process::id())
}

/// Whether a URL contains a user or a password.
fn has_login(url: &str) -> bool {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, query) = (rest.split(['/', '?', '#']).next(), rest.split_once('?'));
    let named = |(_, query): (&str, &str)| {
        query.split('&').any(|pair| pair.starts_with("user=") || pair.starts_with("pass="))
    };
    authority.is_some_and(|authority| authority.contains('@')) || query.is_some_and(named)
}

/// The login for nodes whose URL has none.
fn credentials(common: &CommonArgs, file: &ConfigFile) -> Result<Option<(String, String)>, ExitError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let password = match (&common.password_file, variable("REDLOCK_PASSWORD")) {
        (Some(path), _) => Some(read_secret(path)?),
        (None, Some(password)) => Some(password),
        (None, None) => match (&file.password, &file.password_file, &file.password_env) {
            (Some(password), None, None) => Some(password.clone()),
            (None, Some(path), None) => Some(read_secret(path)?),
            (None, None, Some(name)) => {
                let password = variable(name);
                Some(password.ok_or_else(|| {
                    ExitError::usage(format!(
                        "password-env in the settings file is {name}, but the variable {name} is not set"
                    ))
                })?)
            }
            (None, None, None) => None,
            _ => {
                let words = "the settings file has more than one of password, password-file and password-env: keep one";
                return Err(ExitError::usage(words));
            }
        },
    };
    let user = common.username.clone().or_else(|| file.username.clone());
    match (user, password) {
        (None, None) => Ok(None),
        (user, Some(password)) => Ok(Some((user.unwrap_or_else(|| "default".to_owned()), password))),
        (Some(_), None) => Err(ExitError::usage(
            "a username without a password: use --password-file, REDLOCK_PASSWORD or the settings file",
        )),
    }
}

fn read_secret(path: &Path) -> Result<String, ExitError> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn unreadable(path: &Path, error: &std::io::Error) -> ExitError {
    ExitError::usage(format!("cannot read {}: {error}", path.display()))
}

fn tls(common: &CommonArgs, file: &ConfigFile) -> Result<Option<Tls>, ExitError> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|error| unreadable(path, &error));
    let from_file = file.tls.as_ref();
    let ca = common.tls_ca.as_ref().or_else(|| from_file?.ca.as_ref());
    let cert = common.tls_cert.as_ref().or_else(|| from_file?.cert.as_ref());
    let key = common.tls_key.as_ref().or_else(|| from_file?.key.as_ref());
    let mut tls = Tls::new();
    if let Some(ca) = ca {
        tls = tls.ca_pem(read(ca)?);
    }
    match (cert, key) {
        (Some(cert), Some(key)) => tls = tls.client_identity_pem(read(cert)?, read(key)?),
        (None, None) if ca.is_none() => return Ok(None),
        (None, None) => {}
        _ => return Err(ExitError::usage("a client certificate needs both --tls-cert and --tls-key")),
    }
    Ok(Some(tls))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_a_url_is_found() {
        let table = [
            ("redis://host:6379", false),
            ("redis://:secret@host", true),
            ("redis://user:secret@host/2", true),
            ("redis://host/2?protocol=resp2", false),
            ("redis+unix:///run/redis.sock", false),
            ("redis+unix:///run/r@dis.sock", false),
            ("redis+unix:///run/redis.sock?user=u&pass=p", true),
        ];
        for (url, expected) in table {
            assert_eq!(has_login(url), expected, "{url}");
        }
    }
}
