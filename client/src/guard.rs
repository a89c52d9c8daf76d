//! The guard of a held lock, and a lock detached from its guard.

use crate::driver::{EntryId, Inbox, Message};
use crate::keep_alive;
use crate::lock_handle::LockHandle;
use crate::lock_shared::{LockShared, LostReason};
use crate::manager::ManagerShared;
use crate::owner::Owner;
use crate::report::ReleaseReport;
use crate::{Error, observe};
use redlock_proto::Moment;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

/// A held lock. Dropping the guard releases the lock.
///
/// While the runtime runs, the drop neither blocks nor waits for the nodes: the client releases the lock in the
/// background. [`Guard::release`] waits until the lock is free and returns the answers of the nodes.
///
/// A runtime that shuts down sends the releases that are left, and a drop after the end of the runtime sends its
/// own release; both wait for the replies for at most 250 ms. To be sure that the nodes have released the lock
/// before the program ends, call `release`, or drop the guard and call
/// [`LockManager::flush`](crate::LockManager::flush): see [the end of a program](crate#the-end-of-a-program).
#[must_use = "the lock is released as soon as its guard is dropped"]
pub struct Guard {
    pub(crate) handle: LockHandle,
    manager: Arc<ManagerShared>,
    inbox: Inbox,
    acquired: Moment,
    keeping_alive: Option<tokio::task::AbortHandle>,
    /// False once the guard has released or detached the lock: the drop then does nothing.
    is_ours: bool,
}

/// A lock without a guard: it stays held until it expires, or until a client releases it.
///
/// Returned by [`Guard::detach`], and in another process by
/// [`LockManager::detached`](crate::LockManager::detached).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Detached {
    /// The keys on the nodes, with the manager's prefix.
    pub keys: Vec<Vec<u8>>,
    /// The fence of the lock. Pass it to the storage with every write.
    pub fence: u64,
    /// The secret of the holder. A client that knows it can extend and release the lock.
    pub owner: Owner,
    /// How long the lock was still valid at the moment when this value was made.
    pub remaining: Duration,
    /// Whether other clients may hold the lock together with this one.
    pub is_shared: bool,
}

impl Guard {
    pub(crate) fn new(
        manager: Arc<ManagerShared>,
        inbox: Inbox,
        lock: EntryId,
        shared: Arc<LockShared>,
    ) -> Self {
        let acquired = manager.settings.clock.now();
        let handle = LockHandle::new(shared, Arc::clone(&manager.settings), lock, &inbox);
        Self { handle, manager, inbox, acquired, keeping_alive: None, is_ours: true }
    }

    fn shared(&self) -> &Arc<LockShared> {
        &self.handle.shared
    }

    /// Whether another client held the lock when this client asked for it.
    pub(crate) fn had_to_wait(&self) -> bool {
        self.shared().was_refused()
    }

    /// The fence of the lock. Pass it to your storage with every write.
    ///
    /// For one resource no two holders have the same fence, and a later holder has a larger fence, whatever
    /// clocks and pauses do, unless both holders share the lock: see
    /// [`LockManager::acquire_shared`](crate::LockManager::acquire_shared). A lock on several resources has one
    /// fence for all of them.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.shared().fence()
    }

    /// Whether other clients may hold the lock together with this one:
    /// [`LockManager::acquire_shared`](crate::LockManager::acquire_shared) has acquired it.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.shared().is_shared()
    }

    /// The locked resources, sorted, as the caller named them.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.shared().keys.resources()
    }

    /// The time to live of the last acquire or extension.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.shared().ttl()
    }

    /// How long the lock stays valid; zero once it has ended.
    ///
    /// Validity is the time to live, counted from before the client sent the request, minus the allowance for
    /// clock drift.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.handle.remaining()
    }

    /// Whether the lock is valid now. Reads the local clock and sends nothing.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lock has ended; `None` while it is valid.
    pub(crate) fn over(&self) -> Option<LostReason> {
        (!self.is_valid()).then(|| self.shared().ended().unwrap_or(LostReason::Expired))
    }

    /// Returns a view of the lock for the work under it. The view is cheap to clone and cannot release the
    /// lock.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        self.handle.clone()
    }

    /// Resolves when the lock is no longer held. If the validity ends, it resolves a little before the end,
    /// whatever the network does.
    ///
    /// Cancel safe: the future can be dropped, and the method called again.
    ///
    /// # Panics
    /// Without a tokio runtime with a timer.
    pub async fn lost(&self) -> LostReason {
        self.shared().lost().await
    }

    /// Returns a token that is cancelled when the lock is no longer held: lost, released or dropped.
    ///
    /// A task on the runtime of the first call watches the clock for the token. If that runtime shuts down,
    /// the token is cancelled too.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] without a tokio runtime.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        self.shared().token()
    }

    /// Extends the lock to its full time to live, counted from now. Returns how long the lock stays valid.
    ///
    /// Extensions of one lock run one after the other. Cancel safe: an extension that has been sent continues
    /// when its future is dropped, and counts if it succeeds. If the future is dropped while it waits for an
    /// earlier extension, the client sends nothing.
    ///
    /// # Errors
    /// - [`Error::NoQuorum`] if too few nodes gave a usable answer. The lock keeps its validity; the caller
    ///   can try again.
    /// - [`Error::Rejected`] if the nodes rejected the request. The lock keeps the validity that it has.
    /// - [`Error::Lost`] if the lock has ended. Nothing revives it.
    /// - [`Error::NoRuntime`] if the runtime on which the lock was acquired has shut down. The lock keeps the
    ///   validity that it has.
    pub async fn extend(&self) -> Result<Duration, Error> {
        self.handle.extend(self.ttl()).await
    }

    /// As [`Guard::extend`], with another time to live from now on. A shorter time to live does not shorten
    /// the current validity. Cancel safe, as [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`], and [`Error::Invalid`] for a time to live out of range.
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, Error> {
        let ttl = self.manager.settings.check_ttl(ttl)?;
        self.handle.extend(ttl).await
    }

    /// Extends the lock in the background, each time before it expires, for `max_hold` from now. The lock
    /// then expires, at most one time to live after `max_hold`.
    ///
    /// If nodes fail, the client keeps trying while the lock is valid. If the lock is lost, [`Guard::lost`]
    /// resolves. A second call replaces the `max_hold` of the first.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] without a tokio runtime.
    pub fn keep_alive(&mut self, max_hold: Duration) -> Result<(), Error> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.stop_keeping_alive();
        let task = runtime.spawn(keep_alive::run(self.held(), max_hold));
        self.keeping_alive = Some(task.abort_handle());
        Ok(())
    }

    fn stop_keeping_alive(&mut self) {
        if let Some(task) = self.keeping_alive.take() {
            task.abort();
        }
    }

    /// Releases the lock. Waits until a majority of the nodes has released it, or until every node has
    /// answered or timed out.
    ///
    /// A release never fails, not even of an expired lock: the report says what each node answered. Cancel
    /// safe: once the future is polled, the release continues in the background. If the future is dropped
    /// before that, the drop of the guard releases the lock.
    pub async fn release(mut self) -> ReleaseReport {
        let was_held = self.is_valid();
        let (answer, freed) = oneshot::channel();
        self.end(Some(answer));
        let freeing = freed.await.ok();
        if freeing.is_none() {
            // The runtime that acquired the lock has shut down; this runtime releases it.
            self.manager.free(Arc::clone(self.shared()), self.ttl());
        }
        ReleaseReport::new(was_held, &self.manager.settings, freeing.as_ref())
    }

    /// Detaches the lock from this guard. The lock stays held until it expires, or until a client that knows
    /// the owner releases it. That client may be another process.
    #[must_use = "without the owner, the lock cannot be released before it expires"]
    pub fn detach(mut self) -> Detached {
        self.is_ours = false;
        self.stop_keeping_alive();
        let shared = self.shared();
        let detached = Detached {
            keys: shared.keys.names().iter().map(|key| key.to_vec()).collect(),
            fence: shared.fence(),
            owner: shared.owner,
            remaining: shared.remaining(),
            is_shared: shared.is_shared(),
        };
        shared.report_loss();
        shared.suppress_loss_report();
        observe::detached(&shared.keys, self.manager.settings.clock.now().since(self.acquired));
        let lock = self.handle.lock;
        let _ = self.inbox.send(Message::Detach { lock });
        detached
    }

    /// Ends the lock here at once, and sends the release to the nodes.
    fn end(&mut self, answer: Option<oneshot::Sender<redlock_proto::ReleaseProgress>>) {
        if !std::mem::take(&mut self.is_ours) {
            return;
        }
        self.stop_keeping_alive();
        let shared = self.shared();
        // The validity may have ended before anything read the clock.
        if self.is_valid() {
            shared.end(LostReason::Released);
        }
        shared.report_loss();
        let settings = &self.manager.settings;
        observe::ended(&shared.keys, settings.clock.now().since(self.acquired));
        let lock = self.handle.lock;
        let is_waited_for = answer.is_some();
        let release = Message::Release { lock, answer };
        if self.inbox.send(release).is_err() && !is_waited_for {
            // The runtime that acquired the lock has shut down; the current runtime releases it, if there is
            // one.
            self.manager.free(Arc::clone(self.shared()), self.ttl());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("resource", &self.shared().keys.to_string())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}
