//! The lock manager: acquires locks on the nodes.

use crate::Error;
use crate::acquire::{AcquireSpec, RetryMode};
use crate::builder::Builder;
use crate::driver::{self, Inbox, LeftoverConns, Message};
use crate::error::QuorumReport;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::lock_handle::LockHandle;
use crate::lock_shared::LockShared;
use crate::memory::MemoryNodes;
use crate::run_locked::run_locked;
use crate::settings::Settings;
use redlock_proto::{Ballot, LockMode, MAX_NODES};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Acquires locks on a majority of independent nodes.
///
/// A manager is cheap to clone; clones share connections. One manager serves any number of tasks. The client
/// sends the commands of concurrent tasks in one write, so the cost per call falls as the number of tasks
/// grows. The [crate documentation](crate) says which method to choose, and what happens if several
/// [runtimes](crate#runtimes) share a manager.
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<ManagerShared>,
}

/// The state that clones of a manager, guards and background tasks share.
pub(crate) struct ManagerShared {
    pub(crate) settings: Arc<Settings>,
    /// The channel to the driver; `None` before the first call.
    inbox: Mutex<Option<Inbox>>,
    /// The connections of a driver whose runtime has shut down while locks were held.
    leftover: Arc<LeftoverConns>,
}

impl ManagerShared {
    /// Returns the channel to a running driver. Starts a driver on the current runtime if there is no driver
    /// yet, or if the runtime of the last driver has shut down.
    pub(crate) fn inbox(&self) -> Result<Inbox, Error> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = inbox.as_ref().filter(|inbox| !inbox.is_closed()) {
            return Ok(inbox.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let fresh = driver::start(&self.settings, &self.leftover, &runtime);
        // A runtime that shuts down starts no driver.
        if !fresh.is_closed() {
            self.leftover.close();
        }
        *inbox = Some(fresh.clone());
        Ok(fresh)
    }

    /// Sends a call to the driver and waits for the answer.
    pub(crate) async fn call<T>(
        &self,
        message: impl FnOnce(oneshot::Sender<T>) -> Message,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        self.inbox()?.send(message(answer)).map_err(|_| Error::NoRuntime)?;
        answered.await.map_err(|_| Error::NoRuntime)
    }

    /// Releases a lock whose driver has stopped: with a new driver if there is a runtime that runs, otherwise
    /// over the connections that the driver has left behind.
    pub(crate) fn free(&self, lock: Arc<LockShared>, ttl: Duration) {
        let release = Message::ReleaseUntracked { shared: Arc::clone(&lock), ttl };
        if self.inbox().is_ok_and(|inbox| inbox.send(release).is_ok()) {
            return;
        }
        self.leftover.release(&lock, ttl, &self.settings);
    }

    pub(crate) fn report(&self, keys: &Keys, ballot: Option<&Ballot>) -> QuorumReport {
        QuorumReport::new(keys, &self.settings, ballot)
    }
}

impl LockManager {
    /// Returns a [`Builder`], which configures and builds a manager.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Returns a manager over `nodes` nodes in memory, for examples and tests. Needs no server.
    ///
    /// Clones of the manager share the nodes. For several managers over the same nodes, and for nodes that
    /// fail, see [`memory::MemoryNodes`](crate::memory::MemoryNodes). `nodes` is clamped to the range from 1
    /// to 63.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// use redlock_client::LockManager;
    /// use std::time::Duration;
    ///
    /// let locks = LockManager::in_memory(5);
    /// let guard = locks.acquire("orders:42", Duration::from_secs(30)).await?;
    /// assert_eq!(guard.fence(), 1);
    /// guard.release().await;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn in_memory(nodes: usize) -> Self {
        Builder::new().over_memory(&MemoryNodes::new(nodes.clamp(1, MAX_NODES)))
    }

    pub(crate) fn new(settings: Settings) -> Self {
        let shared =
            ManagerShared { settings: Arc::new(settings), inbox: Mutex::new(None), leftover: Arc::default() };
        Self { shared: Arc::new(shared) }
    }

    pub(crate) fn shared(&self) -> &Arc<ManagerShared> {
        &self.shared
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.shared.settings
    }

    pub(crate) fn key(&self, resource: &[u8]) -> Result<Keys, Error> {
        Keys::one(&self.settings().key_prefix, resource).map_err(Error::invalid)
    }

    pub(crate) fn keys<R: AsRef<[u8]>>(&self, resources: impl IntoIterator<Item = R>) -> Result<Keys, Error> {
        Keys::many(&self.settings().key_prefix, resources).map_err(Error::invalid)
    }

    /// Acquires a lock on one resource.
    pub(crate) async fn acquire_one(
        &self,
        resource: impl AsRef<[u8]>,
        mode: LockMode,
        ttl: Duration,
        retry: RetryMode,
    ) -> Result<Guard, Error> {
        let keys = self.key(resource.as_ref())?;
        self.acquire_spec(AcquireSpec { keys, mode, label: None, ttl, retry }).await
    }

    /// Acquires exclusive locks on several resources as one.
    async fn acquire_all<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        retry: RetryMode,
    ) -> Result<Guard, Error> {
        let keys = self.keys(resources)?;
        self.acquire_spec(AcquireSpec { keys, mode: LockMode::Exclusive, label: None, ttl, retry }).await
    }

    /// Acquires a lock. Waits for the lock as long as the manager's [`Retry`](crate::Retry) allows.
    ///
    /// If another client holds the lock, this client queues on the nodes: a release hands the lock to the
    /// longest waiter in one round trip. The client polls while too few nodes answer, and where it cannot
    /// queue ([`Builder::wait_policy`]).
    ///
    /// Cancel safe: if the future is dropped, the client releases everything that the nodes may have granted.
    ///
    /// # Errors
    /// The error of the last attempt, when the policy gives up or the error is not retryable.
    pub async fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Exclusive, ttl, RetryMode::Configured).await
    }

    /// Tries once to acquire a lock.
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Contended`] if another client holds the lock. Every other [`Error`] is possible too.
    pub async fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Exclusive, ttl, RetryMode::Once).await
    }

    /// Acquires a lock, and waits for it at most `wait`. `wait` alone decides when the call gives up, not the
    /// manager's [`Retry`](crate::Retry).
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Timeout`] after `wait`, with the last answers of the nodes.
    pub async fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_one(resource, LockMode::Exclusive, ttl, RetryMode::Within(wait)).await
    }

    /// Acquires several locks as one: all of them or none, without deadlock, whatever the order of
    /// `resources`.
    ///
    /// All the locks of the guard have the same fence. At most 1,024 resources, with at most 1 MiB of keys.
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub async fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_all(resources, ttl, RetryMode::Configured).await
    }

    /// Tries once to acquire several locks as one. Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::try_acquire`].
    pub async fn try_acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_all(resources, ttl, RetryMode::Once).await
    }

    /// Acquires several locks as one, and waits for them at most `wait`. Cancel safe, as
    /// [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire_timeout`].
    pub async fn acquire_many_timeout<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_all(resources, ttl, RetryMode::Within(wait)).await
    }

    /// Runs `work` while the client holds a lock, and releases the lock afterwards.
    ///
    /// The client extends the lock while the work runs, up to the manager's `max_hold`. If the lock is lost,
    /// the client drops the future of the work and returns [`Error::Lost`]. If the lock is lost because its
    /// validity ended, the client drops the work before another client can hold the lock. If the work returns
    /// an error, the caller gets that error, whatever happened to the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redlock_client::{Error, LockManager};
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// let total = locks
    ///     .with_lock("orders:42", Duration::from_secs(10), async |held| {
    ///         // Pass held.fence() to your storage with every write.
    ///         Ok::<_, Error>(40 + held.fence())
    ///     })
    ///     .await?;
    /// assert_eq!(total, 41);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe: if the future is dropped, the client drops the work and releases the lock.
    ///
    /// # Errors
    /// The error of the work, or the reason why the lock was not acquired or was lost.
    pub async fn with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_under(self.acquire(resource, ttl).await?, work).await
    }

    /// Runs `work` if the client acquires the lock at the first attempt, as [`LockManager::with_lock`]. Returns
    /// `Ok(None)`, without having called `work`, if another client holds the lock.
    ///
    /// For a periodic job that runs on several machines, and that a machine skips while another one does it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), redlock_client::Error> {
    /// # use redlock_client::{Error, LockManager};
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// # let ttl = Duration::from_secs(10);
    /// let ran = locks.try_with_lock("nightly-report", ttl, async |_held| Ok::<_, Error>("printed")).await?;
    /// assert_eq!(ran, Some("printed"));
    ///
    /// let _guard = locks.acquire("nightly-report", ttl).await?;
    /// let ran = locks.try_with_lock("nightly-report", ttl, async |_held| Ok::<_, Error>("printed")).await?;
    /// assert_eq!(ran, None);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`]. [`Error::Contended`] is not an error here.
    pub async fn try_with_lock<T, E, W>(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<Option<T>, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.try_run_under(self.try_acquire(resource, ttl).await, work).await
    }

    /// As [`LockManager::with_lock`], and waits for the lock at most `wait`, as
    /// [`LockManager::acquire_timeout`]. The time of the work does not count.
    ///
    /// Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`], and [`Error::Timeout`] after `wait`.
    pub async fn with_lock_timeout<T, E, W>(
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
        self.run_under(self.acquire_timeout(resource, ttl, wait).await?, work).await
    }

    /// As [`LockManager::with_lock`], for several locks as one: see [`LockManager::acquire_many`].
    ///
    /// Cancel safe, as [`LockManager::with_lock`].
    ///
    /// # Errors
    /// As [`LockManager::with_lock`].
    pub async fn with_lock_many<R, T, E, W>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        R: AsRef<[u8]>,
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        self.run_under(self.acquire_many(resources, ttl).await?, work).await
    }

    /// Runs `work` under a lock, extends the lock meanwhile, and releases it afterwards.
    pub(crate) async fn run_under<T, E, W>(
        &self,
        mut guard: Guard,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<T, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        guard.keep_alive(self.settings().max_hold)?;
        let work = work(guard.held());
        run_locked(guard, work).await
    }

    /// As `run_under`; `Ok(None)`, without a call of `work`, if another client holds the lock.
    pub(crate) async fn try_run_under<T, E, W>(
        &self,
        attempt: Result<Guard, Error>,
        work: impl FnOnce(LockHandle) -> W,
    ) -> Result<Option<T>, E>
    where
        W: Future<Output = Result<T, E>>,
        E: From<Error>,
    {
        match attempt {
            Ok(guard) => self.run_under(guard, work).await.map(Some),
            Err(Error::Contended(_)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Waits until every release that began before this call is answered or has timed out. Call it at the end
    /// of a program, after the last guard is dropped.
    ///
    /// Takes at most one node timeout, or the connect timeout if the client was never connected to the nodes.
    /// The manager stays usable. Cancel safe.
    pub async fn flush(&self) {
        // Without a driver no release is in flight.
        let running = {
            let inbox = self.shared.inbox.lock().unwrap_or_else(PoisonError::into_inner);
            inbox.clone()
        };
        if let Some(inbox) = running {
            let (answer, at_rest) = oneshot::channel();
            if inbox.send(Message::Flush { answer }).is_ok() {
                let _ = at_rest.await;
            }
        }
    }
}

impl fmt::Debug for LockManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockManager").field("nodes", &self.settings().names).finish_non_exhaustive()
    }
}
