//! A request that was sent to one node, and what the driver learns about it.

use super::message::EntryId;
use super::pending_releases::PendingRelease;
use crate::wire::Frame;
use bytes::Bytes;
use redlock_proto::{Failure, Moment, Request};

/// A request without a reply. Replies come in the order of the requests.
#[derive(Clone)]
pub(super) enum InFlight {
    /// A request of a lock.
    Vote { lock: EntryId, request: Request },
    /// A release that the driver repeats until the node has executed it. Boxed: it is rare and large.
    Release(Box<PendingRelease>),
    /// A command that goes to several nodes and is not a vote.
    Broadcast { broadcast: EntryId, sent: Moment },
    /// `SUBSCRIBE` to the channel of grants.
    Subscription { sent: Moment },
}

impl InFlight {
    /// When it was submitted.
    pub(super) fn sent(&self) -> Moment {
        match self {
            Self::Vote { request, .. } => request.sent,
            Self::Release(release) => release.sent,
            Self::Broadcast { sent, .. } | Self::Subscription { sent } => *sent,
        }
    }

    /// Whether it frees a lock. A release has to reach the node even if the node is silent.
    pub(super) fn is_release(&self) -> bool {
        match self {
            Self::Vote { request, .. } => request.is_release(),
            Self::Release(_) => true,
            Self::Broadcast { .. } | Self::Subscription { .. } => false,
        }
    }
}

/// What happened at a node or on the connection to it.
pub(super) enum NodeEvent {
    /// The reply to a request, or why it failed.
    Outcome { node: usize, request: InFlight, outcome: Result<Frame, Failure>, stage: Stage },
    /// A message on the channel of grants, not verified yet.
    Push { node: usize, message: Bytes },
    /// The connection is lost. The node has removed this client from its wait queues.
    Disconnected { node: usize, failure: Failure },
    /// A node has refused the subscription to grants.
    SubscribeRefused,
}

/// How final the outcome of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The request is overdue. A second, final outcome follows.
    Overdue,
    /// Final.
    Settled,
    /// Final, and the request was reported as overdue before.
    SettledLate,
}

impl Stage {
    pub(super) fn settled(was_overdue: bool) -> Self {
        if was_overdue { Self::SettledLate } else { Self::Settled }
    }
}
