//! The sweep: what a node does between commands, one step at a time.
//!
//! The server calls [`LockNode::sweep`] on a timer until nothing is left to do. These are all duties that no command
//! asks for, in the order in which they run:
//!
//! 1. End a quarantine whose time is over: every key that has waiters becomes ready (`end_expired_quarantine`).
//! 2. Make keys ready again whose hand-off was postponed ([`WaitQueues::retry`](crate::queue::WaitQueues::retry)).
//! 3. Remove waiters whose time is up or whose connection has closed
//!    ([`WaitQueues::expire`](crate::queue::WaitQueues::expire)).
//! 4. Expire locks: the server opens the key of each and calls [`LockNode::expire`].
//! 5. Hand locks on: when 1 to 4 have nothing left, the server calls [`LockNode::next_ready`] and
//!    [`LockNode::serve`].
//! 6. Store the durable state, with a lower longest lease if no long lease is left: the server's cron calls
//!    [`LockNode::state_to_store`], about ten times a second.
//!
//! Duties 1 to 4 make keys ready, so the hand-off comes after them. Duties 1 to 3 are skipped while the node has no
//! waiters: no command relies on them, because every command compares deadlines itself.

use super::LockNode;
use crate::fence::Stripe;
use crate::keyspace::{Effect, KeyState, Keyspace, LockEvent};
use crate::table::LockId;
use crate::time::{Millis, NodeClock};
use crate::wheel::WheelStep;

/// The result of one step of the sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// This lock has expired: the caller opens its key and calls [`LockNode::expire`].
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

    /// Deletes the key of an expired lock, the only key of `keyspace`, and makes it ready for its waiters. Of a shared
    /// lock, only the holder whose lease has expired leaves; the key is deleted with the last holder. Returns false
    /// if the lock is not under this key: then nothing has changed.
    pub fn expire(&mut self, keyspace: &mut impl Keyspace, lock: LockId) -> bool {
        if keyspace.key_state(0) != KeyState::Lock(self.shared.anchor(lock)) {
            return false;
        }
        if self.shared.has(lock) {
            self.expire_holder(keyspace, lock);
            return true;
        }
        self.note_expired(keyspace, 0, lock);
        let gone = keyspace.delete(0);
        self.raise_past(lock, Stripe::of(self.locks.location(lock).1));
        self.mark_key_ready(lock);
        self.reclaim_if(gone);
        true
    }

    /// Counts an expired lock, and reports it to replicas and subscribers.
    #[cold]
    pub(super) fn note_expired(&mut self, keyspace: &mut impl Keyspace, key: usize, lock: LockId) {
        self.counters.expirations += 1;
        let (owner, fence) = (self.locks.owner(lock), self.locks.fence(lock));
        let is_shared = self.shared.has(lock);
        keyspace.replicate(Effect::Expired { key, owner, fence, is_shared });
        keyspace.notify(key, LockEvent::Expired);
    }

    /// Makes sure that the next fence on a stripe is larger than the fence of a lock. A renamed lock has a fence of
    /// the stripe of its old name.
    pub(super) fn raise_past(&mut self, lock: LockId, stripe: Stripe) {
        self.raise_stripe(stripe, self.locks.fence(lock));
    }

    /// Makes sure that the next fence on a stripe is larger than this one. The next grant stores the durable state.
    pub(super) fn raise_stripe(&mut self, stripe: Stripe, fence: u64) {
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
