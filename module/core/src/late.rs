//! A memory of releases that came before their acquire.
//!
//! A client that gives up sends a release. If its acquire was held up on another connection it
//! arrives afterwards, and would lock the key for a client that is long gone: a ghost. So a release
//! that finds nothing to free is remembered for a while, and bars that owner from that key.
//!
//! On one connection order is kept, so an acquire after a release there is meant: it is not barred.
//! The memory is small and forgets under pressure; a ghost ends with its time to live in any case.

use redlock_contract::limits::DEFAULT_LATE_WINDOW_MS;
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::time::Millis;

/// A release can be remembered in so many places, by its digest. With one it would be forgotten for the next that wants the
/// same place, long before the memory is full.
const WAYS: usize = 8;

/// How many releases are remembered at most: sets of places, by places in a set.
const PLACES: usize = 512 * WAYS;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// Of key and owner; 0 for none.
    digest: u64,
    connection: u64,
    until: Millis,
}

/// Recent releases that freed nothing.
#[derive(Debug)]
pub struct LateReleases {
    window_ms: u64,
    /// Allocated when first used; an entry's set of places is given by its digest.
    entries: Vec<Entry>,
    /// No entry is in force after this time.
    quiet_after: Millis,
}

impl Default for LateReleases {
    fn default() -> Self {
        Self { window_ms: DEFAULT_LATE_WINDOW_MS, entries: Vec::new(), quiet_after: Millis(0) }
    }
}

impl LateReleases {
    /// How long a release is remembered.
    #[must_use]
    pub fn window_ms(&self) -> u64 {
        self.window_ms
    }

    /// Sets how long a release is remembered; 0 turns the memory off.
    pub fn set_window_ms(&mut self, window_ms: u64) {
        self.window_ms = window_ms;
        if window_ms == 0 {
            self.entries = Vec::new();
        }
    }

    /// Notes that `owner` let go of `key` without holding it.
    pub fn remember(&mut self, key: &[u8], owner: &[u8], connection: u64, now: Millis) {
        if self.window_ms == 0 {
            return;
        }
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); PLACES];
        }
        let until = now.deadline_after(self.window_ms);
        self.quiet_after = self.quiet_after.max(until);
        let digest = digest(key, owner);
        let places = &mut self.entries[places(digest)];
        let known = places.iter().position(|entry| entry.digest == digest);
        // Or else the one that has been there for longest, or nobody's.
        let oldest = || (0..WAYS).min_by_key(|place| places[*place].until).unwrap_or(0);
        let place = known.unwrap_or_else(oldest);
        places[place] = Entry { digest, connection, until };
    }

    /// Whether any release is remembered.
    #[must_use]
    pub fn is_quiet(&self, now: Millis) -> bool {
        self.entries.is_empty() || now >= self.quiet_after
    }

    /// Whether an acquire of `key` by `owner` is one that its own release has overtaken.
    #[must_use]
    pub fn bars(&self, key: &[u8], owner: &[u8], connection: u64, now: Millis) -> bool {
        if self.is_quiet(now) {
            return false;
        }
        let digest = digest(key, owner);
        let is_late =
            |entry: &Entry| entry.digest == digest && entry.connection != connection && now < entry.until;
        self.entries[places(digest)].iter().any(is_late)
    }
}

fn digest(key: &[u8], owner: &[u8]) -> u64 {
    xxh3_64_with_seed(owner, xxh3_64(key)).max(1)
}

fn places(digest: u64) -> std::ops::Range<usize> {
    let set = usize::try_from(digest % (PLACES / WAYS) as u64).unwrap_or(0);
    set * WAYS..(set + 1) * WAYS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_late_acquire_of_another_connection_is_barred() {
        let mut late = LateReleases::default();
        late.remember(b"job", b"me", 1, Millis(100));
        assert!(late.bars(b"job", b"me", 2, Millis(100)));
        assert!(!late.bars(b"job", b"me", 1, Millis(100)), "order is kept on one connection");
        assert!(!late.bars(b"job", b"you", 2, Millis(100)));
        assert!(!late.bars(b"jo", b"bme", 2, Millis(100)), "key and owner do not run together");
        assert!(late.bars(b"job", b"me", 2, Millis(100 + DEFAULT_LATE_WINDOW_MS)));
        assert!(!late.bars(b"job", b"me", 2, Millis(101 + DEFAULT_LATE_WINDOW_MS)));
    }

    /// The table is not full, and far from it.
    #[test]
    fn a_release_is_not_forgotten_for_a_few_hundred_others() {
        let mut late = LateReleases::default();
        let owner = |number: u64| number.to_le_bytes();
        for first in 0..8 {
            let first = first * 1_000_000;
            late.remember(b"job", &owner(first), 1, Millis(first));
            for other in 1..=1_000 {
                late.remember(b"job", &owner(first + other), 1, Millis(first + 1));
            }
            assert!(late.bars(b"job", &owner(first), 2, Millis(first + 2)));
        }
    }

    #[test]
    fn the_oldest_make_room() {
        let mut late = LateReleases::default();
        for number in 0..100_000_u64 {
            late.remember(b"job", &number.to_le_bytes(), 1, Millis(number / 100));
        }
        let barred = |number: u64| late.bars(b"job", &number.to_le_bytes(), 2, Millis(1_000));
        assert!((99_000..100_000).all(barred), "the newest are remembered");
        assert!(!(0..10_000).any(barred), "and nothing grows without bound");
    }

    #[test]
    fn it_can_be_turned_off() {
        let mut late = LateReleases::default();
        late.remember(b"job", b"me", 1, Millis(0));
        late.set_window_ms(0);
        assert!(!late.bars(b"job", b"me", 2, Millis(0)));
        late.remember(b"job", b"me", 1, Millis(0));
        assert!(!late.bars(b"job", b"me", 2, Millis(0)));
    }
}
