//! A moment on the clocks of one client.

use std::time::Duration;

/// A moment on the clocks of one client.
///
/// A moment is read on two clocks, because each can be slow in its own way: the clock that counts the time a
/// machine sleeps may be slewed by a time daemon (chrony: up to 8.3 %), and the clock that is never slewed
/// may stop while the machine sleeps. The client uses the clock on which more time has passed, so its only
/// possible error is to consider a lock expired too early. The caller chooses the clocks; a simulation uses
/// one clock for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moment {
    sleep_counting_ns: u64,
    unslewed_ns: u64,
}

impl Moment {
    /// Creates a moment from what the two clocks show, in nanoseconds since an arbitrary moment of each
    /// clock.
    #[must_use]
    pub const fn new(sleep_counting_ns: u64, unslewed_ns: u64) -> Self {
        Self { sleep_counting_ns, unslewed_ns }
    }

    /// A moment on a single clock.
    #[must_use]
    pub const fn on_one_clock(ns: u64) -> Self {
        Self::new(ns, ns)
    }

    /// What the two clocks show, in the order of [`Moment::new`].
    #[must_use]
    pub const fn nanoseconds(self) -> (u64, u64) {
        (self.sleep_counting_ns, self.unslewed_ns)
    }

    /// The time since an earlier moment: the longer of the times on the two clocks.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        let slept = self.sleep_counting_ns.saturating_sub(earlier.sleep_counting_ns);
        let unslewed = self.unslewed_ns.saturating_sub(earlier.unslewed_ns);
        Duration::from_nanos(slept.max(unslewed))
    }

    /// The time until a deadline: the shorter of the times on the two clocks, zero once either clock has
    /// reached it.
    #[must_use]
    pub fn until(self, deadline: Self) -> Duration {
        let slept = deadline.sleep_counting_ns.saturating_sub(self.sleep_counting_ns);
        let unslewed = deadline.unslewed_ns.saturating_sub(self.unslewed_ns);
        Duration::from_nanos(slept.min(unslewed))
    }

    /// Whether either clock has reached a deadline.
    #[must_use]
    pub fn has_reached(self, deadline: Self) -> bool {
        self.until(deadline).is_zero()
    }

    /// The moment that is later by `span`.
    #[must_use]
    pub fn plus(self, span: Duration) -> Self {
        let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self::new(self.sleep_counting_ns.saturating_add(ns), self.unslewed_ns.saturating_add(ns))
    }

    /// The later of two deadlines, in the order of the sleep-counting clock. The result is one of the two, with
    /// both of its clock readings. It never takes one reading from each: no node granted a lease that ends there.
    #[must_use]
    pub fn later_of(self, other: Self) -> Self {
        if other.nanoseconds() > self.nanoseconds() { other } else { self }
    }

    /// The earlier of two deadlines, in the order of the sleep-counting clock.
    #[must_use]
    pub(crate) fn earlier_of(self, other: Self) -> Self {
        if other.nanoseconds() < self.nanoseconds() { other } else { self }
    }

    /// The latest moment until which at least `count` of the deadlines lie ahead; `None` if there are fewer
    /// deadlines.
    ///
    /// The same deadlines must hold on both clocks, so the two clocks cannot be computed separately.
    pub(crate) fn held_by(deadlines: impl Iterator<Item = Self> + Clone, count: usize) -> Option<Self> {
        let at_least =
            |bound: Self| deadlines.clone().filter(move |one| one.nanoseconds() >= bound.nanoseconds());
        // Quadratic in the number of nodes, which is small, and without an allocation.
        let candidates = deadlines.clone().filter(|bound| at_least(*bound).count() >= count);
        let bound = candidates.max_by_key(|bound| bound.nanoseconds())?;
        let unslewed_ns = at_least(bound).map(|one| one.unslewed_ns).min()?;
        Some(Self::new(bound.sleep_counting_ns, unslewed_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn the_clock_that_advanced_more_counts() {
        let start = Moment::new(100 * MS, 7_000 * MS);
        // The machine sleeps for a second: only one clock counts it.
        let after_sleep = Moment::new(1_110 * MS, 7_010 * MS);
        assert_eq!(after_sleep.since(start), Duration::from_millis(1_010));
        // A daemon slows the other clock.
        let while_slewed = Moment::new(190 * MS, 7_100 * MS);
        assert_eq!(while_slewed.since(start), Duration::from_millis(100));
    }

    #[test]
    fn a_deadline_is_reached_when_either_clock_reaches_it() {
        let start = Moment::new(0, 500 * MS);
        let deadline = start.plus(Duration::from_millis(10));
        assert!(!start.has_reached(deadline));
        assert!(Moment::new(10 * MS, 501 * MS).has_reached(deadline), "sleep-counting");
        assert!(Moment::new(MS, 510 * MS).has_reached(deadline), "unslewed");
        assert_eq!(Moment::new(4 * MS, 503 * MS).until(deadline), Duration::from_millis(6));
    }

    #[test]
    fn no_arithmetic_wraps() {
        let end = Moment::on_one_clock(u64::MAX);
        assert_eq!(end.plus(Duration::MAX), end);
        assert_eq!(Moment::default().since(end), Duration::ZERO);
        assert_eq!(end.until(Moment::default()), Duration::ZERO);
    }

    #[test]
    fn a_majority_of_deadlines_holds_on_both_clocks() {
        let deadlines = [Moment::new(1, 30), Moment::new(2, 20), Moment::new(3, 10)];
        let before = |count| Moment::held_by(deadlines.iter().copied(), count);
        assert_eq!(before(1), Some(Moment::new(3, 10)));
        assert_eq!(before(2), Some(Moment::new(2, 10)), "not (2, 20): only one deadline holds there");
        assert_eq!(before(3), Some(Moment::new(1, 10)));
        assert_eq!(before(4), None);
        let equal = [Moment::on_one_clock(5); 3];
        assert_eq!(Moment::held_by(equal.iter().copied(), 2), Some(Moment::on_one_clock(5)));
    }
}
