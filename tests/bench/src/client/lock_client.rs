//! The interface of every contender: acquire and release a lock on a majority of nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Long enough that no lock of a measurement expires.
pub(crate) const TTL_MS: u64 = 30_000;
pub(crate) const TTL: Duration = Duration::from_millis(TTL_MS);

/// A client that acquires and releases a lock on a majority of nodes.
pub(crate) trait LockClient: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether its nodes have the module. Clients that do not need it run on plain servers, which are faster.
    const WITH_MODULE: bool;
    /// The commands that acquire a lock, by their names in `INFO commandstats`.
    const ACQUIRES: &'static [&'static str];
    /// The command that releases a lock.
    const RELEASES: &'static str;

    /// Connects to nodes that all answer.
    fn connect(urls: Vec<String>) -> impl Future<Output = Self> + Send;

    /// Acquires the lock of `key` and releases it. Returns whether it held the lock.
    fn cycle(&self, key: &str) -> impl Future<Output = bool> + Send;
}

/// Keys that no other contender uses, one for each task. Contenders on different sets of nodes would otherwise
/// bring the fences of a key apart.
#[derive(Clone, Copy)]
pub(crate) struct TaskKeys {
    first: usize,
    /// The length of the keys in bytes; `None` is that of [`crate::names::key`].
    length: Option<usize>,
}

impl TaskKeys {
    pub(crate) fn unused() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Self { first: NEXT.fetch_add(10_000, Ordering::Relaxed), length: None }
    }

    pub(crate) fn unused_of_length(length: usize) -> Self {
        Self { length: Some(length), ..Self::unused() }
    }

    pub(crate) fn of_task(self, task: usize) -> String {
        let number = self.first + task;
        self.length.map_or_else(|| crate::names::key(number), |length| format!("{number:0length$}"))
    }
}
