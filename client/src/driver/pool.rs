//! All nodes of a manager: one connection each, or nodes in memory.

use super::conn::{ConnProgress, NodeConn};
use super::connecting::Timeouts;
use super::in_flight::{InFlight, NodeEvent};
use super::introduction::Introduction;
use super::memory_conn::MemoryConn;
use super::pending_releases::PendingRelease;
use super::shutdown::Leftover;
use super::timers::sooner;
use crate::connect::Ready;
use crate::observe;
use crate::queue_support::{QueueSupport, WaitPolicy};
use crate::settings::{Places, Settings};
use redlock_contract::CHANNEL_PREFIX;
use redlock_proto::identity::{Accepted, Objection, Roster};
use redlock_proto::{Failure, FailureKind, LockReply, Moment, Quorum};
use std::sync::Arc;
use std::task::Context;

pub(super) enum NodePool {
    Remote(RemoteNodes),
    Memory(MemoryConn),
}

/// Nodes that the client reaches over connections. A node is named by its index in both lists.
pub(super) struct RemoteNodes {
    conns: Vec<NodeConn>,
    names: Vec<Arc<str>>,
    /// The identities that the client has accepted. A refused connection clears the identity of its
    /// `NodeConn`, not this one.
    roster: Roster,
    introduction: Introduction,
}

impl NodePool {
    pub(super) fn new(settings: &Settings, channel: &[u8]) -> Self {
        let channel = [CHANNEL_PREFIX, channel].concat();
        match &settings.places {
            Places::Memory(nodes) => Self::Memory(MemoryConn::new(nodes, &channel, settings.node_timeout)),
            Places::Servers(targets) => {
                let timeouts = Timeouts {
                    node_timeout: settings.node_timeout,
                    connect_timeout: settings.connect_timeout,
                };
                let channel = (settings.wait_policy == WaitPolicy::Queue).then(|| Arc::from(channel));
                let conn = |(node, (target, name)): (usize, (&Arc<_>, &Arc<str>))| {
                    NodeConn::new(node, name, Arc::clone(target), timeouts, channel.clone())
                };
                Self::Remote(RemoteNodes {
                    conns: targets.iter().zip(&settings.names).enumerate().map(conn).collect(),
                    names: settings.names.clone(),
                    roster: Roster::new(targets.len()),
                    introduction: Introduction::new(settings.quorum, settings.node_timeout),
                })
            }
        }
    }

    /// Takes the connections from the runtime, with what is unsent. Only for a driver that ends.
    pub(super) fn take_conns(&mut self, now: Moment) -> Leftover {
        match self {
            Self::Remote(nodes) => {
                Leftover::Remote(nodes.conns.drain(..).map(|conn| conn.into_leftover(now)).collect())
            }
            Self::Memory(memory) => Leftover::Memory(memory.clone()),
        }
    }

    /// Sends a command to a node. If the node is down, the outcome is among `events` on return.
    pub(super) fn submit(
        &mut self,
        node: usize,
        words: &[&[u8]],
        command: &[u8],
        request: InFlight,
        now: Moment,
        events: &mut Vec<NodeEvent>,
    ) {
        match self {
            Self::Remote(nodes) => {
                if let Some(conn) = nodes.conns.get_mut(node) {
                    conn.submit(command, request, now, events);
                }
            }
            Self::Memory(memory) => memory.submit(node, words, request, events),
        }
    }

    /// Notes what a node replied to a request for a lock, to report it.
    pub(super) fn note_vote(&mut self, node: usize, reply: &LockReply) {
        if let Self::Remote(nodes) = self
            && let Some(conn) = nodes.conns.get_mut(node)
        {
            conn.watch.voted(reply);
        }
    }

    /// Keeps a release until the node can execute it. Nodes in memory keep their releases themselves.
    pub(super) fn queue_release(&mut self, node: usize, release: Box<PendingRelease>, now: Moment) {
        if let Self::Remote(nodes) = self
            && let Some(conn) = nodes.conns.get_mut(node)
        {
            conn.queue_release(release, now);
        }
    }

    /// Connects, writes and reads until everything blocks; true if anything happened.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        match self {
            Self::Remote(nodes) => nodes.poll(cx, now, events),
            Self::Memory(memory) => memory.poll(cx, events),
        }
    }

    /// Reports overdue requests. True if there are releases to write now.
    pub(super) fn tick(&mut self, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        match self {
            Self::Remote(nodes) => {
                nodes.conns.iter_mut().fold(false, |any, conn| conn.tick(now, events) | any)
            }
            Self::Memory(memory) => {
                memory.tick(now, events);
                false
            }
        }
    }

    /// When to call [`NodePool::tick`] or [`NodePool::poll`] next, if no bytes come.
    pub(super) fn wake_at(&self, now: Moment) -> Option<Moment> {
        match self {
            Self::Remote(nodes) => {
                let wake_at = nodes.conns.iter().map(|conn| conn.wake_at(now)).fold(None, sooner);
                nodes.introduction.or_earlier(wake_at)
            }
            Self::Memory(memory) => memory.wake_at(now),
        }
    }

    /// Whether the client knows which node answers at each address, or has stopped waiting for the handshakes.
    pub(super) fn is_introduced(&self) -> bool {
        match self {
            Self::Remote(nodes) => nodes.introduction.has_ended(),
            Self::Memory(_) => true,
        }
    }

    /// Whether a call can queue on the nodes, and the name of the node that ruled it out. Nodes that are down
    /// do not count against it. A majority is enough to know: a connecting node does not delay a call.
    pub(super) fn queue_support(&self, quorum: Quorum) -> (QueueSupport, &str) {
        let Self::Remote(nodes) = self else { return (QueueSupport::Yes, "") };
        let mut ready = 0;
        for (conn, name) in nodes.conns.iter().zip(&nodes.names) {
            match conn.queue_support {
                _ if conn.is_down() => ready += 1,
                QueueSupport::Yes => ready += 1,
                QueueSupport::Unknown => {}
                no @ QueueSupport::No(_) => return (no, name),
            }
        }
        (if quorum.is_reached_by(ready) { QueueSupport::Yes } else { QueueSupport::Unknown }, "")
    }

    /// The id of the node that answers at an index; `None` if the client has accepted no node there.
    pub(super) fn node_id(&self, node: usize) -> Option<String> {
        match self {
            Self::Remote(nodes) => Some(nodes.conns.get(node)?.identity.as_ref()?.id.clone()),
            Self::Memory(memory) => memory.node_id(node),
        }
    }

    /// Whether a caller of flush, who called at `asked`, still waits for a release to any node.
    pub(super) fn awaits_release(&self, asked: Moment, now: Moment) -> bool {
        match self {
            Self::Remote(nodes) => nodes.conns.iter().any(|conn| conn.awaits_release(asked, now)),
            Self::Memory(_) => false,
        }
    }
}

impl RemoteNodes {
    fn poll(&mut self, cx: &mut Context<'_>, now: Moment, events: &mut Vec<NodeEvent>) -> bool {
        let mut is_busy = false;
        for node in 0..self.conns.len() {
            let Some(conn) = self.conns.get_mut(node) else { continue };
            let progress = conn.poll(cx, now, events);
            if let Some(identity) = conn.new_identity.take() {
                match self.roster.learn(node, &identity) {
                    Ok(()) => conn.identity = Some(identity),
                    Err(objection) => conn.refuse(down(&objection), now, events),
                }
            }
            is_busy |= !matches!(progress, ConnProgress::Idle);
            if let ConnProgress::Connected(ready) = progress {
                self.check_identity(node, ready, now, events);
            }
        }
        if !self.introduction.has_ended() {
            let count = |test: fn(&NodeConn) -> bool| self.conns.iter().filter(|conn| test(conn)).count();
            let (identified, failed) = (
                count(|conn| conn.identity.is_some()),
                count(|conn| conn.identity.is_none() && conn.is_down()),
            );
            self.introduction.update(identified, failed, now);
        }
        is_busy
    }

    /// Uses a new connection if the node behind it may vote, and closes it otherwise.
    fn check_identity(&mut self, node: usize, ready: Ready, now: Moment, events: &mut Vec<NodeEvent>) {
        let identity = &ready.identity;
        let refusal = match (self.roster.check(node, identity), self.twin(node, &identity.id)) {
            (Err(objection), _) => Some(down(&objection)),
            // One node under two names would have two votes. Nodes may swap addresses: then this lasts until
            // the client has noticed both moves.
            (_, Some(twin)) if self.roster.has_accepted_at(node) => {
                Some(Failure::new(FailureKind::Down, format!("the same node as {twin}")))
            }
            (_, Some(twin)) => {
                observe::node_named_twice(self.names.get(node).map_or("", |name| name), twin);
                Some(Failure::new(FailureKind::SameNode, twin))
            }
            (Ok(accepted), None) => {
                if accepted == Accepted::Another {
                    observe::node_replaced(self.names.get(node).map_or("", |name| name));
                }
                self.roster.accept(node, identity);
                None
            }
        };
        let Some(conn) = self.conns.get_mut(node) else { return };
        match refusal {
            Some(why) => conn.refuse(why, now, events),
            None => conn.open(ready, now),
        }
    }

    /// The name of another address that leads to the node with this id.
    fn twin(&self, node: usize, id: &str) -> Option<&str> {
        let is_same = |conn: &NodeConn| conn.identity.as_ref().is_some_and(|identity| identity.id == id);
        let mut nodes = self.conns.iter().zip(&self.names).enumerate();
        nodes.find(|(other, (conn, _))| *other != node && is_same(conn)).map(|(_, (_, name))| &**name)
    }
}

/// The failure of a node that the client does not count.
fn down(objection: &Objection) -> Failure {
    Failure::new(FailureKind::Down, objection.to_string())
}
