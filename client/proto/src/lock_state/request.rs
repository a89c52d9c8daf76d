//! A request of the client to a node.

use super::QueueRequest;
use crate::{Drift, Moment};
use std::time::Duration;

/// What a request asks for. The keys and the owner are the same in all requests of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Take the lock.
    Acquire {
        /// The smallest fence to grant; `None` leaves it to the nodes.
        hint: Option<u64>,
    },
    /// Take the lock, or queue for it.
    Wait {
        /// The smallest fence to grant; `None` leaves it to the nodes.
        hint: Option<u64>,
        /// The ticket, and the channel for the grant.
        queue: QueueRequest,
    },
    /// Raise the fence of a lock that the node has granted, and extend it.
    RaiseFence {
        /// The fence to raise to.
        fence: u64,
    },
    /// Extend the lock.
    Extend,
    /// Free the lock.
    Release {
        /// The fence that the next grant must exceed, if nodes have different fences.
        floor: Option<u64>,
    },
}

/// A request as the client sent it. The caller reports it again with the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What the request asks for.
    pub ask: Ask,
    /// The time to live that the request asks for.
    pub ttl: Duration,
    /// A moment before the first byte was sent.
    pub sent: Moment,
}

impl Request {
    /// Whether the request is a release.
    #[must_use]
    pub fn is_release(&self) -> bool {
        matches!(self.ask, Ask::Release { .. })
    }

    /// The end of the lease of a node that did what the request asks.
    pub(crate) fn lease_end(&self, drift: Drift) -> Moment {
        self.sent.plus(drift.lease(self.ttl))
    }
}
