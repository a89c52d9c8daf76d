//! The lock manager for programs without an async runtime.

use super::engine::Engine;
use super::guard::Guard;
use crate::{Builder, Detached, Error, Health, Inspection, LockHandle, Owner, ReleaseReport};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Acquires locks on a majority of independent nodes; the blocking form of [`crate::LockManager`].
///
/// A manager is cheap to clone; clones share connections and one background thread. The drop of the last
/// clone waits until the nodes have answered every earlier release, at most for the node timeout. So a
/// program that exits leaves no lock behind. Guards may outlive the manager.
#[derive(Clone)]
pub struct LockManager {
    clones: Arc<Clones>,
}

/// The state that the clones of a manager share. The drop of the last clone waits for the releases. The drop of
/// a guard waits only if it is the last and the manager is gone.
struct Clones {
    engine: Arc<Engine>,
}

impl Drop for Clones {
    fn drop(&mut self) {
        self.engine.flush();
    }
}

impl Builder {
    /// Builds a manager for programs without an async runtime; see [`blocking`](crate::blocking). Starts a
    /// thread and opens no connection.
    ///
    /// # Errors
    /// As [`Builder::build`], and [`Error::Config`] if the system cannot start a thread.
    pub fn build_blocking(self) -> Result<LockManager, Error> {
        LockManager::new(self.build()?)
    }
}

impl LockManager {
    /// Makes a manager with the settings of an async manager, and with its own connections and background
    /// thread.
    ///
    /// # Errors
    /// [`Error::Config`] if the system cannot start a thread.
    pub fn new(locks: crate::LockManager) -> Result<Self, Error> {
        let engine = Arc::new(Engine::start(&locks)?);
        Ok(Self { clones: Arc::new(Clones { engine }) })
    }

    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.clones.engine
    }

    /// Runs a call of the async manager on its runtime, and waits for the result.
    fn ask<T, F>(&self, question: impl FnOnce(crate::LockManager) -> F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Error>> + Send + 'static,
    {
        self.engine().wait(question(self.engine().locks.clone()))?
    }

    fn guard(&self, guard: crate::Guard) -> Guard {
        Guard::new(guard, self.engine())
    }

    /// Acquires a lock. Blocks until the client holds it, or the manager's [`Retry`](crate::Retry) gives up.
    ///
    /// # Errors
    /// The error of the last attempt, when the policy gives up or the error is not retryable.
    pub fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.acquire(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Tries once to acquire a lock. Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// [`Error::Contended`] if another client holds the lock. Every other [`Error`] is possible too.
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.try_acquire(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Acquires a lock, and waits for it at most `wait`. `wait` alone decides when the call gives up, not the
    /// manager's [`Retry`](crate::Retry).
    ///
    /// # Errors
    /// [`Error::Timeout`] after `wait`, with the last answers of the nodes.
    pub fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.acquire_timeout(resource, ttl, wait).await })?;
        Ok(self.guard(guard))
    }

    /// Acquires several locks as one: all of them or none, without deadlock, whatever the order of
    /// `resources`. Blocks as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        let resources = owned(resources);
        let guard = self.ask(|locks| async move { locks.acquire_many(resources, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Tries once to acquire several locks as one. Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// As [`LockManager::try_acquire`].
    pub fn try_acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        let resources = owned(resources);
        let guard = self.ask(|locks| async move { locks.try_acquire_many(resources, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Acquires several locks as one, and waits for them at most `wait`.
    ///
    /// # Errors
    /// As [`LockManager::acquire_timeout`].
    pub fn acquire_many_timeout<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        let resources = owned(resources);
        let guard =
            self.ask(|locks| async move { locks.acquire_many_timeout(resources, ttl, wait).await })?;
        Ok(self.guard(guard))
    }

    /// Runs `work` on this thread while the client holds a lock, and releases the lock afterwards.
    ///
    /// The client extends the lock in the background while the work runs, up to the manager's `max_hold`. The
    /// client cannot stop the work if the lock is lost: the work must call
    /// [`LockHandle::is_valid`](crate::LockHandle::is_valid) before every step that needs the lock. If the
    /// work succeeds after the lock was lost, the result is [`Error::Lost`]. If the work returns an error,
    /// the caller gets that error, whatever happened to the lock.
    ///
    /// ```
    /// # use redlock_client::{Error, LockManager};
    /// # use redlock_client::memory::MemoryNodes;
    /// # use std::time::Duration;
    /// # let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;
    /// let rows = locks.with_lock("orders:42", Duration::from_secs(10), |held| {
    ///     let mut rows = 0;
    ///     while rows < 3 && held.is_valid() {
    ///         // One step, and held.fence() goes with what it writes.
    ///         rows += 1;
    ///     }
    ///     Ok::<_, Error>(rows)
    /// })?;
    /// assert_eq!(rows, 3);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error of the work, or the reason why the lock was not acquired or was lost.
    pub fn with_lock<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_under(self.acquire(resource, ttl)?, work)
    }

    /// Runs `work` if the client acquires the lock at the first attempt, as [`LockManager::with_lock`]. Returns
    /// `Ok(None)`, without having called `work`, if another client holds the lock.
    ///
    /// # Errors
    /// As [`LockManager::with_lock`]. [`Error::Contended`] is not an error here.
    pub fn try_with_lock<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.try_run_under(self.try_acquire(resource, ttl), work)
    }

    /// As [`LockManager::with_lock`], and waits for the lock at most `wait`. The time of the work does not
    /// count.
    ///
    /// # Errors
    /// As [`LockManager::with_lock`], and [`Error::Timeout`] after `wait`.
    pub fn with_lock_timeout<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_under(self.acquire_timeout(resource, ttl, wait)?, work)
    }

    /// As [`LockManager::with_lock`], for several locks as one: see [`LockManager::acquire_many`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`].
    pub fn with_lock_many<R: AsRef<[u8]>, T, E: From<Error>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_under(self.acquire_many(resources, ttl)?, work)
    }

    /// As `run_under`; `Ok(None)`, without a call of `work`, if another client holds the lock.
    fn try_run_under<T, E: From<Error>>(
        &self,
        attempt: Result<Guard, Error>,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        match attempt {
            Ok(guard) => self.run_under(guard, work).map(Some),
            Err(Error::Contended(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Runs `work` under a lock, extends the lock meanwhile, and releases it afterwards.
    fn run_under<T, E: From<Error>>(
        &self,
        mut guard: Guard,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        guard.keep_alive(self.engine().settings().max_hold)?;
        let outcome = work(guard.held());
        let lost = guard.lost_error();
        guard.release();
        match (outcome, lost) {
            (Ok(_), Some(lost)) => Err(lost.into()),
            (outcome, _) => outcome,
        }
    }

    /// Acquires a shared lock; see [`crate::LockManager::acquire_shared`]. Blocks as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub fn acquire_shared(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.acquire_shared(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Tries once to acquire a shared lock. Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// As [`crate::LockManager::try_acquire_shared`].
    pub fn try_acquire_shared(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.try_acquire_shared(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Acquires a shared lock, and waits for it at most `wait`.
    ///
    /// # Errors
    /// As [`LockManager::acquire_timeout`].
    pub fn acquire_shared_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard =
            self.ask(|locks| async move { locks.acquire_shared_timeout(resource, ttl, wait).await })?;
        Ok(self.guard(guard))
    }

    /// Runs `work` on this thread while the client holds a shared lock, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`].
    pub fn with_shared_lock<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_under(self.acquire_shared(resource, ttl)?, work)
    }

    /// Runs `work` if the client acquires the shared lock at the first attempt, as
    /// [`LockManager::try_with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::try_with_lock`].
    pub fn try_with_shared_lock<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<Option<T>, E> {
        self.try_run_under(self.try_acquire_shared(resource, ttl), work)
    }

    /// As [`LockManager::with_shared_lock`], and waits for the lock at most `wait`.
    ///
    /// # Errors
    /// As [`LockManager::with_lock_timeout`].
    pub fn with_shared_lock_timeout<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        self.run_under(self.acquire_shared_timeout(resource, ttl, wait)?, work)
    }

    /// Returns a shared lock that another process or guard has [detached](Guard::detach).
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty resource name.
    pub fn detached_shared(
        &self,
        resource: impl AsRef<[u8]>,
        owner: Owner,
        fence: u64,
    ) -> Result<Detached, Error> {
        self.engine().locks.detached_shared(resource, owner, fence)
    }

    /// Returns a lock that another process or guard has [detached](Guard::detach); see
    /// [`crate::LockManager::detached`]. Does not block: the client does not ask the nodes whether the lock
    /// is still held.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty resource name.
    pub fn detached(&self, resource: impl AsRef<[u8]>, owner: Owner, fence: u64) -> Result<Detached, Error> {
        self.engine().locks.detached(resource, owner, fence)
    }

    /// Extends a detached lock to this time to live, counted from now. Returns how long the lock stays valid.
    /// Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// As [`crate::LockManager::extend_detached`].
    pub fn extend_detached(&self, lock: &Detached, ttl: Duration) -> Result<Duration, Error> {
        let lock = lock.clone();
        self.ask(|locks| async move { locks.extend_detached(&lock, ttl).await })
    }

    /// Releases a detached lock. Blocks until every node has answered or timed out. On a node that the client
    /// cannot reach, the lock stays held until it expires.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] if the background thread has stopped.
    pub fn release_detached(&self, lock: &Detached) -> Result<ReleaseReport, Error> {
        let lock = lock.clone();
        self.ask(|locks| async move { locks.release_detached(&lock).await })
    }

    /// Reads the state of a lock from every node: whether it is held, under which label, and for how long.
    /// Changes nothing. Blocks until the nodes have answered or timed out.
    ///
    /// The state may have changed when the caller reads it. Show it to people; do not decide on a write with
    /// it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty resource name. A node that does not answer is part of the report, not
    /// an error.
    pub fn inspect(&self, resource: impl AsRef<[u8]>) -> Result<Inspection, Error> {
        let resource = resource.as_ref().to_vec();
        self.ask(|locks| async move { locks.inspect(resource).await })
    }

    /// Reads the health of every node. Changes nothing. Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] if the background thread has stopped. A node that does not answer is part of the
    /// report, not an error.
    pub fn health(&self) -> Result<Health, Error> {
        self.ask(|locks| async move { locks.health().await })
    }

    /// Waits until every release that began before this call is answered or has timed out. The manager stays
    /// usable.
    ///
    /// The drop of the last clone of the manager does the same, but waits at most for the node timeout.
    pub fn flush(&self) {
        let _ = self.ask(|locks| async move {
            locks.flush().await;
            Ok(())
        });
    }
}

/// Copies the resource names, for a thread that outlives the caller's borrow.
fn owned<R: AsRef<[u8]>>(resources: impl IntoIterator<Item = R>) -> Vec<Vec<u8>> {
    resources.into_iter().map(|resource| resource.as_ref().to_vec()).collect()
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine().locks.fmt(f)
    }
}
