//! The address of a node, and the login for it.

use super::TlsSettings;
use std::fmt;
use std::path::PathBuf;

/// A node that the client connects to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One server at a fixed address.
    Server(ServerAddress),
    /// The current master, according to Sentinel.
    #[cfg(feature = "sentinel")]
    Watched(Watched),
}

impl Target {
    /// Whether the next connect may reach another server (Sentinel). If so, the client reconnects when the
    /// server has become a replica.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self, Self::Server(_))
    }
}

/// A server's address, and the login for it.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    pub(crate) address: Address,
    pub(crate) login: Login,
}

/// A master whose address the client gets from Sentinel.
#[cfg(feature = "sentinel")]
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// The sentinels, in order.
    pub(crate) sentinels: Vec<ServerAddress>,
    /// The master's name in Sentinel.
    pub(crate) master: String,
    /// The login at the master. Each sentinel has a login of its own.
    pub(crate) login: Login,
    /// The TLS settings for the master; `None` for plain TCP.
    pub(crate) tls: Option<TlsSettings>,
}

/// The address at which a server listens.
#[derive(Clone)]
pub(crate) enum Address {
    /// A host and a port. The client uses TLS if `tls` is set.
    Tcp {
        host: String,
        port: u16,
        tls: Option<TlsSettings>,
    },
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Credentials, database and RESP version.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u64,
    pub(crate) protocol: Protocol,
}

/// The RESP version of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Login {
    /// The user and the password for `AUTH`; `None` if the login has neither.
    ///
    /// A user without a password logs in with an empty one. The server accepts any password of a user that
    /// needs none. The client never falls back to another user: a refused login is better.
    pub(super) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        match (self.user.as_deref(), self.password.as_deref()) {
            (None, None) => None,
            (user, password) => Some((user, password.unwrap_or_default())),
        }
    }

    /// A server's message, or a placeholder if the message contains the password.
    pub(super) fn conceal(&self, words: String) -> String {
        match self.password.as_deref() {
            Some(password) if !password.is_empty() && words.contains(password) => {
                "(message hidden: it contains the password)".to_owned()
            }
            _ => words,
        }
    }
}

/// Shows neither the user nor the password.
impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("database", &self.database)
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: Option<&str>, password: Option<&str>) -> Login {
        Login { user: user.map(str::to_owned), password: password.map(str::to_owned), ..Login::default() }
    }

    #[test]
    fn who_one_is() {
        let cases = [
            (None, None, None),
            (None, Some("pw"), Some((None, "pw"))),
            (Some("app"), Some("pw"), Some((Some("app"), "pw"))),
            (Some("app"), None, Some((Some("app"), ""))),
        ];
        for (user, password, said) in cases {
            assert_eq!(login(user, password).credentials(), said);
        }
    }

    #[test]
    fn secrets_stay_in() {
        let login = login(Some("app-user"), Some("hush"));
        let shown = format!("{login:?}");
        assert!(!shown.contains("hush") && !shown.contains("app-user"), "{shown}");
        assert!(!login.conceal("ERR bad word 'hush'".into()).contains("hush"));
        assert_eq!(login.conceal("ERR bad word".into()), "ERR bad word");
    }

    #[test]
    fn an_empty_password_hides_nothing() {
        assert_eq!(login(Some("app"), Some("")).conceal("WRONGPASS no".into()), "WRONGPASS no");
    }

    #[test]
    fn addresses_are_shown_as_people_write_them() {
        let tcp = |host: &str| Address::Tcp { host: host.into(), port: 6379, tls: None };
        assert_eq!(tcp("redis-1.example").to_string(), "redis-1.example:6379");
        assert_eq!(tcp("::1").to_string(), "[::1]:6379");
        assert_eq!(Address::Unix("/run/r.sock".into()).to_string(), "/run/r.sock");
    }
}
