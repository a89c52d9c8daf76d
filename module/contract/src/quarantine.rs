//! The error reply of a node in quarantine. It contains the time that is left.

use crate::ErrorCode;
use std::fmt;

/// `REDLOCKQUARANTINE <left-ms> …`: the node may have forgotten locks, and grants nothing until the time is
/// over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// Time until the node grants again, in milliseconds.
    pub left_ms: u64,
}

impl Quarantine {
    /// Parses the error reply; `None` for any other error.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let mut words = message.split(|byte| *byte == b' ');
        if words.next()? != ErrorCode::Quarantine.word().as_bytes() {
            return None;
        }
        let left_ms = std::str::from_utf8(words.next()?).ok()?.parse().ok()?;
        Some(Self { left_ms })
    }
}

impl fmt::Display for Quarantine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { left_ms } = self;
        let code = ErrorCode::Quarantine.word();
        write!(
            f,
            "{code} {left_ms} ms left: this node may have forgotten locks and grants none until this time is over; ask the other nodes"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parse_reads_what_display_writes(left_ms: u64) {
            let quarantine = Quarantine { left_ms };
            prop_assert_eq!(Quarantine::parse(quarantine.to_string().as_bytes()), Some(quarantine));
        }

        #[test]
        fn other_bytes_are_no_quarantine_and_no_panic(message: Vec<u8>) {
            prop_assert_eq!(Quarantine::parse(&message), None);
        }
    }

    #[test]
    fn an_error_without_a_time_is_not_read() {
        for message in ["REDLOCKQUARANTINE", "REDLOCKQUARANTINE ", "REDLOCKQUARANTINE soon", "REDLOCKARG 7"] {
            assert_eq!(Quarantine::parse(message.as_bytes()), None, "{message}");
        }
    }
}
