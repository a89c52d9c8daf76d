//! A memory of releases that came before their acquire.
//!
//! A client that gives up sends a release. If its acquire was held up on another connection it
//! arrives afterwards, and would lock the key for a client that is long gone: a ghost. So a release
//! that finds nothing to free is remembered for a while, and bars that owner from that key.
//!
//! On one connection order is kept, so an acquire after a release there is meant: it is not rejected.
//! The memory is small and forgets under pressure; a ghost ends with its time to live in any case.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::time::Millis;

/// A release can be remembered in so many slots, by its digest. With one it would be forgotten for the next that wants the
/// same place, long before the memory is full.
const WAYS: usize = 8;

/// How many releases are remembered at most: sets of slots, by slots in a set.
const SLOTS: usize = 512 * WAYS;

/// The default of `redlock.late-window`.
pub const DEFAULT_WINDOW_MS: u64 = 10_000;

#[derive(Clone, Copy, Debug, Default)]
struct Tombstone {
    /// Of key and owner; 0 for none.
    digest: u64,
    connection: u64,
    until: Millis,
}

/// Recent releases that freed nothing.
#[derive(Debug)]
pub struct Tombstones {
    window_ms: u64,
    /// Allocated when first used; an entry's set of slots is given by its digest.
    slots: Vec<Tombstone>,
    /// No entry is in force after this time.
    last_expiry: Millis,
}

impl Default for Tombstones {
    fn default() -> Self {
        Self { window_ms: DEFAULT_WINDOW_MS, slots: Vec::new(), last_expiry: Millis(0) }
    }
}

impl Tombstones {
    /// How long a release is remembered.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// Sets how long a release is remembered; 0 turns the memory off.
    pub fn set_window_ms(&mut self, window_ms: u64) {
        self.window_ms = window_ms;
        if window_ms == 0 {
            self.slots = Vec::new();
        }
    }

    /// Notes that `owner` let go of `key` without holding it.
    pub fn add(&mut self, key: &[u8], owner: &[u8], connection: u64, now: Millis) {
        if self.window_ms == 0 {
            return;
        }
        if self.slots.is_empty() {
            self.slots = vec![Tombstone::default(); SLOTS];
        }
        let until = now.deadline_after(self.window_ms);
        self.last_expiry = self.last_expiry.max(until);
        let digest = digest(key, owner);
        let set = &mut self.slots[set_of(digest)];
        let known = set.iter().position(|tombstone| tombstone.digest == digest);
        // Or else the one that has been there for longest, or nobody's.
        let oldest = || (0..WAYS).min_by_key(|slot| set[*slot].until).unwrap_or(0);
        let slot = known.unwrap_or_else(oldest);
        set[slot] = Tombstone { digest, connection, until };
    }

    /// Whether any release is remembered.
    #[must_use]
    pub fn all_expired(&self, now: Millis) -> bool {
        self.slots.is_empty() || now >= self.last_expiry
    }

    /// Whether an acquire of `key` by `owner` is one that its own release has overtaken.
    #[must_use]
    pub fn rejects(&self, key: &[u8], owner: &[u8], connection: u64, now: Millis) -> bool {
        if self.all_expired(now) {
            return false;
        }
        let digest = digest(key, owner);
        let is_rejected =
            |entry: &Tombstone| entry.digest == digest && entry.connection != connection && now < entry.until;
        self.slots[set_of(digest)].iter().any(is_rejected)
    }
}

fn digest(key: &[u8], owner: &[u8]) -> u64 {
    xxh3_64_with_seed(owner, xxh3_64(key)).max(1)
}

fn set_of(digest: u64) -> std::ops::Range<usize> {
    let set = usize::try_from(digest % (SLOTS / WAYS) as u64).unwrap_or(0);
    set * WAYS..(set + 1) * WAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_late_acquire_of_another_connection_is_barred() {
        let mut tombstones = Tombstones::default();
        tombstones.add(b"job", b"me", 1, Millis(100));
        assert!(tombstones.rejects(b"job", b"me", 2, Millis(100)));
        assert!(!tombstones.rejects(b"job", b"me", 1, Millis(100)), "order is kept on one connection");
        assert!(!tombstones.rejects(b"job", b"you", 2, Millis(100)));
        assert!(!tombstones.rejects(b"jo", b"bme", 2, Millis(100)), "key and owner do not run together");
        assert!(tombstones.rejects(b"job", b"me", 2, Millis(100 + DEFAULT_WINDOW_MS)));
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(101 + DEFAULT_WINDOW_MS)));
    }

    /// The table is not full, and far from it.
    #[test]
    fn a_release_is_not_forgotten_for_a_few_hundred_others() {
        let mut tombstones = Tombstones::default();
        let owner = |number: u64| number.to_le_bytes();
        for first in 0..8 {
            let first = first * 1_000_000;
            tombstones.add(b"job", &owner(first), 1, Millis(first));
            for other in 1..=1_000 {
                tombstones.add(b"job", &owner(first + other), 1, Millis(first + 1));
            }
            assert!(tombstones.rejects(b"job", &owner(first), 2, Millis(first + 2)));
        }
    }

    #[test]
    fn the_oldest_make_room() {
        let mut tombstones = Tombstones::default();
        for number in 0..100_000_u64 {
            tombstones.add(b"job", &number.to_le_bytes(), 1, Millis(number / 100));
        }
        let rejected = |number: u64| tombstones.rejects(b"job", &number.to_le_bytes(), 2, Millis(1_000));
        assert!((99_000..100_000).all(rejected), "the newest are remembered");
        assert!(!(0..10_000).any(rejected), "and nothing grows without bound");
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut tombstones = Tombstones::default();
        tombstones.add(b"job", b"me", 1, Millis(0));
        tombstones.set_window_ms(0);
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(0)));
        tombstones.add(b"job", b"me", 1, Millis(0));
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(0)));
    }
}
