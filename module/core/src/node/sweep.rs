//! The sweep: what a node does between commands, one step at a time.
//!
//! The server calls [`LockNode::sweep`] on a timer until nothing is left to do. These are all duties that no command
//! asks for, in the order in which they run:
//!
//! 1. End a quarantine whose time is over: every key that has waiters becomes ready (`end_expired_quarantine`).
//! 2. Make keys ready again whose hand-off was postponed ([`WaitQueues::retry`](crate::queue::WaitQueues::retry)).
//! 3. Remove waiters whose time is up or whose connection has closed
//!    ([`WaitQueues::expire`](crate::queue::WaitQueues::expire)).
//! 4. Expire locks: the server deletes the key of each and calls [`LockNode::lock_expired`].
//! 5. Hand locks on: when 1 to 4 have nothing left, the server calls [`LockNode::next_ready`] and
//!    [`LockNode::serve`].
//! 6. Store the durable state, with a lower longest lease if no long lease is left: the server's cron calls
//!    [`LockNode::state_to_store`], about ten times a second.
//!
//! Duties 1 to 4 make keys ready, so the hand-off comes after them. Duties 1 to 3 are skipped while the node has no
//! waiters: no command relies on them, because every command compares deadlines itself.

use super::LockNode;
use crate::fence::Stripe;
use crate::table::LockId;
use crate::time::{Millis, NodeClock};
use crate::wheel::WheelStep;

/// The result of one step of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// This lock has expired: the caller deletes its key and calls [`LockNode::lock_expired`].
    Expired(LockId),
    /// There may be more to do: the caller calls the sweep again.
    Busy,
    /// There is nothing to do before this time.
    Until(Millis),
    /// The node holds no lock and has no waiter.
    Idle,
}

impl LockNode {
    /// Does one step of the sweep: removes some waiters, or expires one lock.
    pub fn sweep(&mut self, clock: &mut impl NodeClock) -> Sweep {
        if !self.queues.is_empty() && self.sweep_waiters(clock.proven()) {
            return Sweep::Busy;
        }
        self.expire_next_lock(clock.proven())
    }

    /// Does duties 1 to 3. Returns true if there may be more waiters to remove.
    #[inline(never)]
    fn sweep_waiters(&mut self, now: Millis) -> bool {
        self.end_expired_quarantine(now);
        self.queues.retry(now);
        self.queues.expire(now)
    }

    /// Does duty 4 for one lock.
    fn expire_next_lock(&mut self, now: Millis) -> Sweep {
        match self.locks.step(now) {
            WheelStep::Expired(entry) => Sweep::Expired(LockId::from_bits(entry)),
            WheelStep::Moved => Sweep::Busy,
            WheelStep::Later(at) => Sweep::Until(self.next_waiter_work().map_or(at, |work| work.min(at))),
            WheelStep::Idle => self.next_waiter_work().map_or(Sweep::Idle, Sweep::Until),
        }
    }

    /// The time of the next work for the sweep; `None` if there is no work.
    #[must_use]
    pub fn next_sweep(&self) -> Option<Millis> {
        [self.locks.next_deadline(), self.next_waiter_work()].into_iter().flatten().min()
    }

    /// The time of the next work for waiters; 0 for at once, `None` if the node has no waiter.
    fn next_waiter_work(&self) -> Option<Millis> {
        if self.queues.has_ready() || self.queues.has_closing() {
            return Some(Millis(0));
        }
        let waiter_expires = self.queues.next_deadline()?;
        let quarantine_ends = Some(self.quarantine_until).filter(|until| *until > Millis(0));
        [quarantine_ends, self.queues.next_retry()].into_iter().flatten().chain([waiter_expires]).min()
    }

    /// Counts an expired lock whose key the sweep has deleted, and makes the key ready for its waiters. `gone` is the
    /// lock if the server has freed its value already: then the node removes the record too.
    pub fn lock_expired(&mut self, lock: LockId, gone: Option<LockId>) {
        self.counters.expirations += 1;
        self.raise_past(lock, Stripe::of(self.locks.location(lock).1));
        self.mark_key_ready(lock);
        self.reclaim_if(gone);
    }

    /// Makes sure that the next fence on a stripe is larger than the fence of a lock. A renamed lock has a fence of
    /// the stripe of its old name.
    pub(super) fn raise_past(&mut self, lock: LockId, stripe: Stripe) {
        let fence = self.locks.fence(lock);
        if fence > self.stripes.last(stripe) {
            self.stripes.raise(stripe, fence);
            if let Some(state) = self.state.reserving([stripe], fence, 0) {
                self.set_unsaved_state(state);
            }
        }
    }

    fn mark_key_ready(&mut self, lock: LockId) {
        if !self.queues.is_empty() {
            let (database, key) = self.locks.location(lock);
            self.queues.mark_ready(database, key);
        }
    }

    /// Removes the record of a lock whose value has left the keyspace.
    pub fn reclaim(&mut self, lock: LockId) {
        self.mark_key_ready(lock);
        self.forget(lock);
    }
}
