//! What became of a release, node by node.

use crate::{Failure, NodeSet, Quorum, Reply};
use std::fmt;

/// What one node made of a release.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// It has not answered yet.
    Pending,
    /// The lock is free there.
    Freed,
    /// The lock was not ours there: it had run out, or was never granted.
    NotHeld,
    /// It gave no usable answer; the lock there ends by itself.
    Failed(Failure),
    /// It never had the lock, so it was not asked.
    NotAsked,
}

impl fmt::Display for ReleaseOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pending => f.write_str("no answer yet"),
            Self::Freed => f.write_str("freed"),
            Self::NotHeld => f.write_str("was not held"),
            Self::Failed(failure) => failure.fmt(f),
            Self::NotAsked => f.write_str("not asked"),
        }
    }
}

/// The answers to a release.
#[derive(Clone, Debug)]
pub struct ReleaseProgress {
    quorum: Quorum,
    nodes: Vec<ReleaseOutcome>,
}

impl ReleaseProgress {
    pub(crate) fn of(quorum: Quorum, asked: NodeSet) -> Self {
        let asked =
            |node| if asked.contains(node) { ReleaseOutcome::Pending } else { ReleaseOutcome::NotAsked };
        Self { quorum, nodes: (0..quorum.nodes()).map(asked).collect() }
    }

    pub(crate) fn enter(&mut self, node: usize, reply: Reply) {
        let freed = match reply {
            Reply::Number(0) | Reply::Nil | Reply::Queued { .. } | Reply::Quarantined { .. } => {
                ReleaseOutcome::NotHeld
            }
            Reply::Number(_) => ReleaseOutcome::Freed,
            Reply::Failed(failure) => ReleaseOutcome::Failed(failure),
        };
        if let Some(place) = self.nodes.get_mut(node) {
            *place = freed;
        }
    }

    /// Whether the caller need not wait any more: a majority is free, or everybody has answered.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.quorum.is_reached_by(self.count(&ReleaseOutcome::Freed))
            || self.count(&ReleaseOutcome::Pending) == 0
    }

    /// What every node has answered, in their order.
    #[must_use]
    pub fn nodes(&self) -> &[ReleaseOutcome] {
        &self.nodes
    }

    fn count(&self, what: &ReleaseOutcome) -> usize {
        self.nodes.iter().filter(|freed| *freed == what).count()
    }
}
