//! Questions to every node that are no votes: what do you know of this key, how are you.

use crate::wire::Frame;
use redlock_proto::{Failure, Moment};
use std::time::Duration;
use tokio::sync::oneshot;

/// What is asked.
#[derive(Clone, Debug)]
pub(crate) enum Question {
    /// `REDLOCK.INSPECT key`.
    Inspect(Box<[u8]>),
    /// `REDLOCK.NODE`.
    Node,
}

impl Question {
    pub(super) fn words(&self) -> Vec<&[u8]> {
        match self {
            Self::Inspect(key) => vec![b"REDLOCK.INSPECT", key],
            Self::Node => vec![b"REDLOCK.NODE"],
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
    said: Vec<Option<Sighted>>,
    answer: oneshot::Sender<Vec<Sighted>>,
}

impl Survey {
    pub(super) fn new(nodes: usize, sent: Moment, answer: oneshot::Sender<Vec<Sighted>>) -> Self {
        Self { sent, said: vec![None; nodes], answer }
    }

    /// Notes what a node said; true once every node has. A second word of the same node changes nothing.
    pub(super) fn said(&mut self, node: usize, said: Result<Frame, Failure>, now: Moment) -> bool {
        if let Some(place @ None) = self.said.get_mut(node) {
            *place = Some(Sighted { said, took: now.since(self.sent) });
        }
        self.said.iter().all(Option::is_some)
    }

    /// Hands over what was said. Nobody may be there any more to hear it.
    pub(super) fn report(self) {
        let _ = self.answer.send(self.said.into_iter().flatten().collect());
    }
}
