//! Nodes in memory, in the place of connections: a reply comes at once, or not at all.

use super::in_flight::{InFlight, NodeEvent, Stage};
use super::timers::sooner;
use crate::memory::{MemoryNodes, Outage, PushQueue};
use redlock_proto::{Failure, FailureKind, Moment};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

/// The driver's access to nodes in memory.
#[derive(Clone)]
pub(super) struct MemoryConn {
    nodes: MemoryNodes,
    connection: u64,
    pushes: Arc<PushQueue>,
    node_timeout: Duration,
    /// Requests to nodes that hang, each with its node.
    unanswered: Vec<(usize, InFlight)>,
}

impl MemoryConn {
    pub(super) fn new(nodes: &MemoryNodes, channel: &[u8], node_timeout: Duration) -> Self {
        Self {
            nodes: nodes.clone(),
            connection: nodes.connect(),
            pushes: nodes.subscribe(channel),
            node_timeout,
            unanswered: Vec::new(),
        }
    }

    /// Runs a command on a node. A release that fails reaches the node when the node is revived.
    pub(super) fn submit(
        &mut self,
        node: usize,
        words: &[&[u8]],
        request: InFlight,
        events: &mut Vec<NodeEvent>,
    ) {
        let reply = self.nodes.execute(node, words, self.connection);
        if reply.is_err() && request.is_release() {
            self.nodes.queue_release(node, words, self.connection);
        }
        let outcome = match reply {
            Ok(frame) => Ok(frame),
            Err(Outage::Unreachable) => Err(Failure::new(FailureKind::Down, "the node is unreachable")),
            Err(Outage::Hung) => return self.unanswered.push((node, request)),
        };
        events.push(NodeEvent::Outcome { node, request, outcome, stage: Stage::Settled });
    }

    /// The id of a node.
    pub(super) fn node_id(&self, node: usize) -> Option<String> {
        self.nodes.node_id(node)
    }

    /// Takes pushes; true if there are events.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, events: &mut Vec<NodeEvent>) -> bool {
        let pushes = self.pushes.take(cx).into_iter();
        events.extend(pushes.map(|(node, message)| NodeEvent::Push { node, message }));
        !events.is_empty()
    }

    /// Expires locks, and fails requests that are overdue.
    pub(super) fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) {
        self.nodes.sweep();
        let timeout = self.node_timeout;
        let is_overdue = |(_, request): &mut (usize, InFlight)| now.has_reached(request.sent().plus(timeout));
        for (node, request) in self.unanswered.extract_if(.., is_overdue) {
            let outcome = Err(Failure::new(FailureKind::Silent, "the node hangs"));
            events.push(NodeEvent::Outcome { node, request, outcome, stage: Stage::Settled });
        }
    }

    /// When to call [`MemoryConn::tick`] next.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        let overdue = self.unanswered.iter().map(|(_, request)| Some(request.sent().plus(self.node_timeout)));
        let sweep = self.nodes.next_sweep().map(|after| now.plus(after));
        overdue.fold(sweep, sooner)
    }
}
