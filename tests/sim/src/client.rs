//! A client of a history: its clocks, its connections, and the lock it is after.

use super::checks::SessionId;
use super::clocks::{ClientClock, True};
use super::identity::Known;
use super::network::Connection;
use super::plan::Plan;
use fastrand::Rng;
use redlock_proto::fence_hint::FenceHints;
use redlock_proto::keep_alive::KeepAlive;
use redlock_proto::{LockState, Moment, NodeSet, Request};
use std::ops::Range;
use std::time::Duration;

/// What wall clocks show when a history begins: later than any of them jumps back.
const EPOCH_US: u64 = 1 << 40;

/// One process that wants locks, one after the other.
pub(super) struct Client {
    pub(super) clock: ClientClock,
    pub(super) hints: FenceHints,
    pub(super) connections: Vec<Connection>,
    /// The server that it takes for the node under each address.
    pub(super) servers: Vec<usize>,
    /// What it has last seen of the node under each address.
    pub(super) known: Vec<Known>,
    /// The addresses under which another node answers than the one that it knows.
    pub(super) refused: NodeSet,
    /// Those on which it hears the news, if they are others.
    listening: Vec<Connection>,
    /// Until then it neither reads nor writes.
    pub(super) paused_until: True,
    pub(super) active: Option<Active>,
    pub(super) refusals: u32,
    /// By how much its wall clock is ahead of the others, in microseconds.
    pub(super) wall_ahead_us: i64,
    last_ticket: u64,
    /// The place in line of a client that gave way, what it was after, and how often it has.
    pub(super) keeps_place: Option<(u64, Vec<usize>, u32)>,
    /// The owner of its last attempt.
    pub(super) last_owner: String,
}

/// The lock that a client is after, or holds.
pub(super) struct Active {
    pub(super) id: SessionId,
    pub(super) owner: String,
    /// The owner of the attempt before this one.
    pub(super) owner_before: String,
    pub(super) keys: Vec<usize>,
    /// How long it wants the lock.
    pub(super) ttl: Duration,
    pub(super) session: LockState,
    /// The number it holds the lock under, once it does.
    pub(super) fence: Option<u64>,
    pub(super) keep_alive: Option<KeepAlive>,
    /// The place in line.
    pub(super) ticket: Option<u64>,
    /// How often it has given way there.
    pub(super) yields: u32,
    /// Until when it waits there.
    pub(super) patience: Option<Moment>,
    /// The nodes that have it in line.
    pub(super) queued: NodeSet,
    /// When its requests to wait were sent, by their stamps.
    pub(super) rounds: Vec<(u64, Moment)>,
    /// The end of the lock as its holder knows it, and how long that was away when it was set.
    pub(super) end: Option<(Moment, Duration)>,
    /// How often it has planned to look how much time is left.
    pub(super) looks: u32,
    /// When it is going to be woken.
    pub(super) planned: Option<Moment>,
    /// Requests that were answered, each with its node.
    pub(super) answered: Vec<(Request, usize)>,
    /// It has stood still since it held the lock: nobody can tell it anything in time.
    pub(super) has_paused: bool,
}

impl Client {
    pub(super) fn new(number: usize, plan: &Plan, known: Vec<Known>, chance: &mut Rng) -> Self {
        let connection = |node| Connection::new((number * plan.nodes + node) as u64);
        let more = if plan.news_apart { plan.nodes } else { 0 };
        Self {
            clock: ClientClock::any(chance, plan.clock_ppm),
            hints: FenceHints::default(),
            connections: (0..plan.nodes).map(connection).collect(),
            servers: (0..plan.nodes).collect(),
            known,
            refused: NodeSet::EMPTY,
            // No node knows those by their numbers.
            listening: (0..more).map(|_| Connection::new(0)).collect(),
            paused_until: 0,
            active: None,
            last_owner: String::new(),
            refusals: 0,
            // Wall clocks differ by up to 20 ms when all is well.
            wall_ahead_us: (number as i64 * 7_919) % 20_000,
            last_ticket: 0,
            keeps_place: None,
        }
    }

    /// The connection on which it hears the news of a node.
    pub(super) fn news_from(&mut self, node: usize) -> &mut Connection {
        self.listening.get_mut(node).unwrap_or(&mut self.connections[node])
    }

    /// All its connections to some nodes.
    pub(super) fn connections_to(&mut self, nodes: Range<usize>) -> impl Iterator<Item = &mut Connection> {
        let apart = if self.listening.is_empty() { 0..0 } else { nodes.clone() };
        self.connections[nodes].iter_mut().chain(&mut self.listening[apart])
    }

    /// A place in line, as a process takes it: by its wall clock, and after all that it has had before.
    pub(super) fn next_ticket(&mut self, number: usize, now: True) -> u64 {
        let wall_us = (EPOCH_US + now).saturating_add_signed(self.wall_ahead_us);
        self.last_ticket = (wall_us << 8 | number as u64).max(self.last_ticket + 1);
        self.last_ticket
    }

    /// Whether it believes to hold a lock on a key.
    pub(super) fn believes_in(&self, key: usize, now: True) -> Option<SessionId> {
        let active = self.active.as_ref().filter(|active| active.keys.contains(&key))?;
        active.is_valid(self.clock.at(now)).then_some(active.id)
    }
}

impl Active {
    /// What its guard would say at this moment.
    pub(super) fn is_valid(&self, now: Moment) -> bool {
        self.fence.is_some() && self.session.valid_until().is_some_and(|until| !now.has_reached(until))
    }
}

/// The name of a key.
pub(super) fn name(key: usize) -> [u8; 1] {
    [b'a' + u8::try_from(key % 26).unwrap_or(0)]
}
