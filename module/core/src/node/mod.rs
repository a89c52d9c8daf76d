//! What a node decides.
//!
//! Every command first looks at all of its keys and changes nothing until it knows its answer, so a
//! refusal leaves no trace and several keys are taken in one step or not at all.

mod handoff;
#[cfg(test)]
mod tests;
mod upkeep;

pub use handoff::{Announcement, CHANNEL_PREFIX};
pub use upkeep::Sweep;

use crate::counters::Counters;
use crate::fault::Fault;
use crate::fence::{self, Stripes};
use crate::grammar::{Acquire, Apply, Extend, Release};
use crate::keyspace::{Effect, Keyspace, Occupant};
use crate::late::LateReleases;
use crate::ledger::Ledger;
use crate::pack::Packed;
use crate::queue::{DEFAULT_CLAIM_WINDOW_MS, Queues};
use crate::reply::Reply;
use crate::request::{DEFAULT_MAX_TTL_MS, Ttl};
use crate::table::{LockId, LockTable, NewLock};
use crate::time::{Millis, NodeClock};

/// Whether a server decides, or follows another one that does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It grants locks.
    Master,
    /// It has a copy of them.
    Replica,
}

impl Role {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Master => b"master",
            Self::Replica => b"replica",
        }
    }
}

/// The version of this node, as `REDLOCK.NODE` tells it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A node: the locks it holds and the numbers it has given out.
#[derive(Debug)]
pub struct Node {
    ledger: Ledger,
    /// The ledger says more than the one that is stored.
    is_ledger_owed: bool,
    locks: LockTable,
    stripes: Stripes,
    late: LateReleases,
    queues: Queues,
    claim_window_ms: u64,
    counters: Counters,
    max_ttl_ms: u64,
    longest_ttl_ms: u64,
    quarantine_until: Millis,
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
    /// A node that holds nothing. Its numbers are larger than `above`, which its ledger covers.
    #[must_use]
    pub fn new(ledger: Ledger, above: u64) -> Self {
        Self {
            locks: LockTable::default(),
            stripes: Stripes::starting_at(above),
            late: LateReleases::default(),
            queues: Queues::default(),
            claim_window_ms: DEFAULT_CLAIM_WINDOW_MS,
            counters: Counters::default(),
            max_ttl_ms: DEFAULT_MAX_TTL_MS,
            longest_ttl_ms: ledger.longest_ttl_ms,
            quarantine_until: Millis(0),
            is_resumed: false,
            is_ledger_owed: false,
            ledger,
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
        let now = clock.latest();
        let owner = &request.owner.packed();
        match self.standing(keyspace, owner, clock)? {
            Standing::Held => self.refuse(keyspace, request, clock),
            Standing::Mine { fence } => {
                // The same request again: the same lock, the same fence, at least as long.
                self.cover(keyspace, fence, request.ttl.ms())?;
                self.counters.refreshes += 1;
                for key in 0..keyspace.count() {
                    let as_many = |count| count;
                    self.prolong(keyspace, key, fence, as_many, request.owner.text(), request.ttl, now);
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
        let now = clock.latest();
        if !self.owns_all(keyspace, &request.owner.packed(), clock)? {
            self.counters.stale_extensions += 1;
            return Ok(Reply::Nil);
        }
        // One number for all keys: the next holder of any of them gets a larger one.
        let lifted = |key| match keyspace.occupant(key) {
            Occupant::Lock(id) => fence::lifted(self.locks.fence(id), request.floor),
            _ => 0,
        };
        let largest = (0..keyspace.count()).map(lifted).max().unwrap_or(0);
        self.cover(keyspace, largest, request.ttl.ms())?;
        self.counters.extensions += 1;
        for key in 0..keyspace.count() {
            let one_more = |count: u32| count.saturating_add(1);
            self.prolong(keyspace, key, largest, one_more, request.owner.text(), request.ttl, now);
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
        if !self.owns_all(keyspace, &request.owner.packed(), clock)? {
            self.counters.stale_releases += 1;
            if !self.queues.is_empty() {
                self.leave_line(keyspace, request.owner.text());
            }
            let now = clock.latest();
            if let Some(connection) = keyspace.connection() {
                for key in 0..keyspace.count() {
                    self.late.remember(keyspace.name(key), request.owner.text(), connection, now);
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
        let owner = &request.owner.packed();
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
        let owner = &request.owner.packed();
        // What the master did is done: a copy that cannot store it follows all the same, and says so when
        // it is to grant by itself.
        if self.cover(keyspace, request.fence, request.left_ms).is_err()
            && let Some(ledger) = self.ledger.covering(request.fence, request.left_ms)
        {
            self.owe_ledger(ledger);
        }
        self.stripes.raise(keyspace.stripe(0), request.fence);
        let granted = Millis(now.0.saturating_sub(request.held_ms.unwrap_or(0)));
        // An extension says how many there were and leaves the label out; a grant does neither.
        if let (Occupant::Lock(id), Some(extensions), None) =
            (keyspace.occupant(0), request.extensions, request.label)
            && self.locks.is_owned_by(id, owner)
        {
            self.locks.set_fence(id, request.fence);
            self.locks.set_granted(id, granted);
            self.locks.set_extensions(id, extensions);
            self.locks.prolong(id, now.deadline_after(request.left_ms));
            return Ok(());
        }
        let lock = NewLock {
            database: keyspace.database(),
            key: keyspace.name(0),
            owner,
            label: request.label.unwrap_or(&[]),
            fence: request.fence,
            granted,
            deadline: now.deadline_after(request.left_ms),
            extensions: request.extensions.unwrap_or(0),
        };
        let id = self.locks.insert(&lock).ok_or(FULL)?;
        let gone = keyspace.put(0, id);
        self.bury_if(gone);
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
                ("fence", self.locks.fence(id).into()),
                ("label", self.locks.label(id).into()),
                ("pttl", now.left_until(self.locks.deadline(id)).into()),
                ("held-ms", now.since(self.locks.granted(id)).into()),
                ("extensions", u64::from(self.locks.extensions(id)).into()),
                ("waiters", (self.queues.waiting_for(keyspace.database(), keyspace.name(0)) as u64).into()),
            ])),
            _ => Ok(Reply::Nil),
        }
    }

    /// Tells about this node. `unburied` locks have left the keyspace and are about to be forgotten.
    #[must_use]
    pub fn describe(&self, unburied: u64, role: Role, clock: &mut impl NodeClock) -> Reply {
        Reply::Map(vec![
            ("node-id", self.ledger.node_id.as_bytes().into()),
            ("fence", self.largest_fence().into()),
            ("quarantine-ms", self.quarantine_left_ms(clock).into()),
            ("locks", self.held().saturating_sub(unburied).into()),
            ("waiters", self.waiters().into()),
            ("longest-ttl-ms", self.longest_ttl_ms.into()),
            ("claim-window-ms", self.claim_window_ms.into()),
            ("started", if self.is_resumed { &b"resumed"[..] } else { b"new" }.into()),
            ("role", role.name().into()),
            ("version", VERSION.as_bytes().into()),
        ])
    }

    fn standing(
        &self,
        keyspace: &impl Keyspace,
        owner: &Packed<'_>,
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
        owner: &Packed<'_>,
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
        owner: &Packed<'_>,
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
        if fence > fence::MAX_FENCE {
            return Err(Fault::FenceExhausted);
        }
        if !self.locks.has_room_for(keys) {
            return Err(FULL);
        }
        self.cover(keyspace, fence, request.ttl.ms())?;
        for key in 0..keys {
            let mut deadline = now.deadline_after(request.ttl.ms());
            if has_locks && let Occupant::Lock(old) = keyspace.occupant(key) {
                if self.has_expired(old, clock) {
                    self.counters.expirations += 1;
                } else {
                    // The owner's own, taken apart from the others: what was promised stays promised.
                    deadline = deadline.max(self.locks.deadline(old));
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
                extensions: 0,
            };
            let id = self.locks.insert(&lock).ok_or(FULL)?;
            self.stripes.raise(keyspace.stripe(key), fence);
            let gone = keyspace.put(key, id);
            self.bury_if(gone);
            let left_ms = now.left_until(deadline);
            let owner = request.owner.text();
            keyspace.replicate(Effect::Granted { key, owner, fence, left_ms, label: request.label });
        }
        self.counters.grants += 1;
        Ok(Some(fence))
    }

    fn refuse_in_quarantine(&mut self, clock: &mut impl NodeClock) -> Result<(), Fault> {
        if self.quarantine_until > Millis(0) {
            let left_ms = self.quarantine_left_ms(clock);
            if left_ms > 0 {
                self.counters.quarantine_refusals += 1;
                return Err(Fault::Quarantine { left_ms });
            }
        }
        Ok(())
    }

    /// Whether the request was overtaken by its own release, on another connection.
    fn comes_late(&self, keyspace: &impl Keyspace, request: &Acquire<'_>, now: Millis) -> bool {
        if self.late.is_quiet(now) {
            return false;
        }
        let Some(connection) = keyspace.connection() else { return false };
        (0..keyspace.count())
            .any(|key| self.late.bars(keyspace.name(key), request.owner.text(), connection, now))
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
        let left_ms = now.left_until(self.locks.prolong(id, now.deadline_after(ttl.ms())));
        let held_ms = now.since(self.locks.granted(id));
        keyspace.replicate(Effect::Prolonged { key, owner, fence, left_ms, held_ms, extensions });
    }

    fn free(&mut self, keyspace: &mut impl Keyspace, key: usize, floor: u64) {
        let Occupant::Lock(id) = keyspace.occupant(key) else { return };
        let renamed = !self.locks.is_at(id, keyspace.name(key));
        if floor > 0 || renamed {
            let stripe = keyspace.stripe(key);
            let last = self.stripes.last(stripe).max(self.locks.fence(id));
            let raised = fence::lifted(last, floor);
            // The floor is a wish: when it cannot be stored the lock is freed all the same.
            let stored = self.cover(keyspace, raised, 0).is_ok();
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

    /// Makes sure that a crash from now on forgets neither this fence nor this time to live.
    fn cover(&mut self, keyspace: &mut impl Keyspace, fence: u64, ttl_ms: u64) -> Result<(), Fault> {
        if self.is_ledger_owed || !self.ledger.covers(fence, ttl_ms) {
            self.store_covering(keyspace, fence, ttl_ms)?;
        }
        self.longest_ttl_ms = self.longest_ttl_ms.max(ttl_ms);
        Ok(())
    }

    #[cold]
    fn store_covering(&mut self, keyspace: &mut impl Keyspace, fence: u64, ttl_ms: u64) -> Result<(), Fault> {
        let next = self.ledger.covering(fence, ttl_ms).unwrap_or_else(|| self.ledger.clone());
        keyspace.store(&next)?;
        keyspace.replicate(Effect::Covered { mark: next.mark, longest_ttl_ms: next.longest_ttl_ms });
        self.keep_ledger(next);
        Ok(())
    }

    #[inline]
    fn bury_if(&mut self, gone: Option<LockId>) {
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
