//! What a client asks of a node.

use super::QueueRequest;
use crate::{Drift, Moment};
use std::time::Duration;

/// What is asked; the key and the owner are the same in all of a client's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Take the lock.
    Acquire {
        /// Count from here, if the nodes should be told.
        hint: Option<u64>,
    },
    /// Take the lock, or wait in line for it.
    Wait {
        /// Count from here, if the nodes should be told.
        hint: Option<u64>,
        /// Where in the line, and how to be told.
        queue: QueueRequest,
    },
    /// Raise the fence of the lock just granted, and extend it.
    RaiseFence {
        /// To this number.
        fence: u64,
    },
    /// Extend the lock.
    Extend,
    /// Free the lock.
    Release {
        /// Let the next holder count from here, if the nodes have fallen apart.
        floor: Option<u64>,
    },
}

/// A request as it was sent: comes back with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What is asked.
    pub ask: Ask,
    /// The time to live that is asked for.
    pub ttl: Duration,
    /// A moment before the first byte left.
    pub sent: Moment,
}

impl Request {
    /// Whether it frees the lock.
    #[must_use]
    pub fn is_release(&self) -> bool {
        matches!(self.ask, Ask::Release { .. })
    }

    /// Until when a node that did as asked can be counted on.
    pub(crate) fn lease_end(&self, drift: Drift) -> Moment {
        self.sent.plus(drift.lease(self.ttl))
    }
}
