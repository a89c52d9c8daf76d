//! The clocks of a node.
//!
//! A lock may end late, never early. So every rule here rounds towards a longer lock, and no rule uses the wall clock.

/// A point in time on the node's own clock, in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// The first time of a node's clock. It is not zero, so a loaded lock can have a grant time before the start.
    pub const START: Self = Self(366 * 24 * 3_600 * 1_000);

    /// When a lock that is granted now for `ttl_ms` expires.
    ///
    /// One millisecond is added because `self` has lost its fraction of a millisecond: without it a lock could end up
    /// to a millisecond before its time.
    #[must_use]
    pub fn deadline_after(self, ttl_ms: u64) -> Self {
        Self(self.0.saturating_add(ttl_ms).saturating_add(1))
    }

    /// The time left until a deadline, in milliseconds, as replies show it: a lock just granted for 30,000 ms shows
    /// 30,000.
    #[must_use]
    pub fn left_until(self, deadline: Self) -> u64 {
        deadline.0.saturating_sub(1).saturating_sub(self.0)
    }

    /// The time since `earlier`, in milliseconds; 0 if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The clock of a node.
///
/// The methods differ only where a clock is expensive or inexact. Each errs towards a longer lock.
pub trait NodeClock {
    /// A time that is not earlier than the present: new deadlines count from it.
    fn latest(&mut self) -> Millis;
    /// A time that is not later than the present: only this time can prove that a deadline has passed.
    fn proven(&mut self) -> Millis;
    /// Whether a deadline has passed for certain. Most deadlines are far away, which a cheap clock can show.
    fn has_passed(&mut self, deadline: Millis) -> bool {
        deadline <= self.proven()
    }
}

/// Virtual time is exact.
impl NodeClock for Millis {
    fn latest(&mut self) -> Millis {
        *self
    }

    fn proven(&mut self) -> Millis {
        *self
    }
}

/// Two monotonic clocks read as one that is never faster than either.
///
/// A time daemon may slew `CLOCK_MONOTONIC` by several percent; `CLOCK_MONOTONIC_RAW` follows the crystal alone.
/// Between two samples this clock advances by the smaller of both increments. So when it has passed a deadline, both
/// clocks have counted at least that long.
#[derive(Clone, Copy, Debug)]
pub struct SlowClock {
    mono_us: u64,
    raw_us: u64,
    slow_us: u64,
}

impl SlowClock {
    /// A clock at [`Millis::START`].
    #[must_use]
    pub fn starting_at(mono_us: u64, raw_us: u64) -> Self {
        Self { mono_us, raw_us, slow_us: Millis::START.0 * 1_000 }
    }

    /// Takes a reading of both clocks and returns the proven time.
    pub fn sample(&mut self, mono_us: u64, raw_us: u64) -> Millis {
        let step = mono_us.saturating_sub(self.mono_us).min(raw_us.saturating_sub(self.raw_us));
        self.mono_us = self.mono_us.max(mono_us);
        self.raw_us = self.raw_us.max(raw_us);
        self.slow_us += step;
        Millis(self.slow_us / 1_000)
    }

    /// An upper bound of the present from one clock alone.
    ///
    /// This saves the second reading on the hot path. It is ahead of [`sample`](Self::sample) at most by the drift
    /// between the two clocks since the last sample.
    #[must_use]
    pub fn at_most(&self, mono_us: u64) -> Millis {
        Millis((self.slow_us + mono_us.saturating_sub(self.mono_us)) / 1_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_adds_the_lost_fraction_of_a_millisecond() {
        let granted = Millis(10);
        let deadline = granted.deadline_after(5);
        assert_eq!(deadline, Millis(16), "10.9 ms + 5 ms is 15.9 ms: expired at 16, not at 15");
        assert_eq!(granted.left_until(deadline), 5);
        assert_eq!(Millis(40).left_until(deadline), 0);
    }

    /// Milliseconds since the start.
    fn at(ms: u64) -> Millis {
        Millis(Millis::START.0 + ms)
    }

    #[test]
    fn the_slow_clock_follows_the_slower_of_two() {
        let mut clock = SlowClock::starting_at(1_000_000, 5_000_000);
        assert_eq!(clock.sample(1_100_000, 5_090_000), at(90), "monotonic is slewed fast");
        assert_eq!(clock.sample(1_190_000, 5_190_000), at(180), "now it is slewed slow");
        assert_eq!(clock.sample(9_000_000, 5_190_000), at(180), "one clock alone proves nothing");
        assert_eq!(clock.sample(9_000_000, 9_000_000), at(180), "nor does the other");
    }

    #[test]
    fn the_upper_bound_is_never_behind_the_proven_time() {
        let mut clock = SlowClock::starting_at(0, 0);
        for step in 1..200_u64 {
            let mono = step * 7_013;
            let bound = clock.at_most(mono);
            assert!(bound >= clock.sample(mono, step * 7_001), "step {step}");
        }
    }

    #[test]
    fn a_clock_that_goes_back_does_not_move() {
        let mut clock = SlowClock::starting_at(1_000, 1_000);
        assert_eq!(clock.sample(9_000, 9_000), at(8));
        assert_eq!(clock.sample(2_000, 2_000), at(8));
        assert_eq!(clock.at_most(2_000), at(8));
        assert_eq!(clock.sample(10_000, 10_000), at(9), "counted from where it had been, not twice");
    }
}
