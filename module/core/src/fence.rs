//! Fences: numbers that a node hands out and never takes back.
//!
//! One logical counter is kept as many stripes, chosen by a hash of the key. Work on one key then
//! leaves the numbers of nearly all other keys alone, so nodes that saw the same work on a key agree
//! on its next number without talking to each other.

use std::collections::HashMap;

use redlock_contract::limits::{MAX_FENCE, raise_limit};
use xxhash_rust::xxh3::xxh3_64;

/// How many stripes a node keeps. Part of the persisted format.
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

    /// The same key has the same stripe on every node and in every version.
    #[must_use]
    pub fn of(key: &[u8]) -> Self {
        let [low, high, ..] = xxh3_64(key).to_le_bytes();
        Self(u16::from_le_bytes([low, high]))
    }
}

/// All stripes of a node. None ever shrinks.
///
/// A node that works on many keys touches stripes all over, so they are kept small: half the memory is
/// half the cache misses, which are the dearest part of a grant.
#[derive(Clone, Debug)]
pub struct Stripes {
    /// Where all stripes began.
    base: u64,
    /// How far each stripe has come from there, or [`FAR`].
    near: Box<[u32]>,
    /// The last numbers that do not fit.
    far: HashMap<Stripe, u64>,
    largest: u64,
}

/// The number is elsewhere.
const FAR: u32 = u32::MAX;

impl Default for Stripes {
    fn default() -> Self {
        Self::starting_at(0)
    }
}

impl Stripes {
    /// Stripes of which the first number will be larger than `base`.
    #[must_use]
    pub fn starting_at(base: u64) -> Self {
        let base = base.min(MAX_FENCE);
        Self { base, near: vec![0; STRIPES].into_boxed_slice(), far: HashMap::new(), largest: base }
    }

    /// The last number given out on a stripe, or where it began.
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

    /// Where the number of a stripe is kept, so that a caller can prefetch it.
    #[must_use]
    pub fn near(&self, stripe: Stripe) -> &u32 {
        &self.near[usize::from(stripe.0)]
    }

    /// The largest number on any stripe.
    #[must_use]
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// The number that a grant on this stripe would carry, or `None` when the numbers are used up.
    #[must_use]
    #[inline]
    pub fn next(&self, stripe: Stripe, floor: u64) -> Option<u64> {
        let last = self.last(stripe);
        let next = (last + 1).max(floor.min(raise_limit(last)));
        (next <= MAX_FENCE).then_some(next)
    }

    /// Makes sure that every later number on this stripe is larger than `fence`.
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

    /// Makes sure that every later number on any stripe is larger than `above`.
    pub fn raise_all(&mut self, above: u64) {
        *self = Self::starting_at(self.largest.max(above));
    }

    /// Stripes that are past the beginning, as `(index, last number)`.
    pub fn used(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        (0..=u16::MAX).map(|index| (index, self.last(Stripe(index)))).filter(|(_, last)| *last > self.base)
    }

    /// Takes over a saved stripe, unless it is behind.
    pub fn restore(&mut self, index: u16, last: u64) {
        self.raise(Stripe(index), last);
    }
}

/// The fence that a raise to `floor` gives a lock that has `fence`: never a smaller one.
#[must_use]
pub fn raised(fence: u64, floor: u64) -> u64 {
    fence.max(floor.min(raise_limit(fence)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::limits::{RAISE_CAP, RAISE_STEP};

    #[test]
    fn numbers_start_at_one_and_grow() {
        let mut stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        assert_eq!(stripes.next(stripe, 0), Some(1));
        stripes.raise(stripe, 1);
        assert_eq!(stripes.next(stripe, 0), Some(2));
        assert_eq!(stripes.next(stripe, 40), Some(40), "a floor lifts");
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
    fn large_numbers_are_kept_like_small_ones() {
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
    fn stripes_that_begin_anew_begin_above_all_others() {
        let mut stripes = Stripes::starting_at(1 << 40);
        let stripe = Stripe::of(b"job");
        assert_eq!(stripes.next(stripe, 7), Some((1 << 40) + 1));
        stripes.raise(stripe, 9);
        assert_eq!((stripes.last(stripe), stripes.largest(), stripes.used().count()), (1 << 40, 1 << 40, 0));
        stripes.raise(stripe, (1 << 40) + 1);
        assert_eq!(stripes.used().collect::<Vec<_>>(), [(52_697, (1 << 40) + 1)]);
    }

    #[test]
    fn used_up_numbers_are_not_reused() {
        let mut stripes = Stripes::default();
        let stripe = Stripe::of(b"job");
        stripes.raise(stripe, u64::MAX);
        assert_eq!(stripes.last(stripe), MAX_FENCE);
        assert_eq!(stripes.next(stripe, 0), None);
    }

    #[test]
    fn the_stripe_of_a_key_is_part_of_the_format() {
        // Saved stripes are found by their index: a change of the hash would lose every fence.
        assert_eq!(Stripe::of(b""), Stripe(38_082));
        assert_eq!(Stripe::of(b"job"), Stripe(52_697));
        assert_ne!(Stripe::of(b"job"), Stripe::of(b"jobs"));
    }

    #[test]
    fn saved_stripes_come_back_but_never_lower_a_number() {
        let mut stripes = Stripes::default();
        stripes.raise(Stripe(3), 9);
        stripes.raise(Stripe(65_535), 12);
        let saved: Vec<_> = stripes.used().collect();
        assert_eq!(saved, [(3, 9), (65_535, 12)]);

        let mut later = Stripes::default();
        later.raise(Stripe(3), 30);
        for (index, last) in saved {
            later.restore(index, last);
        }
        assert_eq!((later.last(Stripe(3)), later.last(Stripe(65_535)), later.largest()), (30, 12, 30));
    }
}
