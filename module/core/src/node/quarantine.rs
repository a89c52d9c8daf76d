//! The quarantine: the node grants nothing while a lock that it has forgotten may still be held.

use super::LockNode;
use crate::command_error::CommandError;
use crate::fence::Stripe;
use crate::keyspace::Keyspace;
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
        self.begin_quarantine(self.locks.deadline(self.last_holder(lock)), clock);
    }

    fn begin_quarantine(&mut self, deadline: Millis, clock: &mut impl NodeClock) {
        if !clock.has_passed(deadline) {
            self.counters.quarantines += 1;
            self.quarantine_until = self.quarantine_until.max(deadline);
        }
    }

    /// Refuses a grant while the node is in quarantine. Ends a quarantine whose time is over.
    #[inline]
    pub(super) fn refuse_in_quarantine(&mut self, clock: &mut impl NodeClock) -> Result<(), CommandError> {
        if self.quarantine_until > Millis(0) && !self.end_expired_quarantine(clock.proven()) {
            self.counters.quarantine_refusals += 1;
            return Err(CommandError::Quarantine { left_ms: self.quarantine_left_ms(clock) });
        }
        Ok(())
    }

    /// In quarantine, refuses to extend a lock that was loaded. Its owner may have released the lock after it
    /// was saved, and another client may hold it on the other nodes.
    #[inline]
    pub(super) fn refuse_unconfirmed(
        &mut self,
        keyspace: &impl Keyspace,
        owner: &[u8],
        clock: &mut impl NodeClock,
    ) -> Result<(), CommandError> {
        if self.quarantine_until == Millis(0) {
            return Ok(());
        }
        let is_unconfirmed = |key| {
            let own = self.own_lock(keyspace, key, owner);
            own.is_some_and(|id| self.locks.granted(id) <= self.last_loaded)
        };
        if (0..keyspace.count()).any(is_unconfirmed) { self.refuse_in_quarantine(clock) } else { Ok(()) }
    }

    /// Ends a quarantine whose time is over; true if the node is in no quarantine. Every lease that the node may have
    /// forgotten has expired then, and every lock from its own data set. So loaded locks, which came later, are as good
    /// as granted ones. Every key that has waiters becomes ready. A command calls this when it would grant, and the
    /// sweep does when the node has waiters.
    pub(super) fn end_expired_quarantine(&mut self, now: Millis) -> bool {
        let is_over = self.quarantine_until <= now;
        if is_over && self.quarantine_until > Millis(0) {
            (self.quarantine_until, self.last_loaded) = (Millis(0), Millis(0));
            self.queues.mark_all_ready();
        }
        is_over
    }

    /// Lengthens a quarantine that is under way until every loaded lock has expired. A lock may have been loaded long
    /// after the quarantine began.
    pub fn outlast_loaded_locks(&mut self) {
        if self.quarantine_until > Millis(0) {
            self.quarantine_until =
                self.quarantine_until.max(self.locks.last_deadline(None).unwrap_or_default());
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
