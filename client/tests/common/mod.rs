//! What the tests on nodes in memory share.

#![allow(clippy::expect_used, dead_code)]

use redlock_client::LockManager;
use redlock_client::memory::MemoryNodes;
use std::time::Duration;

/// The time to live of most locks here.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// What is left of it after the allowance for drift: 1 % and 2 ms.
pub(crate) const LEASE: Duration = Duration::from_millis(9_898);

/// A manager over some nodes.
pub(crate) fn manager(nodes: &MemoryNodes) -> LockManager {
    LockManager::builder().memory(nodes).build().expect("nodes in memory are enough")
}
