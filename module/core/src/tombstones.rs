//! Tombstones: releases that freed nothing, kept for a while to reject a late acquire.
//!
//! A client that gives up sends a release. If its acquire was delayed on another connection, the acquire arrives after
//! the release and would lock the key for a client that no longer wants it: a ghost. So a release that frees nothing
//! leaves a tombstone, which rejects an acquire of that key by that owner.
//!
//! One connection keeps the order, so an acquire after a release on the same connection is a new request: a tombstone
//! does not reject it. The table is small and drops the oldest tombstones when it is full; a ghost ends with its time
//! to live in any case.

use redlock_contract::limits::DEFAULT_LATE_WINDOW_MS;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::time::Millis;

/// The number of slots in which a tombstone can be, by its digest. With one slot the next tombstone of the same slot
/// would overwrite it, long before the table is full.
const WAYS: usize = 8;

/// The number of tombstones that the table holds: 512 sets of `WAYS` slots.
const SLOTS: usize = 512 * WAYS;

/// One release that freed nothing.
#[derive(Clone, Copy, Debug, Default)]
struct Tombstone {
    /// The digest of key and owner; 0 for an empty slot.
    digest: u64,
    connection: u64,
    until: Millis,
}

/// The tombstones of a node.
#[derive(Debug)]
pub struct Tombstones {
    window_ms: u64,
    /// Allocated with the first tombstone. The digest of a tombstone selects its set of slots.
    slots: Vec<Tombstone>,
    /// When the last tombstone expires.
    last_expiry: Millis,
}

impl Default for Tombstones {
    fn default() -> Self {
        Self { window_ms: DEFAULT_LATE_WINDOW_MS, slots: Vec::new(), last_expiry: Millis(0) }
    }
}

impl Tombstones {
    /// How long a tombstone is kept, in milliseconds.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// The memory of all tombstones, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Tombstone>()
    }

    /// Sets how long a tombstone is kept, in milliseconds; 0 turns tombstones off.
    pub fn set_window_ms(&mut self, window_ms: u64) {
        self.window_ms = window_ms;
        if window_ms == 0 {
            self.slots = Vec::new();
        }
    }

    /// Adds a tombstone: `owner` has released `key` without holding it.
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
        // An empty slot expires first of all, so it counts as the oldest.
        let oldest = || (0..WAYS).min_by_key(|slot| set[*slot].until).unwrap_or(0);
        let slot = known.unwrap_or_else(oldest);
        set[slot] = Tombstone { digest, connection, until };
    }

    /// Whether no tombstone is in force.
    #[must_use]
    pub fn all_expired(&self, now: Millis) -> bool {
        self.slots.is_empty() || now >= self.last_expiry
    }

    /// Whether a tombstone rejects an acquire of `key` by `owner`: its own release has overtaken it.
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
    fn only_a_late_acquire_of_another_connection_is_rejected() {
        let mut tombstones = Tombstones::default();
        tombstones.add(b"job", b"me", 1, Millis(100));
        assert!(tombstones.rejects(b"job", b"me", 2, Millis(100)));
        assert!(!tombstones.rejects(b"job", b"me", 1, Millis(100)), "order is kept on one connection");
        assert!(!tombstones.rejects(b"job", b"you", 2, Millis(100)));
        assert!(!tombstones.rejects(b"jo", b"bme", 2, Millis(100)), "key and owner do not run together");
        assert!(tombstones.rejects(b"job", b"me", 2, Millis(100 + DEFAULT_LATE_WINDOW_MS)));
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(101 + DEFAULT_LATE_WINDOW_MS)));
    }

    /// The table is far from full.
    #[test]
    fn a_tombstone_survives_a_thousand_others() {
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
    fn the_oldest_tombstones_are_overwritten() {
        let mut tombstones = Tombstones::default();
        for number in 0..100_000_u64 {
            tombstones.add(b"job", &number.to_le_bytes(), 1, Millis(number / 100));
        }
        let rejected = |number: u64| tombstones.rejects(b"job", &number.to_le_bytes(), 2, Millis(1_000));
        assert!((99_000..100_000).all(rejected), "the newest are kept");
        assert!(!(0..10_000).any(rejected), "the table is bounded");
    }

    #[test]
    fn tombstones_can_be_turned_off() {
        let mut tombstones = Tombstones::default();
        tombstones.add(b"job", b"me", 1, Millis(0));
        tombstones.set_window_ms(0);
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(0)));
        tombstones.add(b"job", b"me", 1, Millis(0));
        assert!(!tombstones.rejects(b"job", b"me", 2, Millis(0)));
    }
}
