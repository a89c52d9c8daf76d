//! When a holder extends the lock, and when it must take the lock for lost.

use crate::Moment;
use std::time::Duration;

/// How long before the end of validity the holder is notified of the loss: long enough for a late timer and
/// for a task that must stop, and a small share of the lease.
///
/// The notice is a fiftieth of the lease, from 2 ms to 250 ms, and at most a quarter of a very short lease.
#[must_use]
pub fn notice(lease: Duration) -> Duration {
    (lease / 50).clamp(Duration::from_millis(2), Duration::from_millis(250)).min(lease / 4)
}

/// Extends a lock in time until a given moment, and then stops for good.
#[derive(Clone, Copy, Debug)]
pub struct KeepAlive {
    lease: Duration,
    ends: Moment,
}

/// The next step of a [`KeepAlive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextExtension {
    /// Extend the lock after this time.
    ExtendIn(Duration),
    /// Do not extend the lock again: it expires by itself.
    Stop,
}

impl KeepAlive {
    /// Creates a keep-alive for a lock of this lease, until `ends`.
    #[must_use]
    pub fn new(lease: Duration, ends: Moment) -> Self {
        Self { lease, ends }
    }

    /// The step after an acquire or a successful extension: extend when a third of the lease is gone, so that
    /// two thirds are left for nodes that are slow, fail, or come back.
    ///
    /// The keep-alive stops once the lock lasts beyond `ends` without another extension.
    #[must_use]
    pub fn after_success(&self, valid_until: Moment, now: Moment) -> NextExtension {
        if valid_until.has_reached(self.ends) {
            return NextExtension::Stop;
        }
        NextExtension::ExtendIn(now.until(valid_until).saturating_sub(self.lease * 2 / 3))
    }

    /// The step after a failed extension: extend again soon, and sooner as the end of validity comes near.
    #[must_use]
    pub fn after_failure(&self, valid_until: Moment, now: Moment) -> NextExtension {
        let left = now.until(valid_until);
        if left.is_zero() || now.has_reached(self.ends) {
            return NextExtension::Stop;
        }
        NextExtension::ExtendIn((left / 8).max(Duration::from_millis(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::on_one_clock(ms * 1_000_000)
    }

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_notice_is_a_small_share_of_the_lease() {
        for (lease, expected) in [(30_000, 250), (10_000, 200), (1_000, 20), (50, 2), (4, 1)] {
            assert_eq!(notice(ms(lease)), ms(expected), "{lease} ms");
        }
        assert_eq!(notice(Duration::ZERO), Duration::ZERO);
    }

    #[test]
    fn a_lock_is_extended_when_a_third_of_the_lease_is_gone() {
        let keep = KeepAlive::new(ms(900), at(100_000));
        assert_eq!(keep.after_success(at(900), at(0)), NextExtension::ExtendIn(ms(300)));
        assert_eq!(keep.after_success(at(900), at(250)), NextExtension::ExtendIn(ms(50)));
        assert_eq!(keep.after_success(at(900), at(800)), NextExtension::ExtendIn(Duration::ZERO));
    }

    #[test]
    fn extending_stops_at_the_end_of_the_keep_alive() {
        let keep = KeepAlive::new(ms(900), at(2_000));
        assert_ne!(keep.after_success(at(1_900), at(1_000)), NextExtension::Stop);
        assert_eq!(keep.after_success(at(2_000), at(1_100)), NextExtension::Stop);
        assert_eq!(keep.after_failure(at(2_500), at(2_000)), NextExtension::Stop);
    }

    #[test]
    fn a_failed_extension_is_repeated_sooner_as_the_end_comes_near() {
        let keep = KeepAlive::new(ms(900), at(100_000));
        assert_eq!(keep.after_failure(at(900), at(100)), NextExtension::ExtendIn(ms(100)));
        assert_eq!(
            keep.after_failure(at(900), at(880)),
            NextExtension::ExtendIn(Duration::from_micros(2_500))
        );
        assert_eq!(keep.after_failure(at(900), at(899)), NextExtension::ExtendIn(ms(1)));
        assert_eq!(keep.after_failure(at(900), at(900)), NextExtension::Stop);
    }
}
