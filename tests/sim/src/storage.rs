//! A storage that turns stale holders away.

use std::collections::HashMap;

/// What it keeps of a resource: the newest number, and whose it was.
#[derive(Debug, Default)]
pub(super) struct Storage {
    newest: HashMap<usize, (u64, u64)>,
}

impl Storage {
    /// Writes, unless somebody with a larger number was here before; true if it did.
    pub(super) fn write(&mut self, key: usize, fence: u64, holder: u64) -> bool {
        let newest = self.newest.entry(key).or_default();
        let is_newer = fence > newest.0 || (fence, holder) == *newest;
        if is_newer {
            *newest = (fence, holder);
        }
        is_newer
    }
}
