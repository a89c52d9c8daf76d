//! Extends a lock, for its guard and in the background.

use crate::driver::{EntryId, Extended, Inbox, Message};
use crate::lease::LostReason;
use crate::lock_shared::LockShared;
use crate::manager::ManagerShared;
use crate::{Error, observe};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Extends a lock. The guard has one, and so has the task that keeps the lock alive.
#[derive(Clone)]
pub(crate) struct Extender {
    pub(crate) shared: Arc<LockShared>,
    pub(crate) manager: Arc<ManagerShared>,
    pub(crate) inbox: Inbox,
    pub(crate) lock: EntryId,
}

impl Extender {
    /// Extends the lock. Extensions of one lock run one after the other.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<Duration, Error> {
        let _turn = self.shared.extending.lock().await;
        let outcome = self.outcome(ttl).await?;
        observe::extended(&self.shared.keys, matches!(outcome, Extended::Yes));
        let left = self.shared.lease.remaining();
        match (outcome, self.shared.lease.ended()) {
            (Extended::Yes, None) => Ok(left),
            (Extended::No(votes), None) => {
                Err(Error::NoQuorum(Box::new(self.manager.report(&self.shared.keys, Some(&votes)))))
            }
            // Later replies may have ended the lock.
            (_, Some(reason)) => Err(self.lost(reason)),
            (Extended::Lost, None) => Err(self.lost(LostReason::Gone)),
            (Extended::Over, None) => Err(self.lost(LostReason::Expired)),
        }
    }

    /// Sends the extension to the driver, unless the lock has ended.
    async fn outcome(&self, ttl: Duration) -> Result<Extended, Error> {
        if self.shared.lease.remaining().is_zero() {
            return Ok(Extended::Over);
        }
        let (answer, extended) = oneshot::channel();
        self.inbox.send(Message::Extend { lock: self.lock, ttl, answer }).map_err(|_| Error::NoRuntime)?;
        extended.await.map_err(|_| Error::NoRuntime)
    }

    /// The error for a lost lock, with the last answers of the nodes.
    pub(crate) fn lost(&self, reason: LostReason) -> Error {
        self.shared.report_loss();
        let votes = self.shared.last_votes(self.manager.settings.quorum);
        Error::Lost { reason, report: Box::new(self.manager.report(&self.shared.keys, Some(&votes))) }
    }
}
