//! The guard of a held lock, for programs without an async runtime.

use super::engine::Engine;
use crate::report::ReleaseReport;
use crate::{Detached, Error, LockHandle, LostReason};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A held lock; the blocking form of [`crate::Guard`]. Dropping the guard releases the lock.
///
/// The drop does not block: the client releases the lock in the background. [`Guard::release`] waits until
/// the lock is free and returns the answers of the nodes. A guard that outlives its manager waits for the
/// releases, as the manager does: at most for the node timeout.
#[must_use = "a lock is freed as soon as its guard is dropped"]
pub struct Guard {
    /// Declared before the engine, so that its drop sends the release before the engine stops.
    guard: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, engine: &Arc<Engine>) -> Self {
        Self { guard, engine: Arc::clone(engine) }
    }

    /// The fence of the lock. Pass it to your storage with every write; see [`crate::Guard::fence`].
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// Whether other clients may hold the lock together with this one.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.guard.is_shared()
    }

    /// The locked resources, sorted, as the caller named them.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.guard.resources()
    }

    /// The time to live of the last acquire or extension.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// How long the lock stays valid; zero once it has ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the lock is valid now. Reads the local clock and sends nothing.
    ///
    /// The client cannot interrupt a thread that works under a lock. The thread must call this method before
    /// every step that needs the lock.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// Returns a view of the lock for the work under it. The view is cheap to clone, can be sent to other
    /// threads, and cannot release the lock.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        self.guard.held()
    }

    /// Waits until the lock is no longer held, at most for `at_most`. Returns `None` if the lock is still
    /// held.
    ///
    /// If the validity ends, the method returns a little before the end, whatever the network does.
    #[must_use = "`None` says that the lock is still held"]
    pub fn wait_lost(&self, at_most: Duration) -> Option<LostReason> {
        let held = self.held();
        let lost = async move { tokio::time::timeout(at_most, held.lost()).await.ok() };
        // Without a runtime nothing extends the lock.
        self.engine.wait(lost).unwrap_or(Some(LostReason::Expired))
    }

    /// Extends the lock to its full time to live, counted from now. Returns how long the lock stays valid.
    ///
    /// # Errors
    /// - [`Error::NoQuorum`] if too few nodes gave a usable answer. The lock keeps its validity; the caller
    ///   can try again.
    /// - [`Error::Rejected`] if the nodes rejected the request. The lock keeps the validity that it has.
    /// - [`Error::Lost`] if the lock has ended. Nothing revives it.
    pub fn extend(&self) -> Result<Duration, Error> {
        self.extend_to(self.ttl())
    }

    /// As [`Guard::extend`], with another time to live from now on. A shorter time to live does not shorten
    /// the current validity.
    ///
    /// # Errors
    /// As [`Guard::extend`], and [`Error::Invalid`] for a time to live out of range.
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, Error> {
        let ttl = self.engine.settings().check_ttl(ttl)?;
        let handle = self.held();
        self.engine.wait(async move { handle.extend(ttl).await })?
    }

    /// Extends the lock in the background, in time, for `max_hold` from now.
    ///
    /// If nodes fail, the client keeps trying while the lock is valid. A second call replaces `max_hold` of
    /// the first.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] if the background thread has stopped.
    pub fn keep_alive(&mut self, max_hold: Duration) -> Result<(), Error> {
        let guard = &mut self.guard;
        self.engine.inside(|| guard.keep_alive(max_hold))?
    }

    /// Releases the lock. Blocks until a majority of the nodes has released it, or until every node has
    /// answered or timed out.
    ///
    /// A release never fails, not even of an expired lock: the report says what each node answered.
    pub fn release(self) -> ReleaseReport {
        let Self { guard, engine } = self;
        let was_held = guard.is_valid();
        let report = engine.wait(guard.release());
        report.unwrap_or_else(|_| ReleaseReport::new(was_held, engine.settings(), None))
    }

    /// Detaches the lock from this guard. The lock stays held until it expires, or until a client that knows
    /// the owner releases it. That client may be another process.
    #[must_use = "without the owner, the lock cannot be released before it expires"]
    pub fn detach(self) -> Detached {
        self.guard.detach()
    }

    /// The error for a lock that has ended; `None` while it is valid.
    pub(super) fn lost_error(&self) -> Option<Error> {
        self.guard.over().map(|reason| self.guard.handle.lost_error(reason))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
