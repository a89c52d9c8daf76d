//! Redis or Valkey, and which version: some interfaces exist on one side or from one release on.

use std::fmt;

/// Who made the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Brand {
    /// Redis, by Redis Ltd.
    Redis,
    /// Valkey, of the Linux Foundation. Its numbers go on from Redis 7.2.
    Valkey,
}

/// The kind of server a test found itself on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flavor {
    /// Redis or Valkey.
    pub brand: Brand,
    /// Major, minor and patch of that brand's own numbering.
    pub version: (u32, u32, u32),
}

impl Flavor {
    /// Whether the server is of this release or a later one, in its own brand's numbers.
    ///
    /// One comparison serves both brands, since Valkey counted on from 7.2 where the two parted.
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
    fn valkey_is_known_by_its_own_version() {
        let info = "# Server\r\nredis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\n";
        let flavor = Flavor::from_info(info).expect("a version");
        assert_eq!(flavor, Flavor { brand: Brand::Valkey, version: (9, 1, 2) });
        assert!(flavor.at_least(7, 4));
    }

    #[test]
    fn redis_is_the_rest() {
        let flavor = Flavor::from_info("redis_version:7.0.15\r\n").expect("a version");
        assert_eq!(flavor.to_string(), "Redis 7.0.15");
        assert!(!flavor.at_least(7, 2));
    }
}
