//! Release, and what each node replied to it.

use super::{Ask, Event, LockPhase, LockState, Request};
use crate::{Failure, LockReply, Moment, NodeSet, Quorum};
use std::fmt;

/// The outcome of a release on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseOutcome {
    /// The node has not replied.
    Pending,
    /// The node has freed the lock.
    Freed,
    /// The node did not hold the lock for this client: it had expired, or the node never granted it.
    NotHeld,
    /// The node gave no usable reply. The lock on this node ends when its lease expires.
    Failed(Failure),
    /// The node never held the lock, so the client did not ask it.
    NotAsked,
}

impl From<LockReply> for ReleaseOutcome {
    fn from(reply: LockReply) -> Self {
        match reply {
            LockReply::Number(0)
            | LockReply::Nil
            | LockReply::Queued { .. }
            | LockReply::Quarantined { .. } => Self::NotHeld,
            LockReply::Number(_) => Self::Freed,
            LockReply::Failed(failure) => Self::Failed(failure),
        }
    }
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

/// The outcomes of a release on all nodes.
#[derive(Clone, Debug)]
pub struct ReleaseProgress {
    quorum: Quorum,
    nodes: Vec<ReleaseOutcome>,
}

impl ReleaseProgress {
    pub(crate) fn of(quorum: Quorum, asked: NodeSet) -> Self {
        let outcome =
            |node| if asked.contains(node) { ReleaseOutcome::Pending } else { ReleaseOutcome::NotAsked };
        Self { quorum, nodes: (0..quorum.nodes()).map(outcome).collect() }
    }

    pub(crate) fn enter(&mut self, node: usize, reply: LockReply) {
        if let Some(outcome) = self.nodes.get_mut(node) {
            *outcome = reply.into();
        }
    }

    /// Whether the caller need not wait any longer: a majority has freed the lock, or every node has replied.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.quorum.is_reached_by(self.count(&ReleaseOutcome::Freed))
            || self.count(&ReleaseOutcome::Pending) == 0
    }

    /// The outcome of each node, in the order of the nodes.
    #[must_use]
    pub fn nodes(&self) -> &[ReleaseOutcome] {
        &self.nodes
    }

    fn count(&self, wanted: &ReleaseOutcome) -> usize {
        self.nodes.iter().filter(|outcome| *outcome == wanted).count()
    }
}

impl LockState {
    /// Ends the attempt or the hold: the transmit goes to all nodes that hold the lock, or may. Ends with
    /// [`Event::Released`]. A second release sends nothing: the first is in flight.
    pub fn release(&mut self, now: Moment) {
        self.phase = LockPhase::Ended;
        self.extension = None;
        if self.release_progress.is_some() {
            return;
        }
        let to = self.maybe_held.nodes();
        self.release_progress = Some(ReleaseProgress::of(self.quorum, to));
        if to.is_empty() {
            return self.emit(Event::Released);
        }
        let floor = self.ballot.highest().filter(|_| self.ballot.disagrees());
        self.send(Request { ask: Ask::Release { floor }, ttl: self.longest_ttl, sent: now }, to);
    }

    /// Handles the reply of a node to the release.
    pub(super) fn handle_release_reply(&mut self, node: usize, reply: LockReply) {
        let Some(progress) = self.release_progress.as_mut() else { return };
        let was_settled = progress.is_settled();
        progress.enter(node, reply);
        if !was_settled && progress.is_settled() {
            self.emit(Event::Released);
        }
    }

    /// Whether a request to this node is in doubt: its connection broke, and it may still arrive although the
    /// node has answered a later one. If so, and the release has freed what the later one got, the caller
    /// must send the release once more: a node rejects late requests only of an owner whose release freed
    /// nothing.
    #[must_use]
    pub fn may_be_granted_late(&self, node: usize) -> bool {
        self.maybe_held.is_in_doubt(node)
    }

    /// The outcomes of the release so far; `None` before a release.
    #[must_use]
    pub fn release_progress(&self) -> Option<&ReleaseProgress> {
        self.release_progress.as_ref()
    }
}
