//! Questions to every node that are no votes: what do you know of this key, how are you.

use crate::query::Query;
use crate::wire::Frame;
use redlock_contract::commands::Verb;
use redlock_proto::{Failure, Moment, NodeSet};
use std::fmt;
use std::time::Duration;
use tokio::sync::oneshot;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// `REDLOCK.INSPECT key`.
    Inspect(Box<[u8]>),
    /// `REDLOCK.NODE`.
    Node,
    /// Another command that changes nothing.
    Query(Query),
    /// A command for the holder of a lock that no driver keeps. Its words carry an owner.
    Deed(Deed),
}

/// The words of `REDLOCK.EXTEND` or `REDLOCK.RELEASE`, which nobody shall read.
#[derive(Clone)]
pub(crate) struct Deed(pub(crate) Vec<Vec<u8>>);

impl fmt::Debug for Deed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Deed(secret)")
    }
}

impl Question {
    pub(super) fn words(&self) -> Vec<&[u8]> {
        match self {
            Self::Inspect(key) => vec![Verb::Inspect.name().as_bytes(), key],
            Self::Node => vec![Verb::Node.name().as_bytes()],
            Self::Query(query) => query.words(),
            Self::Deed(Deed(words)) => words.iter().map(Vec::as_slice).collect(),
        }
    }
}

/// What one node said, and how long that took.
#[derive(Clone, Debug)]
pub(crate) struct Sighted {
    pub(crate) said: Result<Frame, Failure>,
    pub(crate) took: Duration,
}

/// A survey under way.
#[derive(Debug)]
pub(super) struct Survey {
    sent: Moment,
    /// Who has not answered yet.
    missing: NodeSet,
    said: Vec<Option<Sighted>>,
    answer: oneshot::Sender<Vec<Sighted>>,
}

impl Survey {
    pub(super) fn new(
        nodes: usize,
        asked: NodeSet,
        sent: Moment,
        answer: oneshot::Sender<Vec<Sighted>>,
    ) -> Self {
        Self { sent, missing: asked, said: vec![None; nodes], answer }
    }

    /// Notes what a node said; true once all that were asked have. A second word of the same node changes
    /// nothing.
    pub(super) fn said(&mut self, node: usize, said: Result<Frame, Failure>, now: Moment) -> bool {
        if let Some(place @ None) = self.said.get_mut(node) {
            *place = Some(Sighted { said, took: now.since(self.sent) });
        }
        self.missing.remove(node);
        self.missing.is_empty()
    }

    /// Hands over what was said by those who were asked, in their order. Nobody may be there any more to hear
    /// it.
    pub(super) fn report(self) {
        let _ = self.answer.send(self.said.into_iter().flatten().collect());
    }
}
