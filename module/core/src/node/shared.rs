//! Shared locks: any number of owners hold one key together.
//!
//! Every holder has a record of its own in the table of locks, with its own deadline, label and number of
//! extensions. The value under the key names the record of one holder, the anchor. If the anchor leaves while
//! others stay, the value names another holder from then on, so the life of a value and of its record is the
//! same as for an exclusive lock.
//!
//! All holders have one fence: the record of each contains it. The first holder gets the next fence of the stripe, and
//! holders that join get the same. A floor above it raises the fence of all holders.

use std::collections::{BTreeMap, HashMap};

use super::{FULL, LockNode};
use crate::command_error::CommandError;
use crate::fence::{self, Stripe};
use crate::grammar::{Acquire, Apply};
use crate::image::SavedLock;
use crate::keyspace::{Effect, KeyState, Keyspace, LockEvent};
use crate::reply::Reply;
use crate::table::{Database, LockId, NewLock};
use crate::time::{Millis, NodeClock};
use redlock_contract::limits::MAX_HOLDERS;

/// The approximate memory of a holder beside its record and its owner, in bytes: its entries in two tables.
const BYTES_PER_HOLDER: usize = 96;

/// The number of a group. No two groups of a node have the same.
type GroupId = u64;

/// Which records belong to one shared lock.
#[derive(Debug, Default)]
pub(super) struct SharedLocks {
    groups: HashMap<GroupId, Group>,
    group_of: HashMap<LockId, GroupId>,
    last_id: GroupId,
    /// The approximate memory of all groups.
    bytes: usize,
}

/// The holders of one shared lock.
#[derive(Debug)]
struct Group {
    /// The holder that the value under the key names.
    anchor: LockId,
    /// The record of each owner. A node answers the same in every run, so the order is that of the owners.
    holders: BTreeMap<Box<[u8]>, LockId>,
    /// The fence may be smaller than that of an earlier holder of this key: the key was renamed, the lock
    /// came from another server, or the node was admitted. The next owner that joins gets the next fence of
    /// the stripe, and all other holders then have that fence too.
    has_old_fence: bool,
}

/// A holder that joins or begins the shared lock of a key.
struct NewHolder<'a> {
    owner: &'a [u8],
    label: &'a [u8],
    fence: u64,
    granted: Millis,
    lease_ms: u64,
    extensions: u32,
    now: Millis,
}

/// What a holder has left behind.
enum Departure {
    /// The other holders, under the same anchor.
    Others,
    /// The other holders, under this new anchor.
    NewAnchor(LockId),
    /// No holder.
    Nobody,
}

impl SharedLocks {
    /// Whether there is no shared lock.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.group_of.is_empty()
    }

    /// Whether a record belongs to a shared lock.
    #[inline(always)]
    pub(super) fn has(&self, lock: LockId) -> bool {
        !self.is_empty() && self.has_group(lock)
    }

    /// Not inlined: a node without shared locks must not pay for the code.
    #[cold]
    #[inline(never)]
    fn has_group(&self, lock: LockId) -> bool {
        self.group_of.contains_key(&lock)
    }

    /// The number of holders of all shared locks.
    pub(super) fn len(&self) -> usize {
        self.group_of.len()
    }

    /// The approximate memory of all groups, in bytes; the records are not included.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn group(&self, lock: LockId) -> Option<&Group> {
        self.groups.get(self.group_of.get(&lock)?)
    }

    /// The record that the value under the key names; the record itself if it does not belong to a shared lock.
    #[inline(always)]
    pub(super) fn anchor(&self, lock: LockId) -> LockId {
        if self.is_empty() { lock } else { self.anchor_of_group(lock) }
    }

    #[cold]
    #[inline(never)]
    fn anchor_of_group(&self, lock: LockId) -> LockId {
        self.group(lock).map_or(lock, |group| group.anchor)
    }

    /// The record of an owner among the holders of a shared lock.
    #[cold]
    #[inline(never)]
    pub(super) fn holder(&self, lock: LockId, owner: &[u8]) -> Option<LockId> {
        self.group(lock)?.holders.get(owner).copied()
    }

    /// The records of all holders of a shared lock.
    pub(super) fn holders(&self, lock: LockId) -> impl Iterator<Item = LockId> {
        self.group(lock).into_iter().flat_map(|group| group.holders.values().copied())
    }

    /// Begins a shared lock with its first holder, the anchor.
    pub(super) fn begin(&mut self, anchor: LockId, owner: &[u8]) {
        self.last_id += 1;
        self.groups.insert(self.last_id, Group { anchor, holders: BTreeMap::new(), has_old_fence: false });
        self.add(self.last_id, owner, anchor);
    }

    /// Whether no further owner can join a shared lock.
    fn is_full(&self, lock: LockId) -> bool {
        self.group(lock).is_some_and(|group| group.holders.len() >= MAX_HOLDERS)
    }

    /// Records whether the fence of a shared lock may be smaller than that of an earlier holder of its key.
    pub(super) fn set_old_fence(&mut self, lock: LockId, has_old_fence: bool) {
        if let Some(group) = self.group_of.get(&lock).and_then(|id| self.groups.get_mut(id)) {
            group.has_old_fence = has_old_fence;
        }
    }

    /// Records that every shared lock may have an old fence.
    pub(super) fn set_all_fences_old(&mut self) {
        self.groups.values_mut().for_each(|group| group.has_old_fence = true);
    }

    /// Adds a holder to a shared lock that this owner does not hold.
    fn join(&mut self, lock: LockId, owner: &[u8], holder: LockId) {
        if let Some(id) = self.group_of.get(&lock).copied() {
            self.add(id, owner, holder);
        }
    }

    fn add(&mut self, id: GroupId, owner: &[u8], holder: LockId) {
        if let Some(group) = self.groups.get_mut(&id) {
            self.bytes += owner.len() + BYTES_PER_HOLDER;
            group.holders.insert(owner.into(), holder);
            self.group_of.insert(holder, id);
        }
    }

    /// Removes a holder.
    fn leave(&mut self, holder: LockId, owner: &[u8]) -> Departure {
        let Some(id) = self.group_of.remove(&holder) else { return Departure::Others };
        let Some(group) = self.groups.get_mut(&id) else { return Departure::Others };
        group.holders.remove(owner);
        self.bytes = self.bytes.saturating_sub(owner.len() + BYTES_PER_HOLDER);
        match group.holders.first_key_value().map(|(_, next)| *next) {
            None => {
                self.groups.remove(&id);
                Departure::Nobody
            }
            Some(next) if group.anchor == holder => {
                group.anchor = next;
                Departure::NewAnchor(next)
            }
            Some(_) => Departure::Others,
        }
    }

    /// Ends a shared lock: its records no longer belong together. Returns all of them.
    fn dissolve(&mut self, lock: LockId) -> Vec<LockId> {
        let group = self.group_of.get(&lock).and_then(|id| self.groups.remove(id));
        let mut holders = Vec::new();
        for (owner, holder) in group.into_iter().flat_map(|group| group.holders) {
            self.bytes = self.bytes.saturating_sub(owner.len() + BYTES_PER_HOLDER);
            self.group_of.remove(&holder);
            holders.push(holder);
        }
        holders
    }
}

impl LockNode {
    /// Takes the lock of a key together with other owners: begins a shared lock, joins one, or refreshes the
    /// lease of an owner that already holds it.
    #[cold]
    #[inline(never)]
    pub(super) fn acquire_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        let state = keyspace.key_state(0);
        match state {
            KeyState::OtherType => return Err(CommandError::WrongType),
            KeyState::ForeignString => return self.refuse(keyspace, request, clock),
            // The modes exclude each other, also for the owner of an exclusive lock.
            KeyState::Lock(lock) if !self.shared.has(lock) && !self.has_expired(lock, clock) => {
                return self.refuse(keyspace, request, clock);
            }
            KeyState::Lock(_) | KeyState::Empty => {}
        }
        let owner = request.owner.bytes();
        if let KeyState::Lock(lock) = state
            && let Some(own) = self.shared.holder(lock, owner)
            && !self.has_expired(own, clock)
        {
            return self.refresh_shared(keyspace, request, own, clock);
        }
        let is_full = matches!(state, KeyState::Lock(lock) if self.shared.is_full(lock))
            && !self.is_over_at(keyspace, clock);
        if is_full || self.is_preceded(keyspace, request) {
            self.refuse_in_quarantine(clock)?;
            return self.refuse(keyspace, request, clock);
        }
        let Some(fence) = self.grant_shared(keyspace, request, LockEvent::Acquired, clock)? else {
            return Ok(Reply::Nil);
        };
        let (database, name) = (keyspace.database(), keyspace.name(0));
        if !self.queues.is_empty() {
            self.queues.leave(database, name, owner);
            // The next waiters may be readers too.
            self.queues.mark_ready(database, name);
        }
        if let Some(wait) = &request.wait
            && let Some(own) = self.own_lock(keyspace, 0, owner)
        {
            self.queues.set_holder(own, wait.ticket);
        }
        Ok(Reply::Integer(fence))
    }

    /// Gives a holder of a shared lock at least the time that it asks for.
    fn refresh_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        own: LockId,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        let now = clock.latest();
        let owner = request.owner.bytes();
        self.refuse_unconfirmed(keyspace, owner, clock)?;
        let fence = fence::raised(self.locks.fence(own), request.floor);
        self.reserve(keyspace, fence, request.ttl.ms())?;
        self.counters.refreshes += 1;
        self.extend_lock(keyspace, 0, fence, |count| count, owner, request.ttl, now);
        if !self.queues.is_empty() {
            // This request replaces an earlier one that waits for the exclusive lock.
            self.leave_queue(keyspace, owner);
        }
        Ok(Reply::Integer(fence))
    }

    /// Begins or joins a shared lock on a key that is free or shared; `None` if a tombstone rejects the request, if the
    /// key is neither, if the owner already holds it, or if no further owner can join.
    pub(super) fn grant_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        event: LockEvent,
        clock: &mut impl NodeClock,
    ) -> Result<Option<u64>, CommandError> {
        let now = clock.latest();
        match keyspace.key_state(0) {
            KeyState::Empty => self.grant(keyspace, request, event, false, now, clock),
            KeyState::Lock(lock) if self.is_over(lock, clock) => {
                self.grant(keyspace, request, event, true, now, clock)
            }
            KeyState::Lock(lock) if self.shared.has(lock) => {
                let own = self.shared.holder(lock, request.owner.bytes());
                // A lease that runs is refreshed by its owner, never replaced.
                if own.is_some_and(|own| !self.has_expired(own, clock)) || self.shared.is_full(lock) {
                    return Ok(None);
                }
                self.join_shared(keyspace, request, event, lock, clock)
            }
            KeyState::Lock(_) | KeyState::ForeignString | KeyState::OtherType => Ok(None),
        }
    }

    /// Adds a holder to a shared lock, under the fence of its holders or a larger one.
    fn join_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Acquire<'_>,
        event: LockEvent,
        lock: LockId,
        clock: &mut impl NodeClock,
    ) -> Result<Option<u64>, CommandError> {
        let now = clock.latest();
        let (owner, lease_ms) = (request.owner.bytes(), request.ttl.ms());
        self.refuse_in_quarantine(clock)?;
        if self.has_tombstone(keyspace, request, now) {
            self.counters.late_refusals += 1;
            return Ok(None);
        }
        let has_old_fence = self.shared.group(lock).is_some_and(|group| group.has_old_fence)
            || !self.locks.is_at(lock, keyspace.name(0));
        let mut fence = fence::raised(self.locks.fence(lock), request.floor);
        if has_old_fence {
            let next = self.stripes.next(keyspace.stripe(0), request.floor);
            fence = fence.max(next.ok_or(CommandError::FenceExhausted)?);
        }
        if !self.locks.has_room_for(1) {
            return Err(FULL);
        }
        self.reserve(keyspace, fence, lease_ms)?;
        // The owner's earlier lease has expired, and the sweep has not removed it yet.
        if let Some(earlier) = self.shared.holder(lock, owner) {
            self.note_expired(keyspace, 0, earlier);
            self.leave(keyspace, 0, earlier);
        }
        let label = request.label;
        let holder = NewHolder { owner, label, fence, granted: now, lease_ms, extensions: 0, now };
        self.add_holder(keyspace, &holder)?;
        if let KeyState::Lock(lock) = keyspace.key_state(0) {
            self.shared.set_old_fence(lock, false);
        }
        keyspace.replicate(Effect::Granted {
            key: 0,
            owner,
            fence,
            left_ms: lease_ms,
            label,
            is_handed_off: event == LockEvent::HandedOff,
            is_shared: true,
        });
        keyspace.notify(0, event);
        self.counters.grants += 1;
        Ok(Some(fence))
    }

    /// Adds a holder to the shared lock under the key, or begins a shared lock. All holders get its fence.
    fn add_holder(
        &mut self,
        keyspace: &mut impl Keyspace,
        holder: &NewHolder<'_>,
    ) -> Result<(), CommandError> {
        let NewHolder { owner, label, fence, granted, lease_ms, extensions, now } = *holder;
        let lock = NewLock {
            database: keyspace.database(),
            key: keyspace.name(0),
            owner,
            label,
            fence,
            granted,
            deadline: now.deadline_after(lease_ms),
            lease_ms,
            extensions,
        };
        let id = self.locks.insert(&lock).ok_or(FULL)?;
        self.stripes.raise(keyspace.stripe(0), fence);
        match keyspace.key_state(0) {
            KeyState::Lock(anchor) if self.shared.has(anchor) => {
                self.note_location(keyspace, 0, anchor);
                self.shared.join(anchor, owner, id);
                self.raise_holders(anchor, fence);
                keyspace.touched(0);
            }
            _ => {
                let gone = keyspace.put(0, id);
                self.reclaim_if(gone);
                self.shared.begin(id, owner);
            }
        }
        Ok(())
    }

    /// Gives all holders of a shared lock this fence, if it is larger than theirs.
    fn raise_holders(&mut self, lock: LockId, fence: u64) {
        if self.locks.fence(lock) < fence {
            for holder in self.shared.holders(lock) {
                self.locks.set_fence(holder, fence);
            }
        }
    }

    /// The record of an owner under a key: its exclusive lock, or its part of a shared one, expired or not.
    pub(super) fn own_lock(&self, keyspace: &impl Keyspace, key: usize, owner: &[u8]) -> Option<LockId> {
        match keyspace.key_state(key) {
            KeyState::Lock(lock) if self.shared.has(lock) => self.shared.holder(lock, owner),
            KeyState::Lock(lock) => Some(lock).filter(|lock| self.locks.is_owned_by(*lock, owner)),
            _ => None,
        }
    }

    /// Whether a lock has no holder whose lease still runs.
    pub(super) fn is_over(&self, lock: LockId, clock: &mut impl NodeClock) -> bool {
        if self.shared.has(lock) { self.is_shared_over(lock, clock) } else { self.has_expired(lock, clock) }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn is_shared_over(&self, lock: LockId, clock: &mut impl NodeClock) -> bool {
        !self.shared.holders(lock).any(|holder| !self.has_expired(holder, clock))
    }

    /// Whether the lock under the only key of `keyspace` has no holder whose lease still runs.
    fn is_over_at(&self, keyspace: &impl Keyspace, clock: &mut impl NodeClock) -> bool {
        matches!(keyspace.key_state(0), KeyState::Lock(lock) if self.is_over(lock, clock))
    }

    /// The record of a lock that expires last: of a shared lock, that of one of its holders.
    pub(super) fn last_holder(&self, lock: LockId) -> LockId {
        if self.shared.is_empty() {
            return lock;
        }
        self.shared.holders(lock).max_by_key(|holder| self.locks.deadline(*holder)).unwrap_or(lock)
    }

    /// Before an extension: the record to extend, and whether the lock is shared. All holders of a shared lock get the
    /// fence.
    #[cold]
    #[inline(never)]
    pub(super) fn holder_to_extend(
        &mut self,
        keyspace: &impl Keyspace,
        key: usize,
        lock: LockId,
        owner: &[u8],
        fence: u64,
    ) -> (LockId, bool) {
        let Some(own) = self.shared.holder(lock, owner) else { return (lock, false) };
        self.note_location(keyspace, key, lock);
        self.raise_holders(lock, fence);
        (own, true)
    }

    /// Releases an owner's part of a shared lock. Returns false if the owner holds no part of a shared lock under the
    /// key.
    #[cold]
    #[inline(never)]
    pub(super) fn release_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        key: usize,
        owner: &[u8],
        floor: u64,
    ) -> bool {
        let KeyState::Lock(lock) = keyspace.key_state(key) else { return false };
        let Some(own) = self.shared.holder(lock, owner) else { return false };
        self.raise_next_fence(keyspace, key, own, floor);
        // The owner has sent a command, so a handed-on lock does not count as unclaimed.
        self.queues.claimed(own);
        self.leave(keyspace, key, own);
        // The same owner may wait for the exclusive lock.
        self.queues.leave(keyspace.database(), keyspace.name(key), owner);
        self.key_changed(keyspace.database(), keyspace.name(key));
        true
    }

    /// Removes a holder of the shared lock under a key. The key is deleted with the last holder.
    fn leave(&mut self, keyspace: &mut impl Keyspace, key: usize, holder: LockId) {
        self.note_location(keyspace, key, holder);
        let owner = self.locks.owner(holder).to_vec();
        match self.shared.leave(holder, &owner) {
            Departure::Others => {
                self.forget(holder);
                keyspace.touched(key);
            }
            Departure::NewAnchor(next) => {
                let gone = keyspace.put(key, next);
                self.reclaim_if(gone);
            }
            Departure::Nobody => {
                let gone = keyspace.delete(key);
                self.reclaim_if(gone);
            }
        }
    }

    /// Removes a holder whose lease has expired from the shared lock under the only key of `keyspace`.
    #[cold]
    #[inline(never)]
    pub(super) fn expire_holder(&mut self, keyspace: &mut impl Keyspace, holder: LockId) {
        self.note_expired(keyspace, 0, holder);
        self.raise_past(holder, Stripe::of(self.locks.location(holder).1));
        self.leave(keyspace, 0, holder);
        self.key_changed(keyspace.database(), keyspace.name(0));
    }

    /// Ends a shared lock whose holders have all expired: reports each of them, and keeps the record of the anchor,
    /// which the value under the key still names.
    #[cold]
    #[inline(never)]
    pub(super) fn expire_all_holders(&mut self, keyspace: &mut impl Keyspace, key: usize, anchor: LockId) {
        let holders: Vec<LockId> = self.shared.holders(anchor).collect();
        for holder in holders {
            self.note_expired(keyspace, key, holder);
        }
        self.keep_only(anchor);
    }

    /// Ends a shared lock. Only the record of `kept` stays.
    #[cold]
    #[inline(never)]
    pub(super) fn keep_only(&mut self, kept: LockId) {
        for holder in self.shared.dissolve(kept) {
            if holder != kept {
                self.forget(holder);
            }
        }
    }

    /// Records where the key of a shared lock is, if a client has renamed or moved it since a holder got the lock.
    fn note_location(&mut self, keyspace: &impl Keyspace, key: usize, lock: LockId) {
        if self.locks.location(lock) != (keyspace.database(), keyspace.name(key)) {
            self.found_at(lock, keyspace.database(), keyspace.name(key));
        }
    }

    /// Repeats a grant, an extension or an expiry of one holder on a replica.
    #[cold]
    #[inline(never)]
    pub(super) fn apply_shared(
        &mut self,
        keyspace: &mut impl Keyspace,
        request: &Apply<'_>,
        (left_ms, held_ms): (u64, u64),
        now: Millis,
    ) -> Result<(), CommandError> {
        let owner = request.owner.bytes();
        let shared = match keyspace.key_state(0) {
            KeyState::Lock(lock) if self.shared.has(lock) => Some(lock),
            _ => None,
        };
        let own = shared.and_then(|lock| self.shared.holder(lock, owner));
        if left_ms == 0 {
            if let Some(own) = own {
                self.leave(keyspace, 0, own);
                keyspace.notify(0, LockEvent::Expired);
            }
            return Ok(());
        }
        self.last_loaded = self.last_loaded.max(now);
        keyspace.notify(0, request.event());
        let granted = Millis(now.0.saturating_sub(held_ms));
        // No fence of a holder goes back, whatever the order of the effects.
        let fence = shared.map_or(request.fence, |lock| self.locks.fence(lock).max(request.fence));
        // An extension carries the number of extensions and no label; a grant carries no number.
        if let (Some(own), Some(extensions), None) = (own, request.extensions, request.label) {
            self.note_location(keyspace, 0, own);
            self.raise_holders(own, fence);
            self.locks.set_granted(own, granted);
            self.locks.set_extensions(own, extensions);
            self.locks.extend(own, left_ms, now.deadline_after(left_ms));
            return Ok(());
        }
        if let Some(own) = own {
            self.leave(keyspace, 0, own);
        }
        let (label, extensions) = (request.label.unwrap_or(&[]), request.extensions.unwrap_or(0));
        self.add_holder(
            keyspace,
            &NewHolder { owner, label, fence, granted, lease_ms: left_ms, extensions, now },
        )
    }

    /// The saved form of a lock, with all its holders.
    #[must_use]
    pub fn saved(&self, lock: LockId, clock: &mut impl NodeClock) -> SavedLock {
        if !self.shared.has(lock) {
            return SavedLock { is_shared: false, holders: vec![self.image(lock, clock)] };
        }
        let holders = self.shared.holders(lock).map(|holder| self.image(holder, clock)).collect();
        SavedLock { is_shared: true, holders }
    }

    /// Loads a saved lock with all its holders, as [`load`](Self::load) does for one. Returns the record that
    /// the caller puts under the key.
    ///
    /// # Errors
    /// The node can hold no more locks, or the saved form is not one of a lock. No record stays then.
    pub fn load_saved(
        &mut self,
        database: Database,
        key: &[u8],
        saved: &SavedLock,
        clock: &mut impl NodeClock,
    ) -> Result<LockId, CommandError> {
        let Some((first, others)) = saved.holders.split_first() else { return Err(CommandError::Owner) };
        let anchor = self.load(database, key, first, clock)?;
        if !saved.is_shared {
            return Ok(anchor);
        }
        self.shared.begin(anchor, &first.owner);
        for image in others {
            let is_new = self.shared.holder(anchor, &image.owner).is_none();
            match self.load(database, key, image, clock) {
                Ok(holder) if is_new => self.shared.join(anchor, &image.owner, holder),
                Ok(twice) => {
                    self.locks.remove(twice);
                    self.forget(anchor);
                    return Err(CommandError::Owner);
                }
                Err(error) => {
                    self.forget(anchor);
                    return Err(error);
                }
            }
        }
        Ok(anchor)
    }

    /// Records that a lock has arrived by `RESTORE` or `MIGRATE`: its key may have had other holders since it
    /// was saved.
    pub fn note_arrival_of(&mut self, lock: LockId) {
        self.shared.set_old_fence(lock, true);
    }

    /// The records of the lock that a value names: of an exclusive lock the record itself, of a shared one those of all
    /// holders.
    pub fn records_of(&self, value: LockId) -> impl Iterator<Item = LockId> {
        let own = (!self.shared.has(value)).then_some(value);
        own.into_iter().chain(self.shared.holders(value))
    }

    /// The record that the value under the key of a lock names.
    #[must_use]
    pub fn anchor_of(&self, lock: LockId) -> LockId {
        self.shared.anchor(lock)
    }

    /// The holders of a shared lock in the order in which they got it.
    pub(super) fn holders_by_grant(&self, lock: LockId) -> Vec<LockId> {
        let mut holders: Vec<LockId> = self.shared.holders(lock).collect();
        holders.sort_by_key(|holder| self.locks.granted(*holder));
        holders
    }
}

#[cfg(test)]
mod tests;
