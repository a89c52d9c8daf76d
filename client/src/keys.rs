//! The keys of one lock: one resource, or several.

use redlock_contract::limits::MAX_KEYS;
use std::fmt;

/// The largest key, in bytes. All callers share a connection, so one long key would delay the others.
const LONGEST_KEY: usize = 64 * 1024;

/// The largest total size of the keys of one lock, in bytes, for the same reason.
const LONGEST_KEYS: usize = 1024 * 1024;

/// The keys of one lock, sorted and without duplicates.
///
/// Each resource is a separate key, so that two different sets of resources never have the same keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    prefix_len: usize,
    names: KeyNames,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyNames {
    One(Box<[u8]>),
    Many(Vec<Box<[u8]>>),
}

impl Keys {
    /// The key of one resource.
    pub(crate) fn one(prefix: &[u8], resource: &[u8]) -> Result<Self, String> {
        Ok(Self { prefix_len: prefix.len(), names: KeyNames::One(key(prefix, resource)?) })
    }

    /// The keys of several resources, given in any order. Every client requests them in the same order, so
    /// that clients cannot deadlock.
    pub(crate) fn many<R: AsRef<[u8]>>(
        prefix: &[u8],
        resources: impl IntoIterator<Item = R>,
    ) -> Result<Self, String> {
        let keys: Result<Vec<Box<[u8]>>, String> =
            resources.into_iter().map(|resource| key(prefix, resource.as_ref())).collect();
        let mut keys = keys?;
        keys.sort_unstable();
        keys.dedup();
        let bytes: usize = keys.iter().map(|key| key.len()).sum();
        if bytes > LONGEST_KEYS {
            return Err(format!("the keys have {bytes} bytes in total; the limit is {LONGEST_KEYS}"));
        }
        match keys.len() {
            0 => Err("no resource was given".into()),
            1 => Ok(Self { prefix_len: prefix.len(), names: KeyNames::One(keys.swap_remove(0)) }),
            2..=MAX_KEYS => Ok(Self { prefix_len: prefix.len(), names: KeyNames::Many(keys) }),
            count => Err(format!("{count} resources were given; the limit is {MAX_KEYS}")),
        }
    }

    /// Keys as stored on the nodes. If all of them start with the prefix, `Display` hides it. For display
    /// only: the keys are not checked.
    pub(crate) fn of_names(prefix: &[u8], keys: &[Vec<u8>]) -> Self {
        let is_ours = keys.iter().all(|key| key.starts_with(prefix));
        let keys = keys.iter().map(|key| key.clone().into_boxed_slice()).collect();
        Self { prefix_len: if is_ours { prefix.len() } else { 0 }, names: KeyNames::Many(keys) }
    }

    /// The keys as stored on the nodes.
    pub(crate) fn names(&self) -> &[Box<[u8]>] {
        match &self.names {
            KeyNames::One(key) => std::slice::from_ref(key),
            KeyNames::Many(keys) => keys,
        }
    }

    /// The resources as the caller named them, without the prefix.
    pub(crate) fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.names().iter().map(|key| key.get(self.prefix_len..).unwrap_or_default())
    }
}

fn key(prefix: &[u8], resource: &[u8]) -> Result<Box<[u8]>, String> {
    if resource.is_empty() {
        return Err("a resource must have a name".into());
    }
    if prefix.len() + resource.len() > LONGEST_KEY {
        return Err(format!("the key of a resource is longer than {LONGEST_KEY} bytes"));
    }
    Ok([prefix, resource].concat().into())
}

/// For people: escapes the bytes of a name that are not printable ASCII.
impl fmt::Display for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, resource) in self.resources().enumerate() {
            let gap = if place == 0 { "" } else { ", " };
            write!(f, "{gap}{}", resource.escape_ascii())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lock_does_not_take_up_the_connection() {
        let long = |count: usize| (0..count).map(|key| format!("{key:05}{}", "x".repeat(60_000)));
        assert!(Keys::many(b"", long(10)).is_ok());
        assert!(Keys::many(b"", long(20)).is_err());
        assert!(Keys::many(b"", (0..MAX_KEYS).map(|key| key.to_string())).is_ok());
    }

    #[test]
    fn resources_that_read_alike_when_joined_stay_apart() {
        let one = Keys::many(b"", ["ab", "c"]).unwrap();
        let other = Keys::many(b"", ["a", "bc"]).unwrap();
        assert_ne!(one.names(), other.names());
    }

    #[test]
    fn order_and_repetition_do_not_matter() {
        let one = Keys::many(b"app:", ["b", "a", "b"]).unwrap();
        assert_eq!(one.names(), [Box::from(*b"app:a"), Box::from(*b"app:b")]);
        assert_eq!(one, Keys::many(b"app:", ["a", "b"]).unwrap());
        assert_eq!(one.to_string(), "a, b");
    }

    #[test]
    fn a_set_of_one_is_one() {
        assert_eq!(Keys::many(b"", ["a", "a"]).unwrap(), Keys::one(b"", b"a").unwrap());
    }

    #[test]
    fn nothing_and_too_much_are_refused() {
        assert!(Keys::one(b"app:", b"").is_err());
        assert!(Keys::many(b"", [""; 1]).is_err());
        assert!(Keys::one(b"", &vec![b'x'; LONGEST_KEY]).is_ok());
        assert!(Keys::one(b"app:", &vec![b'x'; LONGEST_KEY]).is_err());
        assert!(Keys::many::<&str>(b"", []).is_err());
        assert!(Keys::many(b"", (0..=MAX_KEYS).map(|key| key.to_string())).is_err());
    }
}
