//! Extending a lock, from its guard and in the background.

use crate::driver::{Extended, Inbox, Message, SessionId};
use crate::hold::Hold;
use crate::lease::Loss;
use crate::manager::Shared;
use crate::{Error, observe};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// What it takes to extend a lock. The guard has it, and the task that keeps the lock alive.
#[derive(Clone)]
pub(crate) struct Extender {
    pub(crate) hold: Arc<Hold>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: Inbox,
    pub(crate) session: SessionId,
}

impl Extender {
    /// Extends the lock; one extension after the other.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<Duration, Error> {
        self.ask(ttl, |answer| Message::Extend { session: self.session, ttl, answer }).await
    }

    /// Holds the lock under a larger number, in the turn of an extension.
    pub(crate) async fn raise_to(&self, fence: u64) -> Result<Duration, Error> {
        let ttl = self.hold.ttl();
        self.ask(ttl, |answer| Message::Raise { session: self.session, fence, answer }).await
    }

    async fn ask(
        &self,
        ttl: Duration,
        call: impl FnOnce(oneshot::Sender<Extended>) -> Message,
    ) -> Result<Duration, Error> {
        let _turn = self.hold.extending.lock().await;
        if self.hold.lease.remaining().is_zero() {
            return Err(self.lost(self.hold.lease.ended().unwrap_or(Loss::Expired)));
        }
        let (answer, extended) = oneshot::channel();
        self.inbox.send(call(answer)).map_err(|_| Error::NoRuntime)?;
        let outcome = extended.await.map_err(|_| Error::NoRuntime)?;
        observe::extended(&self.hold.keys, matches!(outcome, Extended::Yes));
        match outcome {
            Extended::Yes => {
                self.hold.set_ttl(ttl, self.shared.settings.drift);
                self.hold.remember(None);
                let left = self.hold.lease.remaining();
                match self.hold.lease.ended() {
                    None => Ok(left),
                    Some(loss) => Err(self.lost(loss)),
                }
            }
            Extended::No(said) if self.hold.lease.ended().is_some() => {
                // The last answers came after the verdict, and ended it.
                self.hold.remember(Some(said));
                Err(self.lost(self.hold.lease.ended().unwrap_or(Loss::Gone)))
            }
            Extended::No(said) => {
                let evidence = self.shared.evidence(&self.hold.keys, Some(&said));
                self.hold.remember(Some(said));
                Err(Error::NoQuorum(Box::new(evidence)))
            }
            Extended::Lost(said) => {
                self.hold.remember(Some(said));
                Err(self.lost(self.hold.lease.ended().unwrap_or(Loss::Gone)))
            }
            Extended::Over => Err(self.lost(self.hold.lease.ended().unwrap_or(Loss::Expired))),
        }
    }

    /// The error that says that the lock is over.
    pub(crate) fn lost(&self, loss: Loss) -> Error {
        self.hold.tell_loss();
        let said = self.hold.last_words(self.shared.settings.quorum);
        Error::Lost { loss, evidence: Box::new(self.shared.evidence(&self.hold.keys, Some(&said))) }
    }
}
