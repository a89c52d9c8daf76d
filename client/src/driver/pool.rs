//! The ways to the nodes: connections, or nodes in memory.

use super::conn::{ConnProgress, NodeConn, sooner};
use super::connecting::Timeouts;
use super::in_flight::{InFlight, NodeEvent, PendingRelease, RequestOutcome, Stage};
use crate::memory::{Nodes, Outage, PushQueue};
use crate::observe;
use crate::queue_support::QueueSupport;
use crate::settings::{Places, Settings};
use redlock_core::node::CHANNEL_PREFIX;
use redlock_proto::identity::{Accepted, Roster};
use redlock_proto::{Failure, FailureKind, Moment, Quorum};
use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

/// All nodes of a manager.
pub(super) enum NodePool {
    Remote {
        conns: Vec<NodeConn>,
        names: Vec<Arc<str>>,
        /// The nodes that were accepted. A conn's identity is cleared by a refusal; this is not.
        roster: Roster,
    },
    Memory(MemoryConn),
}

/// The way to nodes in memory.
pub(super) struct MemoryConn {
    nodes: Nodes,
    connection: u64,
    pushes: Arc<PushQueue>,
    node_timeout: Duration,
    /// What nodes were asked that hang, each with its node.
    unanswered: Vec<(usize, InFlight)>,
}

impl MemoryConn {
    /// Asks a node. Why it could not be, if that shows at once.
    fn submit(
        &mut self,
        node: usize,
        words: &[&[u8]],
        request: &InFlight,
        events: &mut Vec<NodeEvent>,
    ) -> Option<Failure> {
        let outage = match self.nodes.execute(node, words, self.connection) {
            Ok(frame) => {
                let outcome = RequestOutcome {
                    node,
                    request: request.clone(),
                    outcome: Ok(frame),
                    stage: Stage::Settled,
                };
                events.push(NodeEvent::Outcome(outcome));
                return None;
            }
            Err(outage) => outage,
        };
        if request.is_release() {
            self.nodes.queue_release(node, words, self.connection);
        }
        match outage {
            Outage::Unreachable => Some(Failure::new(FailureKind::Down, "silenced")),
            Outage::Hung => {
                self.unanswered.push((node, request.clone()));
                None
            }
        }
    }

    fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        self.nodes.sweep();
        let node_timeout = self.node_timeout;
        let is_overdue =
            |(_, request): &mut (usize, InFlight)| now.has_reached(request.sent().plus(node_timeout));
        for (node, request) in self.unanswered.extract_if(.., is_overdue) {
            let outcome = Err(Failure::new(FailureKind::Silent, "it hangs"));
            events.push(NodeEvent::Outcome(RequestOutcome { node, request, outcome, stage: Stage::Settled }));
        }
        false
    }

    fn wake_at(&self, now: Moment) -> Option<Moment> {
        let overdue = self.unanswered.iter().map(|(_, request)| Some(request.sent().plus(self.node_timeout)));
        let attention = self.nodes.next_sweep().map(|after| now.plus(after));
        overdue.fold(attention, sooner)
    }
}

impl NodePool {
    pub(super) fn new(settings: &Settings, channel: &[u8]) -> Self {
        let channel = [CHANNEL_PREFIX, channel].concat();
        let timeouts =
            Timeouts { node_timeout: settings.node_timeout, connect_timeout: settings.connect_timeout };
        match &settings.places {
            Places::Memory(nodes) => Self::Memory(MemoryConn {
                nodes: nodes.clone(),
                connection: nodes.connect(),
                pushes: nodes.subscribe(&channel),
                node_timeout: settings.node_timeout,
                unanswered: Vec::new(),
            }),
            Places::Servers(targets) => {
                let channel = settings.waits_in_line.then(|| Arc::from(channel));
                let conn = |(node, target): (usize, &Arc<_>)| {
                    NodeConn::new(node, Arc::clone(target), timeouts, channel.clone())
                };
                let conns = targets.iter().enumerate().map(conn).collect();
                Self::Remote { conns, names: settings.names.clone(), roster: Roster::new(targets.len()) }
            }
        }
    }

    /// Takes a command to be sent to a node, or says why it cannot be.
    pub(super) fn submit(
        &mut self,
        node: usize,
        words: &[&[u8]],
        command: &[u8],
        request: InFlight,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) {
        let refused = match self {
            Self::Remote { conns, .. } => match conns.get_mut(node) {
                Some(conn) => conn.submit(command, request.clone(), now).err(),
                None => None,
            },
            Self::Memory(memory) => memory.submit(node, words, &request, events),
        };
        if let Some(failure) = refused {
            let outcome = RequestOutcome { node, request, outcome: Err(failure), stage: Stage::Settled };
            events.push(NodeEvent::Outcome(outcome));
        }
    }

    /// Keeps a release for when a node is back.
    pub(super) fn queue_release(&mut self, node: usize, release: Box<PendingRelease>, now: Moment) {
        if let Self::Remote { conns, .. } = self
            && let Some(conn) = conns.get_mut(node)
        {
            conn.queue_release(release, now);
        }
    }

    /// Moves bytes as far as they go now; true if anything happened.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        let (conns, names, roster) = match self {
            Self::Remote { conns, names, roster } => (conns, names, roster),
            Self::Memory(memory) => {
                let pushes = memory.pushes.take(cx).into_iter();
                events.extend(pushes.map(|(node, message)| NodeEvent::Push { node, message }));
                return !events.is_empty();
            }
        };
        let mut happened = false;
        for node in 0..conns.len() {
            let Some(conn) = conns.get_mut(node) else { continue };
            let progress = conn.poll(cx, now, events);
            if let Some(said) = conn.take_new_identity() {
                roster.learn(node, &said);
            }
            match progress {
                ConnProgress::Idle => {}
                ConnProgress::Some => happened = true,
                ConnProgress::Connected(ready) => {
                    happened = true;
                    let same = |conn: &NodeConn| {
                        conn.identity().is_some_and(|identity| identity.node.id == ready.identity.node.id)
                    };
                    let others = conns.iter().enumerate().filter(|(other, _)| *other != node);
                    let twin = others.into_iter().find(|(_, conn)| same(conn)).map(|(twin, _)| twin);
                    let twin = twin.and_then(|twin| names.get(twin));
                    let Some(conn) = conns.get_mut(node) else { continue };
                    match (roster.judge(node, &ready.identity.node), twin) {
                        (Err(objection), _) => conn.refuse(&objection.to_string(), now, events),
                        // Two names for one node would be two votes of one witness.
                        (_, Some(twin)) => conn.refuse(&format!("the same node as {twin}"), now, events),
                        (Ok(accepted), None) => {
                            if accepted == Accepted::Another {
                                observe::node_replaced(names.get(node).map_or("", |name| name));
                            }
                            roster.accept(node, &ready.identity.node);
                            conn.open(ready, now);
                        }
                    }
                }
            }
        }
        happened
    }

    /// Reports what is overdue. True if there is something to be written now.
    pub(super) fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        match self {
            Self::Remote { conns, .. } => {
                conns.iter_mut().fold(false, |any, conn| conn.tick(now, events) | any)
            }
            Self::Memory(memory) => memory.tick(now, events),
        }
    }

    /// When to look again, if nothing comes.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        match self {
            Self::Remote { conns, .. } => conns.iter().map(|conn| conn.wake_at(now)).fold(None, sooner),
            Self::Memory(memory) => memory.wake_at(now),
        }
    }

    /// Whether a call can queue on the nodes, and the name of the node that decided it. Nodes that are down have no
    /// say. A majority is enough to know: a node that is still connecting must not hold a call up.
    pub(super) fn queue_support(&self, quorum: Quorum) -> (QueueSupport, &str) {
        let Self::Remote { conns, names, .. } = self else { return (QueueSupport::Yes, "") };
        let mut ready = 0;
        for (conn, name) in conns.iter().zip(names) {
            match conn.queue_support() {
                _ if conn.is_down() => ready += 1,
                QueueSupport::Yes => ready += 1,
                QueueSupport::Unknown => {}
                no @ QueueSupport::No(_) => return (no, name),
            }
        }
        (if quorum.is_reached_by(ready) { QueueSupport::Yes } else { QueueSupport::Unknown }, "")
    }

    /// Whether no release is on its way that was owed at the moment `asked` and is worth waiting for.
    pub(super) fn has_no_pending_release(&self, asked: Moment, now: Moment) -> bool {
        match self {
            Self::Remote { conns, .. } => conns.iter().all(|conn| conn.has_no_pending_release(asked, now)),
            Self::Memory(_) => true,
        }
    }
}
