//! A view of a lock that is held, without the right to end it.

use crate::lease::LostReason;
use crate::lock_shared::LockShared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A view of a lock: what the work under it needs to know.
///
/// Cheap to clone and free to be sent to other tasks. It goes on telling the truth when the lock is over.
#[derive(Clone)]
pub struct LockHandle {
    hold: Arc<LockShared>,
}

impl LockHandle {
    pub(crate) fn new(hold: &Arc<LockShared>) -> Self {
        Self { hold: Arc::clone(hold) }
    }

    /// The number to hand to every storage that the work writes to.
    ///
    /// For one resource no two holders ever have the same, and one that held it before has a smaller one.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.hold.fence()
    }

    /// How long the lock may still be believed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.lease.remaining()
    }

    /// Whether the lock may be believed at this moment. A local question: no network.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves when the lock is no longer held: lost, released or dropped. If its time runs out, it
    /// resolves a little before that, whatever the network does.
    ///
    /// Cancel safe: it can be dropped and called again.
    ///
    /// # Panics
    /// Where there is no tokio runtime with a timer.
    pub async fn lost(&self) -> LostReason {
        self.hold.lost().await
    }

    /// A token that is cancelled when [`LockHandle::lost`] resolves, and when the runtime that it was first asked for on
    /// shuts down: nobody would watch the clock for it any more.
    ///
    /// # Errors
    /// When there is no tokio runtime to watch the clock.
    pub fn cancellation_token(&self) -> Result<CancellationToken, crate::Error> {
        self.hold.token()
    }
}

impl fmt::Debug for LockHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held")
            .field("resource", &self.hold.keys.to_string())
            .field("fence", &self.fence())
            .field("remaining", &self.remaining())
            .finish()
    }
}
