//! Locks for programs without an async runtime.
//!
//! A [`LockManager`] of this module runs an async [`LockManager`](crate::LockManager) on a thread of its own,
//! and waits for it. It gives the same guarantees as the async [`LockManager`](crate::LockManager) and
//! [`Guard`](crate::Guard), and uses the same errors, reports and [`LockHandle`](crate::LockHandle).
//!
//! ```
//! use redlock_client::LockManager;
//! use redlock_client::memory::MemoryNodes;
//! use std::time::Duration;
//!
//! // Nodes in memory need no server. With servers: `.nodes(["redis://one", …])`.
//! let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;
//!
//! let guard = locks.acquire("orders:42", Duration::from_secs(30))?;
//! assert!(guard.is_valid());
//! println!("pass {} to the storage with every write", guard.fence());
//! let report = guard.release();
//! assert!(report.is_free_on_a_majority());
//! # Ok::<(), redlock_client::Error>(())
//! ```
//!
//! # What blocks
//!
//! | | blocks the calling thread |
//! |---|---|
//! | [`acquire`](LockManager::acquire) and its variants, [`with_lock`](LockManager::with_lock) and its variants | until the client holds the lock or gives up |
//! | [`campaign`](Election::campaign), [`campaign_timeout`](Election::campaign_timeout) | until the candidate leads or gives up |
//! | [`extend_detached`](LockManager::extend_detached), [`release_detached`](LockManager::release_detached) | until every node has answered or timed out |
//! | [`extend`](Guard::extend), [`release`](Guard::release), [`inspect`](LockManager::inspect), [`health`](LockManager::health) | until enough nodes have answered, or the others have timed out |
//! | [`leader`](Election::leader), [`resign`](Leadership::resign) | until enough nodes have answered, or the others have timed out |
//! | [`wait_lost`](Guard::wait_lost), of a guard and of a [`Leadership`] | until the lock has ended, at most for the time given |
//! | [`flush`](LockManager::flush) | until every release is answered or has timed out |
//! | dropping the last clone of a manager, or the last guard after it | as `flush`, at most for the node timeout |
//! | everything else, such as dropping another [`Guard`] | not at all |
//!
//! This module has no [`LockManager::ask`](crate::LockManager::ask), which is for operators, and no
//! [`ShardedLocks`](crate::ShardedLocks). Use one blocking manager per shard, and choose it with
//! [`ShardedLocks::shard_of`](crate::ShardedLocks::shard_of).
//!
//! No call panics inside an async runtime. But a blocked thread runs no other task: use the async manager
//! there.

mod election;
mod engine;
mod guard;
mod manager;

pub use election::{Election, Leadership};
pub use guard::Guard;
pub use manager::LockManager;
