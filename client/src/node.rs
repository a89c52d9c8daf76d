//! The address and the login of a node.

mod location;

#[cfg(feature = "tls")]
pub use crate::connect::Tls;

#[cfg(not(feature = "tls"))]
use crate::connect::Tls;
use crate::connect::{Address, Login, Protocol, ServerAddress, Target, TlsSettings, tls_settings};
use location::{Location, Security};
use std::fmt;

/// The address of one node, and the login there.
///
/// | form | meaning |
/// |---|---|
/// | `redis://host:6379` | TCP; the default port is 6379 |
/// | `redis://:password@host`, `redis://user:password@host` | with a login; characters such as `/ ? # @` are written `%2F %3F %23 %40` |
/// | `redis://host/2` | database 2 |
/// | `redis://host?protocol=2` | replies in RESP2; the client then polls for held locks instead of queueing |
/// | `rediss://host:6380` | TLS, with the feature `tls`; see `Node::tls` |
/// | `redis+unix:///run/redis.sock?db=2&user=u&pass=p` | a Unix socket |
///
/// `valkey://`, `valkeys://` and `valkey+unix://` mean the same. A `redis::ConnectionInfo` converts into a
/// `Node` too; the client ignores its socket settings.
///
/// Making a `Node` never fails: [`Builder::build`](crate::Builder::build) reports an invalid address.
/// `Display` and `Debug` show the address alone, never a user or a password.
///
/// ```
/// use redlock_client::Node;
///
/// let node = Node::new("redis://app:secret@redis-1.example:6379/2");
/// assert_eq!(node.to_string(), "redis-1.example:6379");
/// ```
#[derive(Clone)]
pub struct Node {
    place: Place,
    login: LoginWishes,
    tls: Option<Tls>,
}

#[derive(Clone)]
enum Place {
    Server(Result<Location, String>),
    #[cfg(feature = "sentinel")]
    Watched {
        sentinels: Result<Vec<Location>, String>,
        master: String,
    },
}

/// Settings given beside the URL. They override the URL.
#[derive(Clone, Default)]
struct LoginWishes {
    credentials: Option<(String, String)>,
    database: Option<u64>,
    protocol: Option<Protocol>,
}

impl LoginWishes {
    fn over(&self, mut login: Login) -> Login {
        if let Some((user, password)) = &self.credentials {
            login.user = Some(user.clone());
            login.password = Some(password.clone());
        }
        login.database = self.database.unwrap_or(login.database);
        login.protocol = self.protocol.unwrap_or(login.protocol);
        login
    }
}

impl Node {
    /// Returns the node at this URL.
    #[must_use]
    pub fn new(url: impl AsRef<str>) -> Self {
        Self::at(Place::Server(Location::parse(url.as_ref())))
    }

    /// Returns the node that Sentinel names as the master `master`.
    ///
    /// The client asks the sentinels at these URLs before every connection, in the order given. It asks the
    /// next sentinel when one fails, or has not led to a master within 100 ms. The URLs contain the login at
    /// the sentinels; [`Node::login`] sets the login at the master. If the client reaches the sentinels over
    /// TLS, it also reaches the master over TLS.
    ///
    /// Sentinel finds the node; it does not replace it. A promoted replica is another node, and does not vote
    /// before an operator admits it (`redlock admit`). Meanwhile the other nodes must be a majority.
    #[cfg(feature = "sentinel")]
    #[must_use]
    pub fn sentinel<U: AsRef<str>>(
        sentinels: impl IntoIterator<Item = U>,
        master: impl Into<String>,
    ) -> Self {
        Self::at(Place::Watched { sentinels: locations(sentinels), master: master.into() })
    }

    fn at(place: Place) -> Self {
        Self { place, login: LoginWishes::default(), tls: None }
    }

    /// Sets the user and the password; they override the URL. A password without a user is that of the user
    /// `default`.
    ///
    /// Default: the login of the URL; for a master that Sentinel watches, no login.
    #[must_use]
    pub fn login(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login.credentials = Some((user.into(), password.into()));
        self
    }

    /// Sets the database for the locks; it overrides the URL.
    ///
    /// Default: the database of the URL, or 0.
    #[must_use]
    pub fn database(mut self, number: u32) -> Self {
        self.login.database = Some(u64::from(number));
        self
    }

    /// Selects RESP3; it overrides the URL. With RESP2 the client polls for held locks: see
    /// [`Builder::wait_policy`](crate::Builder::wait_policy).
    ///
    /// Default: the protocol of the URL, or RESP3.
    #[must_use]
    pub fn resp3(mut self) -> Self {
        self.login.protocol = Some(Protocol::Resp3);
        self
    }

    /// Sets the certificates for this node; they override the manager's.
    ///
    /// Only for `rediss://` addresses. With any other address [`Builder::build`](crate::Builder::build)
    /// fails, because the connection would not be encrypted.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(mut self, tls: Tls) -> Self {
        self.tls = Some(tls);
        self
    }

    /// Returns what to connect to, or why the address is invalid. The error quotes no part of the URL.
    ///
    /// `default_tls` is for the nodes without certificates of their own.
    pub(crate) fn target(&self, default_tls: Option<&Tls>) -> Result<Target, String> {
        match &self.place {
            Place::Server(location) => {
                let location = location.clone()?;
                let settings = self.settings(&location, default_tls)?;
                let login = self.login.over(location.login.clone());
                Ok(Target::Server(server(location, settings, login)))
            }
            #[cfg(feature = "sentinel")]
            Place::Watched { sentinels, master } => self.watched(sentinels.clone()?, master, default_tls),
        }
    }

    #[cfg(feature = "sentinel")]
    fn watched(
        &self,
        sentinels: Vec<Location>,
        master: &str,
        default_tls: Option<&Tls>,
    ) -> Result<Target, String> {
        if master.is_empty() {
            return Err("the name of the master must not be empty".to_owned());
        }
        if sentinels.iter().any(|sentinel| sentinel.login.database != 0) {
            return Err(
                "a sentinel has no databases; select the master's database with `Node::database`".to_owned()
            );
        }
        let (sentinels, tls) = self.alike(sentinels, default_tls)?;
        let sentinels = sentinels.into_iter().map(|sentinel| {
            let login = sentinel.login.clone();
            server(sentinel, tls.clone(), login)
        });
        Ok(Target::Watched(crate::connect::Watched {
            sentinels: sentinels.collect(),
            master: master.to_owned(),
            // RESP3 as for an address without a protocol: the client can queue only over RESP3.
            login: self.login.over(Login { protocol: Protocol::Resp3, ..Login::default() }),
            tls,
        }))
    }

    /// Checks that all servers of one node use TLS, or none of them.
    #[cfg(feature = "sentinel")]
    fn alike(
        &self,
        locations: Vec<Location>,
        default_tls: Option<&Tls>,
    ) -> Result<(Vec<Location>, Option<TlsSettings>), String> {
        let Some(first) = locations.first() else {
            return Err("a list of addresses is empty".to_owned());
        };
        if locations.iter().any(|location| location.security != first.security) {
            return Err("some addresses of one node ask for TLS, and some do not".to_owned());
        }
        let settings = self.settings(first, default_tls)?;
        Ok((locations, settings))
    }

    fn settings(
        &self,
        location: &Location,
        default_tls: Option<&Tls>,
    ) -> Result<Option<TlsSettings>, String> {
        match (&location.address, location.security) {
            (Address::Tcp { host, .. }, Security::Tls) => {
                tls_settings(self.tls.as_ref().or(default_tls), host).map(Some)
            }
            _ if self.tls.is_some() => {
                Err("TLS certificates are configured, but the URL is not rediss://: write rediss://, or \
                     remove the certificates"
                    .to_owned())
            }
            _ => Ok(None),
        }
    }
}

fn server(location: Location, settings: Option<TlsSettings>, login: Login) -> ServerAddress {
    let address = match location.address {
        Address::Tcp { host, port, .. } => Address::Tcp { host, port, tls: settings },
        Address::Unix(path) => Address::Unix(path),
    };
    ServerAddress { address, login }
}

#[cfg(feature = "sentinel")]
fn locations<U: AsRef<str>>(urls: impl IntoIterator<Item = U>) -> Result<Vec<Location>, String> {
    urls.into_iter().map(|url| Location::parse(url.as_ref())).collect()
}

impl From<&str> for Node {
    fn from(url: &str) -> Self {
        Self::new(url)
    }
}

impl From<String> for Node {
    fn from(url: String) -> Self {
        Self::new(url)
    }
}

impl From<&String> for Node {
    fn from(url: &String) -> Self {
        Self::new(url)
    }
}

impl From<redis::ConnectionInfo> for Node {
    fn from(info: redis::ConnectionInfo) -> Self {
        Self::at(Place::Server(Location::from_info(&info)))
    }
}

/// Shows the address without user and password. Shows nothing of an invalid address: any part may be a
/// password.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNREADABLE: &str = "an invalid address";
        match &self.place {
            Place::Server(Ok(location)) => write!(f, "{}", location.address),
            Place::Server(Err(_)) => f.write_str(UNREADABLE),
            #[cfg(feature = "sentinel")]
            Place::Watched { sentinels: Ok(sentinels), master } => {
                // Masters of different sentinels often have the same name.
                write!(f, "sentinel {master} of ")?;
                write_addresses(f, sentinels)
            }
            #[cfg(feature = "sentinel")]
            Place::Watched { sentinels: Err(_), master } => write!(f, "sentinel {master} of {UNREADABLE}"),
        }
    }
}

#[cfg(feature = "sentinel")]
fn write_addresses(f: &mut fmt::Formatter<'_>, locations: &[Location]) -> fmt::Result {
    for (place, location) in locations.iter().enumerate() {
        let comma = if place == 0 { "" } else { "," };
        write!(f, "{comma}{}", location.address)?;
    }
    Ok(())
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Node({self})")
    }
}

#[cfg(test)]
mod tests;
