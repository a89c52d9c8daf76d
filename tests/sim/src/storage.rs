//! A storage that rejects stale holders.

use std::collections::HashMap;

/// For each key, the largest fence and the holder that wrote with it.
#[derive(Debug, Default)]
pub(super) struct Storage {
    newest: HashMap<usize, (u64, u64)>,
}

impl Storage {
    /// Writes, unless a holder with a larger fence has written before. True if the write was accepted.
    pub(super) fn write(&mut self, key: usize, fence: u64, holder: u64) -> bool {
        let newest = self.newest.entry(key).or_default();
        let is_newer = fence > newest.0 || (fence, holder) == *newest;
        if is_newer {
            *newest = (fence, holder);
        }
        is_newer
    }

    /// Whether a reader with this fence may read: no holder with a larger fence has written before.
    pub(super) fn read(&self, key: usize, fence: u64) -> bool {
        self.newest.get(&key).is_none_or(|newest| fence > newest.0)
    }
}
