//! The parts of a request. A value that exists is a legal one.

use crate::fault::Fault;
use redlock_contract::limits::{
    MAX_CHANNEL_BYTES, MAX_CLAIM_MS, MAX_FENCE, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_WAIT_MS,
};

/// The wish to wait for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait<'a> {
    /// The place in the order: the smallest is first.
    pub ticket: u64,
    /// For how long.
    pub wait_ms: u64,
    /// Where the grant is to be announced.
    pub channel: &'a [u8],
    /// What the announcement is to repeat.
    pub stamp: Option<u64>,
    /// The least time to claim what is handed over; 0 for no wish.
    pub claim_ms: u64,
}

impl<'a> Wait<'a> {
    /// Reads the three words of `WAIT`.
    ///
    /// # Errors
    /// [`Fault::Arg`] for a word that is not allowed.
    pub fn parse(ticket: &[u8], wait_ms: &[u8], channel: &'a [u8]) -> Result<Self, Fault> {
        let ticket = integer(ticket)
            .filter(|ticket| (1..=MAX_FENCE).contains(ticket))
            .ok_or(Fault::range("the ticket of WAIT", 1, MAX_FENCE))?;
        let wait_ms = integer(wait_ms)
            .filter(|wait_ms| (1..=MAX_WAIT_MS).contains(wait_ms))
            .ok_or(Fault::range("the wait-ms of WAIT", 1, MAX_WAIT_MS))?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=MAX_CHANNEL_BYTES).contains(&channel.len()) || !channel.iter().all(is_plain) {
            return Err(Fault::Channel);
        }
        Ok(Self { ticket, wait_ms, channel, stamp: None, claim_ms: 0 })
    }
}

/// Reads a stamp, a number that is repeated to its sender.
///
/// # Errors
/// [`Fault::Range`] for anything but an integer from 0 to [`MAX_FENCE`].
pub fn stamp(text: &[u8]) -> Result<u64, Fault> {
    integer(text).filter(|stamp| *stamp <= MAX_FENCE).ok_or(Fault::range("STAMP", 0, MAX_FENCE))
}

/// Reads how long a waiter needs to claim what it is given.
///
/// # Errors
/// [`Fault::Range`] for anything but an integer from 1 to [`MAX_CLAIM_MS`].
pub fn claim_ms(text: &[u8]) -> Result<u64, Fault> {
    integer(text).filter(|claim_ms| (1..=MAX_CLAIM_MS).contains(claim_ms)).ok_or(Fault::range(
        "CLAIM claim-ms",
        1,
        MAX_CLAIM_MS,
    ))
}

/// A time to live in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ttl(u64);

impl Ttl {
    /// Reads a time to live of at most `max_ms`.
    ///
    /// # Errors
    /// [`Fault::Ttl`] for anything but an integer from 1 to `max_ms`.
    pub fn parse(text: &[u8], max_ms: u64) -> Result<Self, Fault> {
        integer(text).filter(|ttl| (1..=max_ms).contains(ttl)).map(Self).ok_or(Fault::Ttl { max_ms })
    }

    /// A time that was found legal before.
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

/// The secret that proves who holds a lock.
#[derive(Clone, Copy)]
pub struct Owner<'a>(&'a [u8]);

impl<'a> Owner<'a> {
    /// Reads an owner.
    ///
    /// # Errors
    /// [`Fault::Owner`] for an empty or too long one.
    pub fn parse(text: &'a [u8]) -> Result<Self, Fault> {
        if (1..=MAX_OWNER_BYTES).contains(&text.len()) { Ok(Self(text)) } else { Err(Fault::Owner) }
    }

    /// The owner as its holder sends it: any bytes.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// An owner is a secret: it is never printed.
impl std::fmt::Debug for Owner<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Owner({} bytes)", self.0.len())
    }
}

/// Reads a label, a text for people.
///
/// # Errors
/// [`Fault::Label`] for one that is too long.
pub fn label(text: &[u8]) -> Result<&[u8], Fault> {
    if text.len() <= MAX_LABEL_BYTES { Ok(text) } else { Err(Fault::Label) }
}

/// Reads a floor, the number that a fence should at least have.
///
/// # Errors
/// [`Fault::Range`] for anything but an integer from 0 to [`MAX_FENCE`].
pub fn floor(text: &[u8]) -> Result<u64, Fault> {
    integer(text).filter(|floor| *floor <= MAX_FENCE).ok_or(Fault::range("FENCE", 0, MAX_FENCE))
}

/// A decimal integer in its one spelling: no sign, no blanks, no leading zeros.
#[must_use]
pub fn integer(text: &[u8]) -> Option<u64> {
    match text {
        [b'0'] => Some(0),
        [b'1'..=b'9', ..] => {
            // Nineteen digits always fit; the twentieth and what follows are looked at one by one.
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
        let fault = Err(Fault::Ttl { max_ms: 1_000 });
        assert_eq!(Ttl::parse(b"1", 1_000), Ok(Ttl(1)));
        assert_eq!(Ttl::parse(b"1000", 1_000), Ok(Ttl(1_000)));
        for text in ["0", "1001", "-1", "x", "", "99999999999999999999999"] {
            assert_eq!(Ttl::parse(text.as_bytes(), 1_000), fault, "{text}");
        }
    }

    #[test]
    fn an_owner_is_not_printed() {
        let owner = Owner::parse(b"secret").unwrap();
        assert_eq!(format!("{owner:?}"), "Owner(6 bytes)");
        assert_eq!(Owner::parse(b"").unwrap_err(), Fault::Owner);
        assert_eq!(Owner::parse(&[0; 257]).unwrap_err(), Fault::Owner);
        assert!(Owner::parse(&[0; 256]).is_ok());
    }
}
