//! What goes on around commands: locks that run out, are saved and loaded, or may have been forgotten;
//! what is counted and set.

use super::{FULL, Node};
use crate::counters::Counters;
use crate::durable::{Dataset, DurableState, LocksDigest};
use crate::fault::Fault;
use crate::fence::{Stripe, Stripes};
use crate::grammar::Admit;
use crate::image::LockImage;
use crate::late::LateReleases;
use crate::reply::Reply;
use crate::request::{self, Owner};
use crate::table::{Database, LockId, NewLock};
use crate::time::{Millis, NodeClock};
use crate::wheel::Step;
use redlock_contract::NonVoting;
use redlock_contract::drift::with_drift;
use redlock_contract::limits::{MAX_TTL_LIMIT_MS, raise_limit};

/// For how long a lower longest lease must do before it is stored.
const LOWER_AFTER_MS: u64 = 60_000;

/// How long the node waits before it tries again to store its state without need.
const STORE_AGAIN_AFTER_MS: u64 = 1_000;

/// What one step of the sweep came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sweep {
    /// This lock has run out: its key is to be deleted.
    Expired(LockId),
    /// There may be more to do; ask again.
    Busy,
    /// Nothing runs out before this time.
    Until(Millis),
    /// Nothing is held.
    Idle,
}

impl Node {
    /// Does one lock's worth of sweeping. Whoever sweeps deletes the key of an expired lock, if the
    /// lock still stands there, and calls [`expired`](Self::expired).
    pub fn sweep(&mut self, clock: &mut impl NodeClock) -> Sweep {
        if !self.queues.is_empty() && self.attend_to_waiters(clock) {
            return Sweep::Busy;
        }
        match self.locks.step(clock.proven()) {
            Step::Due(entry) => Sweep::Expired(LockId::from_bits(entry)),
            Step::Moved => Sweep::Busy,
            Step::Later(at) => Sweep::Until(self.next_attention().map_or(at, |attention| attention.min(at))),
            Step::Idle => self.next_attention().map_or(Sweep::Idle, Sweep::Until),
        }
    }

    /// When the sweep has something to do next.
    #[must_use]
    pub fn next_sweep(&self) -> Option<Millis> {
        [self.locks.next_deadline(), self.next_attention()].into_iter().flatten().min()
    }

    /// Counts a lock that the sweep has deleted, and forgets it if its value is gone.
    pub fn expired(&mut self, lock: LockId, gone: Option<LockId>) {
        self.counters.expirations += 1;
        self.raise_past(lock, Stripe::of(self.locks.place(lock).1));
        self.note_free_place(lock);
        self.reclaim_if(gone);
    }

    /// Makes sure that the next fence on a stripe is larger than that of a lock: a renamed lock has a fence of the
    /// stripe of its old name.
    fn raise_past(&mut self, lock: LockId, stripe: Stripe) {
        let fence = self.locks.fence(lock);
        if fence > self.stripes.last(stripe) {
            self.stripes.raise(stripe, fence);
            if let Some(state) = self.state.reserving([stripe], fence, 0) {
                self.set_unsaved_state(state);
            }
        }
    }

    fn note_free_place(&mut self, lock: LockId) {
        if !self.queues.is_empty() {
            let (database, key) = self.locks.place(lock);
            self.queues.note_free(database, key);
        }
    }

    /// Forgets a lock whose value has left the keyspace.
    pub fn reclaim(&mut self, lock: LockId) {
        self.note_free_place(lock);
        self.forget(lock);
    }

    /// Notes that any key may be free, as after a flush.
    pub fn all_keys_changed(&mut self) {
        self.queues.note_all_free();
    }

    /// Whether this node could have granted a lock like this one. `RESTORE` and `MIGRATE` bring no other: a forged
    /// image must not hold a key for years, or use up its fences.
    #[must_use]
    pub fn could_have_granted(&self, key: &[u8], image: &LockImage) -> bool {
        image.left_ms <= self.max_ttl_ms && image.fence <= raise_limit(self.stripes.last(Stripe::of(key)))
    }

    /// The state that must be stored before a saved lock is loaded; `None` if the present one covers the lock.
    #[must_use]
    pub fn state_to_load(&self, key: &[u8], image: &LockImage) -> Option<DurableState> {
        let left_ms = image.left_ms.min(MAX_TTL_LIMIT_MS);
        let next = self.state.reserving([Stripe::of(key)], image.fence, left_ms);
        next.or_else(|| self.is_state_unsaved.then(|| self.state.clone()))
    }

    /// Loads a saved lock, once [its state](Self::state_to_load) is stored or set as unsaved. The caller puts the lock
    /// under its key.
    ///
    /// # Errors
    /// No more locks can be held, or the image is not of a lock.
    pub fn load(
        &mut self,
        database: Database,
        key: &[u8],
        image: &LockImage,
        clock: &mut impl NodeClock,
    ) -> Result<LockId, Fault> {
        let owner = Owner::parse(&image.owner)?;
        let now = clock.latest();
        // No node grants for longer, so no lock has more left.
        let left_ms = image.left_ms.min(MAX_TTL_LIMIT_MS);
        self.stripes.raise(Stripe::of(key), image.fence);
        self.last_loaded = self.last_loaded.max(now);
        self.locks
            .insert(&NewLock {
                database,
                key,
                owner: owner.bytes(),
                label: request::label(&image.label)?,
                fence: image.fence,
                granted: Millis(now.0.saturating_sub(image.held_ms)),
                deadline: now.deadline_after(left_ms),
                lease_ms: left_ms,
                extensions: image.extensions,
            })
            .ok_or(FULL)
    }

    /// A lock as it is to be saved.
    #[must_use]
    pub fn image(&self, lock: LockId, clock: &mut impl NodeClock) -> LockImage {
        self.locks.image(lock, clock.proven())
    }

    /// Where a lock stands.
    #[must_use]
    pub fn place(&self, lock: LockId) -> (Database, &[u8]) {
        self.locks.place(lock)
    }

    /// Notes that a lock stands under another key than the one it was granted for. The sweep, which did
    /// not find it, will look at it again.
    pub fn found_at(&mut self, lock: LockId, database: Database, key: &[u8]) {
        self.locks.found_at(lock, database, key);
    }

    /// Notes that two databases changed places.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        self.locks.databases_swapped(one, other);
        self.queues.databases_swapped(one, other);
    }

    /// Memory of one lock.
    #[must_use]
    pub fn bytes_of(&self, lock: LockId) -> usize {
        self.locks.bytes_of(lock)
    }

    /// Memory of all locks.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.locks.held_bytes()
    }

    /// How many locks are held.
    #[must_use]
    pub fn held(&self) -> u64 {
        self.locks.len() as u64
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The numbers given out.
    #[must_use]
    pub fn stripes(&self) -> &Stripes {
        &self.stripes
    }

    /// The numbers given out, to take saved ones over.
    pub fn stripes_mut(&mut self) -> &mut Stripes {
        &mut self.stripes
    }

    /// The largest number given out.
    #[must_use]
    pub fn largest_fence(&self) -> u64 {
        self.stripes.largest()
    }

    /// What this node must not forget. It is stored, unless storing it has failed.
    #[must_use]
    pub fn state(&self) -> &DurableState {
        &self.state
    }

    /// Takes over a state that was just stored.
    pub fn set_state(&mut self, state: DurableState) {
        self.state = state;
        self.is_state_unsaved = false;
    }

    /// Takes over a state that is not stored yet: nothing is granted until it is.
    pub fn set_unsaved_state(&mut self, state: DurableState) {
        self.state = state;
        self.is_state_unsaved = true;
    }

    /// The state of this server under an id of its own, which does not vote: to be stored. The waiters are dismissed.
    #[must_use]
    pub fn without_vote(&mut self, reason: NonVoting, node_id: String, dataset: Dataset) -> DurableState {
        self.dismiss_waiters();
        let state = self.state.without_vote(reason, node_id);
        state.following(dataset.id, dataset.highest_fence).unwrap_or(state)
    }

    /// Lets this node vote: with fences above the floor, after the wait. `store` stores the state, and nothing changes
    /// if it cannot.
    ///
    /// # Errors
    /// Another node was named, the server cannot tell which of several state files is its own, or the state cannot
    /// be stored.
    pub fn admit(
        &mut self,
        request: &Admit<'_>,
        store: impl FnOnce(&DurableState) -> Result<(), Fault>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        if let Some(reason @ NonVoting::SeveralStates) = self.state.non_voting {
            return Err(Fault::NonVoting(reason));
        }
        if request.node_id != self.state.node_id.as_bytes() {
            return Err(Fault::OtherNode);
        }
        let above = self.state.highest().max(request.floor);
        let state = self.state.admitted(request.floor, request.wait_ms);
        store(&state)?;
        self.set_state(state);
        self.stripes.raise_all(above);
        if request.wait_ms > 0 {
            self.quarantine(with_drift(request.wait_ms), clock);
        }
        Ok(Reply::Integer(1))
    }

    /// The state that is to be stored although no grant waits for it; `None` most of the time. It could not be stored
    /// before, or the leases that made its longest lease long have been over for a while: a node on which such leases
    /// come and go does not store its state for each.
    #[must_use]
    pub fn state_to_store(&mut self, clock: &mut impl NodeClock) -> Option<DurableState> {
        let now = clock.proven();
        let shorter = self.state_with_shorter_lease(clock);
        self.shorter_since = match (&shorter, self.shorter_since) {
            (None, _) => Millis(0),
            (Some(_), Millis(0)) => now,
            (Some(_), since) => since,
        };
        if now < self.next_store {
            return None;
        }
        let shorter = shorter.filter(|_| now.since(self.shorter_since) >= LOWER_AFTER_MS);
        let next = shorter.or_else(|| self.is_state_unsaved.then(|| self.state.clone()))?;
        self.next_store = Millis(now.0 + STORE_AGAIN_AFTER_MS);
        Some(next)
    }

    /// A state could not be stored. The file may have it all the same: nothing is granted until the present one is
    /// stored.
    pub fn not_stored(&mut self) {
        self.is_state_unsaved = true;
    }

    /// The state with a lower longest lease. A quarantine that is under way waits for leases that are not in the table.
    #[must_use]
    pub fn state_with_shorter_lease(&self, clock: &mut impl NodeClock) -> Option<DurableState> {
        let now = clock.proven();
        let left = |until: Millis| until.since(now);
        let longest = self.locks.last_long_deadline().map_or(0, left).max(left(self.quarantine_until));
        self.state.with_leases_of(longest)
    }

    /// Notes that this node has been here before.
    pub fn set_resumed(&mut self) {
        self.is_resumed = true;
    }

    /// The set of locks in brief.
    #[must_use]
    pub fn locks_digest(&self) -> LocksDigest {
        self.locks.digest()
    }

    /// Grants nothing for so long: locks may have been forgotten. A longer wait that is under way stays.
    pub fn quarantine(&mut self, for_ms: u64, clock: &mut impl NodeClock) {
        let until = clock.latest().deadline_after(for_ms);
        self.quarantine_until_past(until, clock);
    }

    /// Grants nothing until the locks of a database, or all, would have run out: they are about to be
    /// thrown away while somebody may rely on them.
    pub fn quarantine_for_locks_of(&mut self, database: Option<Database>, clock: &mut impl NodeClock) {
        if let Some(last) = self.locks.last_deadline(database) {
            self.quarantine_until_past(last, clock);
        }
    }

    /// Grants nothing until a lock would have run out that the server has thrown away from under this key.
    pub fn quarantine_for(&mut self, lock: LockId, key: &[u8], clock: &mut impl NodeClock) {
        self.raise_past(lock, Stripe::of(key));
        self.quarantine_until_past(self.locks.deadline(lock), clock);
    }

    fn quarantine_until_past(&mut self, deadline: Millis, clock: &mut impl NodeClock) {
        if !clock.has_passed(deadline) {
            self.counters.quarantines += 1;
            self.quarantine_until = self.quarantine_until.max(deadline);
        }
    }

    /// Grants again: nothing was forgotten after all, and it was no quarantine.
    pub fn end_quarantine(&mut self) {
        self.last_loaded = Millis(0);
        if std::mem::replace(&mut self.quarantine_until, Millis(0)) > Millis(0) {
            self.counters.quarantines = self.counters.quarantines.saturating_sub(1);
        }
    }

    /// Time until this node grants again; 0 if it does.
    #[must_use]
    pub fn quarantine_left_ms(&self, clock: &mut impl NodeClock) -> u64 {
        self.quarantine_until.since(clock.proven())
    }

    /// The largest time to live that a request may ask for.
    #[must_use]
    pub fn max_ttl_ms(&self) -> u64 {
        self.max_ttl_ms
    }

    /// Sets the largest time to live. Locks that are held keep theirs.
    pub fn set_max_ttl_ms(&mut self, max_ttl_ms: u64) {
        self.max_ttl_ms = max_ttl_ms;
    }

    /// The releases that came before their acquire.
    #[must_use]
    pub fn late_releases(&self) -> &LateReleases {
        &self.late
    }

    /// How long a release bars its late acquire.
    #[must_use]
    pub fn late_window_ms(&self) -> u64 {
        self.late.window_ms()
    }

    /// Sets how long a release bars its late acquire; 0: not at all.
    pub fn set_late_window_ms(&mut self, window_ms: u64) {
        self.late.set_window_ms(window_ms);
    }
}
