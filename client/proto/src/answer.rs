//! What a node replies to a request, and the vote that follows from it.

use redlock_contract::ErrorCode;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The reply of one node to one request, or the failure to get one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockReply {
    /// The fence; for a release the number of locks that were freed.
    Number(u64),
    /// The node did not grant the lock, or does not hold it.
    Nil,
    /// The node did not grant the lock and has queued the client.
    Queued {
        /// The position in the wait queue, counted from 1.
        position: u64,
        /// The ticket of the holder; 0 if the holder has no ticket.
        ticket: u64,
    },
    /// The node is in quarantine: it may have forgotten locks and grants nothing.
    Quarantined {
        /// How long the quarantine still lasts.
        left: Duration,
    },
    /// The node gave no usable reply.
    Failed(Failure),
}

/// The vote of a node in one attempt to get a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// The node has not replied.
    #[default]
    Pending,
    /// The node holds the lock for this client.
    Granted {
        /// The fence that the node answered.
        fence: u64,
    },
    /// Another client holds the lock on this node.
    Refused,
    /// No client holds the lock on this node. The answer to a question; a request for the lock never gets it.
    Free,
    /// The node is in quarantine: it may have forgotten locks and grants nothing.
    Quarantined {
        /// How long the quarantine still lasts.
        left: Duration,
    },
    /// The node gave no usable reply.
    Failed(Failure),
}

/// Why a node gave no usable reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub kind: FailureKind,
    /// More about the failure, for people. Never contains a secret.
    pub detail: Arc<str>,
}

/// The kind of failure that left a request without a usable reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// The node was known to be unreachable or unfit: the client sent nothing.
    Down,
    /// The server has not loaded the module: the client sent nothing.
    NoModule,
    /// The server refused the login: a wrong password, or a missing permission. The client sent nothing.
    LoginRefused,
    /// The address leads to a node that another address already leads to, and never led to a node of its own: the
    /// configuration names one node twice. The detail is the other address.
    SameNode,
    /// The client sent the request and the node did not reply in time.
    Silent,
    /// The client sent the request and the connection broke.
    Cut,
    /// The node replied with an error.
    Rejected,
}

impl Failure {
    /// Creates a failure of this kind.
    #[must_use]
    pub fn new(kind: FailureKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// The node replied with this error.
    #[must_use]
    pub fn rejected(error: impl Into<Arc<str>>) -> Self {
        Self::new(FailureKind::Rejected, error)
    }

    /// The code of the error that the node replied with, if it did and the contract lists the code.
    #[must_use]
    pub fn code(&self) -> Option<ErrorCode> {
        ErrorCode::of(self.detail.as_bytes()).filter(|_| self.kind == FailureKind::Rejected)
    }

    /// Whether the node rejected the request itself, or the server cannot vote at all: the time to live is
    /// above its limit, the user lacks a permission, the login is wrong, the module is missing, the node does
    /// not vote. Other errors are temporary: the server loads its data, runs a script, is out of memory or is
    /// a replica.
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        self.is_lasting_rejection() || self.code() == Some(ErrorCode::NoVote)
    }

    /// Whether the same request fails again until the caller or the configuration changes. A node that does
    /// not vote is no such case: an operator admits it, and the same request then succeeds.
    #[must_use]
    pub fn is_lasting_rejection(&self) -> bool {
        use ErrorCode::{
            Arg, CrossSlot, Err, NoAuth, NoPerm, Owner, Ttl, UnknownCommand, WrongPass, WrongType,
        };
        let codes = [Ttl, Owner, Arg, WrongType, NoPerm, NoAuth, WrongPass, CrossSlot, Err, UnknownCommand];
        matches!(self.kind, FailureKind::NoModule | FailureKind::LoginRefused)
            || self.code().is_some_and(|code| codes.contains(&code))
    }

    /// Whether the node may have done what the request asked.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self.kind, FailureKind::Silent | FailureKind::Cut)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::SameNode => return write!(f, "the same node as {}", self.detail),
            FailureKind::Down | FailureKind::NoModule | FailureKind::LoginRefused => "down",
            FailureKind::Silent => "no answer",
            FailureKind::Cut => "connection lost",
            FailureKind::Rejected => "error",
        };
        if self.detail.is_empty() { f.write_str(kind) } else { write!(f, "{kind}: {}", self.detail) }
    }
}

impl Vote {
    /// Whether the node rejected the request itself: see [`Failure::is_rejection`].
    #[must_use]
    pub fn is_rejection(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.is_rejection())
    }

    /// The fence, if the node has granted.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::Granted { fence } => Some(*fence),
            _ => None,
        }
    }
}

impl From<LockReply> for Vote {
    fn from(reply: LockReply) -> Self {
        match reply {
            LockReply::Number(fence) => Self::Granted { fence },
            LockReply::Nil | LockReply::Queued { .. } => Self::Refused,
            LockReply::Quarantined { left } => Self::Quarantined { left },
            LockReply::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("no answer yet"),
            Self::Granted { fence } => write!(f, "granted, fence {fence}"),
            Self::Refused => f.write_str("held by another client"),
            Self::Free => f.write_str("not held"),
            Self::Quarantined { left } => write!(f, "in quarantine for {} ms", left.as_millis()),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}
