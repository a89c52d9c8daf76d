//! What a node can say, and what becomes of it.

use redlock_contract::ErrorCode;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What came back for one request to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A fence, or how many locks were freed.
    Number(u64),
    /// Not granted, or not held.
    Nil,
    /// Not granted, and in line for it.
    Queued {
        /// The place in the line, counted from 1.
        position: u64,
        /// The ticket of the holder; 0 if it has none.
        ticket: u64,
    },
    /// The node may have forgotten locks and grants nothing for so long.
    Quarantined {
        /// Until then it refuses.
        left: Duration,
    },
    /// No usable answer.
    Failed(Failure),
}

/// How a node stands to one attempt to take a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Vote {
    /// It has not answered yet.
    #[default]
    Pending,
    /// It holds the lock for us under this fence.
    Granted {
        /// The number that it answered.
        fence: u64,
    },
    /// Somebody else holds the lock there.
    Refused,
    /// It may have forgotten locks and grants nothing for so long.
    Quarantined {
        /// Until then it refuses.
        left: Duration,
    },
    /// It gave no usable answer.
    Failed(Failure),
}

/// Why a node gave no usable answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of failure.
    pub kind: FailureKind,
    /// The code of the error that the node replied with, if it did and the contract lists the code.
    pub code: Option<ErrorCode>,
    /// More, for people. Never a secret.
    pub detail: Arc<str>,
}

/// What kind of failure kept a node from answering.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// It was known to be unreachable or unfit: nothing was sent.
    Down,
    /// It was asked and did not answer in time.
    Silent,
    /// It was asked and the connection broke.
    Cut,
    /// It answered with an error.
    Rejected,
}

impl Failure {
    /// A failure of a kind, with more to say.
    #[must_use]
    pub fn new(kind: FailureKind, detail: impl Into<Arc<str>>) -> Self {
        Self { kind, code: None, detail: detail.into() }
    }

    /// The node replied with this error.
    #[must_use]
    pub fn rejected(error: impl Into<Arc<str>>) -> Self {
        let detail = error.into();
        Self { kind: FailureKind::Rejected, code: ErrorCode::of(detail.as_bytes()), detail }
    }

    /// Whether the node may have done what it was asked.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        matches!(self.kind, FailureKind::Silent | FailureKind::Cut)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::Down => "down",
            FailureKind::Silent => "no answer",
            FailureKind::Cut => "connection lost",
            FailureKind::Rejected => "error",
        };
        if self.detail.is_empty() { f.write_str(kind) } else { write!(f, "{kind}: {}", self.detail) }
    }
}

impl Vote {
    /// The fence, if the node granted.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        match self {
            Self::Granted { fence } => Some(*fence),
            _ => None,
        }
    }
}

impl From<Reply> for Vote {
    fn from(reply: Reply) -> Self {
        match reply {
            Reply::Number(fence) => Self::Granted { fence },
            Reply::Nil | Reply::Queued { .. } => Self::Refused,
            Reply::Quarantined { left } => Self::Quarantined { left },
            Reply::Failed(failure) => Self::Failed(failure),
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("no answer yet"),
            Self::Granted { fence } => write!(f, "granted, fence {fence}"),
            Self::Refused => f.write_str("held by another"),
            Self::Quarantined { left } => write!(f, "in quarantine for {} ms", left.as_millis()),
            Self::Failed(failure) => failure.fmt(f),
        }
    }
}
