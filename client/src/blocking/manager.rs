//! Where locks come from, for a program without an async runtime.

use super::engine::Engine;
use super::guard::Guard;
use crate::{Builder, Detached, Error, Health, Inspection, LockHandle, Owner, ReleaseReport};
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

/// Takes locks on a majority of independent nodes; the blocking form of [`crate::LockManager`].
///
/// Cheap to clone; clones share connections and one background thread. When the last clone is dropped, it
/// waits until what was freed before has been freed on the nodes, at most for the node timeout; so a program
/// that simply ends leaves no lock behind. Guards may outlive it.
#[derive(Clone)]
pub struct LockManager {
    clones: Arc<Clones>,
}

/// What the clones of a manager share. The last one to go waits, as guards never do.
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
    /// thread, touches no network.
    ///
    /// # Errors
    /// As [`Builder::build`], and [`Error::Config`] if the system gives no thread.
    pub fn build_blocking(self) -> Result<LockManager, Error> {
        LockManager::new(self.build()?)
    }
}

impl LockManager {
    /// A manager with the settings of an async one, and with connections and a background thread of its own.
    ///
    /// # Errors
    /// [`Error::Config`] if the system gives no thread.
    pub fn new(locks: crate::LockManager) -> Result<Self, Error> {
        let engine = Arc::new(Engine::start(&locks)?);
        Ok(Self { clones: Arc::new(Clones { engine }) })
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.clones.engine
    }

    /// Asks the async manager something on its runtime, and waits.
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

    /// Takes a lock, trying again as the manager's [`Retry`](crate::Retry) says. Blocks until then.
    ///
    /// # Errors
    /// That of the last attempt, when the policy gives up or trying again is no use.
    pub fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.acquire(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Tries once to take a lock. Blocks until the nodes have answered or failed to in time.
    ///
    /// # Errors
    /// [`Error::Contended`] if somebody else holds it, and all others.
    pub fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        let resource = resource.as_ref().to_vec();
        let guard = self.ask(|locks| async move { locks.try_acquire(resource, ttl).await })?;
        Ok(self.guard(guard))
    }

    /// Takes a lock, trying again for at most `wait`, whatever the manager's policy says about giving up.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, with what the nodes said last.
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

    /// Takes several locks as one: all of them or none, in any order given, without deadlock. Blocks until
    /// then.
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

    /// Tries once to take several locks as one. Blocks until the nodes have answered or failed to in time.
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

    /// Takes several locks as one, trying again for at most `wait`.
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

    /// Runs `work` on this thread while holding a lock, and frees it afterwards.
    ///
    /// The lock is extended in the background for as long as the work goes on, up to the manager's
    /// `max_hold`. Nothing can stop the work if the lock is lost meanwhile: it must ask
    /// [`LockHandle::is_valid`](crate::LockHandle::is_valid) before every step that matters. If it did finish, but after
    /// the lock was lost, the result is [`Error::Lost`]; if it fails, its own error is returned, whatever
    /// happened to the lock.
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
    /// The error of the work, or why the lock was not acquired or was lost.
    pub fn with_lock<T, E: From<Error>>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut guard = self.acquire(resource, ttl)?;
        guard.keep_alive(self.engine().settings().max_hold)?;
        let outcome = work(guard.held());
        let lost = guard.lost_error();
        guard.release();
        match (outcome, lost) {
            (Ok(_), Some(lost)) => Err(lost.into()),
            (outcome, _) => outcome,
        }
    }

    /// A lock that was [detached](Guard::detach) elsewhere; see [`crate::LockManager::detached`]. Does not block:
    /// nobody is asked whether it is still held.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a resource without a name.
    pub fn detached(&self, resource: impl AsRef<[u8]>, owner: Owner, fence: u64) -> Result<Detached, Error> {
        self.engine().locks.detached(resource, owner, fence)
    }

    /// Holds a detached lock for this time to live, from now on. Returns how long it may be believed. Blocks until
    /// the nodes have answered or failed to in time.
    ///
    /// # Errors
    /// As [`crate::LockManager::extend_detached`].
    pub fn extend_detached(&self, lock: &Detached, ttl: Duration) -> Result<Duration, Error> {
        let lock = lock.clone();
        self.ask(|locks| async move { locks.extend_detached(&lock, ttl).await })
    }

    /// Frees a detached lock, and blocks until every node has answered or failed to in time. A node that could not
    /// be told keeps it until it runs out.
    ///
    /// # Errors
    /// Only for want of a thread.
    pub fn release_detached(&self, lock: &Detached) -> Result<ReleaseReport, Error> {
        let lock = lock.clone();
        self.ask(|locks| async move { locks.release_detached(&lock).await })
    }

    /// Asks every node about a lock: whether it is held, under which label, for how long. Changes nothing.
    /// Blocks until the nodes have answered or failed to in time.
    ///
    /// What it says may be over by the time it is read: it is for people, never a reason to write.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a resource without a name. Nodes that do not answer are part of the report.
    pub fn inspect(&self, resource: impl AsRef<[u8]>) -> Result<Inspection, Error> {
        let resource = resource.as_ref().to_vec();
        self.ask(|locks| async move { locks.inspect(resource).await })
    }

    /// Asks every node how it is. Changes nothing. Blocks until the nodes have answered or failed to in time.
    ///
    /// # Errors
    /// Only for want of a thread: nodes that do not answer are part of the report.
    pub fn health(&self) -> Result<Health, Error> {
        self.ask(|locks| async move { locks.health().await })
    }

    /// Waits until nothing is left to be freed: every release has been answered, or has waited for its node
    /// in vain. The manager can still be used afterwards.
    ///
    /// Dropping the last clone of the manager does the same, but gives up after the node timeout.
    pub fn flush(&self) {
        let _ = self.ask(|locks| async move {
            locks.flush().await;
            Ok(())
        });
    }
}

/// The names of resources, for a thread that outlives the caller's borrow of them.
fn owned<R: AsRef<[u8]>>(resources: impl IntoIterator<Item = R>) -> Vec<Vec<u8>> {
    resources.into_iter().map(|resource| resource.as_ref().to_vec()).collect()
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.engine().locks.fmt(f)
    }
}
