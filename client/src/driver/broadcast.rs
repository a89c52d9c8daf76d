//! Commands that go to several nodes and are not votes: inspection, health, queries, and releases and
//! extensions of locks that no driver tracks.

use super::Driver;
use super::in_flight::InFlight;
use super::message::EntryId;
use crate::wire::{self, Frame};
use redlock_proto::{Failure, Moment, NodeSet};
use std::time::Duration;
use tokio::sync::oneshot;

/// The reply of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeResponse {
    /// An error reply is a failure of the kind `FailureKind::Rejected`.
    pub(crate) frame: Result<Frame, Failure>,
    pub(crate) latency: Duration,
}

/// A broadcast that some nodes have not replied to yet.
pub(super) struct Broadcast {
    pub(super) serial: u64,
    sent: Moment,
    /// The nodes without a reply.
    unanswered: NodeSet,
    /// The replies, by node.
    responses: Vec<Option<NodeResponse>>,
    answer: oneshot::Sender<Vec<NodeResponse>>,
}

impl Driver {
    /// Sends a command, given by its words, to the nodes `to`. `answer` gets the replies, in node order.
    pub(super) fn broadcast(
        &mut self,
        words: &[Vec<u8>],
        to: NodeSet,
        answer: oneshot::Sender<Vec<NodeResponse>>,
        now: Moment,
    ) {
        self.serial += 1;
        let serial = self.serial;
        let responses = vec![None; self.settings.quorum.nodes()];
        let index =
            self.broadcasts.insert(Broadcast { serial, sent: now, unanswered: to, responses, answer });
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        self.scratch.clear();
        wire::command(&mut self.scratch, &words);
        for node in to.iter() {
            let request = InFlight::Broadcast { broadcast: EntryId { index, serial }, sent: now };
            self.pool.submit(node, &words, &self.scratch, request, now, &mut self.events);
        }
    }

    /// Stores a node's reply; only the first counts. Answers the caller once all nodes have replied.
    pub(super) fn handle_broadcast_reply(
        &mut self,
        node: usize,
        id: EntryId,
        outcome: Result<Frame, Failure>,
        now: Moment,
    ) {
        let broadcast = self.broadcasts.get_mut(id.index).filter(|broadcast| broadcast.serial == id.serial);
        let Some(broadcast) = broadcast else { return };
        if let Some(response @ None) = broadcast.responses.get_mut(node) {
            let frame = outcome.and_then(|frame| match frame.error_message() {
                Some(message) => Err(Failure::rejected(message)),
                None => Ok(frame),
            });
            *response = Some(NodeResponse { frame, latency: now.since(broadcast.sent) });
        }
        broadcast.unanswered.remove(node);
        if broadcast.unanswered.is_empty() {
            let Broadcast { answer, responses, .. } = self.broadcasts.remove(id.index);
            // The caller may have stopped waiting.
            let _ = answer.send(responses.into_iter().flatten().collect());
        }
    }
}
