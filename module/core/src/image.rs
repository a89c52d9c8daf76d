//! What is saved of a node: the form of a lock and of the stripes outside of memory.
//!
//! Time is saved as time left, never as a date: when a lock is loaded or replicated it starts its
//! remaining time anew in full, whatever any wall clock says meanwhile.

use crate::durable::{Dataset, DurableState};
use crate::fence::Stripes;
use redlock_contract::limits::MAX_FENCE;

/// The version of what [`encode_stripes`] writes.
const STRIPES_VERSION: u8 = 2;
/// The version before, which had the longest time to live where now the id of the data set is.
const STRIPES_VERSION_1: u8 = 1;

/// A lock as it is saved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockImage {
    /// Who may change it.
    pub owner: Vec<u8>,
    /// For people.
    pub label: Vec<u8>,
    /// Its fence.
    pub fence: u64,
    /// Time until it is over.
    pub left_ms: u64,
    /// Time since it was granted.
    pub held_ms: u64,
    /// How often it was extended.
    pub extensions: u32,
}

/// The id of the data set, the highest fence, and the stripes in use, as bytes.
#[must_use]
pub fn encode_stripes(stripes: &Stripes, state: &DurableState) -> Vec<u8> {
    let mut bytes = vec![STRIPES_VERSION];
    bytes.extend_from_slice(&state.highest().to_le_bytes());
    bytes.extend_from_slice(&state.dataset_id.to_le_bytes());
    for (index, last) in stripes.used() {
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
    }
    bytes
}

/// Takes saved stripes over, and returns what was saved about the data set with them. `None`, with nothing changed, if
/// the bytes are not what [`encode_stripes`] writes.
#[must_use]
pub fn restore_stripes(stripes: &mut Stripes, bytes: &[u8]) -> Option<Dataset> {
    let (version, bytes) = bytes.split_first()?;
    let (highest, bytes) = bytes.split_first_chunk()?;
    let (id, bytes) = bytes.split_first_chunk()?;
    let highest_fence = u64::from_le_bytes(*highest);
    let id = match *version {
        STRIPES_VERSION => Some(u64::from_le_bytes(*id)),
        STRIPES_VERSION_1 => None,
        _ => return None,
    };
    let (entries, rest) = bytes.as_chunks::<10>();
    let entries =
        entries.iter().map(|[a, b, last @ ..]| (u16::from_le_bytes([*a, *b]), u64::from_le_bytes(*last)));
    if !rest.is_empty() || highest_fence > MAX_FENCE || entries.clone().any(|(_, last)| last > MAX_FENCE) {
        return None;
    }
    entries.for_each(|(index, last)| stripes.restore(index, last));
    Some(Dataset { id, has_locks: false, highest_fence })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Stripe;

    #[test]
    fn stripes_survive_the_round_trip() {
        let mut stripes = Stripes::default();
        stripes.raise(Stripe::of(b"a"), 5);
        stripes.raise(Stripe::of(b"b"), MAX_FENCE);
        let mut state = DurableState::new(String::new(), 0xfeed);
        state.high_water = 77;
        let bytes = encode_stripes(&stripes, &state);
        let mut loaded = Stripes::default();
        let dataset = Dataset { id: Some(0xfeed), has_locks: false, highest_fence: 77 };
        assert_eq!(restore_stripes(&mut loaded, &bytes), Some(dataset));
        assert!(loaded.used().eq(stripes.used()));
    }

    #[test]
    fn what_is_not_ours_is_refused_whole() {
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
        assert_eq!(restore_stripes(&mut stripes, &good), Some(Dataset { id: Some(0), ..Dataset::default() }));
        assert_eq!(stripes.largest(), 9);
        good[0] = STRIPES_VERSION_1;
        assert_eq!(
            restore_stripes(&mut stripes, &good),
            Some(Dataset::default()),
            "the version before had no id"
        );
    }
}
