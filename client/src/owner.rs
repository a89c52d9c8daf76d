//! The secret that identifies one holder of a lock.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;

/// A secret value that identifies one holder. Every attempt to acquire a lock gets a new one.
///
/// A client that knows the owner can extend and release the lock, so `Debug` never prints it.
/// [`Owner::expose`] returns it on purpose, for a lock that another process releases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Owner([u8; 16]);

impl Owner {
    /// Returns 16 bytes, 122 bits of them random.
    pub(crate) fn random() -> Self {
        Self(Uuid::new_v4().into_bytes())
    }

    /// Returns the secret as text: 32 hexadecimal digits, which [`FromStr`] reads.
    #[must_use]
    pub fn expose(&self) -> String {
        Uuid::from_bytes(self.0).simple().to_string()
    }

    /// Returns the secret as the nodes get it: the 16 bytes of `owner` in `REDLOCK.ACQUIRE key owner …`.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Reads the text that [`Owner::expose`] returns. Rejects every other spelling, such as upper case.
    fn parse(text: &str) -> Option<Self> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return None;
        }
        Uuid::try_parse(text).ok().map(|uuid| Self(uuid.into_bytes()))
    }
}

/// Reads the text that [`Owner::expose`] returns. The error does not quote the text.
impl FromStr for Owner {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::invalid("an owner must be 32 lower-case hexadecimal digits"))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(secret)")
    }
}

/// Returns a unique channel name: 16 random hexadecimal digits.
pub(crate) fn channel() -> [u8; 16] {
    let mut name = [0; 16];
    for (place, digit) in name.iter_mut().zip(Owner::random().expose().bytes()) {
        *place = digit;
    }
    name
}

/// Returns a random number for jitter. No secret depends on it.
pub(crate) fn random() -> u64 {
    Uuid::new_v4().as_u64_pair().0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_one_is_new_and_none_is_printed() {
        let (one, other) = (Owner::random(), Owner::random());
        assert_ne!(one, other);
        assert_eq!(one.expose().len(), 32);
        assert!(!format!("{one:?}").contains(&one.expose()));
    }

    #[test]
    fn only_an_exposed_owner_can_be_parsed() {
        let owner = Owner::random();
        assert_eq!(owner.expose().parse::<Owner>().ok(), Some(owner));
        let exposed = owner.expose();
        let upper = exposed.to_uppercase().replace(|c: char| c.is_ascii_digit(), "A");
        for text in ["", "hush", &exposed[1..], &format!("{exposed}0"), &"G".repeat(32), &upper] {
            let error = text.parse::<Owner>().expect_err("no owner").to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
