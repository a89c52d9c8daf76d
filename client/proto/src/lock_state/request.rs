//! A request of the client to a node.

use super::QueueRequest;
use crate::{Drift, Moment};
use std::time::Duration;

/// How a client holds a lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockMode {
    /// The client excludes all others.
    #[default]
    Exclusive,
    /// The client holds the lock together with others that ask for it in this mode.
    Shared,
}

/// The options of an acquire. They are the same in all requests of one attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AcquireOptions {
    /// How the client holds the lock.
    pub mode: LockMode,
    /// The smallest fence to grant; `None` leaves it to the nodes.
    pub hint: Option<u64>,
}

impl AcquireOptions {
    /// The options of an exclusive lock.
    #[must_use]
    pub fn exclusive(hint: Option<u64>) -> Self {
        Self { mode: LockMode::Exclusive, hint }
    }
}

/// What a request asks for. The keys and the owner are the same in all requests of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Take the lock.
    Acquire {
        /// Mode and smallest fence.
        options: AcquireOptions,
    },
    /// Take the lock, or queue for it.
    Wait {
        /// Mode and smallest fence.
        options: AcquireOptions,
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

    /// How the client wants to hold the lock. An extension and a release do not change it.
    pub(crate) fn mode(&self) -> LockMode {
        match self.ask {
            Ask::Acquire { options } | Ask::Wait { options, .. } => options.mode,
            Ask::RaiseFence { .. } | Ask::Extend | Ask::Release { .. } => LockMode::Exclusive,
        }
    }

    /// The end of the lease of a node that did what the request asks.
    pub(crate) fn lease_end(&self, drift: Drift) -> Moment {
        self.sent.plus(drift.lease(self.ttl))
    }
}
