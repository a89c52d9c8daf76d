//! The decisions of a node.
//!
//! Every command reads all of its keys first and changes nothing until it knows its reply. So a refusal leaves no
//! trace, and a command takes several keys in one step or not at all.
//!
//! | to find | look in |
//! |---|---|
//! | acquire, extend, release, break, and what replicas apply | this file |
//! | how several owners hold one lock | `shared.rs` |
//! | how a lock passes to the first waiter | `handoff.rs` |
//! | what the node does between commands, and in which order | `sweep.rs` |
//! | when the node grants nothing | `quarantine.rs` |
//! | the replies that describe a lock and the node | `describe.rs` |
//! | when the durable state changes and is stored | `storage.rs` |
//! | how saved locks are loaded | `load.rs` |
//! | counters and settings | `accessors.rs` |

mod accessors;
mod describe;
mod handoff;
mod load;
mod quarantine;
mod shared;
mod storage;
mod sweep;
#[cfg(test)]
mod tests;

pub use handoff::GrantPush;
pub use sweep::Sweep;

use shared::SharedLocks;

use crate::command_error::CommandError;
use crate::counters::Counters;
use crate::durable::DurableState;
use crate::fence::{self, Stripe, Stripes};
use crate::grammar::{Acquire, Apply, Extend, Release};
use crate::keyspace::{Effect, KeyState, Keyspace, LockEvent};
use crate::queue::WaitQueues;
use crate::reply::Reply;
use crate::request::Ttl;
use crate::table::{LockId, LockTable, NewLock};
use crate::time::{Millis, NodeClock};
use crate::tombstones::Tombstones;
use redlock_contract::limits::{DEFAULT_CLAIM_WINDOW_MS, DEFAULT_MAX_TTL_MS, MAX_FENCE, MAX_TTL_LIMIT_MS};

/// The version of this node, as `REDLOCK.NODE` returns it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A node: its locks, its fences and its waiters.
#[derive(Debug)]
pub struct LockNode {
    state: DurableState,
    /// The state is newer than the stored one. The node grants nothing until it is stored.
    is_state_unsaved: bool,
    locks: LockTable,
    /// Which locks of the table are held together.
    shared: SharedLocks,
    stripes: Stripes,
    tombstones: Tombstones,
    queues: WaitQueues,
    claim_window_ms: u64,
    counters: Counters,
    max_ttl_ms: u64,
    quarantine_until: Millis,
    /// When the last lock was loaded from a file or from the master. A lock granted up to then may have been released
    /// on the other nodes.
    last_loaded: Millis,
    /// Since when a lower longest lease has been possible; 0 if it is not.
    shorter_since: Millis,
    /// A state that no grant waits for is not stored before this time.
    next_store: Millis,
    is_resumed: bool,
}

/// Which client holds the keys of a command, as seen by the owner that sent it.
enum Ownership {
    /// The owner holds all keys, as one lock with this fence.
    Own { fence: u64 },
    /// No other owner holds any of the keys.
    Free {
        /// Some keys contain expired locks, or locks of this owner.
        has_locks: bool,
    },
    /// Another owner holds at least one key.
    Other,
}

impl LockNode {
    /// A node without locks, with its stored state and its first fences.
    #[must_use]
    pub fn new(state: DurableState, stripes: Stripes) -> Self {
        Self {
            locks: LockTable::default(),
            shared: SharedLocks::default(),
            stripes,
            tombstones: Tombstones::default(),
            queues: WaitQueues::default(),
            claim_window_ms: DEFAULT_CLAIM_WINDOW_MS,
            counters: Counters::default(),
            max_ttl_ms: DEFAULT_MAX_TTL_MS,
            quarantine_until: Millis(0),
            last_loaded: Millis(0),
            shorter_since: Millis(0),
            next_store: Millis(0),
            is_resumed: false,
            is_state_unsaved: false,
            state,
        }
    }

    /// Takes the lock of every key of the request, or of none.
    ///
    /// # Errors
    /// A key of another type, a non-voting node, a quarantine, no fences left, or a full wait queue. Contention is not
    /// an error: the reply is [`Reply::Nil`], or [`Reply::Queued`] for a request with `WAIT`.
    pub fn acquire(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        self.refuse_unless_voting()?;
        if request.is_shared {
            return self.acquire_shared(keyspace, request, clock);
        }
        let now = clock.latest();
        let owner = request.owner.bytes();
        match self.ownership(keyspace, owner, clock)? {
            Ownership::Other => self.refuse(keyspace, request, clock),
            Ownership::Own { fence } => {
                // A repeated request gets the same lock and the same fence, and at least the same time.
                self.refuse_unconfirmed(keyspace, owner, clock)?;
                self.reserve(keyspace, fence, request.ttl.ms())?;
                self.counters.refreshes += 1;
                for key in 0..keyspace.count() {
                    let as_many = |count| count;
                    self.extend_lock(keyspace, key, fence, as_many, request.owner.bytes(), request.ttl, now);
                }
                Ok(Reply::Integer(fence))
            }
            Ownership::Free { .. } if self.is_preceded(keyspace, request) => {
                self.refuse_in_quarantine(clock)?;
                self.refuse(keyspace, request, clock)
            }
            Ownership::Free { has_locks } => {
                let Some(fence) =
                    self.grant(keyspace, request, LockEvent::Acquired, has_locks, now, clock)?
                else {
                    return Ok(Reply::Nil);
                };
                if request.wait.is_some() || !self.queues.is_empty() {
                    self.granted_at_once(keyspace, request);
                }
                Ok(Reply::Integer(fence))
            }
        }
    }

    /// Extends the owner's locks, if it holds all of them, and raises their fences to the floor.
    ///
    /// # Errors
    /// A key of another type, a non-voting node, or a lock that the quarantine does not let the node extend.
    pub fn extend(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Extend<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        self.refuse_unless_voting()?;
        let now = clock.latest();
        if !self.owns_all(keyspace, request.owner.bytes(), clock)? {
            self.counters.stale_extensions += 1;
            return Ok(Reply::Nil);
        }
        self.refuse_unconfirmed(keyspace, request.owner.bytes(), clock)?;
        // All keys get one fence, so the next holder of any of them gets a larger one.
        let raised = |key| match keyspace.key_state(key) {
            KeyState::Lock(id) => fence::raised(self.locks.fence(id), request.floor),
            _ => 0,
        };
        let largest = (0..keyspace.count()).map(raised).max().unwrap_or(0);
        self.reserve(keyspace, largest, request.ttl.ms())?;
        if request.floor > 0 {
            self.raise_old_names(keyspace, largest);
        }
        self.counters.extensions += 1;
        for key in 0..keyspace.count() {
            let one_more = |count: u32| count.saturating_add(1);
            self.extend_lock(keyspace, key, largest, one_more, request.owner.bytes(), request.ttl, now);
        }
        Ok(Reply::Integer(largest))
    }

    /// Releases the owner's locks, if it holds all of them. Otherwise the owner leaves the wait queues, and each key
    /// gets a tombstone.
    ///
    /// # Errors
    /// A key of another type.
    pub fn release(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Release<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        if !self.owns_all(keyspace, request.owner.bytes(), clock)? {
            self.counters.stale_releases += 1;
            if !self.queues.is_empty() {
                self.leave_queue(keyspace, request.owner.bytes());
            }
            let now = clock.latest();
            if let Some(connection) = keyspace.connection() {
                for key in 0..keyspace.count() {
                    self.tombstones.add(keyspace.name(key), request.owner.bytes(), connection, now);
                }
            }
            return Ok(Reply::Integer(0));
        }
        self.counters.releases += 1;
        for key in 0..keyspace.count() {
            if self.shared.is_empty()
                || !self.release_shared(keyspace, key, request.owner.bytes(), request.floor)
            {
                self.free(keyspace, key, request.floor);
            }
            keyspace.notify(key, LockEvent::Released);
        }
        keyspace.replicate(Effect::Released);
        Ok(Reply::Integer(1))
    }

    /// Repeats a release of the master on a replica, without a clock.
    pub fn replay_release(&mut self, keyspace: &mut impl Keyspace, request: &Release<'_>) -> Reply {
        let owner = request.owner.bytes();
        for key in 0..keyspace.count() {
            if self.own_lock(keyspace, key, owner).is_some() {
                if !self.release_shared(keyspace, key, owner, request.floor) {
                    self.free(keyspace, key, request.floor);
                }
                keyspace.notify(key, LockEvent::Released);
            }
        }
        keyspace.replicate(Effect::Released);
        Reply::Integer(1)
    }

    /// Frees a lock without its owner, for an administrator, if it has this fence; a shared lock for all its
    /// holders. A tombstone keeps each owner from acquiring it again with a request that is still in flight.
    /// The reply is the fence of the lock, or [`Reply::Nil`] if nothing changed.
    ///
    /// # Errors
    /// A key of another type.
    pub fn break_lock(
        &mut self,
        keyspace: &mut impl Keyspace,
        wanted: Option<u64>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        let id = match keyspace.key_state(0) {
            KeyState::OtherType => return Err(CommandError::WrongType),
            KeyState::Lock(id) if !self.is_over(id, clock) => id,
            KeyState::Lock(_) | KeyState::Empty | KeyState::ForeignString => return Ok(Reply::Nil),
        };
        let fence = self.locks.fence(id);
        if wanted.is_some_and(|wanted| wanted != fence) {
            return Ok(Reply::Nil);
        }
        if let Some(connection) = keyspace.connection() {
            let now = clock.latest();
            let mut bar = |id| self.tombstones.add(keyspace.name(0), self.locks.owner(id), connection, now);
            if self.shared.has(id) { self.shared.holders(id).for_each(bar) } else { bar(id) }
        }
        self.counters.broken += 1;
        self.free(keyspace, 0, 0);
        keyspace.notify(0, LockEvent::Released);
        keyspace.replicate(Effect::Released);
        Ok(Reply::Integer(fence))
    }

    /// Repeats a break of the master on a replica, without a clock.
    pub fn replay_break(&mut self, keyspace: &mut impl Keyspace) -> Reply {
        self.free(keyspace, 0, 0);
        keyspace.notify(0, LockEvent::Released);
        keyspace.replicate(Effect::Released);
        Reply::Integer(1)
    }

    /// Repeats a grant, an extension or an expiry of the master on a replica.
    ///
    /// # Errors
    /// The node can hold no more locks.
    pub fn apply(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Apply<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<(), CommandError> {
        let now = clock.latest();
        let owner = request.owner.bytes();
        let stripe = keyspace.stripe(0);
        // No node grants for longer, so no lock has more left. The master's `max-ttl` may be larger than this node's,
        // which must not end a lock early that the master has granted.
        let left_ms = request.left_ms.min(MAX_TTL_LIMIT_MS);
        let (left_ms, held_ms) = self.times_of_own(left_ms, request.held_ms.unwrap_or(0));
        // A data set with fences beyond the state of a voting node belongs to another node. The module detects that at
        // the end of the load, so the state must not follow it here. A master has granted what it replicates: a replica
        // that cannot store its state follows all the same, and grants nothing itself until its state is stored.
        let belongs_here =
            self.state.non_voting.is_some() || request.fence <= self.state.high_water.highest();
        if belongs_here
            && self.reserve(keyspace, request.fence, left_ms).is_err()
            && let Some(state) = self.state.reserving([stripe], request.fence, left_ms)
        {
            self.set_unsaved_state(state);
        }
        self.stripes.raise(stripe, request.fence);
        if request.is_shared {
            return self.apply_shared(keyspace, request, (left_ms, held_ms), now);
        }
        if left_ms == 0 {
            if let KeyState::Lock(_) = keyspace.key_state(0) {
                self.free(keyspace, 0, 0);
                keyspace.notify(0, LockEvent::Expired);
            }
            return Ok(());
        }
        self.last_loaded = self.last_loaded.max(now);
        keyspace.notify(0, request.event());
        let granted = Millis(now.0.saturating_sub(held_ms));
        // An extension carries the number of extensions and no label; a grant carries no number.
        if let (KeyState::Lock(id), Some(extensions), None) =
            (keyspace.key_state(0), request.extensions, request.label)
            && !self.shared.has(id)
            && self.locks.is_owned_by(id, owner)
        {
            self.locks.set_fence(id, request.fence);
            self.locks.set_granted(id, granted);
            self.locks.set_extensions(id, extensions);
            self.locks.extend(id, left_ms, now.deadline_after(left_ms));
            return Ok(());
        }
        let lock = NewLock {
            database: keyspace.database(),
            key: keyspace.name(0),
            owner,
            label: request.label.unwrap_or(&[]),
            fence: request.fence,
            granted,
            deadline: now.deadline_after(left_ms),
            lease_ms: left_ms,
            extensions: request.extensions.unwrap_or(0),
        };
        let id = self.locks.insert(&lock).ok_or(FULL)?;
        let gone = keyspace.put(0, id);
        self.reclaim_if(gone);
        Ok(())
    }

    fn ownership(
        &self,
        keyspace: &impl Keyspace,
        owner: &[u8],
        clock: &mut impl NodeClock,
    ) -> Result<Ownership, CommandError> {
        let mut held = false;
        let mut open = false;
        let mut has_locks = false;
        let mut fences = None::<(u64, u64)>;
        for key in 0..keyspace.count() {
            match keyspace.key_state(key) {
                KeyState::OtherType => return Err(CommandError::WrongType),
                KeyState::ForeignString => held = true,
                KeyState::Empty => open = true,
                // The modes exclude each other, also for an owner that shares the lock.
                KeyState::Lock(id) if self.shared.has(id) => {
                    let is_over = self.is_shared_over(id, clock);
                    (held, open, has_locks) = (held || !is_over, open || is_over, has_locks || is_over);
                }
                KeyState::Lock(id) if self.has_expired(id, clock) => (open, has_locks) = (true, true),
                KeyState::Lock(id) if self.locks.is_owned_by(id, owner) => {
                    has_locks = true;
                    let fence = self.locks.fence(id);
                    let (least, most) = fences.unwrap_or((fence, fence));
                    fences = Some((least.min(fence), most.max(fence)));
                }
                KeyState::Lock(_) => held = true,
            }
        }
        Ok(match fences {
            _ if held => Ownership::Other,
            Some((least, most)) if !open && least == most => Ownership::Own { fence: most },
            // If the owner holds only some of the keys, or took them one by one, all get a new fence together. With
            // an old fence the node would confirm a key that another client may have held in between.
            _ => Ownership::Free { has_locks },
        })
    }

    fn owns_all(
        &self,
        keyspace: &impl Keyspace,
        owner: &[u8],
        clock: &mut impl NodeClock,
    ) -> Result<bool, CommandError> {
        let mut all = true;
        for key in 0..keyspace.count() {
            all &= match keyspace.key_state(key) {
                KeyState::OtherType => return Err(CommandError::WrongType),
                KeyState::Lock(id) if self.shared.has(id) => {
                    let own = self.shared.holder(id, owner);
                    own.is_some_and(|own| !self.has_expired(own, clock))
                }
                KeyState::Lock(id) => self.locks.is_owned_by(id, owner) && !self.has_expired(id, clock),
                KeyState::Empty | KeyState::ForeignString => false,
            };
        }
        Ok(all)
    }

    fn has_expired(&self, lock: LockId, clock: &mut impl NodeClock) -> bool {
        clock.has_passed(self.locks.deadline(lock))
    }

    /// Grants all keys with one fence; `None` if a tombstone rejects the request. `event` is the reason for the grant.
    fn grant(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        event: LockEvent,
        has_locks: bool,
        now: Millis,
        clock: &mut impl NodeClock,
    ) -> Result<Option<u64>, CommandError> {
        let keys = keyspace.count();
        let owner = request.owner.bytes();
        self.refuse_in_quarantine(clock)?;
        if self.has_tombstone(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(None);
        }
        let fence = self.next_fence(keyspace, request.floor, has_locks)?;
        if !self.locks.has_room_for(keys) {
            return Err(FULL);
        }
        self.reserve(keyspace, fence, request.ttl.ms())?;
        for key in 0..keys {
            let (mut deadline, mut lease_ms) = (now.deadline_after(request.ttl.ms()), request.ttl.ms());
            if has_locks && let KeyState::Lock(old) = keyspace.key_state(key) {
                if self.shared.has(old) {
                    self.expire_all_holders(keyspace, key, old);
                } else if self.has_expired(old, clock) {
                    self.note_expired(keyspace, key, old);
                } else {
                    // The owner took this key apart from the others: the deadline that it was promised stays.
                    deadline = deadline.max(self.locks.deadline(old));
                    lease_ms = lease_ms.max(now.left_until(deadline));
                }
            }
            let lock = NewLock {
                database: keyspace.database(),
                key: keyspace.name(key),
                owner,
                label: request.label,
                fence,
                granted: now,
                deadline,
                lease_ms,
                extensions: 0,
            };
            let id = self.locks.insert(&lock).ok_or(FULL)?;
            self.stripes.raise(keyspace.stripe(key), fence);
            let gone = keyspace.put(key, id);
            self.reclaim_if(gone);
            if request.is_shared {
                self.shared.begin(id, owner);
            }
            let left_ms = now.left_until(deadline);
            let is_handed_off = event == LockEvent::HandedOff;
            let (label, is_shared) = (request.label, request.is_shared);
            keyspace.replicate(Effect::Granted {
                key,
                owner,
                fence,
                left_ms,
                label,
                is_handed_off,
                is_shared,
            });
            keyspace.notify(key, event);
        }
        self.counters.grants += 1;
        Ok(Some(fence))
    }

    /// The fence of a new grant: larger than every earlier fence of every key.
    #[inline(always)]
    fn next_fence(&self, keyspace: &impl Keyspace, floor: u64, has_locks: bool) -> Result<u64, CommandError> {
        let mut fence = 0;
        for key in 0..keyspace.count() {
            let next = self.stripes.next(keyspace.stripe(key), floor);
            fence = fence.max(next.ok_or(CommandError::FenceExhausted)?);
            // A renamed lock has a fence of the stripe of its old name.
            if has_locks && let KeyState::Lock(old) = keyspace.key_state(key) {
                fence = fence.max(self.locks.fence(old) + 1);
            }
        }
        if fence > MAX_FENCE {
            return Err(CommandError::FenceExhausted);
        }
        Ok(fence)
    }

    #[inline]
    fn refuse_unless_voting(&self) -> Result<(), CommandError> {
        self.state.non_voting.map_or(Ok(()), |reason| Err(CommandError::NonVoting(reason)))
    }

    /// Whether a tombstone rejects the request: its own release has overtaken it on another connection.
    fn has_tombstone(&self, keyspace: &impl Keyspace, request: &Acquire<'_>, now: Millis) -> bool {
        if self.tombstones.all_expired(now) {
            return false;
        }
        let Some(connection) = keyspace.connection() else { return false };
        (0..keyspace.count())
            .any(|key| self.tombstones.rejects(keyspace.name(key), request.owner.bytes(), connection, now))
    }

    /// Raises the stripes of the names under which renamed locks were granted: a lock may return to its old name.
    #[cold]
    fn raise_old_names(&mut self, keyspace: &impl Keyspace, fence: u64) {
        for key in 0..keyspace.count() {
            if let KeyState::Lock(id) = keyspace.key_state(key)
                && !self.locks.is_at(id, keyspace.name(key))
            {
                self.raise_stripe(Stripe::of(self.locks.location(id).1), fence);
            }
        }
    }

    /// Extends the lock of one key: a later deadline, this fence, and the number of extensions that `count` returns.
    #[allow(clippy::too_many_arguments, reason = "one step of two commands, nothing to group")]
    fn extend_lock(
        &mut self,
        keyspace: &mut impl Keyspace,
        key: usize,
        fence: u64,
        count: impl FnOnce(u32) -> u32,
        owner: &[u8],
        ttl: Ttl,
        now: Millis,
    ) {
        let KeyState::Lock(id) = keyspace.key_state(key) else { return };
        let (id, is_shared) = match self.shared.is_empty() {
            true => (id, false),
            false => self.holder_to_extend(keyspace, key, id, owner, fence),
        };
        self.queues.claimed(id);
        let extensions = count(self.locks.extensions(id));
        self.locks.set_fence(id, fence);
        self.locks.set_extensions(id, extensions);
        // A renamed lock has a fence of the stripe of its old name.
        self.stripes.raise(keyspace.stripe(key), fence);
        let left_ms = now.left_until(self.locks.extend(id, ttl.ms(), now.deadline_after(ttl.ms())));
        let held_ms = now.since(self.locks.granted(id));
        keyspace.replicate(Effect::Extended { key, owner, fence, left_ms, held_ms, extensions, is_shared });
        keyspace.notify(key, LockEvent::Extended);
    }

    fn free(&mut self, keyspace: &mut impl Keyspace, key: usize, floor: u64) {
        let KeyState::Lock(id) = keyspace.key_state(key) else { return };
        if self.shared.has(id) {
            self.keep_only(id);
        }
        self.raise_next_fence(keyspace, key, id, floor);
        // The owner has sent a command, so a handed-on lock does not count as unclaimed.
        match keyspace.delete(key) {
            Some(lock) => {
                self.queues.forget_lock(lock);
                self.locks.remove(lock);
            }
            None => self.queues.claimed(id),
        }
        if !self.queues.is_empty() {
            self.queues.mark_ready(keyspace.database(), keyspace.name(key));
        }
    }

    /// Makes sure that the next fence of a key is larger than the fence of its lock and, if a release has a floor, than
    /// the floor.
    #[inline(always)]
    fn raise_next_fence(&mut self, keyspace: &mut impl Keyspace, key: usize, id: LockId, floor: u64) {
        let renamed = !self.locks.is_at(id, keyspace.name(key));
        if floor > 0 || renamed {
            let stripe = keyspace.stripe(key);
            let last = self.stripes.last(stripe).max(self.locks.fence(id));
            let raised = fence::raised(last, floor);
            // If the state cannot be stored, the node releases the lock all the same.
            let stored = self.reserve_on(keyspace, [stripe], raised, 0).is_ok();
            self.stripes.raise(stripe, if stored { raised } else { last });
        }
    }

    /// Stores the durable state if it does not cover this fence and this lease on the keys of a command.
    #[inline]
    fn reserve(
        &mut self,
        keyspace: &mut impl Keyspace,
        fence: u64,
        lease_ms: u64,
    ) -> Result<(), CommandError> {
        if self.is_state_unsaved || !self.state.covers(fence, lease_ms) {
            let stripes: Vec<Stripe> = (0..keyspace.count()).map(|key| keyspace.stripe(key)).collect();
            self.reserve_on(keyspace, stripes, fence, lease_ms)?;
        }
        Ok(())
    }

    #[cold]
    fn reserve_on(
        &mut self,
        keyspace: &mut impl Keyspace,
        stripes: impl IntoIterator<Item = Stripe>,
        fence: u64,
        lease_ms: u64,
    ) -> Result<(), CommandError> {
        let next = self.state.reserving(stripes, fence, lease_ms);
        let Some(next) = next.or_else(|| self.unsaved_state()) else {
            return Ok(());
        };
        keyspace.store(&next)?;
        keyspace.replicate(Effect::Dataset { id: next.dataset_id, high_water: next.high_water.common() });
        self.set_state(next);
        Ok(())
    }

    #[inline]
    fn reclaim_if(&mut self, gone: Option<LockId>) {
        if let Some(lock) = gone {
            self.forget(lock);
        }
    }

    fn forget(&mut self, lock: LockId) {
        if self.shared.has(lock) {
            self.keep_only(lock);
        }
        self.counters.unclaimed += u64::from(self.queues.forget_lock(lock));
        self.locks.remove(lock);
    }
}

const FULL: CommandError = CommandError::Full;
