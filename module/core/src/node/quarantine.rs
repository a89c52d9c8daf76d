//! The quarantine: the node grants nothing while a lock that it has forgotten may still be held.

use super::LockNode;
use crate::fence::Stripe;
use crate::table::{Database, LockId};
use crate::time::{Millis, NodeClock};

impl LockNode {
    /// Grants nothing for `for_ms` milliseconds, because the node may have forgotten locks. A longer quarantine that
    /// is under way stays.
    pub fn quarantine(&mut self, for_ms: u64, clock: &mut impl NodeClock) {
        let until = clock.latest().deadline_after(for_ms);
        self.begin_quarantine(until, clock);
    }

    /// Grants nothing until every lock of a database, or of all databases for `None`, would have expired. The server
    /// is about to flush these locks while clients may rely on them.
    pub fn quarantine_for_locks_of(&mut self, database: Option<Database>, clock: &mut impl NodeClock) {
        if let Some(last) = self.locks.last_deadline(database) {
            self.begin_quarantine(last, clock);
        }
    }

    /// Grants nothing until a lock would have expired that the server has evicted from this key.
    pub fn quarantine_for(&mut self, lock: LockId, key: &[u8], clock: &mut impl NodeClock) {
        self.raise_past(lock, Stripe::of(key));
        self.begin_quarantine(self.locks.deadline(lock), clock);
    }

    fn begin_quarantine(&mut self, deadline: Millis, clock: &mut impl NodeClock) {
        if !clock.has_passed(deadline) {
            self.counters.quarantines += 1;
            self.quarantine_until = self.quarantine_until.max(deadline);
        }
    }

    /// Ends a quarantine whose time is over, for the waiters: every key that has waiters becomes ready. Commands
    /// compare the time themselves, so a node without waiters does not call this.
    pub(super) fn end_expired_quarantine(&mut self, now: Millis) {
        if self.quarantine_until > Millis(0) && self.quarantine_until <= now {
            self.quarantine_until = Millis(0);
            self.queues.mark_all_ready();
        }
    }

    /// Cancels the quarantine: the node has forgotten no lock after all. The counter of quarantines goes back by one.
    pub fn cancel_quarantine(&mut self) {
        self.last_loaded = Millis(0);
        if std::mem::replace(&mut self.quarantine_until, Millis(0)) > Millis(0) {
            self.counters.quarantines = self.counters.quarantines.saturating_sub(1);
        }
    }

    /// The time until the quarantine ends, in milliseconds; 0 if the node grants.
    #[must_use]
    pub fn quarantine_left_ms(&self, clock: &mut impl NodeClock) -> u64 {
        self.quarantine_until.since(clock.proven())
    }
}
