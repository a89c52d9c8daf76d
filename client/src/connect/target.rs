//! Where a node is, and how one logs in there.

use super::TlsSettings;
use std::fmt;
use std::path::PathBuf;

/// What a connection is made to.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// One server, always at the same address.
    Server(ServerAddress),
    /// The master of the moment, as Sentinel knows it.
    #[cfg(feature = "sentinel")]
    Watched(Watched),
}

impl Target {
    /// Whether the same target may be another server at the next look: then a server that has become a
    /// replica is not the end of it.
    pub(crate) fn may_move(&self) -> bool {
        !matches!(self, Self::Server(_))
    }
}

/// A server's address, and who one is there.
#[derive(Clone, Debug)]
pub(crate) struct ServerAddress {
    pub(crate) address: Address,
    pub(crate) login: Login,
}

/// A master that has no address of its own.
#[cfg(feature = "sentinel")]
#[derive(Clone, Debug)]
pub(crate) struct Watched {
    /// Whom to ask for it, the first one first.
    pub(crate) sentinels: Vec<ServerAddress>,
    /// What they call it.
    pub(crate) master: String,
    /// Who one is at the master; the sentinels have logins of their own.
    pub(crate) login: Login,
    /// Whether the master is reached over TLS, and how.
    pub(crate) tls: Option<TlsSettings>,
}

/// Where a server listens.
#[derive(Clone)]
pub(crate) enum Address {
    /// A host and a port, over TLS if there are settings for it.
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

/// Who one is at a server, and what one wants there.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u64,
    pub(crate) protocol: Protocol,
}

/// The form of the server's replies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Protocol {
    #[default]
    Resp2,
    Resp3,
}

impl Login {
    /// The words after `AUTH`, if there is anything to say.
    ///
    /// A user without a password is one who needs none: the server then takes the empty one, as it takes any.
    /// Going on as somebody else would be worse than being refused.
    pub(super) fn credentials(&self) -> Option<(Option<&str>, &str)> {
        match (self.user.as_deref(), self.password.as_deref()) {
            (None, None) => None,
            (user, password) => Some((user, password.unwrap_or_default())),
        }
    }

    /// A server's words, unless they give the password away.
    pub(super) fn conceal(&self, words: String) -> String {
        match self.password.as_deref() {
            Some(password) if !password.is_empty() && words.contains(password) => {
                "words that contain the password".to_owned()
            }
            _ => words,
        }
    }
}

/// Neither the user nor the password is shown.
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
