//! How long a client may rely on a lock.

use redlock_contract::drift;
use std::time::Duration;

/// The allowance for the clocks of a client and a node, which may drift apart while a lock is held.
///
/// Only the rates of the clocks matter, never the time that they show. The allowance is a share of the time
/// to live and a constant for the granularity of the clocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    share: f64,
    constant: Duration,
}

/// The allowance that nodes make, too: see [`redlock_contract::drift`].
impl Default for Drift {
    fn default() -> Self {
        Self { share: drift::PER_CENT as f64 / 100.0, constant: Duration::from_millis(drift::CONSTANT_MS) }
    }
}

impl Drift {
    /// Creates an allowance; `None` unless the share is from 0 to 1.
    #[must_use]
    pub fn new(share: f64, constant: Duration) -> Option<Self> {
        (0.0..=1.0).contains(&share).then_some(Self { share, constant })
    }

    /// How long a client may rely on a lock of `ttl`, counted from the moment before it sent the request.
    ///
    /// Zero if the allowance is longer than `ttl`: the lock is then never held.
    #[must_use]
    pub fn lease(self, ttl: Duration) -> Duration {
        let allowance = ttl.mul_f64(self.share).saturating_add(self.constant);
        ttl.saturating_sub(allowance)
    }
}

impl Drift {
    /// The shortest time that can have passed on the client's clock while this time passed on a node's clock.
    #[must_use]
    pub fn at_least(self, on_the_node: Duration) -> Duration {
        on_the_node.saturating_sub(on_the_node.mul_f64(self.share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_shorter_than_its_time_to_live_by_the_drift() {
        let ms = Duration::from_millis;
        assert_eq!(Drift::default().lease(ms(10_000)), ms(9_898));
        let wide = Drift::new(0.2, ms(10)).unwrap();
        assert_eq!(wide.lease(ms(1_000)), ms(790));
    }

    #[test]
    fn a_short_lock_does_not_underflow() {
        for ttl_ms in [0, 1, 2] {
            assert_eq!(Drift::default().lease(Duration::from_millis(ttl_ms)), Duration::ZERO, "{ttl_ms} ms");
        }
    }

    #[test]
    fn a_share_is_between_0_and_1() {
        for share in [-0.01, 1.01, f64::NAN] {
            assert_eq!(Drift::new(share, Duration::ZERO), None);
        }
    }
}
