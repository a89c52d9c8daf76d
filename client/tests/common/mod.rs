//! Helpers for the tests on nodes in memory.

#![allow(clippy::expect_used, dead_code)]

use redlock_client::LockManager;
use redlock_client::memory::MemoryNodes;
use std::time::Duration;

/// The time to live of most locks in these tests.
pub(crate) const TTL: Duration = Duration::from_secs(10);

/// The validity of a lock with this time to live: the allowance for drift is 1 % plus 2 ms.
pub(crate) const LEASE: Duration = Duration::from_millis(9_898);

/// A manager over these nodes.
pub(crate) fn manager(nodes: &MemoryNodes) -> LockManager {
    LockManager::builder().memory(nodes).build().expect("nodes in memory are enough")
}
