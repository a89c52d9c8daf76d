//! Nodes and settings: from options, then the environment, then a file.

mod file;

use crate::args::{CommonArgs, WaitLimit};
use crate::duration;
use crate::exit::ExitError;
use file::ConfigFile;
use redlock_client::{Builder, LockManager, Node, Retry, Tls, WaitPolicy};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time to live if nobody names another.
const TTL: Duration = Duration::from_secs(30);

/// Longer than anybody waits.
pub(crate) const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// Everything that was said about the nodes, by the one who has the last word on it.
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
        if nodes.is_empty() {
            return Err(ExitError::usage(
                "no node is named: use --nodes, REDLOCK_NODES or a file of settings (see redlock --help)",
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
        })
    }

    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The time to live that was asked for, or the usual one.
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

    /// A manager for those who look.
    pub(crate) fn manager(&self) -> Result<LockManager, ExitError> {
        Ok(self.builder().build()?)
    }

    /// A manager for those who take locks and may wait for them.
    pub(crate) fn locker(&self, label: Option<&str>, wait: WaitLimit) -> Result<LockManager, ExitError> {
        let label = label.map(str::to_owned).or_else(|| self.label.clone()).unwrap_or_else(default_label);
        let queues = self.queues && wait != WaitLimit::Not;
        let policy = if queues { WaitPolicy::Queue } else { WaitPolicy::Poll };
        let retry = Retry::exponential(Duration::from_millis(5), Duration::from_millis(250));
        Ok(self.builder().label(label).wait_policy(policy).retry(retry).build()?)
    }
}

/// Which host and process it is, for those who wonder who holds a lock.
fn default_label() -> String {
    let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned());
    let host: String = host.unwrap_or_else(|_| "a host".to_owned()).chars().take(128).collect();
    format!("{host} pid {}", std::process::id())
}

/// Whether a URL says as whom to log in.
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
                    ExitError::usage(format!("the variable {name} with the password is not set"))
                })?)
            }
            (None, None, None) => None,
            _ => {
                let words =
                    "the file of settings names more than one of password, password-file and password-env";
                return Err(ExitError::usage(words));
            }
        },
    };
    let user = common.username.clone().or_else(|| file.username.clone());
    match (user, password) {
        (None, None) => Ok(None),
        (user, Some(password)) => Ok(Some((user.unwrap_or_else(|| "default".to_owned()), password))),
        (Some(_), None) => Err(ExitError::usage("there is a username and no password: see --password-file")),
    }
}

fn read_secret(path: &Path) -> Result<String, ExitError> {
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

fn unreadable(path: &Path, error: &std::io::Error) -> ExitError {
    ExitError::usage(format!("{} cannot be read: {error}", path.display()))
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
        _ => return Err(ExitError::usage("a certificate of one's own needs both --tls-cert and --tls-key")),
    }
    Ok(Some(tls))
}

/// As TOML has no durations, they are text there.
fn duration_of(text: &str) -> Result<Duration, String> {
    duration::parse(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_logs_in_by_url() {
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
