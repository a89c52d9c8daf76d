//! The secret that proves who holds a lock.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use uuid::Uuid;
use uuid::fmt::Simple;

/// An unguessable value, new for every attempt to take a lock.
///
/// Whoever knows it can extend and free the lock: it is never printed. [`Owner::expose`] hands it out on
/// purpose, for a lock that another process shall free.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Owner([u8; Simple::LENGTH]);

impl Owner {
    /// 122 random bits, as 32 hexadecimal digits.
    pub(crate) fn random() -> Self {
        let mut text = [0; Simple::LENGTH];
        Uuid::new_v4().simple().encode_lower(&mut text);
        Self(text)
    }

    /// The value itself, as it stands in `REDLOCK.ACQUIRE key owner …`.
    #[must_use]
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// As [`Owner::expose`] gave it out.
    fn parse(text: &str) -> Option<Self> {
        let digits = <[u8; Simple::LENGTH]>::try_from(text.as_bytes()).ok()?;
        digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')).then_some(Self(digits))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads what [`Owner::expose`] gave out. The error does not quote it.
impl FromStr for Owner {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::parse(text).ok_or_else(|| Error::invalid("an owner is 32 hexadecimal digits"))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(secret)")
    }
}

/// The name of a channel that nobody else has: 16 hexadecimal digits.
pub(crate) fn channel() -> [u8; 16] {
    let mut name = [0; 16];
    for (place, digit) in name.iter_mut().zip(Owner::random().0) {
        *place = digit;
    }
    name
}

/// A random number for jitter; nothing secret depends on it.
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
        assert!(!format!("{one:?}").contains(one.expose()));
    }

    #[test]
    fn what_was_given_out_is_read_again_and_nothing_else() {
        let owner = Owner::random();
        assert_eq!(owner.expose().parse::<Owner>().ok(), Some(owner));
        let short = &owner.expose()[1..];
        for text in ["", "hush", short, &format!("{owner}0", owner = owner.expose()), &"G".repeat(32)] {
            let error = text.parse::<Owner>().expect_err("no owner").to_string();
            assert!(text.is_empty() || !error.contains(text), "{error}");
        }
    }
}
