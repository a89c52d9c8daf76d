//! The same locks for programs without an async runtime.
//!
//! A [`LockManager`] of this module runs a small runtime on a thread of its own and waits for it. It decides
//! nothing itself: what is said of the async [`LockManager`](crate::LockManager) and
//! [`Guard`](crate::Guard) holds here too, and errors, reports and [`LockHandle`](crate::LockHandle) are the same types.
//!
//! ```
//! use redlock_client::LockManager;
//! use redlock_client::memory::MemoryNodes;
//! use std::time::Duration;
//!
//! // Nodes in memory, so that the example needs no server: elsewhere, `.nodes(["redis://one", …])`.
//! let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;
//!
//! let guard = locks.acquire("orders:42", Duration::from_secs(30))?;
//! assert!(guard.is_valid());
//! println!("hand {} to the storage with every write", guard.fence());
//! let report = guard.release();
//! assert!(report.is_free_on_a_majority());
//! # Ok::<(), redlock_client::Error>(())
//! ```
//!
//! # What blocks
//!
//! | | blocks the calling thread |
//! |---|---|
//! | [`acquire`](LockManager::acquire) and its relatives, [`with_lock`](LockManager::with_lock) | until the lock is held or given up |
//! | [`extend_detached`](LockManager::extend_detached), [`release_detached`](LockManager::release_detached) | until every node has answered, or failed to in time |
//! | [`extend`](Guard::extend), [`release`](Guard::release), [`inspect`](LockManager::inspect), [`health`](LockManager::health) | until enough nodes have answered, or failed to in time |
//! | [`wait_lost`](Guard::wait_lost) | until the lock is over, or for as long as it is told |
//! | [`flush`](LockManager::flush) | until nothing is left to be freed |
//! | dropping the last clone of a manager | as `flush`, at most for the node timeout |
//! | everything else, dropping a [`Guard`] above all | not at all |
//!
//! Not here: [`LockManager::ask`](crate::LockManager::ask), for those who look after nodes, and
//! [`ShardedLocks`](crate::ShardedLocks): use a blocking manager for each shard, chosen by
//! [`ShardedLocks::shard_of`](crate::ShardedLocks::shard_of).
//!
//! Nothing here panics for being called inside an async runtime, but a blocked thread serves no other task
//! meanwhile: use the async manager there.

mod engine;
mod guard;
mod manager;

pub use guard::Guard;
pub use manager::LockManager;
