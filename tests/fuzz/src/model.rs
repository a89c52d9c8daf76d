//! A small model of a node: the holders and the last fence of every key.
//!
//! The model predicts no fence and no error. It detects violations: two holders at once that do not share the
//! lock, a fence that repeats or goes back, a holder that the node treats as a stranger.

use redlock_core::Millis;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Model {
    /// The holders of each key: one, or several that share the lock.
    locks: BTreeMap<Vec<u8>, Vec<HeldLock>>,
    last: BTreeMap<Vec<u8>, u64>,
    /// Keys that an administrator has set to a value that is not a lock of this node.
    taken: BTreeSet<Vec<u8>>,
}

struct HeldLock {
    owner: Vec<u8>,
    mode: Mode,
    fence: u64,
    deadline: Millis,
    /// The node has crashed since: the client still holds the lock, and the node does not know it.
    is_forgotten: bool,
}

/// How an owner holds a lock, or asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
}

/// A grant of a node.
pub(crate) struct GrantedLock<'a> {
    pub(crate) owner: &'a [u8],
    pub(crate) fence: u64,
    pub(crate) ttl_ms: u64,
    /// The request had a floor, which may raise the fence of a shared lock.
    pub(crate) has_floor: bool,
    pub(crate) mode: Option<Mode>,
}

/// The relation of an owner to the keys of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOwnership {
    /// The owner holds all keys, and the node knows.
    Holder,
    /// Another owner holds at least one key and does not share it, this owner holds one in another mode than it asks
    /// for, or a key has a value that is not a lock.
    Barred,
    /// None of these.
    Open,
}

impl Model {
    fn live(&self, key: &[u8], now: Millis) -> impl Iterator<Item = &HeldLock> {
        self.locks.get(key).into_iter().flatten().filter(move |held| held.deadline > now)
    }

    fn own(&self, key: &[u8], owner: &[u8], now: Millis) -> Option<&HeldLock> {
        self.live(key, now).find(|held| held.owner == owner)
    }

    pub(crate) fn standing(
        &self,
        keys: &[&[u8]],
        owner: &[u8],
        wish: Option<Mode>,
        now: Millis,
    ) -> KeyOwnership {
        let is_barred = |key: &&[u8]| {
            let own = self.own(key, owner, now);
            let bars = |held: &HeldLock| match wish.or(own.map(|own| own.mode)) {
                Some(Mode::Shared) => held.mode == Mode::Exclusive,
                Some(Mode::Exclusive) => held.mode == Mode::Shared || held.owner != owner,
                None => true,
            };
            self.taken.contains(*key) || self.live(key, now).any(bars)
        };
        let is_known = |key: &&[u8]| self.own(key, owner, now).is_some_and(|own| !own.is_forgotten);
        if keys.iter().any(is_barred) {
            KeyOwnership::Barred
        } else if keys.iter().all(is_known) {
            KeyOwnership::Holder
        } else {
            KeyOwnership::Open
        }
    }

    /// Records a grant; panics if it breaks a rule.
    pub(crate) fn granted(&mut self, keys: &[&[u8]], grant: &GrantedLock<'_>, now: Millis) {
        let GrantedLock { owner, fence, ttl_ms, has_floor, mode } = *grant;
        let standing = self.standing(keys, owner, mode, now);
        assert_ne!(standing, KeyOwnership::Barred, "granted a lock that another owner holds");
        let mode = mode.unwrap_or(Mode::Exclusive);
        let has_fence = |key: &&[u8]| self.live(key, now).all(|held| held.fence == fence);
        let is_the_same = standing == KeyOwnership::Holder && keys.iter().all(has_fence);
        for key in keys {
            let last = self.last.get(*key).copied().unwrap_or(0);
            let joins = mode == Mode::Shared && self.live(key, now).any(|held| !held.is_forgotten);
            if joins {
                assert!(fence == last || has_floor && fence > last, "joined with fence {fence} after {last}");
            } else {
                assert!(is_the_same || fence > last, "a grant with fence {fence} after {last}");
            }
            self.set(key, owner, mode, fence, ttl_ms, now);
        }
    }

    /// Records an extension; panics if it breaks a rule.
    pub(crate) fn extended(&mut self, keys: &[&[u8]], owner: &[u8], fence: u64, ttl_ms: u64, now: Millis) {
        let standing = self.standing(keys, owner, None, now);
        assert_eq!(standing, KeyOwnership::Holder, "extended a lock that is not held");
        for key in keys {
            let last = self.last.get(*key).copied().unwrap_or(0);
            assert!(fence >= last, "an extension with fence {fence} after {last}");
            let mode = self.own(key, owner, now).map_or(Mode::Exclusive, |own| own.mode);
            self.set(key, owner, mode, fence, ttl_ms, now);
        }
    }

    /// Records the lease of an owner. All holders of the key have its fence.
    fn set(&mut self, key: &[u8], owner: &[u8], mode: Mode, fence: u64, ttl_ms: u64, now: Millis) {
        let before = self.own(key, owner, now).map_or(Millis(0), |own| own.deadline);
        let deadline = now.deadline_after(ttl_ms).max(before);
        let holders = self.locks.entry(key.to_vec()).or_default();
        holders.retain(|held| held.owner != owner && held.deadline > now);
        holders.push(HeldLock { owner: owner.to_vec(), mode, fence, deadline, is_forgotten: false });
        holders.iter_mut().for_each(|held| held.fence = fence);
        let last = self.last.entry(key.to_vec()).or_default();
        *last = fence.max(*last);
    }

    /// Records a release; panics if it breaks a rule.
    pub(crate) fn released(&mut self, keys: &[&[u8]], owner: &[u8], now: Millis) {
        let standing = self.standing(keys, owner, None, now);
        assert_eq!(standing, KeyOwnership::Holder, "released a lock that is not held");
        for key in keys {
            if let Some(holders) = self.locks.get_mut(*key) {
                holders.retain(|held| held.owner != owner);
            }
        }
    }

    /// Records that an administrator broke a lock; panics if no client held it with this fence.
    pub(crate) fn broken(&mut self, keys: &[&[u8]], fence: u64, now: Millis) {
        for key in keys {
            let held = self.live(key, now).find(|held| !held.is_forgotten).map(|held| held.fence);
            assert_eq!(held, Some(fence), "broke a lock that is not held");
            self.locks.remove(*key);
        }
    }

    /// Records that an administrator deleted or overwrote a key: its holders have lost the lock.
    pub(crate) fn overruled(&mut self, key: &[u8], is_taken: bool) {
        self.locks.remove(key);
        if is_taken {
            self.taken.insert(key.to_vec());
        } else {
            self.taken.remove(key);
        }
    }

    pub(crate) fn crashed(&mut self) {
        self.locks.values_mut().flatten().for_each(|held| held.is_forgotten = true);
        self.taken.clear();
    }

    /// How many locks the node should report: each holder of a shared lock counts.
    pub(crate) fn known(&self, now: Millis) -> u64 {
        let holders = self.locks.values().flatten();
        holders.filter(|held| held.deadline > now && !held.is_forgotten).count() as u64
    }
}
