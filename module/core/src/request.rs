//! The parts of a request. Each type is validated when it is parsed.

use crate::command_error::{ArgProblem, CommandError};
use redlock_contract::limits::{
    MAX_CHANNEL_BYTES, MAX_CLAIM_MS, MAX_FENCE, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_WAIT_MS,
};

/// The `WAIT` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitArg<'a> {
    /// Order of the waiter in the queue: the smallest ticket is first.
    pub ticket: u64,
    /// How long the request waits, in ms.
    pub wait_ms: u64,
    /// Channel of the grant push, without the prefix.
    pub channel: &'a [u8],
    /// Number that the push repeats.
    pub stamp: Option<u64>,
    /// Smallest claim window that the client needs, in ms; 0 for any.
    pub claim_ms: u64,
    /// The position of `WAIT` in the command.
    pub position: usize,
}

/// Parses the ticket of `WAIT`.
///
/// # Errors
/// [`ArgProblem::Range`] for anything but an integer from 1 to [`MAX_FENCE`].
pub fn ticket(text: &[u8]) -> Result<u64, ArgProblem> {
    integer_in(text, 1, MAX_FENCE)
}

/// Parses how long a request waits, in ms.
///
/// # Errors
/// [`ArgProblem::Range`] for anything but an integer from 1 to [`MAX_WAIT_MS`].
pub fn wait_ms(text: &[u8]) -> Result<u64, ArgProblem> {
    integer_in(text, 1, MAX_WAIT_MS)
}

/// Parses the channel of `WAIT`.
///
/// # Errors
/// [`ArgProblem::Channel`] for a channel that is empty, too long, or has other characters than letters,
/// digits, - and _.
pub fn channel(text: &[u8]) -> Result<&[u8], ArgProblem> {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_valid = (1..=MAX_CHANNEL_BYTES).contains(&text.len()) && text.iter().all(is_plain);
    if is_valid { Ok(text) } else { Err(ArgProblem::Channel) }
}

/// Parses a stamp: a number that the push repeats.
///
/// # Errors
/// [`ArgProblem::Range`] for anything but an integer from 0 to [`MAX_FENCE`].
pub fn stamp(text: &[u8]) -> Result<u64, ArgProblem> {
    integer_in(text, 0, MAX_FENCE)
}

/// Parses the smallest claim window that a waiter needs, in ms.
///
/// # Errors
/// [`ArgProblem::Range`] for anything but an integer from 1 to [`MAX_CLAIM_MS`].
pub fn claim_ms(text: &[u8]) -> Result<u64, ArgProblem> {
    integer_in(text, 1, MAX_CLAIM_MS)
}

/// A time to live in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(u64);

impl Ttl {
    /// Parses a time to live of at most `max_ms`.
    ///
    /// # Errors
    /// [`CommandError::Ttl`] for anything but an integer from 1 to `max_ms`.
    pub fn parse(text: &[u8], max_ms: u64) -> Result<Self, CommandError> {
        integer(text).filter(|ttl| (1..=max_ms).contains(ttl)).map(Self).ok_or(CommandError::Ttl { max_ms })
    }

    /// A time to live in ms that was validated before.
    #[must_use]
    pub(crate) fn of(ms: u64) -> Self {
        Self(ms.max(1))
    }

    /// The time in milliseconds.
    #[must_use]
    pub fn ms(self) -> u64 {
        self.0
    }
}

/// The secret that identifies one holder of a lock.
#[derive(Clone, Copy)]
pub struct OwnerArg<'a>(&'a [u8]);

impl<'a> OwnerArg<'a> {
    /// Parses an owner.
    ///
    /// # Errors
    /// [`CommandError::Owner`] if the owner is empty or too long.
    pub fn parse(text: &'a [u8]) -> Result<Self, CommandError> {
        if (1..=MAX_OWNER_BYTES).contains(&text.len()) { Ok(Self(text)) } else { Err(CommandError::Owner) }
    }

    /// The owner as the client sent it: any bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// Shows the length only: an owner is a secret.
impl std::fmt::Debug for OwnerArg<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owner({} bytes)", self.0.len())
    }
}

/// Parses a label: a text for people.
///
/// # Errors
/// [`ArgProblem::Label`] if the label is too long.
pub fn label(text: &[u8]) -> Result<&[u8], ArgProblem> {
    if text.len() <= MAX_LABEL_BYTES { Ok(text) } else { Err(ArgProblem::Label) }
}

/// Parses a floor: the smallest fence that the client accepts.
///
/// # Errors
/// [`ArgProblem::Range`] for anything but an integer from 0 to [`MAX_FENCE`].
pub fn floor(text: &[u8]) -> Result<u64, ArgProblem> {
    integer_in(text, 0, MAX_FENCE)
}

/// Parses a decimal integer from `min` to `max`.
///
/// # Errors
/// [`ArgProblem::Range`] for anything else.
pub fn integer_in(text: &[u8], min: u64, max: u64) -> Result<u64, ArgProblem> {
    integer(text).filter(|number| (min..=max).contains(number)).ok_or(ArgProblem::Range { min, max })
}

/// Parses a decimal integer. Each number has one spelling: no sign, no blanks, no leading zeros.
#[must_use]
pub fn integer(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => {
            // Nineteen digits always fit into 64 bits. The code checks the following digits one by one.
            let (plain, rest) = text.split_at(text.len().min(19));
            let mut are_digits = true;
            let sum = plain.iter().map(|digit| digit.wrapping_sub(b'0')).fold(0_u64, |sum, digit| {
                are_digits &= digit < 10;
                sum.wrapping_mul(10).wrapping_add(u64::from(digit))
            });
            let append = |sum: u64, digit: &u8| {
                let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
                sum.checked_mul(10)?.checked_add(u64::from(digit))
            };
            if are_digits { rest.iter().try_fold(sum, append) } else { None }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_have_one_spelling() {
        for (text, value) in [
            ("0", Some(0)),
            ("1", Some(1)),
            ("30000", Some(30_000)),
            ("18446744073709551615", Some(u64::MAX)),
        ] {
            assert_eq!(integer(text.as_bytes()), value, "{text}");
        }
        for text in
            ["", " 1", "1 ", "+1", "-1", "01", "00", "1.5", "1e3", "0x10", "18446744073709551616", "٣", "1\0"]
        {
            assert_eq!(integer(text.as_bytes()), None, "{text:?}");
        }
    }

    #[test]
    fn a_ttl_is_never_adjusted() {
        let fault = Err(CommandError::Ttl { max_ms: 1_000 });
        assert_eq!(Ttl::parse(b"1", 1_000), Ok(Ttl(1)));
        assert_eq!(Ttl::parse(b"1000", 1_000), Ok(Ttl(1_000)));
        for text in ["0", "1001", "-1", "x", "", "99999999999999999999999"] {
            assert_eq!(Ttl::parse(text.as_bytes(), 1_000), fault, "{text}");
        }
    }

    #[test]
    fn an_owner_is_not_printed() {
        let owner = OwnerArg::parse(b"secret").unwrap();
        assert_eq!(format!("{owner:?}"), "Owner(6 bytes)");
        assert_eq!(OwnerArg::parse(b"").unwrap_err(), CommandError::Owner);
        assert_eq!(OwnerArg::parse(&[0; 257]).unwrap_err(), CommandError::Owner);
        assert!(OwnerArg::parse(&[0; 256]).is_ok());
    }
}
