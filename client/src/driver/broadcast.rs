//! Commands to every node that are no votes: what do you know of this key, how are you.

use crate::query::Query;
use crate::wire::Frame;
use redlock_proto::{Failure, Moment, NodeSet};
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum BroadcastCommand {
    /// `REDLOCK.INSPECT key`.
    Inspect(Box<[u8]>),
    /// `REDLOCK.NODE`.
    Node,
    /// Another command that changes nothing.
    Query(Query),
    /// A command for the holder of a lock that no driver keeps. Its words carry an owner.
    Secret(SecretArgs),
}

/// The words of `REDLOCK.EXTEND` or `REDLOCK.RELEASE`, which nobody shall read.
#[derive(Clone)]
pub(crate) struct SecretArgs(pub(crate) Vec<Vec<u8>>);

impl fmt::Debug for SecretArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretArgs(secret)")
    }
}

impl BroadcastCommand {
    pub(super) fn words(&self) -> Vec<&[u8]> {
        match self {
            Self::Inspect(key) => vec![b"REDLOCK.INSPECT", key],
            Self::Node => vec![b"REDLOCK.NODE"],
            Self::Query(query) => query.words(),
            Self::Secret(SecretArgs(words)) => words.iter().map(Vec::as_slice).collect(),
        }
    }
}

/// What one node said, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct NodeResponse {
    pub(crate) frame: Result<Frame, Failure>,
    pub(crate) latency: Duration,
}

/// A broadcast under way.
#[derive(Debug)]
pub(super) struct Broadcast {
    sent: Moment,
    /// Who has not answered yet.
    unanswered: NodeSet,
    responses: Vec<Option<NodeResponse>>,
    answer: oneshot::Sender<Vec<NodeResponse>>,
}

impl Broadcast {
    pub(super) fn new(
        nodes: usize,
        asked: NodeSet,
        sent: Moment,
        answer: oneshot::Sender<Vec<NodeResponse>>,
    ) -> Self {
        Self { sent, unanswered: asked, responses: vec![None; nodes], answer }
    }

    /// Notes what a node said; true once all that were asked have. A second word of the same node changes
    /// nothing.
    pub(super) fn record(&mut self, node: usize, frame: Result<Frame, Failure>, now: Moment) -> bool {
        if let Some(place @ None) = self.responses.get_mut(node) {
            *place = Some(NodeResponse { frame, latency: now.since(self.sent) });
        }
        self.unanswered.remove(node);
        self.unanswered.is_empty()
    }

    /// Hands over what was said by those who were asked, in their order. Nobody may be there any more to hear
    /// it.
    pub(super) fn report(self) {
        let _ = self.answer.send(self.responses.into_iter().flatten().collect());
    }
}
