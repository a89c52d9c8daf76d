//! A client of a history: its clocks, its connections, and the lock that it acquires.

use super::checks::SessionId;
use super::clocks::{ClientClock, TrueTime};
use super::identity::Known;
use super::network::Connection;
use super::plan::Plan;
use fastrand::Rng;
use redlock_proto::fence_hint::FenceHints;
use redlock_proto::keep_alive::KeepAlive;
use redlock_proto::{LockMode, LockState, Moment, NodeSet, Request};
use std::ops::Range;
use std::time::Duration;

/// What wall clocks show when a history begins. No clock jumps back to before zero.
const EPOCH_US: u64 = 1 << 40;

/// A process that acquires one lock after the other.
pub(super) struct Client {
    pub(super) clock: ClientClock,
    pub(super) hints: FenceHints,
    pub(super) connections: Vec<Connection>,
    /// The server that the client uses as the node at each address.
    pub(super) servers: Vec<usize>,
    /// What the client last saw of the node at each address.
    pub(super) known: Vec<Known>,
    /// The addresses at which another node answers than the one that the client knows.
    pub(super) refused: NodeSet,
    /// The connections for pushes, one for each node; empty if pushes come on the connections for requests.
    listening: Vec<Connection>,
    /// The client neither reads nor writes until then.
    pub(super) paused_until: TrueTime,
    pub(super) active: Option<Active>,
    pub(super) refusals: u32,
    /// How far its wall clock is ahead of the others, in microseconds.
    pub(super) wall_ahead_us: i64,
    last_ticket: u64,
    /// After a yield: what the next attempt of the same call reuses.
    pub(super) keeps_place: Option<KeptPlace>,
    /// The owner of the last attempt.
    pub(super) last_owner: String,
}

/// What the attempts of one call have in common.
pub(super) struct KeptPlace {
    pub(super) ticket: u64,
    pub(super) keys: Vec<usize>,
    pub(super) mode: LockMode,
    /// How often the client has yielded with this ticket.
    pub(super) yields: u32,
}

/// The lock that a client acquires or holds.
pub(super) struct Active {
    pub(super) id: SessionId,
    pub(super) owner: String,
    /// The owner of the attempt before this one.
    pub(super) owner_before: String,
    pub(super) keys: Vec<usize>,
    pub(super) mode: LockMode,
    /// The time to live that the client requests.
    pub(super) ttl: Duration,
    pub(super) session: LockState,
    /// The fence, once the client holds the lock.
    pub(super) fence: Option<u64>,
    pub(super) keep_alive: Option<KeepAlive>,
    /// The ticket in the wait queues; `None` if the client does not queue.
    pub(super) ticket: Option<u64>,
    /// How often the client has yielded with this ticket.
    pub(super) yields: u32,
    /// The client waits in the queues until then.
    pub(super) patience: Option<Moment>,
    /// The nodes that have the client in their queue.
    pub(super) queued: NodeSet,
    /// The stamps of its queued requests, and when each was sent.
    pub(super) rounds: Vec<(u64, Moment)>,
    /// The end of the validity as the holder knows it, and how far away it was when it was set.
    pub(super) end: Option<(Moment, Duration)>,
    /// How often the client has planned to check the remaining validity.
    pub(super) looks: u32,
    /// When the next timeout of the lock state is scheduled.
    pub(super) planned: Option<Moment>,
    /// Requests that were answered, each with the node.
    pub(super) answered: Vec<(Request, usize)>,
    /// The client has paused since it held the lock, so that no notice could reach it in time.
    pub(super) has_paused: bool,
}

impl Client {
    pub(super) fn new(number: usize, plan: &Plan, known: Vec<Known>, chance: &mut Rng) -> Self {
        let connection = |node| Connection::new((number * plan.nodes + node) as u64);
        let more = if plan.separate_pushes { plan.nodes } else { 0 };
        Self {
            clock: ClientClock::any(chance, plan.clock_ppm),
            hints: FenceHints::default(),
            connections: (0..plan.nodes).map(connection).collect(),
            servers: (0..plan.nodes).collect(),
            known,
            refused: NodeSet::EMPTY,
            // Nodes do not know the connections for pushes by number.
            listening: (0..more).map(|_| Connection::new(0)).collect(),
            paused_until: 0,
            active: None,
            last_owner: String::new(),
            refusals: 0,
            // Wall clocks differ by up to 20 ms without any fault.
            wall_ahead_us: (number as i64 * 7_919) % 20_000,
            last_ticket: 0,
            keeps_place: None,
        }
    }

    /// The connection on which the client receives the pushes of a node.
    pub(super) fn push_connection(&mut self, node: usize) -> &mut Connection {
        self.listening.get_mut(node).unwrap_or(&mut self.connections[node])
    }

    /// All connections of the client to some nodes.
    pub(super) fn connections_to(&mut self, nodes: Range<usize>) -> impl Iterator<Item = &mut Connection> {
        let apart = if self.listening.is_empty() { 0..0 } else { nodes.clone() };
        self.connections[nodes].iter_mut().chain(&mut self.listening[apart])
    }

    /// The next ticket of the process: its wall clock, but larger than every ticket before.
    pub(super) fn next_ticket(&mut self, number: usize, now: TrueTime) -> u64 {
        let wall_us = (EPOCH_US + now).saturating_add_signed(self.wall_ahead_us);
        self.last_ticket = (wall_us << 8 | number as u64).max(self.last_ticket + 1);
        self.last_ticket
    }

    /// The session that believes it holds a key, if the client does.
    pub(super) fn believes_in(&self, key: usize, now: TrueTime) -> Option<SessionId> {
        let active = self.active.as_ref().filter(|active| active.keys.contains(&key))?;
        active.is_valid(self.clock.at(now)).then_some(active.id)
    }
}

impl Active {
    /// Whether its guard would report a valid lock at this moment.
    pub(super) fn is_valid(&self, now: Moment) -> bool {
        self.fence.is_some() && self.session.valid_until().is_some_and(|until| !now.has_reached(until))
    }
}

/// The name of a key.
pub(super) fn name(key: usize) -> [u8; 1] {
    [b'a' + u8::try_from(key % 26).unwrap_or(0)]
}
