//! Which session has something to do when.

use super::message::EntryId;
use redlock_proto::Moment;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Planned wake-ups, soonest first. A plan that has become needless is found out when its time comes: to take
/// it back would cost more.
#[derive(Debug, Default)]
pub(super) struct Timers {
    planned: BinaryHeap<Reverse<((u64, u64), EntryId)>>,
}

impl Timers {
    /// Plans to wake a session.
    pub(super) fn plan(&mut self, lock: EntryId, at: Moment) {
        self.planned.push(Reverse((at.nanoseconds(), lock)));
    }

    /// When the next plan is due.
    pub(super) fn next(&self) -> Option<Moment> {
        self.planned.peek().map(|Reverse(((first, second), _))| Moment::new(*first, *second))
    }

    /// The next plan whose time has come: who is to be woken, and when that was planned for.
    pub(super) fn due(&mut self, now: Moment) -> Option<(EntryId, Moment)> {
        let at = self.next().filter(|at| now.has_reached(*at))?;
        self.planned.pop().map(|Reverse((_, lock))| (lock, at))
    }
}
