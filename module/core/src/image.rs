//! What is saved of a node: the form of a lock and of the stripes outside of memory.
//!
//! Time is saved as time left, never as a date: when a lock is loaded or replicated it starts its
//! remaining time anew in full, whatever any wall clock says meanwhile.

use crate::fence::{MAX_FENCE, Stripes};
use crate::ledger::Ledger;

/// The version of what [`encode_stripes`] writes.
const STRIPES_VERSION: u8 = 1;

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

/// The stripes in use, and what the ledger says, as bytes.
#[must_use]
pub fn encode_stripes(stripes: &Stripes, ledger: &Ledger) -> Vec<u8> {
    let mut bytes = vec![STRIPES_VERSION];
    bytes.extend_from_slice(&ledger.mark.to_le_bytes());
    bytes.extend_from_slice(&ledger.longest_ttl_ms.to_le_bytes());
    for (index, last) in stripes.used() {
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(&last.to_le_bytes());
    }
    bytes
}

/// Takes saved stripes over, and tells the mark and the longest time to live that were saved with them.
/// `None`, with nothing changed, if the bytes are not what [`encode_stripes`] writes.
#[must_use]
pub fn restore_stripes(stripes: &mut Stripes, bytes: &[u8]) -> Option<(u64, u64)> {
    let (&STRIPES_VERSION, bytes) = bytes.split_first()? else { return None };
    let (mark, bytes) = bytes.split_first_chunk()?;
    let (longest_ttl_ms, bytes) = bytes.split_first_chunk()?;
    let (entries, rest) = bytes.as_chunks::<10>();
    let entries =
        entries.iter().map(|[a, b, last @ ..]| (u16::from_le_bytes([*a, *b]), u64::from_le_bytes(*last)));
    if !rest.is_empty() || entries.clone().any(|(_, last)| last > MAX_FENCE) {
        return None;
    }
    entries.for_each(|(index, last)| stripes.restore(index, last));
    Some((u64::from_le_bytes(*mark), u64::from_le_bytes(*longest_ttl_ms)))
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
        let ledger = Ledger { mark: 77, longest_ttl_ms: 30_000, ..Ledger::new(String::new()) };
        let bytes = encode_stripes(&stripes, &ledger);
        let mut loaded = Stripes::default();
        assert_eq!(restore_stripes(&mut loaded, &bytes), Some((77, 30_000)));
        assert!(loaded.used().eq(stripes.used()));
    }

    #[test]
    fn what_is_not_ours_is_refused_whole() {
        let mut stripes = Stripes::default();
        let mut good = vec![1];
        good.extend_from_slice(&[0; 16]);
        good.extend_from_slice(&[3, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
        let mut too_large = good.clone();
        too_large[26] = 0xff;
        for bad in [&[][..], &[2], &good[..10], &good[..26], &too_large] {
            assert_eq!(restore_stripes(&mut stripes, bad), None, "{bad:?}");
        }
        assert_eq!(stripes.largest(), 0);
        assert_eq!(restore_stripes(&mut stripes, &good), Some((0, 0)));
        assert_eq!(stripes.largest(), 9);
    }
}
