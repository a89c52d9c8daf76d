//! The hand-off: a free lock passes to the first waiter of its keys.
//!
//! A key becomes ready when it may be free. The server then calls [`LockNode::next_ready`] for the waiter to serve,
//! opens the waiter's keys and calls [`LockNode::serve`], which grants the lock for the claim window and returns the
//! push for the waiter.

use super::{LockNode, Ownership};
use crate::command_error::{ArgProblem, CommandError};
use crate::grammar::{Acquire, KeyArgs};
use crate::keyspace::{KeyState, Keyspace, LockEvent};
use crate::queue::{Waiter, WaiterId};
use crate::reply::Reply;
use crate::request::{OwnerArg, Ttl, WaitArg};
use crate::table::Database;
use crate::time::NodeClock;
use redlock_contract::CHANNEL_PREFIX;
use redlock_contract::commands::option;
use redlock_contract::grant::{GrantMessage, Stamped};

/// A push for a waiter: the node has granted it the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantPush {
    /// The full name of the channel.
    pub channel: Vec<u8>,
    /// The message, signed with the owner (see [`redlock_contract::grant`]). It does not contain the owner: other
    /// clients may subscribe to the channel.
    pub message: Vec<u8>,
}

/// How long the node waits before it retries a hand-off that failed for a reason other than the key, in milliseconds.
const RETRY_MS: u64 = 250;

impl LockNode {
    /// Refuses a request, or queues it if it has `WAIT`.
    pub(super) fn refuse(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        if let Some(wait) = &request.wait {
            return self.queue(keyspace, request, wait, clock);
        }
        self.counters.refusals += 1;
        Ok(Reply::Nil)
    }

    fn queue(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        wait: &WaitArg<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        let now = clock.latest();
        if self.has_tombstone(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(Reply::Nil);
        }
        let connection = keyspace.connection().ok_or(ArgProblem::InScript.at(wait.position, option::WAIT))?;
        let keys = (0..keyspace.count()).map(|key| keyspace.name(key).into());
        let waiter = Waiter {
            database: keyspace.database(),
            ticket: wait.ticket,
            owner: request.owner.bytes().into(),
            keys: keys.collect(),
            ttl_ms: request.ttl.ms(),
            floor: request.floor,
            label: request.label.into(),
            is_shared: request.is_shared,
            channel: wait.channel.into(),
            stamp: wait.stamp,
            claim_ms: wait.claim_ms,
            connection,
            since: now,
            until: now.deadline_after(wait.wait_ms),
        };
        let ahead = self.queues.enqueue(waiter)?;
        for key in 0..keyspace.count() {
            // The waiter may have been first with another ticket or mode, and a reader behind it may join now.
            if matches!(keyspace.key_state(key), KeyState::Lock(lock) if self.shared.has(lock)) {
                self.queues.mark_ready(keyspace.database(), keyspace.name(key));
            }
        }
        self.counters.waits += 1;
        let (left_ms, ticket) = self.holder(keyspace, clock);
        Ok(Reply::Queued { left_ms, position: ahead as u64 + 1, ticket })
    }

    /// The time left of the lock that expires last, in milliseconds, and the ticket of its holder. The time is -1 for a
    /// lock of a plain `SET` client.
    fn holder(&self, keyspace: &impl Keyspace, clock: &mut impl NodeClock) -> (i64, u64) {
        let now = clock.proven();
        let left = |lock| i64::try_from(now.left_until(self.locks.deadline(lock))).unwrap_or(i64::MAX);
        let holders = (0..keyspace.count()).filter_map(|key| match keyspace.key_state(key) {
            KeyState::Lock(lock) => {
                let last = self.last_holder(lock);
                Some((left(last), self.queues.ticket_of(last)))
            }
            KeyState::ForeignString => Some((-1, 0)),
            KeyState::Empty | KeyState::OtherType => None,
        });
        // The node does not know when a foreign lock ends, so it counts as the longest.
        holders.max_by_key(|(left, _)| if *left < 0 { i64::MAX } else { *left }).unwrap_or_default()
    }

    /// Whether another waiter comes first at one of the keys. Every such key becomes ready.
    pub(super) fn is_preceded(&mut self, keyspace: &impl Keyspace, request: &Acquire<'_>) -> bool {
        if self.queues.is_empty() {
            return false;
        }
        let (database, ticket) = (keyspace.database(), request.wait.map(|wait| wait.ticket));
        let mut any = false;
        for key in 0..keyspace.count() {
            let name = keyspace.name(key);
            if self.queues.is_preceded(database, name, ticket, request.owner.bytes()) {
                self.queues.mark_ready(database, name);
                any = true;
            }
        }
        any
    }

    /// Records that a request was granted without waiting: its owner leaves the wait queues, and the node keeps its
    /// ticket for the replies to later waiters.
    pub(super) fn granted_at_once(&mut self, keyspace: &impl Keyspace, request: &Acquire<'_>) {
        if !self.queues.is_empty() {
            self.leave_queue(keyspace, request.owner.bytes());
        }
        if let Some(wait) = &request.wait {
            for key in 0..keyspace.count() {
                if let KeyState::Lock(lock) = keyspace.key_state(key) {
                    self.queues.set_holder(lock, wait.ticket);
                }
            }
        }
    }

    /// Removes an owner from the wait queues of the keys.
    pub(super) fn leave_queue(&mut self, keyspace: &impl Keyspace, owner: &[u8]) {
        for key in 0..keyspace.count() {
            self.queues.leave(keyspace.database(), keyspace.name(key), owner);
        }
    }

    /// The waiter to serve next, with the database and the names of its keys. The caller opens the keys and calls
    /// [`serve`](Self::serve). `keys_left` is the caller's budget: the search subtracts the keys that it visited.
    pub fn next_ready(&mut self, keys_left: &mut usize) -> Option<(WaiterId, Database, Vec<Vec<u8>>)> {
        let id = self.queues.next_ready(keys_left)?;
        let waiter = self.queues.waiter(id)?;
        Some((id, self.queues.database_of(waiter), waiter.keys.iter().map(|key| key.to_vec()).collect()))
    }

    /// Grants a waiter its lock for the claim window, if all its keys are free, and returns the push for it.
    pub fn serve(
        &mut self,
        keyspace: &mut impl Keyspace,
        id: WaiterId,
        clock: &mut impl NodeClock,
    ) -> Option<GrantPush> {
        let waiter = self.queues.waiter(id)?.clone();
        if waiter.until <= clock.proven() {
            self.queues.expire_waiter(id);
            return None;
        }
        // At the end of a quarantine all keys with waiters become ready again.
        if !self.queues.is_first(&waiter)
            || self.quarantine_left_ms(clock) > 0
            || self.refuse_unless_voting().is_err()
        {
            return None;
        }
        let owner = OwnerArg::parse(&waiter.owner).ok()?;
        if waiter.is_shared
            && let Some(own) = self.own_lock(keyspace, 0, owner.bytes())
            && !self.has_expired(own, clock)
        {
            // The owner holds the lock already, under a key that was renamed: it does not wait for itself.
            self.queues.expire_waiter(id);
            return None;
        }
        let claim_ms = waiter.ttl_ms.min(self.claim_window_ms.max(waiter.claim_ms));
        let request = Acquire {
            keys: KeyArgs::Many((0..waiter.keys.len()).collect()),
            owner,
            ttl: Ttl::of(claim_ms),
            floor: waiter.floor,
            label: &waiter.label,
            wait: None,
            is_shared: waiter.is_shared,
        };
        let now = clock.latest();
        let granted = if waiter.is_shared {
            self.grant_shared(keyspace, &request, LockEvent::HandedOff, clock)
        } else {
            // If another owner holds a key, the key becomes ready again when that lock ends.
            let Ownership::Free { has_locks } = self.ownership(keyspace, owner.bytes(), clock).ok()? else {
                return None;
            };
            self.grant(keyspace, &request, LockEvent::HandedOff, has_locks, now, clock)
        };
        let fence = match granted {
            Ok(fence) => fence?,
            Err(_) => {
                // The usual cause is a full disk. No event of the key will tell when the disk has room again.
                self.queues.postpone(id, now.deadline_after(RETRY_MS));
                return None;
            }
        };
        self.counters.handoffs += 1;
        let own = |key| match keyspace.key_state(key) {
            KeyState::Lock(lock) if waiter.is_shared => self.shared.holder(lock, owner.bytes()),
            KeyState::Lock(lock) => Some(lock),
            _ => None,
        };
        self.queues.served(id, (0..waiter.keys.len()).filter_map(own));
        if waiter.is_shared {
            // The next waiter may be a reader too: all readers up to the next writer get the lock together.
            self.queues.mark_ready(keyspace.database(), keyspace.name(0));
        }
        Some(grant_push(&self.state.node_id, &waiter, fence, clock.proven().since(waiter.since), claim_ms))
    }

    /// Removes the waiters of a connection that has closed.
    pub fn connection_closed(&mut self, connection: u64) {
        self.queues.connection_closed(connection);
    }

    /// Records that something other than a command of this node has changed a key: the key may be free.
    pub fn key_changed(&mut self, database: Database, key: &[u8]) {
        if !self.queues.is_empty() {
            self.queues.mark_ready(database, key);
        }
    }

    /// Records that any key may be free, as after a flush.
    pub fn all_keys_changed(&mut self) {
        self.queues.mark_all_ready();
    }

    /// Records that `MIGRATE` has moved a key and its lock to another server. The node forgets the key's waiters: this
    /// node can no longer grant the lock.
    pub fn key_moved_away(&mut self, database: Database, key: &[u8]) {
        self.queues.moved_away(database, key);
    }

    /// Whether a key has waiters.
    #[must_use]
    pub fn has_waiters(&self, database: Database, key: &[u8]) -> bool {
        !self.queues.is_empty() && self.queues.waiting_for(database, key) > 0
    }

    /// Whether a key may be ready for its first waiter.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.queues.has_ready()
    }

    /// Whether waiters of closed connections are left for the sweep to remove.
    #[must_use]
    pub fn has_closing(&self) -> bool {
        self.queues.has_closing()
    }

    /// Forgets all waiters: this node no longer votes.
    pub fn clear_waiters(&mut self) {
        self.queues.clear();
    }
}

fn grant_push(node_id: &str, waiter: &Waiter, fence: u64, waited_ms: u64, claim_ms: u64) -> GrantPush {
    let key = waiter.keys.first().map(AsRef::as_ref).unwrap_or_default();
    let stamped = waiter.stamp.map(|stamp| Stamped { stamp, waited_ms, claim_ms });
    let message = GrantMessage { ticket: waiter.ticket, fence, stamped, key }.sign(node_id, &waiter.owner);
    GrantPush { channel: [CHANNEL_PREFIX, &waiter.channel].concat(), message }
}

#[cfg(test)]
mod tests;
