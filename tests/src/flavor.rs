//! Redis or Valkey, and which version: some interfaces exist only in one of them, or since a release.

use std::fmt;

/// Redis or Valkey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brand {
    /// Redis, by Redis Ltd.
    Redis,
    /// Valkey, of the Linux Foundation. Its versions continue from Redis 7.2.
    Valkey,
}

/// The brand and version of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flavor {
    /// Redis or Valkey.
    pub brand: Brand,
    /// Major, minor and patch version of the brand.
    pub version: (u32, u32, u32),
}

impl Flavor {
    /// Whether the server has at least this version of its brand.
    ///
    /// One comparison works for both brands, because Valkey's versions continue from Redis 7.2.
    #[must_use]
    pub fn at_least(&self, major: u32, minor: u32) -> bool {
        (self.version.0, self.version.1) >= (major, minor)
    }

    /// Reads the reply to `INFO server`.
    pub(crate) fn from_info(info: &str) -> Option<Self> {
        let field = |name: &str| {
            info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
        };
        let (brand, text) = match field("valkey_version") {
            Some(text) => (Brand::Valkey, text),
            None => (Brand::Redis, field("redis_version")?),
        };
        let mut parts = text.split('.').map(str::parse);
        let mut next = || parts.next()?.ok();
        Some(Self { brand, version: (next()?, next()?, next().unwrap_or(0)) })
    }
}

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor, patch) = self.version;
        write!(f, "{:?} {major}.{minor}.{patch}", self.brand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valkey_is_recognized_by_its_version_field() {
        let info = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        let flavor = Flavor::from_info(info).expect("a version");
        assert_eq!(flavor, Flavor { brand: Brand::Valkey, version: (9, 1, 2) });
        assert!(flavor.at_least(7, 4));
    }

    #[test]
    fn a_server_without_a_valkey_version_is_redis() {
        let flavor = Flavor::from_info("redis_version:7.0.15\r\n").expect("a version");
        assert_eq!(flavor.to_string(), "Redis 7.0.15");
        assert!(!flavor.at_least(7, 2));
    }
}
