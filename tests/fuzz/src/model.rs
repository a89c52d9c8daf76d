//! What a node owes its users, in few lines: who holds what, and the last number of every key.
//!
//! It never predicts a number or an error. It says what may not be: two holders at once, a number that comes
//! again or goes back, a holder who is told that it is none.

use redlock_core::Millis;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Default)]
pub(crate) struct Model {
    locks: BTreeMap<Vec<u8>, HeldLock>,
    last: BTreeMap<Vec<u8>, u64>,
    /// Keys under which an administrator has put something that is no lock of this node.
    taken: BTreeSet<Vec<u8>>,
}

struct HeldLock {
    owner: Vec<u8>,
    fence: u64,
    deadline: Millis,
    /// The node has crashed since: the holder goes on, the node does not know of it.
    is_forgotten: bool,
}

/// How the keys of a command stand to an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOwnership {
    /// It holds them all, and the node knows.
    Holder,
    /// Somebody else holds at least one, or something else is there.
    Barred,
    /// Neither.
    Open,
}

impl Model {
    fn live(&self, key: &[u8], now: Millis) -> Option<&HeldLock> {
        self.locks.get(key).filter(|held| held.deadline > now)
    }

    pub(crate) fn standing(&self, keys: &[&[u8]], owner: &[u8], now: Millis) -> KeyOwnership {
        let live = |key: &&&[u8]| self.live(key, now);
        let is_barred = |key: &&[u8]| {
            self.taken.contains(*key) || self.live(key, now).is_some_and(|held| held.owner != owner)
        };
        if keys.iter().any(is_barred) {
            KeyOwnership::Barred
        } else if keys.iter().filter_map(|key| live(&key)).filter(|held| !held.is_forgotten).count()
            == keys.len()
        {
            KeyOwnership::Holder
        } else {
            KeyOwnership::Open
        }
    }

    /// Takes note of a grant, and says what is wrong with it.
    pub(crate) fn granted(&mut self, keys: &[&[u8]], owner: &[u8], fence: u64, ttl_ms: u64, now: Millis) {
        let standing = self.standing(keys, owner, now);
        assert_ne!(standing, KeyOwnership::Barred, "granted what another holds");
        let mut fences = keys.iter().filter_map(|key| self.live(key, now)).map(|held| held.fence);
        let first = fences.next();
        let is_the_same = standing == KeyOwnership::Holder
            && fences.all(|fence| Some(fence) == first)
            && first == Some(fence);
        for key in keys {
            let last = self.last.get(*key).copied().unwrap_or(0);
            assert!(is_the_same || fence > last, "a grant with {fence} after {last}");
        }
        self.set(keys, owner, fence, ttl_ms, now);
    }

    /// Takes note of an extension, and says what is wrong with it.
    pub(crate) fn extended(&mut self, keys: &[&[u8]], owner: &[u8], fence: u64, ttl_ms: u64, now: Millis) {
        assert_eq!(self.standing(keys, owner, now), KeyOwnership::Holder, "extended what is not held");
        for key in keys {
            let last = self.last.get(*key).copied().unwrap_or(0);
            assert!(fence >= last, "an extension with {fence} after {last}");
        }
        self.set(keys, owner, fence, ttl_ms, now);
    }

    fn set(&mut self, keys: &[&[u8]], owner: &[u8], fence: u64, ttl_ms: u64, now: Millis) {
        for key in keys {
            let before = self.live(key, now).map_or(Millis(0), |held| held.deadline);
            let deadline = now.deadline_after(ttl_ms).max(before);
            let held = HeldLock { owner: owner.to_vec(), fence, deadline, is_forgotten: false };
            self.locks.insert(key.to_vec(), held);
            let last = self.last.entry(key.to_vec()).or_default();
            *last = fence.max(*last);
        }
    }

    /// Takes note of a release, and says what is wrong with it.
    pub(crate) fn released(&mut self, keys: &[&[u8]], owner: &[u8], now: Millis) {
        assert_eq!(self.standing(keys, owner, now), KeyOwnership::Holder, "released what is not held");
        keys.iter().for_each(|key| drop(self.locks.remove(*key)));
    }

    /// An administrator has deleted a key, or put something else there: whoever held it has lost it.
    pub(crate) fn overruled(&mut self, key: &[u8], is_taken: bool) {
        self.locks.remove(key);
        if is_taken {
            self.taken.insert(key.to_vec());
        } else {
            self.taken.remove(key);
        }
    }

    pub(crate) fn crashed(&mut self) {
        self.locks.values_mut().for_each(|held| held.is_forgotten = true);
        self.taken.clear();
    }

    /// How many locks the node should say that it holds.
    pub(crate) fn known(&self, now: Millis) -> u64 {
        self.locks.values().filter(|held| held.deadline > now && !held.is_forgotten).count() as u64
    }
}
