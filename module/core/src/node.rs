//! What a node decides.
//!
//! Every command first looks at all of its keys and changes nothing until it knows its answer, so a
//! refusal leaves no trace and several keys are taken in one step or not at all.

use crate::counters::Counters;
use crate::fault::Fault;
use crate::fence::{self, Stripe, Stripes};
use crate::grammar::{Acquire, Apply, Extend, Release};
use crate::image::LockImage;
use crate::keyspace::{Effect, Keyspace, Occupant};
use crate::late::LateReleases;
use crate::ledger::{Ledger, Seal};
use crate::pack::Packed;
use crate::reply::Reply;
use crate::request::{DEFAULT_MAX_TTL_MS, Ttl};
use crate::table::{Database, LockId, LockTable, NewLock};
use crate::time::{Millis, NodeClock};
use crate::wheel::Step;

/// The version of this node, as `REDLOCK.NODE` tells it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A node: the locks it holds and the numbers it has given out.
#[derive(Debug)]
pub struct Node {
    ledger: Ledger,
    locks: LockTable,
    stripes: Stripes,
    late: LateReleases,
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
    /// A node that holds nothing. Its numbers are larger than `above`, which its ledger covers.
    #[must_use]
    pub fn new(ledger: Ledger, above: u64) -> Self {
        Self {
            locks: LockTable::default(),
            stripes: Stripes::starting_at(above),
            late: LateReleases::default(),
            counters: Counters::default(),
            max_ttl_ms: DEFAULT_MAX_TTL_MS,
            longest_ttl_ms: ledger.longest_ttl_ms,
            quarantine_until: Millis(0),
            is_resumed: false,
            ledger,
        }
    }

    /// Takes the lock of every key of the request, or of none.
    ///
    /// # Errors
    /// A key of another type, quarantine, or numbers used up; contention is [`Reply::Nil`].
    pub fn acquire(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        let now = clock.latest();
        let owner = &request.owner.packed();
        match self.standing(keyspace, request.keys.len(), owner, clock)? {
            Standing::Held => {
                self.counters.refusals += 1;
                Ok(Reply::Nil)
            }
            Standing::Mine { fence } => {
                // The same request again: the same lock, the same fence, at least as long.
                self.cover(keyspace, fence, request.ttl.ms())?;
                self.counters.refreshes += 1;
                for key in 0..request.keys.len() {
                    let as_many = |count| count;
                    self.prolong(keyspace, key, fence, as_many, request.owner.text(), request.ttl, now);
                }
                Ok(Reply::Integer(fence))
            }
            Standing::Open { has_locks } => self.grant(keyspace, request, owner, has_locks, now, clock),
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
        if !self.owns_all(keyspace, request.keys.len(), &request.owner.packed(), clock)? {
            self.counters.stale_extensions += 1;
            return Ok(Reply::Nil);
        }
        // One number for all keys: the next holder of any of them gets a larger one.
        let lifted = |key| match keyspace.occupant(key) {
            Occupant::Lock(id) => fence::lifted(self.locks.fence(id), request.floor),
            _ => 0,
        };
        let largest = (0..request.keys.len()).map(lifted).max().unwrap_or(0);
        self.cover(keyspace, largest, request.ttl.ms())?;
        self.counters.extensions += 1;
        for key in 0..request.keys.len() {
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
        if !self.owns_all(keyspace, request.keys.len(), &request.owner.packed(), clock)? {
            self.counters.stale_releases += 1;
            let now = clock.latest();
            if let Some(connection) = keyspace.connection() {
                for key in 0..request.keys.len() {
                    self.late.remember(keyspace.name(key), request.owner.text(), connection, now);
                }
            }
            return Ok(Reply::Integer(0));
        }
        self.counters.releases += 1;
        for key in 0..request.keys.len() {
            self.free(keyspace, key, request.floor);
        }
        keyspace.replicate(Effect::Released);
        Ok(Reply::Integer(1))
    }

    /// Does on a copy what a release did on the master: no clock is asked.
    pub fn replay_release(&mut self, keyspace: &mut impl Keyspace, request: &Release<'_>) -> Reply {
        let owner = &request.owner.packed();
        for key in 0..request.keys.len() {
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
        let _ = self.cover(keyspace, request.fence, request.left_ms);
        self.stripes.raise(Stripe::of(keyspace.name(0)), request.fence);
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
                ("waiters", 0.into()),
            ])),
            _ => Ok(Reply::Nil),
        }
    }

    /// Tells about this node. `unburied` locks have left the keyspace and are about to be forgotten.
    #[must_use]
    pub fn describe(&self, unburied: u64, clock: &mut impl NodeClock) -> Reply {
        Reply::Map(vec![
            ("node-id", self.ledger.node_id.as_bytes().into()),
            ("fence", self.largest_fence().into()),
            ("quarantine-ms", self.quarantine_left_ms(clock).into()),
            ("locks", self.held().saturating_sub(unburied).into()),
            ("waiters", 0.into()),
            ("longest-ttl-ms", self.longest_ttl_ms.into()),
            ("started", if self.is_resumed { &b"resumed"[..] } else { b"new" }.into()),
            ("version", VERSION.as_bytes().into()),
        ])
    }

    /// Does one lock's worth of sweeping. Whoever sweeps deletes the key of an expired lock, if the
    /// lock still stands there, and calls [`expired`](Self::expired).
    pub fn sweep(&mut self, clock: &mut impl NodeClock) -> Sweep {
        match self.locks.step(clock.proven()) {
            Step::Due(entry) => Sweep::Expired(LockId::from_bits(entry)),
            Step::Moved => Sweep::Busy,
            Step::Later(at) => Sweep::Until(at),
            Step::Idle => Sweep::Idle,
        }
    }

    /// When the sweep has something to do next.
    #[must_use]
    pub fn next_sweep(&self) -> Option<Millis> {
        self.locks.next_deadline()
    }

    /// Counts a lock that the sweep has deleted, and forgets it if its value is gone.
    pub fn expired(&mut self, lock: LockId, gone: Option<LockId>) {
        self.counters.expirations += 1;
        // A lock that came here from another name has the numbers of that name.
        let stripe = Stripe::of(self.locks.place(lock).1);
        self.stripes.raise(stripe, self.locks.fence(lock));
        self.bury_if(gone);
    }

    /// Forgets a lock whose value has left the keyspace.
    pub fn bury(&mut self, lock: LockId) {
        self.locks.remove(lock);
    }

    /// Takes over a saved lock; whoever loads it puts the lock under its key.
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
        let owner = crate::request::Owner::parse(&image.owner)?;
        let now = clock.latest();
        self.stripes.raise(Stripe::of(key), image.fence);
        self.longest_ttl_ms = self.longest_ttl_ms.max(image.left_ms);
        self.locks
            .insert(&NewLock {
                database,
                key,
                owner: &owner.packed(),
                label: crate::request::label(&image.label)?,
                fence: image.fence,
                granted: Millis(now.0.saturating_sub(image.held_ms)),
                deadline: now.deadline_after(image.left_ms),
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

    /// What this node must not forget, as it was stored last.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Notes that another ledger was stored.
    pub fn set_ledger(&mut self, ledger: Ledger) {
        self.longest_ttl_ms = self.longest_ttl_ms.max(ledger.longest_ttl_ms);
        self.ledger = ledger;
    }

    /// Notes that what is stored is not true any more: the next grant must store it anew.
    pub fn distrust_ledger(&mut self) {
        self.ledger.grants_are_stored = false;
        self.ledger.mark = 0;
    }

    /// Notes that this node has been here before.
    pub fn set_resumed(&mut self) {
        self.is_resumed = true;
    }

    /// All locks in brief.
    #[must_use]
    pub fn seal(&self) -> Seal {
        self.locks.seal()
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

    /// Grants nothing until a lock would have run out that the server has thrown away.
    pub fn quarantine_for(&mut self, lock: LockId, clock: &mut impl NodeClock) {
        self.quarantine_until_past(self.locks.deadline(lock), clock);
    }

    fn quarantine_until_past(&mut self, deadline: Millis, clock: &mut impl NodeClock) {
        if !clock.has_passed(deadline) {
            self.counters.quarantines += 1;
            self.quarantine_until = self.quarantine_until.max(deadline);
        }
    }

    /// Begins to grant where another node has granted before: numbers jump past all that it can have given
    /// out. The ledger that says so is to be stored; until it is, nothing is granted.
    #[must_use]
    pub fn take_over(&mut self) -> Ledger {
        let (ledger, above) = self.ledger.promoted();
        self.stripes.raise_all(above);
        ledger
    }

    /// Takes over what the ledger of another copy says. The result is to be stored, if there is one.
    #[must_use]
    pub fn joined_with(&self, mark: u64, longest_ttl_ms: u64) -> Option<Ledger> {
        self.ledger.joined_with(mark, longest_ttl_ms)
    }

    /// Grants again: nothing was forgotten after all.
    pub fn end_quarantine(&mut self) {
        self.quarantine_until = Millis(0);
    }

    /// The longest time to live granted.
    #[must_use]
    pub fn longest_ttl_ms(&self) -> u64 {
        self.longest_ttl_ms
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

    /// How long a release bars its late acquire.
    #[must_use]
    pub fn late_window_ms(&self) -> u64 {
        self.late.window_ms()
    }

    /// Sets how long a release bars its late acquire; 0: not at all.
    pub fn set_late_window_ms(&mut self, window_ms: u64) {
        self.late.set_window_ms(window_ms);
    }

    fn standing(
        &self,
        keyspace: &impl Keyspace,
        keys: usize,
        owner: &Packed<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Standing, Fault> {
        let mut held = false;
        let mut open = false;
        let mut has_locks = false;
        let mut fences = None::<(u64, u64)>;
        for key in 0..keys {
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
        keys: usize,
        owner: &Packed<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<bool, Fault> {
        let mut all = true;
        for key in 0..keys {
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

    fn grant(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        owner: &Packed<'_>,
        has_locks: bool,
        now: Millis,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, Fault> {
        let keys = request.keys.len();
        if self.quarantine_until > Millis(0) {
            let left_ms = self.quarantine_left_ms(clock);
            if left_ms > 0 {
                self.counters.quarantine_refusals += 1;
                return Err(Fault::Quarantine { left_ms });
            }
        }
        if self.comes_late(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(Reply::Nil);
        }
        let mut fence = 0;
        let mut stripe = Stripe::of(keyspace.name(0));
        for key in 0..keys {
            if key > 0 {
                stripe = Stripe::of(keyspace.name(key));
            }
            fence = fence.max(self.stripes.next(stripe, request.floor).ok_or(Fault::FenceExhausted)?);
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
            if keys > 1 {
                stripe = Stripe::of(keyspace.name(key));
            }
            self.stripes.raise(stripe, fence);
            let gone = keyspace.put(key, id);
            self.bury_if(gone);
            let left_ms = now.left_until(deadline);
            let owner = request.owner.text();
            keyspace.replicate(Effect::Granted { key, owner, fence, left_ms, label: request.label });
        }
        self.counters.grants += 1;
        Ok(Reply::Integer(fence))
    }

    /// Whether the request was overtaken by its own release, on another connection.
    fn comes_late(&self, keyspace: &impl Keyspace, request: &Acquire<'_>, now: Millis) -> bool {
        if self.late.is_quiet(now) {
            return false;
        }
        let Some(connection) = keyspace.connection() else { return false };
        (0..request.keys.len())
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
        let extensions = count(self.locks.extensions(id));
        self.locks.set_fence(id, fence);
        self.locks.set_extensions(id, extensions);
        // The lock may have come here from another name, whose stripe counted for it so far.
        self.stripes.raise(Stripe::of(keyspace.name(key)), fence);
        let left_ms = now.left_until(self.locks.prolong(id, now.deadline_after(ttl.ms())));
        let held_ms = now.since(self.locks.granted(id));
        keyspace.replicate(Effect::Prolonged { key, owner, fence, left_ms, held_ms, extensions });
    }

    fn free(&mut self, keyspace: &mut impl Keyspace, key: usize, floor: u64) {
        let Occupant::Lock(id) = keyspace.occupant(key) else { return };
        let renamed = self.locks.place(id).1 != keyspace.name(key);
        if floor > 0 || renamed {
            let stripe = Stripe::of(keyspace.name(key));
            let last = self.stripes.last(stripe).max(self.locks.fence(id));
            let raised = fence::lifted(last, floor);
            // The floor is a wish: when it cannot be stored the lock is freed all the same.
            let stored = self.cover(keyspace, raised, 0).is_ok();
            self.stripes.raise(stripe, if stored { raised } else { last });
        }
        let gone = keyspace.delete(key);
        self.bury_if(gone);
    }

    /// Makes sure that a crash from now on forgets neither this fence nor this time to live.
    fn cover(&mut self, keyspace: &mut impl Keyspace, fence: u64, ttl_ms: u64) -> Result<(), Fault> {
        if let Some(next) = self.ledger.covering(fence, ttl_ms) {
            keyspace.store(&next)?;
            keyspace.replicate(Effect::Covered { mark: next.mark, longest_ttl_ms: next.longest_ttl_ms });
            self.ledger = next;
        }
        self.longest_ttl_ms = self.longest_ttl_ms.max(ttl_ms);
        Ok(())
    }

    fn bury_if(&mut self, gone: Option<LockId>) {
        if let Some(lock) = gone {
            self.locks.remove(lock);
        }
    }
}

const FULL: Fault = Fault::Arg("this node can hold no more locks");
