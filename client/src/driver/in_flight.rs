//! A request on its way to one node, and what came of it.

use super::message::EntryId;
use crate::hold::Hold;
use crate::wire::Frame;
use bytes::Bytes;
use redlock_proto::{Failure, Moment, Request};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// A request that waits for its reply. Replies come in the order of the requests.
#[derive(Clone, Debug)]
pub(super) enum InFlight {
    /// Part of a session.
    Vote { lock: EntryId, request: Request },
    /// A release that nobody waits for. Rare, and larger than the others.
    Release(Box<PendingRelease>),
    /// Part of a broadcast.
    Broadcast { index: usize, serial: u64, sent: Moment },
    /// Asks for the news of grants.
    Subscription { sent: Moment },
}

impl InFlight {
    /// When it was handed over to be sent.
    pub(super) fn sent(&self) -> Moment {
        match self {
            Self::Vote { request, .. } => request.sent,
            Self::Release(release) => release.sent,
            Self::Broadcast { sent, .. } | Self::Subscription { sent } => *sent,
        }
    }

    /// Whether it must reach the node even if nobody can wait for the reply.
    pub(super) fn is_release(&self) -> bool {
        match self {
            Self::Vote { request, .. } => request.is_release(),
            Self::Release(_) => true,
            Self::Broadcast { .. } | Self::Subscription { .. } => false,
        }
    }
}

/// What a release is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseGoal {
    /// To free the lock.
    Release,
    /// To free it, and then to bar a request for it that may still be on its way: a node bars late requests of an owner
    /// whose release has freed nothing.
    ReleaseThenTombstone,
    /// To bar it; there is nothing left to free. If there was, a request has come before the bar: then it is set up
    /// once more, so many times.
    Tombstone { again: u8 },
}

/// A release that a node shall get when it can be reached again.
#[derive(Clone)]
pub(super) struct PendingRelease {
    pub(super) goal: ReleaseGoal,
    /// The lock, and which of its keys.
    pub(super) hold: Arc<Hold>,
    pub(super) keys: Range<usize>,
    pub(super) request: Request,
    pub(super) command: Bytes,
    /// Since when it is owed.
    pub(super) due: Moment,
    /// When it was sent last.
    pub(super) sent: Moment,
    /// By then the lock has run out, and a release has nothing left to free.
    pub(super) expires_at: Moment,
}

/// The command has the owner in it, which nobody shall read.
impl fmt::Debug for PendingRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRelease").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// What has come from a node, or to it.
#[derive(Debug)]
pub(super) enum NodeEvent {
    /// An answer, or the certainty that there is none.
    Outcome(RequestOutcome),
    /// A message to those who wait.
    Push { node: usize, message: Bytes },
    /// The connection has broken: the node has forgotten who waits.
    Disconnected { node: usize, failure: Failure },
    /// A node has refused the subscription to grants.
    SubscribeRefused,
}

/// What came of a request.
#[derive(Debug)]
pub(super) struct RequestOutcome {
    pub(super) node: usize,
    pub(super) request: InFlight,
    pub(super) outcome: Result<Frame, Failure>,
    pub(super) stage: Stage,
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// It is overdue; a reply may still come.
    Overdue,
    /// This is the end of it.
    Settled,
    /// This is the end of it, and it was overdue.
    SettledLate,
}

impl Stage {
    pub(super) fn settled(was_overdue: bool) -> Self {
        if was_overdue { Self::SettledLate } else { Self::Settled }
    }
}
