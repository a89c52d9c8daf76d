//! A lock that is held.

use crate::driver::{EntryId, Inbox, Message};
use crate::extender::Extender;
use crate::keep_alive;
use crate::lease::LostReason;
use crate::lock_handle::LockHandle;
use crate::lock_shared::LockShared;
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

/// A lock that is held.
///
/// Dropping it frees the lock in the background, without blocking and without waiting for the nodes; use
/// [`Guard::release`] to wait until it is free and to learn what the nodes said. A process that ends right
/// after a drop may be gone before the nodes are told: then the lock ends by itself, or see
/// [`LockManager::flush`](crate::LockManager::flush).
#[must_use = "a lock is freed as soon as its guard is dropped"]
pub struct Guard {
    pub(crate) extender: Extender,
    acquired: Moment,
    keeping_alive: Option<tokio::task::AbortHandle>,
    /// Taken by whoever ends the guard in another way than by dropping it.
    is_ours: bool,
}

/// A lock that nobody here looks after any more: it is held until it runs out, or until somebody frees it.
///
/// From [`Guard::detach`], or from [`LockManager::detached`](crate::LockManager::detached) in another process.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Detached {
    /// The keys on the nodes, with the manager's prefix.
    pub keys: Vec<Vec<u8>>,
    /// The number to hand to the storage.
    pub fence: u64,
    /// The secret that extends and frees the lock.
    pub owner: Owner,
    /// How long it may still be believed.
    pub remaining: Duration,
}

impl Guard {
    pub(crate) fn new(
        shared: Arc<ManagerShared>,
        inbox: Inbox,
        lock: EntryId,
        hold: Arc<LockShared>,
    ) -> Self {
        let acquired = shared.settings.clock.now();
        let extender = Extender { hold, shared, inbox, lock };
        Self { extender, acquired, keeping_alive: None, is_ours: true }
    }

    fn hold(&self) -> &Arc<LockShared> {
        &self.extender.hold
    }

    /// Whether somebody else held the lock when it was asked for.
    pub(crate) fn had_to_wait(&self) -> bool {
        self.hold().was_refused()
    }

    /// The number to hand to every storage that the work writes to.
    ///
    /// For one resource no two holders ever have the same, and one that held it before has a smaller one,
    /// whatever clocks and pauses do. A lock on several resources has one number for all.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold().fence()
    }

    /// The resources that are locked, in order, as the caller named them.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.hold().keys.resources()
    }

    /// The time to live that was asked for last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.hold().ttl()
    }

    /// How long the lock may still be believed; zero once it is over.
    ///
    /// What is left of the time to live, counted from before the request was sent, less the allowance for
    /// clocks that drift apart.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold().lease.remaining()
    }

    /// Whether the lock may be believed at this moment. A local question: no network.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Why the lock is over, if it is.
    pub(crate) fn over(&self) -> Option<LostReason> {
        (!self.is_valid()).then(|| self.hold().lease.ended().unwrap_or(LostReason::Expired))
    }

    /// A view of the lock for the work under it: cheap to clone, and without the right to end it.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        LockHandle::new(self.hold())
    }

    /// Resolves when the lock is no longer held. If its time runs out, it resolves a little before that,
    /// whatever the network does.
    ///
    /// Cancel safe: it can be dropped and called again.
    ///
    /// # Panics
    /// Where there is no tokio runtime with a timer.
    pub async fn lost(&self) -> LostReason {
        self.hold().lost().await
    }

    /// The error that says that the lock is over.
    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        self.extender.lost(reason)
    }

    /// A token that is cancelled when the lock is no longer held: lost, released or dropped. Also when the runtime
    /// that it was first asked for on shuts down: nobody would watch the clock for it any more.
    ///
    /// # Errors
    /// When there is no tokio runtime to watch the clock.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        self.hold().token()
    }

    /// Holds the lock for its time to live, from now on. Returns how long it may be believed.
    ///
    /// Extensions of one lock go one after the other. Cancel safe: one whose future is dropped takes its course
    /// once its turn has come, and counts if it succeeds; before that, nobody has been asked.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answered: the lock is still held for as long as it was, and
    /// trying again makes sense. [`Error::Lost`] if it is over; nothing revives it then. [`Error::NoRuntime`] if the
    /// runtime on which it was taken has shut down: it is held for as long as it was.
    pub async fn extend(&self) -> Result<Duration, Error> {
        self.extender.extend(self.ttl()).await
    }

    /// As [`Guard::extend`], with another time to live from now on. A shorter one takes nothing away. Cancel safe, as
    /// [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`], and [`Error::Invalid`] for a time to live that cannot be.
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, Error> {
        let ttl = self.extender.shared.settings.check_ttl(ttl)?;
        self.extender.extend(ttl).await
    }

    /// Extends the lock in the background, in time, until it will have been held for `max_hold` from now. Then
    /// it runs out by itself, less than one time to live later.
    ///
    /// If the nodes fail, it goes on trying for as long as the lock is valid; if the lock is lost, that shows
    /// in [`Guard::lost`]. Called again, the new bound replaces the old one.
    ///
    /// # Errors
    /// When there is no tokio runtime.
    pub fn keep_alive(&mut self, max_hold: Duration) -> Result<(), Error> {
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        self.stop_keeping_alive();
        let task = runtime.spawn(keep_alive::run(self.extender.clone(), max_hold));
        self.keeping_alive = Some(task.abort_handle());
        Ok(())
    }

    fn stop_keeping_alive(&mut self) {
        if let Some(task) = self.keeping_alive.take() {
            task.abort();
        }
    }

    /// Frees the lock and waits until a majority of the nodes has freed it, or everybody has answered or
    /// failed to in time.
    ///
    /// It never fails, also not for a lock that has run out: see the report. Cancel safe: once polled, the
    /// release takes its course; dropped before, the guard frees the lock as it goes.
    pub async fn release(mut self) -> ReleaseReport {
        let was_held = self.is_valid();
        let (answer, freed) = oneshot::channel();
        self.end(Some(answer));
        let freeing = freed.await.ok();
        if freeing.is_none() {
            // The runtime that took the lock has shut down; this one can free it.
            self.extender.shared.free(Arc::clone(self.hold()), self.ttl());
        }
        ReleaseReport::new(was_held, &self.extender.shared.settings.names, freeing.as_ref())
    }

    /// Gives the lock out of hand: it is held until it runs out, or until somebody who knows the owner frees
    /// it, perhaps another process.
    #[must_use = "without the owner nobody can free the lock before it runs out"]
    pub fn detach(mut self) -> Detached {
        self.is_ours = false;
        self.stop_keeping_alive();
        let hold = self.hold();
        let detached = Detached {
            keys: hold.keys.names().iter().map(|key| key.to_vec()).collect(),
            fence: hold.fence(),
            owner: hold.owner,
            remaining: hold.lease.remaining(),
        };
        hold.tell_loss();
        hold.keep_silent();
        observe::detached(&hold.keys, self.extender.shared.settings.clock.now().since(self.acquired));
        let lock = self.extender.lock;
        let _ = self.extender.inbox.send(Message::Detach { lock });
        detached
    }

    /// Ends the hold, here at once and on the nodes as soon as they hear of it.
    fn end(&mut self, answer: Option<oneshot::Sender<redlock_proto::ReleaseProgress>>) {
        if !std::mem::take(&mut self.is_ours) {
            return;
        }
        self.stop_keeping_alive();
        let hold = self.hold();
        // Nobody may have noticed until now that its time was up.
        if self.is_valid() {
            hold.lease.end(LostReason::Released);
        }
        hold.tell_loss();
        let settings = &self.extender.shared.settings;
        observe::ended(&hold.keys, settings.clock.now().since(self.acquired));
        let lock = self.extender.lock;
        let is_waited_for = answer.is_some();
        let release = Message::Release { lock, answer };
        if self.extender.inbox.send(release).is_err() && !is_waited_for {
            // The runtime that took the lock has shut down; another one may be there to free it.
            self.extender.shared.free(Arc::clone(self.hold()), self.ttl());
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
            .field("resource", &self.hold().keys.to_string())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}
