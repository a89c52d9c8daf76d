//! Parses the address of one server.

use crate::connect::{Address, Login, Protocol};
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, ProtocolVersion};

/// The address of one server, as in its URL. Certificates are not loaded yet.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) address: Address,
    pub(super) security: Security,
    pub(super) login: Login,
}

/// Whether the URL asks for TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Security {
    Plain,
    Tls,
}

const UNVERIFIED: &str = "`#insecure` is not supported: certificates are always verified; add the authority \
                          to trust with `Tls::ca_pem`";

/// Why a URL such as `redis-sentinel://` is no address. A URL cannot say how to log in at the sentinels and at
/// the master.
const SENTINEL: &str = if cfg!(feature = "sentinel") {
    "a Sentinel URL is not supported; write `Node::sentinel([\"redis://sentinel-1:26379\", …], \"master\")`"
} else {
    "a Sentinel URL is not supported; build redlock-client with its feature `sentinel` and write \
     `Node::sentinel([\"redis://sentinel-1:26379\", …], \"master\")`"
};

impl Location {
    /// Parses a URL. The error quotes no part of the URL: any part may be a piece of a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.split_once("://").is_some_and(|(scheme, _)| scheme.to_lowercase().contains("sentinel")) {
            return Err(SENTINEL.to_owned());
        }
        let Some(mut url) = redis::parse_redis_url(text) else {
            return Err("the address is not a URL such as redis://host:6379".to_owned());
        };
        let (security, options): (_, &[&str]) = match url.scheme() {
            "rediss" | "valkeys" => (Security::Tls, &["protocol"]),
            "redis" | "valkey" => (Security::Plain, &["protocol"]),
            _ => (Security::Plain, &["protocol", "db", "user", "pass"]),
        };
        // An unescaped `#` or `?` in a password splits the password: the first piece is read as the host, the
        // second as a fragment or a query.
        match url.fragment() {
            None => {}
            Some("insecure") if security == Security::Tls => return Err(UNVERIFIED.to_owned()),
            Some(_) => return Err("the URL contains `#`; in a password, write it as %23".to_owned()),
        }
        if url.query_pairs().any(|(name, _)| !options.contains(&name.as_ref())) {
            return Err("the URL has an unknown option after `?`; in a password, write `?` as %3F".to_owned());
        }
        let says_protocol = url.query_pairs().any(|(name, _)| name == "protocol");
        let is_socket = !matches!(url.scheme(), "redis" | "rediss" | "valkey" | "valkeys");
        if is_socket && (!url.username().is_empty() || url.password().is_some()) {
            return Err("the login for a Unix socket must be ?user=…&pass=… at the end of the URL".to_owned());
        }
        // The rest of the URL has the same form, but the `redis` crate parses `rediss` only in a build with
        // its own TLS.
        if security == Security::Tls && url.set_scheme("redis").is_err() {
            return Err("the address is not a URL such as rediss://host:6380".to_owned());
        }
        match url.into_connection_info() {
            Ok(info) => Self::from_info(&info).map(|mut location| {
                // RESP3 carries pushes on the connection of the commands.
                if !says_protocol {
                    location.login.protocol = Protocol::Resp3;
                }
                Self { security, ..location }
            }),
            // The text starts with the reason; the details after ` - ` may quote the URL.
            Err(error) => Err(error.to_string().split(" - ").next().unwrap_or_default().to_owned()),
        }
    }

    /// Converts the settings that the `redis` crate has parsed.
    pub(super) fn from_info(info: &ConnectionInfo) -> Result<Self, String> {
        let tcp = |host: &String, port: &u16| Address::Tcp { host: host.clone(), port: *port, tls: None };
        let (address, security) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => (tcp(host, port), Security::Plain),
            ConnectionAddr::TcpTls { insecure: true, .. } => return Err(UNVERIFIED.to_owned()),
            ConnectionAddr::TcpTls { tls_params: Some(_), .. } => {
                return Err("the certificates in a ConnectionInfo cannot be read; set them with `Node::tls`"
                    .to_owned());
            }
            ConnectionAddr::TcpTls { host, port, .. } => (tcp(host, port), Security::Tls),
            ConnectionAddr::Unix(path) => (Address::Unix(path.clone()), Security::Plain),
            _ => return Err("the address is of a kind that is not supported".to_owned()),
        };
        let redis = info.redis_settings();
        let login = Login {
            user: redis.username().map(str::to_owned),
            password: redis.password().map(str::to_owned),
            database: u64::try_from(redis.db())
                .map_err(|_| "the database number must not be negative".to_owned())?,
            protocol: match redis.protocol() {
                ProtocolVersion::RESP3 => Protocol::Resp3,
                _ => Protocol::Resp2,
            },
        };
        Ok(Self { address, security, login })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(user: Option<&str>, password: Option<&str>, database: u64, protocol: Protocol) -> Login {
        Login { user: user.map(str::to_owned), password: password.map(str::to_owned), database, protocol }
    }

    #[test]
    fn reads_what_people_write() {
        use Protocol::{Resp2, Resp3};
        let cases = [
            ("redis://localhost", "localhost:6379", Security::Plain, login(None, None, 0, Resp3)),
            ("redis://h?protocol=2", "h:6379", Security::Plain, login(None, None, 0, Resp2)),
            ("valkey://[::1]:7000/", "[::1]:7000", Security::Plain, login(None, None, 0, Resp3)),
            ("redis://:pw@h:1/3", "h:1", Security::Plain, login(None, Some("pw"), 3, Resp3)),
            (
                "redis://u:p%40%2F@h?protocol=resp3",
                "h:6379",
                Security::Plain,
                login(Some("u"), Some("p@/"), 0, Resp3),
            ),
            ("redis://u@h", "h:6379", Security::Plain, login(Some("u"), None, 0, Resp3)),
            ("rediss://u:pw@h:6380/2", "h:6380", Security::Tls, login(Some("u"), Some("pw"), 2, Resp3)),
            ("REDISS://h", "h:6379", Security::Tls, login(None, None, 0, Resp3)),
            ("valkeys://h?protocol=3", "h:6379", Security::Tls, login(None, None, 0, Resp3)),
            ("redis+unix:///a/b.sock", "/a/b.sock", Security::Plain, login(None, None, 0, Resp3)),
            (
                "unix:///a%20b?db=1&user=u&pass=p&protocol=resp3",
                "/a b",
                Security::Plain,
                login(Some("u"), Some("p"), 1, Resp3),
            ),
        ];
        for (url, shown, security, login) in cases {
            let location = Location::parse(url).unwrap_or_else(|why| panic!("{url}: {why}"));
            assert_eq!(location.address.to_string(), shown, "{url}");
            assert_eq!(location.security, security, "{url}");
            assert!(location.login == login, "{url}");
        }
    }

    /// Peers' bug 10: an invalid URL panics. Here it is an error, and the error does not quote the password.
    #[test]
    fn the_error_for_a_bad_url_does_not_quote_it() {
        let bad = [
            "",
            "hush",
            "hush:6379",
            "http://hush",
            "redis://",
            "redis://:hush@",
            "redis://h:hush",
            "redis://h/hush",
            "redis://h/-1",
            "redis://h:99999",
            "redis://0.0.0.0",
            "redis://:hush@h?protocol=hush",
            "redis://u:12?hush@h",
            "redis://u:12#hush@h",
            "redis://u:12/hush@h",
            "redis://h#insecure",
            "redis://h?db=1",
            "rediss://h#insecure",
            "rediss://h/#hush",
            "redis+unix://",
            "redis+unix://u:hush@/a.sock",
            "redis+unix:///a.sock?db=hush",
            "redis+unix:///a.sock?password=hush",
        ];
        for url in bad {
            let why = Location::parse(url).map(|location| location.address).expect_err(url);
            assert!(!why.is_empty() && !why.contains("hush"), "{url}: {why}");
        }
    }

    #[test]
    fn a_sentinel_url_names_the_remedy() {
        let schemes = ["redis-sentinel", "redis+sentinel", "rediss-sentinel", "sentinel", "REDIS-SENTINEL"];
        for scheme in schemes {
            let url = format!("{scheme}://:hush@one:26379,two:26379/0?master=orders");
            let why = Location::parse(&url).map(|location| location.address).expect_err("no server");
            assert!(why.contains("Node::sentinel(") && !why.contains("hush"), "{why}");
            assert_eq!(why.contains("feature `sentinel`"), cfg!(not(feature = "sentinel")), "{why}");
        }
        assert!(Location::parse("redis://sentinel-1:26379").is_ok(), "the name of a host");
    }

    #[test]
    fn unverified_certificates_are_refused() {
        for insecure in [true, false] {
            let address = ConnectionAddr::TcpTls { host: "h".into(), port: 6380, insecure, tls_params: None };
            let info = address.into_connection_info().expect("an address is enough");
            let read = Location::from_info(&info).map(|location| location.security);
            assert_eq!(read, if insecure { Err(UNVERIFIED.to_owned()) } else { Ok(Security::Tls) });
        }
    }
}
