//! For how long a lock may be believed.

use std::time::Duration;

/// How far the clocks of a client and a node may drift apart while a lock is held.
///
/// Only their rates matter, never what they show. The allowance is a share of the time to live and a
/// constant for their granularity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    share: f64,
    constant: Duration,
}

/// One percent and two milliseconds.
impl Default for Drift {
    fn default() -> Self {
        Self { share: 0.01, constant: Duration::from_millis(2) }
    }
}

impl Drift {
    /// An allowance; `None` unless the share is from 0 to 1.
    #[must_use]
    pub fn new(share: f64, constant: Duration) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self { share, constant })
    }

    /// What is left of a lock of `ttl`, `elapsed` after the moment before its request was sent.
    ///
    /// Nothing left is nothing held: the result is never negative and never wraps.
    #[must_use]
    pub fn validity(self, ttl: Duration, elapsed: Duration) -> Duration {
        let allowance = ttl.mul_f64(self.share).saturating_add(self.constant);
        ttl.saturating_sub(elapsed).saturating_sub(allowance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_and_drift_are_taken_off() {
        let ms = Duration::from_millis;
        let drift = Drift::default();
        assert_eq!(drift.validity(ms(10_000), ms(0)), ms(9_898));
        assert_eq!(drift.validity(ms(10_000), ms(3_000)), ms(6_898));
    }

    #[test]
    fn a_short_lock_does_not_underflow() {
        let ms = Duration::from_millis;
        for (ttl, elapsed) in [(0, 0), (1, 0), (2, 0), (500, 499), (500, 10_000)] {
            assert_eq!(
                Drift::default().validity(ms(ttl), ms(elapsed)),
                Duration::ZERO,
                "{ttl} after {elapsed}"
            );
        }
    }

    #[test]
    fn a_share_is_a_share() {
        for share in [-0.01, 1.01, f64::NAN] {
            assert_eq!(Drift::new(share, Duration::ZERO), None);
        }
    }
}
