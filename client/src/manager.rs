//! The lock manager: where locks come from.

use crate::Error;
use crate::acquire::{AcquireSpec, RetryMode};
use crate::builder::Builder;
use crate::driver::{self, Inbox, Message};
use crate::error::QuorumReport;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::lock_handle::LockHandle;
use crate::lock_shared::LockShared;
use crate::memory::MemoryNodes;
use crate::run_locked::run_locked;
use crate::settings::Settings;
use redlock_proto::{Ballot, MAX_NODES};
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;

/// Takes locks on a majority of independent nodes.
///
/// Cheap to clone; clones share connections. One manager serves any number of tasks, and the more of them
/// there are, the less each costs: their commands travel together. See the [crate documentation](crate) for
/// how to choose between its methods, and for what happens if several [runtimes](crate#runtimes) share a manager.
#[derive(Clone)]
pub struct LockManager {
    shared: Arc<ManagerShared>,
}

/// What clones, guards and background tasks share.
pub(crate) struct ManagerShared {
    pub(crate) settings: Arc<Settings>,
    /// The way to the driver, once there is one.
    inbox: Mutex<Option<Inbox>>,
}

impl ManagerShared {
    /// The way to a driver that lives. Starts one on the current runtime if there is none, or if the
    /// runtime of the last one has shut down.
    pub(crate) fn inbox(&self) -> Result<Inbox, Error> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(inbox) = inbox.as_ref().filter(|inbox| !inbox.is_closed()) {
            return Ok(inbox.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let fresh = driver::start(&self.settings, &runtime);
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

    /// Frees a lock that no driver keeps any more, if there is a runtime to do it.
    pub(crate) fn free(&self, hold: Arc<LockShared>, ttl: Duration) {
        if let Ok(inbox) = self.inbox() {
            let _ = inbox.send(Message::ReleaseUntracked { hold, ttl });
        }
    }

    pub(crate) fn report(&self, keys: &Keys, ballot: Option<&Ballot>) -> QuorumReport {
        QuorumReport::new(keys, &self.settings.names, ballot)
    }
}

impl LockManager {
    /// Describes a manager before it is built.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// A manager over so many nodes in memory: no server, for examples and tests.
    ///
    /// Its clones share the nodes. For several managers over the same nodes, and for nodes that fail, see
    /// [`memory::MemoryNodes`](crate::memory::MemoryNodes). There is at least one node, and at most 63.
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
        Self { shared: Arc::new(ManagerShared { settings: Arc::new(settings), inbox: Mutex::new(None) }) }
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

    /// Acquires a lock, and waits for it as long as the manager's [`Retry`](crate::Retry) says.
    ///
    /// If another client holds the lock, this client queues on the nodes: a release hands the lock to the longest waiter
    /// in one round trip. While too few nodes answer, or where the client cannot queue ([`Builder::wait_policy`]), the
    /// client polls.
    ///
    /// Cancel safe: if the future is dropped, the client releases everything that the nodes may have granted.
    ///
    /// # Errors
    /// The error of the last attempt, when the policy gives up or the error is not retryable.
    pub async fn acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.acquire_spec(AcquireSpec {
            keys: self.key(resource.as_ref())?,
            ttl,
            retry: RetryMode::Configured,
        })
        .await
    }

    /// Tries once to take a lock.
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Contended`] if somebody else holds it, and all others.
    pub async fn try_acquire(&self, resource: impl AsRef<[u8]>, ttl: Duration) -> Result<Guard, Error> {
        self.acquire_spec(AcquireSpec { keys: self.key(resource.as_ref())?, ttl, retry: RetryMode::Once })
            .await
    }

    /// Takes a lock, waiting for it for at most `wait`, whatever the manager's policy says about giving up.
    ///
    /// Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// [`Error::Timeout`] when the time is up, with what the nodes said last.
    pub async fn acquire_timeout(
        &self,
        resource: impl AsRef<[u8]>,
        ttl: Duration,
        wait: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_spec(AcquireSpec {
            keys: self.key(resource.as_ref())?,
            ttl,
            retry: RetryMode::Within(wait),
        })
        .await
    }

    /// Takes several locks as one: all of them or none, in any order given, without deadlock.
    ///
    /// The guard has one fence for all. At most 1,024 resources, with a mebibyte of names. Cancel
    /// safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::acquire`].
    pub async fn acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_spec(AcquireSpec { keys: self.keys(resources)?, ttl, retry: RetryMode::Configured })
            .await
    }

    /// Tries once to take several locks as one. Cancel safe, as [`LockManager::acquire`].
    ///
    /// # Errors
    /// As [`LockManager::try_acquire`].
    pub async fn try_acquire_many<R: AsRef<[u8]>>(
        &self,
        resources: impl IntoIterator<Item = R>,
        ttl: Duration,
    ) -> Result<Guard, Error> {
        self.acquire_spec(AcquireSpec { keys: self.keys(resources)?, ttl, retry: RetryMode::Once }).await
    }

    /// Takes several locks as one, trying again for at most `wait`. Cancel safe, as
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
        self.acquire_spec(AcquireSpec { keys: self.keys(resources)?, ttl, retry: RetryMode::Within(wait) })
            .await
    }

    /// Runs `work` while holding a lock, and frees it afterwards.
    ///
    /// The lock is extended for as long as the work goes on, up to the manager's `max_hold`. If it is lost,
    /// the work is dropped where it stands, and the result is [`Error::Lost`]; if the lock's time ran out, that
    /// is before somebody else can hold it. If the work fails, its own error is returned, whatever happened to
    /// the lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use redlock_client::{Error, LockManager};
    /// # use std::time::Duration;
    /// # let locks = LockManager::in_memory(5);
    /// let total = locks
    ///     .with_lock("orders:42", Duration::from_secs(10), async |held| {
    ///         // Hand held.fence() to the storage with every write.
    ///         Ok::<_, Error>(40 + held.fence())
    ///     })
    ///     .await?;
    /// assert_eq!(total, 41);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Cancel safe: if the future is dropped, so is the work, and the lock is freed.
    ///
    /// # Errors
    /// The error of the work, or why the lock was not acquired or was lost.
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
        let mut guard = self.acquire(resource, ttl).await?;
        guard.keep_alive(self.settings().max_hold)?;
        let work = work(guard.held());
        run_locked(guard, work).await
    }

    /// Waits until nothing is left to be freed of what was begun before: every release has been answered, or has
    /// waited for its node in vain. For the end of a program, after the last guard is gone.
    ///
    /// Takes a node timeout at the most, or the time to connect if the nodes were never reached. The manager
    /// can still be used afterwards. Cancel safe.
    pub async fn flush(&self) {
        // With no driver there is nothing under way.
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
