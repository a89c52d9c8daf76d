//! Fences: the increasing numbers of grants.
//!
//! A node keeps one counter for each stripe, and a hash of the key chooses the stripe. A grant of one key leaves the
//! fences of nearly all other keys unchanged. So nodes that have seen the same grants of a key agree on its next fence
//! without talking to each other.

use std::collections::HashMap;

use redlock_contract::HighWater;
use redlock_contract::limits::{MAX_FENCE, raise_limit};
use xxhash_rust::xxh3::xxh3_64;

/// The number of stripes of a node. Part of the stored format.
pub const STRIPES: usize = 65_536;

/// The stripe of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stripe(u16);

impl Stripe {
    /// The number of the stripe.
    #[must_use]
    pub fn index(self) -> u16 {
        self.0
    }

    /// The stripe of a key: the same on every node and in every version.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let [low, high, ..] = xxh3_64(key).to_le_bytes();
        Self(u16::from_le_bytes([low, high]))
    }
}

/// The last fence of every stripe. It never decreases.
///
/// A node that grants many keys reads stripes at random, so a stripe takes 4 bytes: half the memory is half the cache
/// misses, which are the most expensive part of a grant.
#[derive(Clone, Debug)]
pub struct Stripes {
    /// The number from which all stripes started.
    base: u64,
    /// The last fence of each stripe less `base`, or [`FAR`].
    near: Box<[u32]>,
    /// The last fences that do not fit into `near`.
    far: HashMap<Stripe, u64>,
    largest: u64,
}

/// The last fence of the stripe is in `far`.
const FAR: u32 = u32::MAX;

impl Default for Stripes {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl Stripes {
    /// Stripes whose first fence will be larger than `base`.
    #[must_use]
    pub fn starting_at(base: u64) -> Self {
        let base = base.min(MAX_FENCE);
        Self { base, near: vec![0; STRIPES].into_boxed_slice(), far: HashMap::new(), largest: base }
    }

    /// The last fence of a stripe, or the number from which it started.
    #[must_use]
    #[inline]
    pub fn last(&self, stripe: Stripe) -> u64 {
        match self.near[usize::from(stripe.0)] {
            FAR => self.last_far(stripe),
            near => self.base + u64::from(near),
        }
    }

    #[cold]
    fn last_far(&self, stripe: Stripe) -> u64 {
        self.far.get(&stripe).copied().unwrap_or(MAX_FENCE)
    }

    /// The memory of all stripes, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.near) + self.far.capacity() * size_of::<(Stripe, u64)>()
    }

    /// The memory cell of a stripe's last fence. The caller prefetches it, so that it is in the cache when the node
    /// reads it.
    #[must_use]
    pub fn near(&self, stripe: Stripe) -> &u32 {
        &self.near[usize::from(stripe.0)]
    }

    /// The largest fence of all stripes.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The fence of the next grant on this stripe; `None` if no fences are left.
    #[must_use]
    #[inline]
    pub fn next(&self, stripe: Stripe, floor: u64) -> Option<u64> {
        let last = self.last(stripe);
        let next = (last + 1).max(floor.min(raise_limit(last)));
        (next <= MAX_FENCE).then_some(next)
    }

    /// Makes every later fence on this stripe larger than `fence`.
    #[inline]
    pub fn raise(&mut self, stripe: Stripe, fence: u64) {
        let last = self.last(stripe).max(fence.min(MAX_FENCE));
        self.largest = self.largest.max(last);
        self.near[usize::from(stripe.0)] = match u32::try_from(last - self.base) {
            Ok(near) if near != FAR => near,
            _ => self.keep_far(stripe, last),
        };
    }

    #[cold]
    fn keep_far(&mut self, stripe: Stripe, last: u64) -> u32 {
        self.far.insert(stripe, last);
        FAR
    }

    /// Stripes whose first fences will be larger than these marks.
    #[must_use]
    pub fn above(marks: &HighWater) -> Self {
        let mut stripes = Self::starting_at(marks.common());
        marks.far().for_each(|(index, mark)| stripes.restore(index, mark));
        stripes
    }

    /// Makes every later fence larger than the last one of the same stripe in `other`.
    pub fn raise_to(&mut self, mut other: Self) {
        self.used().for_each(|(stripe, last)| other.raise(stripe, last));
        *self = other;
    }

    /// The stripes with at least one fence, each with its last fence.
    pub fn used(&self) -> impl Iterator<Item = (Stripe, u64)> + '_ {
        let stripes = (0..=u16::MAX).map(Stripe);
        stripes.map(|stripe| (stripe, self.last(stripe))).filter(|(_, last)| *last > self.base)
    }

    /// Raises a stripe to a saved one.
    pub fn restore(&mut self, index: u16, last: u64) {
        self.raise(Stripe(index), last);
    }
}

/// The fence of a lock with `fence` after a raise to `floor`: never a smaller one.
#[must_use]
pub fn raised(fence: u64, floor: u64) -> u64 {
    fence.max(floor.min(raise_limit(fence)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::limits::{RAISE_CAP, RAISE_STEP};

    #[test]
    fn fences_start_at_one_and_grow() {
        let mut stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        assert_eq!(stripes.next(stripe, 0), Some(1));
        stripes.raise(stripe, 1);
        assert_eq!(stripes.next(stripe, 0), Some(2));
        assert_eq!(stripes.next(stripe, 40), Some(40), "a floor raises");
        assert_eq!(stripes.next(stripe, 1), Some(2), "and never lowers");
        stripes.raise(stripe, 0);
        assert_eq!(stripes.last(stripe), 1);
    }

    #[test]
    fn a_raise_reaches_half_of_the_fences_at_once_and_the_rest_in_steps() {
        let stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        assert_eq!(stripes.next(stripe, MAX_FENCE), Some(RAISE_CAP));
        assert_eq!(raised(7, RAISE_CAP), RAISE_CAP);
        assert_eq!(raised(7, MAX_FENCE), RAISE_CAP);
        assert_eq!(raised(7, 3), 7);
        assert_eq!(raised(RAISE_CAP + 5, MAX_FENCE), RAISE_CAP + 5 + RAISE_STEP);
        assert_eq!(raised(MAX_FENCE, u64::MAX), MAX_FENCE);
    }

    #[test]
    fn large_fences_are_kept_like_small_ones() {
        let mut stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        let edge = u64::from(u32::MAX);
        for fence in [edge - 2, edge - 1, edge, edge + 1, 1 << 50] {
            stripes.raise(stripe, fence);
            stripes.raise(stripe, 5);
            assert_eq!((stripes.last(stripe), stripes.next(stripe, 0)), (fence, Some(fence + 1)));
            assert_eq!((stripes.largest(), stripes.used().count()), (fence, 1));
        }
    }

    #[test]
    fn stripes_that_start_again_start_above_all_earlier_fences() {
        let mut stripes = Stripes::starting_at(1 << 40);
        let stripe = Stripe::of(b"job");
        assert_eq!(stripes.next(stripe, 7), Some((1 << 40) + 1));
        stripes.raise(stripe, 9);
        assert_eq!((stripes.last(stripe), stripes.largest(), stripes.used().count()), (1 << 40, 1 << 40, 0));
        stripes.raise(stripe, (1 << 40) + 1);
        assert_eq!(stripes.used().collect::<Vec<_>>(), [(stripe, (1 << 40) + 1)]);
    }

    #[test]
    fn exhausted_fences_are_not_reused() {
        let mut stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        stripes.raise(stripe, u64::MAX);
        assert_eq!(stripes.last(stripe), MAX_FENCE);
        assert_eq!(stripes.next(stripe, 0), None);
    }

    #[test]
    fn the_stripe_of_a_key_is_part_of_the_format() {
        // Saved stripes are stored by index: a change of the hash would lose every fence.
        assert_eq!(Stripe::of(b""), Stripe(38_082));
        assert_eq!(Stripe::of(b"job"), Stripe(52_697));
        assert_ne!(Stripe::of(b"job"), Stripe::of(b"jobs"));
    }

    #[test]
    fn saved_stripes_are_restored_and_never_lower_a_fence() {
        let mut stripes = Stripes::default();
        stripes.raise(Stripe(3), 9);
        stripes.raise(Stripe(65_535), 12);
        let saved: Vec<_> = stripes.used().collect();
        assert_eq!(saved, [(Stripe(3), 9), (Stripe(65_535), 12)]);

        let mut later = Stripes::default();
        later.raise(Stripe(3), 30);
        for (stripe, last) in saved {
            later.restore(stripe.index(), last);
        }
        assert_eq!((later.last(Stripe(3)), later.last(Stripe(65_535)), later.largest()), (30, 12, 30));
    }
}
