//! What is compared: ways to take and free a lock on a majority of nodes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Long enough that no lock of a measurement runs out.
pub(crate) const TTL_MS: u64 = 30_000;
pub(crate) const TTL: Duration = Duration::from_millis(TTL_MS);

/// A way to take and free a lock on a majority of nodes.
pub(crate) trait LockClient: Send + Sync + Sized + 'static {
    const NAME: &'static str;
    /// Whether its nodes have the module. Without it a server is as fast as it is for everybody else.
    const WITH_MODULE: bool;
    /// The commands by which it asks for a lock, as `INFO commandstats` has them.
    const ACQUIRES: &'static [&'static str];
    /// The command that frees it.
    const RELEASES: &'static str;

    /// Makes connections to nodes that all answer.
    fn connect(urls: Vec<String>) -> impl Future<Output = Self> + Send;

    /// Takes the lock of `key` and frees it; tells whether it was had.
    fn cycle(&self, key: &str) -> impl Future<Output = bool> + Send;
}

/// Keys that nobody else uses, one for each task: a server counts the grants of a key, and contenders on
/// different choices of nodes would bring these counts apart.
#[derive(Clone, Copy)]
pub(crate) struct TaskKeys {
    first: usize,
    /// How long they are; as long as names tend to be unless told.
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
