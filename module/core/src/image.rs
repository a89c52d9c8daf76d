//! The saved form of locks and stripes.
//!
//! A lock is saved with its time left, never with a date. When it is loaded or replicated, its remaining time starts
//! again in full, whatever the wall clock does meanwhile.

use crate::durable::{Dataset, DurableState};
use crate::fence::Stripes;
use redlock_contract::limits::MAX_FENCE;

/// The version of what [`encode_stripes`] writes.
const STRIPES_VERSION: u8 = 2;
/// The version before, which had the longest time to live in place of the id of the data set.
const STRIPES_VERSION_1: u8 = 1;

/// A lock as it is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockImage {
    /// The secret that identifies the holder.
    pub owner: Vec<u8>,
    /// A text for people.
    pub label: Vec<u8>,
    /// The fence of the grant, or the larger one to which the owner has raised it.
    pub fence: u64,
    /// Time until the lock expires, in milliseconds.
    pub left_ms: u64,
    /// Time since its grant, in milliseconds.
    pub held_ms: u64,
    /// The number of extensions.
    pub extensions: u32,
}

/// A lock as it is saved, with all its holders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SavedLock {
    /// Whether any number of owners may hold it. Otherwise it has one holder.
    pub is_shared: bool,
    /// Its holders, at least one. All have the same fence.
    pub holders: Vec<LockImage>,
}

/// The id of the data set, the common high-water mark, and the stripes in use, as bytes.
#[must_use]
pub fn encode_stripes(stripes: &Stripes, state: &DurableState) -> Vec<u8> {
    let mut bytes = vec![STRIPES_VERSION];
    bytes.extend_from_slice(&state.high_water.common().to_le_bytes());
    bytes.extend_from_slice(&state.dataset_id.to_le_bytes());
    for (stripe, last) in stripes.used() {
        bytes.extend_from_slice(&stripe.index().to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
    }
    bytes
}

/// Raises the stripes to the saved ones, and returns what was saved about the data set with them. If the bytes are not
/// what [`encode_stripes`] writes, it returns `None` and changes nothing.
#[must_use]
pub fn restore_stripes(stripes: &mut Stripes, bytes: &[u8]) -> Option<Dataset> {
    let (version, bytes) = bytes.split_first()?;
    let (high_water, bytes) = bytes.split_first_chunk()?;
    let (id, bytes) = bytes.split_first_chunk()?;
    let high_water = u64::from_le_bytes(*high_water);
    let id = match *version {
        STRIPES_VERSION => Some(u64::from_le_bytes(*id)),
        STRIPES_VERSION_1 => None,
        _ => return None,
    };
    let (entries, rest) = bytes.as_chunks::<10>();
    let entries =
        entries.iter().map(|[a, b, last @ ..]| (u16::from_le_bytes([*a, *b]), u64::from_le_bytes(*last)));
    let highest_fence = entries.clone().map(|(_, last)| last).fold(high_water, u64::max);
    if !rest.is_empty() || highest_fence > MAX_FENCE {
        return None;
    }
    entries.for_each(|(index, last)| stripes.restore(index, last));
    Some(Dataset { id, has_locks: false, high_water, highest_fence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Stripe;
    use redlock_contract::HighWater;

    #[test]
    fn stripes_survive_the_round_trip() {
        let mut stripes = Stripes::default();
        stripes.raise(Stripe::of(b"a"), 5);
        stripes.raise(Stripe::of(b"b"), MAX_FENCE);
        let mut state = DurableState::new(String::new(), 0xfeed);
        state.high_water = HighWater::new(77);
        let bytes = encode_stripes(&stripes, &state);
        let mut loaded = Stripes::default();
        let dataset =
            Dataset { id: Some(0xfeed), has_locks: false, high_water: 77, highest_fence: MAX_FENCE };
        assert_eq!(restore_stripes(&mut loaded, &bytes), Some(dataset));
        assert!(loaded.used().eq(stripes.used()));
    }

    #[test]
    fn bytes_in_another_format_change_nothing() {
        let mut stripes = Stripes::default();
        let mut good = vec![2];
        good.extend_from_slice(&[0; 16]);
        good.extend_from_slice(&[3, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let mut too_large = good.clone();
        too_large[26] = 0xff;
        for bad in [&[][..], &[2], &[3; 27], &good[..10], &good[..26], &too_large] {
            assert_eq!(restore_stripes(&mut stripes, bad), None, "{bad:?}");
        }
        assert_eq!(stripes.largest(), 0);
        let without_id = Dataset { highest_fence: 9, ..Dataset::default() };
        assert_eq!(restore_stripes(&mut stripes, &good), Some(Dataset { id: Some(0), ..without_id }));
        assert_eq!(stripes.largest(), 9);
        good[0] = STRIPES_VERSION_1;
        assert_eq!(restore_stripes(&mut stripes, &good), Some(without_id), "version 1 had no id");
    }
}
