//! Shared locks: several clients hold one lock together, and exclude the clients that want it for themselves.

use crate::acquire::RetryMode;
use crate::guard::Guard;
use crate::lock_handle::LockHandle;
use crate::manager::LockManager;
use crate::{Detached, Error, Owner};
use redlock_proto::LockMode;
use std::time::Duration;

impl LockManager {
    /// Acquires a shared lock: any number of clients (up to 4,096) hold it together, and no client holds the
    /// exclusive lock of [`LockManager::acquire`] at the same time. Waits as `acquire` does, in the same queue:
    /// a reader does not overtake a waiting writer, and all readers up to the next writer get the lock together.
    ///
    /// The fence orders readers and writers: a writer has a larger fence than every earlier reader and writer,
    /// and a reader has a larger fence than every earlier writer. Readers that hold the lock together may have
    /// the same fence or different ones. So a storage keeps two numbers. *Write* is the largest fence of a write:
    /// reject a write or a read with a smaller fence. *Read* is the largest fence of a reader: if you also store
    /// it, before each read, reject a write with a smaller fence. Then no paused writer disturbs later readers.
    /// Without it, a late write is still possible while readers hold the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// # use redlock_client::LockManager;
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// # let ttl = Duration::from_secs(10);
    /// let first = locks.acquire_shared("catalogue", ttl).await?;
    /// let second = locks.acquire_shared("catalogue", ttl).await?;
    /// assert!(locks.try_acquire("catalogue", ttl).await.is_err(), "the writer waits for both readers");
    ///
    /// let readers = first.fence().max(second.fence());
    /// first.release().await;
    /// second.release().await;
    /// assert!(locks.try_acquire("catalogue", ttl).await?.fence() > readers);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub async fn acquire_shared(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Shared, ttl, RetryMode::Configured).await
    }

    /// Tries once to acquire a shared lock. Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Contended`] if another client holds the exclusive lock, or waits for it. Every other [`Error`]
    /// is possible too.
    pub async fn try_acquire_shared(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Shared, ttl, RetryMode::Once).await
    }

    /// Acquires a shared lock, and waits for it at most `wait`, as [`LockManager::acquire_timeout`]. Cancel
    /// safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Timeout`] after `wait`, with the last answers of the nodes.
    pub async fn acquire_shared_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Shared, ttl, RetryMode::Within(wait)).await
    }

    /// Runs `work` while the client holds a shared lock, as [`LockManager::with_lock`] does for an exclusive
    /// one.
    ///
    /// Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`].
    pub async fn with_shared_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_under(self.acquire_shared(resource, ttl).await?, work).await
    }

    /// Runs `work` if the client acquires the shared lock at the first attempt, as
    /// [`LockManager::try_with_lock`]. Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`]. [`Error::Contended`] is not an error here: the result is `Ok(None)`.
    pub async fn try_with_shared_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<Option<T>, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.try_run_under(self.try_acquire_shared(resource, ttl).await, work).await
    }

    /// As [`LockManager::with_shared_lock`], and waits for the lock at most `wait`. The time of the work does
    /// not count. Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`], and [`Error::Timeout`] after `wait`.
    pub async fn with_shared_lock_timeout<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_under(self.acquire_shared_timeout(resource, ttl, wait).await?, work).await
    }

    /// Returns a shared lock that another process has [detached](crate::Guard::detach), as
    /// [`LockManager::detached`] does for an exclusive one.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the resource is empty.
    pub fn detached_shared(
        &self,
        resource: impl AsRef<[u8]>,
        owner: Owner,
        fence: u64,
    ) -> Result<Detached, Error> {
        Ok(Detached { is_shared: true, ..self.detached(resource, owner, fence)? })
    }
}
