//! A view of a held lock that cannot release it.

use crate::lease::LostReason;
use crate::lock_shared::LockShared;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A view of a lock for the work under it: its fence, its validity and its loss.
///
/// A handle is cheap to clone and can be sent to other tasks. It stays usable after the lock has ended, and
/// then reports the end.
#[derive(Clone)]
pub struct LockHandle {
    shared: Arc<LockShared>,
}

impl LockHandle {
    pub(crate) fn new(shared: &Arc<LockShared>) -> Self {
        Self { shared: Arc::clone(shared) }
    }

    /// The fence of the lock. Pass it to every storage that the work writes to.
    ///
    /// For one resource no two holders have the same fence, and a later holder has a larger fence.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.shared.fence()
    }

    /// How long the lock stays valid; zero once it has ended.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.shared.lease.remaining()
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
    /// [`Error::NoRuntime`](crate::Error::NoRuntime) without a tokio runtime.
    pub fn cancellation_token(&self) -> Result<CancellationToken, crate::Error> {
        self.shared.token()
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
