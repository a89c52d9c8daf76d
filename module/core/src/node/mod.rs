//! What a node decides.
//!
//! Every command first looks at all of its keys and changes nothing until it knows its answer, so a
//! refusal leaves no trace and several keys are taken in one step or not at all.

mod handoff;
#[cfg(test)]
mod tests;
mod upkeep;

pub use handoff::Announcement;
pub use upkeep::Sweep;

use crate::counters::Counters;
use crate::durable::DurableState;
use crate::fault::Fault;
use crate::fence::{self, Stripe, Stripes};
use crate::grammar::{Acquire, Apply, Extend, Release};
use crate::keyspace::{Effect, Keyspace, Occupant};
use crate::late::LateReleases;
use crate::queue::Queues;
use crate::reply::Reply;
use crate::request::Ttl;
use crate::table::{LockId, LockTable, NewLock};
use crate::time::{Millis, NodeClock};
use redlock_contract::fields::{lock, node};
use redlock_contract::limits::{DEFAULT_CLAIM_WINDOW_MS, DEFAULT_MAX_TTL_MS, MAX_FENCE, MAX_TTL_LIMIT_MS};
use redlock_contract::{NonVoting, Role};

/// The version of this node, as `REDLOCK.NODE` tells it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A node: the locks it holds and the numbers it has given out.
#[derive(Debug)]
pub struct Node {
    state: DurableState,
    /// The state is newer than the stored one: nothing is granted until it is stored.
    is_state_unsaved: bool,
    locks: LockTable,
    stripes: Stripes,
    late: LateReleases,
    queues: Queues,
    claim_window_ms: u64,
    counters: Counters,
    max_ttl_ms: u64,
    quarantine_until: Millis,
    /// When the last lock was loaded from a file or copied: locks granted up to then may be over elsewhere.
    last_loaded: Millis,
    /// Since when a lower longest lease would do; 0 if it would not.
    shorter_since: Millis,
    /// The state is not stored without need before this.
    next_store: Millis,
    is_resumed: bool,
}

/// How the keys of a command stand towards its owner.
enum Standing {
    /// The owner holds them all, as one lock with this fence.
    Mine { fence: u64 },
    /// Nobody else holds any of them.
    Open {
        /// Locks stand there that have run out, or the owner's own.
        has_locks: bool,
    },
    /// Somebody else holds at least one.
    Held,
}

impl Node {
    /// A node that holds nothing, with its stored state and the fences that it starts with.
    #[must_use]
    pub fn new(state: DurableState, stripes: Stripes) -> Self {
        Self {
            locks: LockTable::default(),
            stripes,
            late: LateReleases::default(),
            queues: Queues::default(),
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
    /// A key of another type, quarantine, numbers used up, or too many who wait. Contention is
    /// [`Reply::Nil`], or [`Reply::Queued`] for those who want to wait.
    pub fn acquire(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        self.refuse_unless_voting()?;
        let now = clock.latest();
        let owner = request.owner.bytes();
        match self.standing(keyspace, owner, clock)? {
            Standing::Held => self.refuse(keyspace, request, clock),
            Standing::Mine { fence } => {
                // The same request again: the same lock, the same fence, at least as long.
                self.refuse_unconfirmed(keyspace, clock)?;
                self.reserve(keyspace, fence, request.ttl.ms())?;
                self.counters.refreshes += 1;
                for key in 0..keyspace.count() {
                    let as_many = |count| count;
                    self.prolong(keyspace, key, fence, as_many, request.owner.bytes(), request.ttl, now);
                }
                Ok(Reply::Integer(fence))
            }
            Standing::Open { .. } if self.is_preceded(keyspace, request) => {
                self.refuse_in_quarantine(clock)?;
                self.refuse(keyspace, request, clock)
            }
            Standing::Open { has_locks } => {
                let Some(fence) = self.grant(keyspace, request, owner, has_locks, now, clock)? else {
                    return Ok(Reply::Nil);
                };
                if request.wait.is_some() || !self.queues.is_empty() {
                    self.granted_at_once(keyspace, request);
                }
                Ok(Reply::Integer(fence))
            }
        }
    }

    /// Gives the owner's locks a new deadline, if it holds them all; raises their fences to the floor.
    ///
    /// # Errors
    /// A key of another type.
    pub fn extend(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Extend<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        self.refuse_unless_voting()?;
        let now = clock.latest();
        if !self.owns_all(keyspace, request.owner.bytes(), clock)? {
            self.counters.stale_extensions += 1;
            return Ok(Reply::Nil);
        }
        self.refuse_unconfirmed(keyspace, clock)?;
        // One number for all keys: the next holder of any of them gets a larger one.
        let raised = |key| match keyspace.occupant(key) {
            Occupant::Lock(id) => fence::raised(self.locks.fence(id), request.floor),
            _ => 0,
        };
        let largest = (0..keyspace.count()).map(raised).max().unwrap_or(0);
        self.reserve(keyspace, largest, request.ttl.ms())?;
        self.counters.extensions += 1;
        for key in 0..keyspace.count() {
            let one_more = |count: u32| count.saturating_add(1);
            self.prolong(keyspace, key, largest, one_more, request.owner.bytes(), request.ttl, now);
        }
        Ok(Reply::Integer(largest))
    }

    /// Frees the owner's locks, if it holds them all.
    ///
    /// # Errors
    /// A key of another type.
    pub fn release(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Release<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        if !self.owns_all(keyspace, request.owner.bytes(), clock)? {
            self.counters.stale_releases += 1;
            if !self.queues.is_empty() {
                self.leave_line(keyspace, request.owner.bytes());
            }
            let now = clock.latest();
            if let Some(connection) = keyspace.connection() {
                for key in 0..keyspace.count() {
                    self.late.remember(keyspace.name(key), request.owner.bytes(), connection, now);
                }
            }
            return Ok(Reply::Integer(0));
        }
        self.counters.releases += 1;
        for key in 0..keyspace.count() {
            self.free(keyspace, key, request.floor);
        }
        keyspace.replicate(Effect::Released);
        Ok(Reply::Integer(1))
    }

    /// Does on a copy what a release did on the master: no clock is asked.
    pub fn replay_release(&mut self, keyspace: &mut impl Keyspace, request: &Release<'_>) -> Reply {
        let owner = request.owner.bytes();
        for key in 0..keyspace.count() {
            if let Occupant::Lock(id) = keyspace.occupant(key)
                && self.locks.is_owned_by(id, owner)
            {
                self.free(keyspace, key, request.floor);
            }
        }
        keyspace.replicate(Effect::Released);
        Reply::Integer(1)
    }

    /// Does on a copy what a grant or an extension did on the master.
    ///
    /// # Errors
    /// No more locks can be held.
    pub fn apply(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Apply<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<(), Fault> {
        let now = clock.latest();
        let owner = request.owner.bytes();
        let stripe = keyspace.stripe(0);
        // No node grants for longer, so no lock has more left.
        let left_ms = request.left_ms.min(MAX_TTL_LIMIT_MS);
        // A file that goes beyond the state of a voting node does not belong to it, which is found out when the file is
        // loaded. A master has granted what it replicates: a replica that cannot store its state follows all the same,
        // and grants nothing itself until it has.
        let belongs_here = self.state.non_voting.is_some() || request.fence <= self.state.highest();
        if belongs_here
            && self.reserve(keyspace, request.fence, left_ms).is_err()
            && let Some(state) = self.state.reserving([stripe], request.fence, left_ms)
        {
            self.set_unsaved_state(state);
        }
        self.stripes.raise(stripe, request.fence);
        self.last_loaded = self.last_loaded.max(now);
        let granted = Millis(now.0.saturating_sub(request.held_ms.unwrap_or(0)));
        // An extension says how many there were and leaves the label out; a grant does neither.
        if let (Occupant::Lock(id), Some(extensions), None) =
            (keyspace.occupant(0), request.extensions, request.label)
            && self.locks.is_owned_by(id, owner)
        {
            self.locks.set_fence(id, request.fence);
            self.locks.set_granted(id, granted);
            self.locks.set_extensions(id, extensions);
            self.locks.prolong(id, left_ms, now.deadline_after(left_ms));
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

    /// Tells about one lock.
    ///
    /// # Errors
    /// A key of another type.
    pub fn inspect(&self, keyspace: &impl Keyspace, clock: &mut impl NodeClock) -> Result<Reply, Fault> {
        let now = clock.proven();
        match keyspace.occupant(0) {
            Occupant::OtherType => Err(Fault::WrongType),
            Occupant::Lock(id) if !self.has_expired(id, clock) => Ok(Reply::Map(vec![
                (lock::FENCE, self.locks.fence(id).into()),
                (lock::LABEL, self.locks.label(id).into()),
                (lock::TIME_LEFT_MS, now.left_until(self.locks.deadline(id)).into()),
                (lock::HELD_MS, now.since(self.locks.granted(id)).into()),
                (lock::EXTENSIONS, u64::from(self.locks.extensions(id)).into()),
                (
                    lock::WAITERS,
                    (self.queues.waiting_for(keyspace.database(), keyspace.name(0)) as u64).into(),
                ),
            ])),
            _ => Ok(Reply::Nil),
        }
    }

    /// Tells about this node. `unreclaimed` locks have left the keyspace and are about to be forgotten.
    #[must_use]
    pub fn describe(&self, unreclaimed: u64, role: Role, clock: &mut impl NodeClock) -> Reply {
        Reply::Map(vec![
            (node::ID, self.state.node_id.as_bytes().into()),
            (node::INCARNATION, self.state.incarnation.into()),
            (node::ORIGIN, self.state.origin.name().as_bytes().into()),
            (node::VOTING, u64::from(self.state.non_voting.is_none()).into()),
            (node::NON_VOTING_REASON, self.state.non_voting.map_or("", NonVoting::name).as_bytes().into()),
            (node::FENCE, self.largest_fence().into()),
            (node::HIGH_WATER, self.state.highest().into()),
            (node::QUARANTINE_MS, self.quarantine_left_ms(clock).into()),
            (node::LOCKS, self.held().saturating_sub(unreclaimed).into()),
            (node::WAITERS, self.waiters().into()),
            (node::LONGEST_LEASE_MS, self.state.longest_lease_ms.into()),
            (node::MAX_TTL_MS, self.max_ttl_ms.into()),
            (node::CLAIM_WINDOW_MS, self.claim_window_ms.into()),
            (node::STARTED, if self.is_resumed { &b"resumed"[..] } else { b"new" }.into()),
            (node::ROLE, role.name().as_bytes().into()),
            (node::VERSION, VERSION.as_bytes().into()),
        ])
    }

    fn standing(
        &self,
        keyspace: &impl Keyspace,
        owner: &[u8],
        clock: &mut impl NodeClock,
    ) -> Result<Standing, Fault> {
        let mut held = false;
        let mut open = false;
        let mut has_locks = false;
        let mut fences = None::<(u64, u64)>;
        for key in 0..keyspace.count() {
            match keyspace.occupant(key) {
                Occupant::OtherType => return Err(Fault::WrongType),
                Occupant::ForeignString => held = true,
                Occupant::Empty => open = true,
                Occupant::Lock(id) if self.has_expired(id, clock) => (open, has_locks) = (true, true),
                Occupant::Lock(id) if self.locks.is_owned_by(id, owner) => {
                    has_locks = true;
                    let fence = self.locks.fence(id);
                    let (least, most) = fences.unwrap_or((fence, fence));
                    fences = Some((least.min(fence), most.max(fence)));
                }
                Occupant::Lock(_) => held = true,
            }
        }
        Ok(match fences {
            _ if held => Standing::Held,
            Some((least, most)) if !open && least == most => Standing::Mine { fence: most },
            // Keys of which only some are held, or that were taken one by one, get a new number
            // together: an old one could be confirmed for a key that somebody held in between.
            _ => Standing::Open { has_locks },
        })
    }

    fn owns_all(
        &self,
        keyspace: &impl Keyspace,
        owner: &[u8],
        clock: &mut impl NodeClock,
    ) -> Result<bool, Fault> {
        let mut all = true;
        for key in 0..keyspace.count() {
            all &= match keyspace.occupant(key) {
                Occupant::OtherType => return Err(Fault::WrongType),
                Occupant::Lock(id) => self.locks.is_owned_by(id, owner) && !self.has_expired(id, clock),
                Occupant::Empty | Occupant::ForeignString => false,
            };
        }
        Ok(all)
    }

    fn has_expired(&self, lock: LockId, clock: &mut impl NodeClock) -> bool {
        clock.has_passed(self.locks.deadline(lock))
    }

    /// Grants all keys under one fence; `None` if the request comes too late.
    fn grant(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        owner: &[u8],
        has_locks: bool,
        now: Millis,
        clock: &mut impl NodeClock,
    ) -> Result<Option<u64>, Fault> {
        let keys = keyspace.count();
        self.refuse_in_quarantine(clock)?;
        if self.comes_late(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(None);
        }
        let mut fence = 0;
        for key in 0..keys {
            let next = self.stripes.next(keyspace.stripe(key), request.floor);
            fence = fence.max(next.ok_or(Fault::FenceExhausted)?);
            // A lock that came here from another name has the numbers of that name.
            if has_locks && let Occupant::Lock(old) = keyspace.occupant(key) {
                fence = fence.max(self.locks.fence(old) + 1);
            }
        }
        if fence > MAX_FENCE {
            return Err(Fault::FenceExhausted);
        }
        if !self.locks.has_room_for(keys) {
            return Err(FULL);
        }
        self.reserve(keyspace, fence, request.ttl.ms())?;
        for key in 0..keys {
            let (mut deadline, mut lease_ms) = (now.deadline_after(request.ttl.ms()), request.ttl.ms());
            if has_locks && let Occupant::Lock(old) = keyspace.occupant(key) {
                if self.has_expired(old, clock) {
                    self.counters.expirations += 1;
                } else {
                    // The owner's own, taken apart from the others: what was promised stays promised.
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
            let left_ms = now.left_until(deadline);
            let owner = request.owner.bytes();
            keyspace.replicate(Effect::Granted { key, owner, fence, left_ms, label: request.label });
        }
        self.counters.grants += 1;
        Ok(Some(fence))
    }

    #[inline]
    fn refuse_unless_voting(&self) -> Result<(), Fault> {
        self.state.non_voting.map_or(Ok(()), |reason| Err(Fault::NonVoting(reason)))
    }

    fn refuse_in_quarantine(&mut self, clock: &mut impl NodeClock) -> Result<(), Fault> {
        if self.quarantine_until > Millis(0) {
            let left_ms = self.quarantine_left_ms(clock);
            if left_ms > 0 {
                self.counters.quarantine_refusals += 1;
                return Err(Fault::Quarantine { left_ms });
            }
            // Every lease that the node may have forgotten is over.
            self.last_loaded = Millis(0);
        }
        Ok(())
    }

    /// In quarantine, refuses to prolong a lock that was loaded: it may have been released since it was saved, and
    /// another client may hold it on the other nodes.
    #[inline]
    fn refuse_unconfirmed(
        &mut self,
        keyspace: &impl Keyspace,
        clock: &mut impl NodeClock,
    ) -> Result<(), Fault> {
        if self.quarantine_until == Millis(0) {
            return Ok(());
        }
        let is_unconfirmed = |key| match keyspace.occupant(key) {
            Occupant::Lock(id) => self.locks.granted(id) <= self.last_loaded,
            _ => false,
        };
        if (0..keyspace.count()).any(is_unconfirmed) { self.refuse_in_quarantine(clock) } else { Ok(()) }
    }

    /// Whether the request was overtaken by its own release, on another connection.
    fn comes_late(&self, keyspace: &impl Keyspace, request: &Acquire<'_>, now: Millis) -> bool {
        if self.late.is_quiet(now) {
            return false;
        }
        let Some(connection) = keyspace.connection() else { return false };
        (0..keyspace.count())
            .any(|key| self.late.bars(keyspace.name(key), request.owner.bytes(), connection, now))
    }

    /// Lets a key's lock go on with this fence: its deadline moves out, its extensions are counted.
    #[allow(clippy::too_many_arguments, reason = "one step of two commands, nothing to group")]
    fn prolong(
        &mut self,
        keyspace: &mut impl Keyspace,
        key: usize,
        fence: u64,
        count: impl FnOnce(u32) -> u32,
        owner: &[u8],
        ttl: Ttl,
        now: Millis,
    ) {
        let Occupant::Lock(id) = keyspace.occupant(key) else { return };
        self.queues.claimed(id);
        let extensions = count(self.locks.extensions(id));
        self.locks.set_fence(id, fence);
        self.locks.set_extensions(id, extensions);
        // The lock may have come here from another name, whose stripe counted for it so far.
        self.stripes.raise(keyspace.stripe(key), fence);
        let left_ms = now.left_until(self.locks.prolong(id, ttl.ms(), now.deadline_after(ttl.ms())));
        let held_ms = now.since(self.locks.granted(id));
        keyspace.replicate(Effect::Prolonged { key, owner, fence, left_ms, held_ms, extensions });
    }

    fn free(&mut self, keyspace: &mut impl Keyspace, key: usize, floor: u64) {
        let Occupant::Lock(id) = keyspace.occupant(key) else { return };
        let renamed = !self.locks.is_at(id, keyspace.name(key));
        if floor > 0 || renamed {
            let stripe = keyspace.stripe(key);
            let last = self.stripes.last(stripe).max(self.locks.fence(id));
            let raised = fence::raised(last, floor);
            // When the raise cannot be stored the lock is freed all the same.
            let stored = self.reserve_on(keyspace, [stripe], raised, 0).is_ok();
            self.stripes.raise(stripe, if stored { raised } else { last });
        }
        // Its owner has spoken: whatever was handed to it does not count as unclaimed.
        match keyspace.delete(key) {
            Some(lock) => {
                self.queues.forget_lock(lock);
                self.locks.remove(lock);
            }
            None => self.queues.claimed(id),
        }
        if !self.queues.is_empty() {
            self.queues.note_free(keyspace.database(), keyspace.name(key));
        }
    }

    /// Stores what a crash must not forget before this fence and this lease are granted on the keys of a command.
    #[inline]
    fn reserve(&mut self, keyspace: &mut impl Keyspace, fence: u64, lease_ms: u64) -> Result<(), Fault> {
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
    ) -> Result<(), Fault> {
        let next = self.state.reserving(stripes, fence, lease_ms);
        let Some(next) = next.or_else(|| self.is_state_unsaved.then(|| self.state.clone())) else {
            return Ok(());
        };
        keyspace.store(&next)?;
        keyspace.replicate(Effect::Dataset { id: next.dataset_id, high_water: next.highest() });
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
        self.counters.unclaimed += u64::from(self.queues.forget_lock(lock));
        self.locks.remove(lock);
    }
}

const FULL: Fault = Fault::Arg("this node can hold no more locks");
