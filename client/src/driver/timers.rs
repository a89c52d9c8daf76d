//! When each lock has to be woken.

use super::message::EntryId;
use redlock_proto::Moment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Timers of the locks, soonest first. A replaced timer stays in the heap until it fires, and is ignored
/// then: to remove it earlier would cost more.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<((u64, u64), EntryId)>>,
}

impl Timers {
    pub(super) fn set(&mut self, lock: EntryId, at: Moment) {
        self.heap.push(Reverse((at.nanoseconds(), lock)));
    }

    /// When the next timer fires.
    pub(super) fn next(&self) -> Option<Moment> {
        self.heap.peek().map(|Reverse(((first, second), _))| Moment::new(*first, *second))
    }

    /// Takes the next timer that has fired: its lock, and the time for which it was set.
    pub(super) fn pop_fired(&mut self, now: Moment) -> Option<(EntryId, Moment)> {
        let at = self.next().filter(|at| now.has_reached(*at))?;
        self.heap.pop().map(|Reverse((_, lock))| (lock, at))
    }
}

/// The sooner of two moments; `None` if neither is set.
pub(super) fn sooner(one: Option<Moment>, other: Option<Moment>) -> Option<Moment> {
    match (one, other) {
        (Some(one), Some(other)) => Some(if other.nanoseconds() < one.nanoseconds() { other } else { one }),
        (one, other) => one.or(other),
    }
}
