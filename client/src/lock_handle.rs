//! A view of a held lock that cannot release it.

use crate::driver::{EntryId, Extended, Inbox, Message};
use crate::error::QuorumReport;
use crate::lock_shared::{EXPLAIN_LIMIT, LockShared, LostReason};
use crate::settings::Settings;
use crate::{Error, observe};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

/// A view of a lock for the work under it: its fence, its validity and its loss.
///
/// A handle is cheap to clone and can be sent to other tasks. It stays usable after the lock has ended, and
/// then reports the end.
#[derive(Clone)]
pub struct LockHandle {
    pub(crate) shared: Arc<LockShared>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) lock: EntryId,
    /// Weak: a handle that outlives its guard does not keep the driver and its connections alive.
    inbox: mpsc::WeakUnboundedSender<Message>,
}

impl LockHandle {
    pub(crate) fn new(
        shared: Arc<LockShared>,
        settings: Arc<Settings>,
        lock: EntryId,
        inbox: &Inbox,
    ) -> Self {
        Self { shared, settings, lock, inbox: inbox.downgrade() }
    }

    /// The fence of the lock. Pass it to your storage with every write.
    ///
    /// For one resource no two holders have the same fence, and a later holder has a larger fence, unless both
    /// share the lock: see [`LockManager::acquire_shared`](crate::LockManager::acquire_shared).
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.shared.fence()
    }

    /// How long the lock stays valid; zero once it has ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.remaining()
    }

    /// Whether the lock is valid now. Reads the local clock and sends nothing.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves when the lock is no longer held: lost, released or dropped. If the validity ends, it resolves
    /// a little before the end, whatever the network does.
    ///
    /// Cancel safe: the future can be dropped, and the method called again.
    ///
    /// # Panics
    /// Without a tokio runtime with a timer.
    pub async fn lost(&self) -> LostReason {
        self.shared.lost().await
    }

    /// Returns a token that is cancelled when [`LockHandle::lost`] resolves.
    ///
    /// A task on the runtime of the first call watches the clock for the token. If that runtime shuts down,
    /// the token is cancelled too.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] without a tokio runtime.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        self.shared.token()
    }

    /// Extends the lock. Extensions of one lock run one after the other.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<Duration, Error> {
        let _turn = self.shared.extending.lock().await;
        let outcome = self.send_extension(ttl).await?;
        if matches!(outcome, Extended::No | Extended::Lost) {
            self.wait_for_votes().await;
        }
        let left = self.shared.remaining();
        let result = match (outcome, self.shared.ended()) {
            (Extended::Yes, None) => Ok(left),
            (Extended::No, None) => Err(Error::not_extended(self.report())),
            // Later replies may have ended the lock.
            (_, Some(reason)) => Err(self.lost_error(reason)),
            (Extended::Lost, None) => Err(self.lost_error(LostReason::Gone)),
            (Extended::Ended, None) => Err(self.lost_error(LostReason::Expired)),
        };
        observe::extended(&self.shared.keys, result.as_ref().map(drop));
        result
    }

    /// Waits for the votes that are still to come: a majority of answers decides an extension, so a healthy node may
    /// not have answered yet. The wait takes only a small part of the validity that is left.
    async fn wait_for_votes(&self) {
        let limit = match self.shared.remaining() {
            Duration::ZERO => EXPLAIN_LIMIT,
            left => EXPLAIN_LIMIT.min(left / 8),
        };
        let _ = tokio::time::timeout(limit, self.shared.wait_for_last_votes()).await;
    }

    /// Sends the extension to the driver, unless the lock has ended.
    async fn send_extension(&self, ttl: Duration) -> Result<Extended, Error> {
        if self.shared.remaining().is_zero() {
            return Ok(Extended::Ended);
        }
        let (answer, extended) = oneshot::channel();
        let inbox = self.inbox.upgrade().ok_or(Error::NoRuntime)?;
        inbox.send(Message::Extend { lock: self.lock, ttl, answer }).map_err(|_| Error::NoRuntime)?;
        extended.await.map_err(|_| Error::NoRuntime)
    }

    /// The error for a lock that has ended for this reason, with the last answers of the nodes.
    pub(crate) fn lost_error(&self, reason: LostReason) -> Error {
        self.shared.report_loss();
        Error::Lost { reason, report: Box::new(self.report()) }
    }

    /// The last answers of the nodes.
    fn report(&self) -> QuorumReport {
        let votes = self.shared.last_votes(self.settings.quorum);
        QuorumReport::new(&self.shared.keys, &self.settings, Some(&votes))
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockHandle")
            .field("resource", &self.shared.keys.to_string())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}
