//! The nodes: every distinct state of a production node once, and the result of each command.
//!
//! A node is far too large to be stored millions of times, but its state for one key is small, and there are
//! few distinct cases. So a state is stored as a summary and one path that leads to it. To take a step, a new
//! [`MemoryNode`] repeats the path and then takes the step. The result of each step is cached.

use super::bounds::{Bounds, MOST, Mistake, TICK_MS};
use super::speech::{AskId, ReplyId, Speech, heard};
use hashbrown::HashMap;
use redlock_core::fence::Stripe;
use redlock_core::{MemoryNode, Millis};
use redlock_proto::{AcquireOptions, Ask, Moment, Request};
use std::time::Duration;

/// The number of a node state.
pub(super) type NodeId = u32;

/// The only key of the model.
pub(super) const KEY: &[u8] = b"job";

/// A connection of a client, as far as the node distinguishes connections.
pub(super) type Connection = u8;

/// An input of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Happens {
    Tick,
    /// The node restarts without its memory.
    Crash,
    Asked {
        ask: AskId,
        client: usize,
        connection: Connection,
    },
}

/// Everything that matters of a node: two nodes with the same summary answer the same from then on.
///
/// It leaves out what no reply depends on (counters, how long a lock has been held, how often it was
/// extended) and where in its memory the node keeps things; [`Nodes::audit`] proves that.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Summary {
    /// Owner, fence and remaining time.
    pub(super) lock: Option<(Vec<u8>, u64, u64)>,
    last_fence: u64,
    high_water: u64,
    longest_lease_ms: u64,
    pub(super) quarantine_ms: u64,
    /// For each owner and each connection, for how many ticks the node rejects its acquire.
    rejected: Vec<(u8, u8)>,
}

impl Summary {
    /// Whether a client holds the lock on this node.
    pub(super) fn is_owned_by(&self, client: usize) -> bool {
        self.lock.as_ref().is_some_and(|(holder, _, _)| holder[..] == owner(client))
    }
}

struct Life {
    summary: Summary,
    /// The state before, and the step; `None` for a new node.
    came_from: Option<(NodeId, Happens)>,
}

/// All node states that were seen.
pub(super) struct Nodes {
    bounds: Bounds,
    lives: Vec<Life>,
    known: HashMap<Summary, NodeId>,
    steps: HashMap<(NodeId, Happens), (NodeId, ReplyId)>,
    /// Other paths to a known state, for the audit.
    detours: Vec<(NodeId, NodeId, Happens)>,
}

/// A production node at a point in time.
struct Running {
    memory: MemoryNode,
    now: Millis,
}

/// The owner of a client's lock. There is one more owner than clients.
pub(super) fn owner(client: usize) -> [u8; 1] {
    [b'A' + u8::try_from(client).unwrap_or(25)]
}

/// The connections of a client: the first one, those after a break, and one for copies.
const CONNECTIONS: u8 = 4;
/// The connection on which copies arrive.
pub(super) const COPIES: Connection = CONNECTIONS - 1;

fn connection_number(client: usize, connection: Connection) -> u64 {
    client as u64 * u64::from(CONNECTIONS) + u64::from(connection)
}

impl Nodes {
    /// The state of a new node.
    pub(super) const NEW: NodeId = 0;

    pub(super) fn new(bounds: &Bounds) -> Self {
        let mut nodes = Self {
            bounds: *bounds,
            lives: Vec::new(),
            known: HashMap::new(),
            steps: HashMap::new(),
            detours: Vec::new(),
        };
        let summary = Running::new(bounds).summary(bounds);
        nodes.known.insert(summary.clone(), Self::NEW);
        nodes.lives.push(Life { summary, came_from: None });
        nodes
    }

    /// The number of states that were seen.
    pub(super) fn len(&self) -> usize {
        self.lives.len()
    }

    /// The summary of a state.
    pub(super) fn summary(&self, node: NodeId) -> &Summary {
        &self.lives[node as usize].summary
    }

    /// The next state of a node, and its reply if the step is a request.
    pub(super) fn step(&mut self, node: NodeId, what: Happens, speech: &mut Speech) -> (NodeId, ReplyId) {
        if let Some(known) = self.steps.get(&(node, what)) {
            return *known;
        }
        let mut running = self.revisit(node, speech);
        let reply = running.happens(what, &self.bounds, speech);
        let summary = running.summary(&self.bounds);
        let next = match self.known.get(&summary) {
            Some(next) => {
                self.detours.push((*next, node, what));
                *next
            }
            None => {
                let next = NodeId::try_from(self.lives.len()).expect("fewer than 2^32 states of a node");
                self.known.insert(summary.clone(), next);
                self.lives.push(Life { summary, came_from: Some((node, what)) });
                next
            }
        };
        self.steps.insert((node, what), (next, reply));
        (next, reply)
    }

    /// The state of a node after another owner has acquired and released the lock.
    pub(super) fn used(&mut self, node: NodeId, speech: &mut Speech) -> NodeId {
        let ttl = Duration::from_millis(self.bounds.ttl_ms());
        [Ask::Acquire { options: AcquireOptions::default() }, Ask::Release { floor: None }].into_iter().fold(
            node,
            |node, ask| {
                let request = speech.request(Request { ask, ttl, sent: Moment::default() });
                let what = Happens::Asked { ask: speech.ask_of(request), client: MOST, connection: 0 };
                self.step(node, what, speech).0
            },
        )
    }

    /// The cached reply of a node, if the step was tried.
    pub(super) fn known_reply(&self, node: NodeId, what: Happens) -> Option<ReplyId> {
        self.steps.get(&(node, what)).map(|(_, reply)| *reply)
    }

    /// A production node that has reached a state.
    fn revisit(&self, node: NodeId, speech: &mut Speech) -> Running {
        let mut way = Vec::new();
        let mut at = node;
        while let Some((before, what)) = self.lives[at as usize].came_from {
            way.push(what);
            at = before;
        }
        let mut running = Running::new(&self.bounds);
        for what in way.into_iter().rev() {
            running.happens(what, &self.bounds, speech);
        }
        running
    }

    /// Takes other paths to known states, and repeats everything that was tried in those states: replies and
    /// summaries must be the same. Returns the number of compared steps, of at most `most` other paths,
    /// spread over all.
    pub(super) fn audit(&self, most: usize, speech: &mut Speech) -> u64 {
        let mut tried: HashMap<NodeId, Vec<Happens>> = HashMap::new();
        for (node, what) in self.steps.keys() {
            tried.entry(*node).or_default().push(*what);
        }
        let mut compared = 0;
        for (state, before, what) in self.detours.iter().step_by(self.detours.len() / most + 1) {
            for next in tried.get(state).into_iter().flatten() {
                let mut running = self.revisit(*before, speech);
                running.happens(*what, &self.bounds, speech);
                let reply = running.happens(*next, &self.bounds, speech);
                let (expected, expected_reply) = self.steps[&(*state, *next)];
                assert_eq!(reply, expected_reply, "two paths to {:?}, then {next:?}", self.summary(*state));
                assert_eq!(running.summary(&self.bounds), *self.summary(expected), "then {next:?}");
                compared += 1;
            }
        }
        compared
    }
}

impl Running {
    fn new(bounds: &Bounds) -> Self {
        let mut memory = MemoryNode::new("node");
        // A connection keeps the order of its requests, so no request is late unless there is another
        // connection.
        let window_ms = if bounds.has_late_requests() { bounds.ttl_ms() } else { 0 };
        memory.node_mut().set_late_window_ms(window_ms);
        Self { memory, now: Millis::START }
    }

    fn happens(&mut self, what: Happens, bounds: &Bounds, speech: &mut Speech) -> ReplyId {
        match what {
            Happens::Tick => {
                self.now.0 += TICK_MS;
                self.memory.sweep(self.now);
                0
            }
            Happens::Crash => {
                self.crash(bounds);
                0
            }
            Happens::Asked { ask, client, connection } => {
                let connection = connection_number(client, connection);
                let node_reply = speech.seen(ask).with_words(&[KEY], &owner(client), b"", |words| {
                    self.memory.execute(words, connection, self.now)
                });
                speech.reply(heard(node_reply))
            }
        }
    }

    fn crash(&mut self, bounds: &Bounds) {
        let window_ms = self.memory.node().late_window_ms();
        let wait_ms = self.memory.node().state().quarantine_ms();
        self.memory.crash(self.now);
        match bounds.mistake {
            Mistake::NoQuarantine => self.memory.node_mut().cancel_quarantine(),
            Mistake::QuarantineTooShort => {
                self.memory.node_mut().cancel_quarantine();
                self.memory.node_mut().quarantine(wait_ms.saturating_sub(TICK_MS), &mut self.now.clone());
            }
            Mistake::FencesForgotten => {
                self.memory = MemoryNode::new("node");
                self.memory.node_mut().quarantine(wait_ms, &mut self.now.clone());
            }
            _ => {}
        }
        // A setting, which a server reads again when it starts.
        self.memory.node_mut().set_late_window_ms(window_ms);
    }

    fn summary(&self, bounds: &Bounds) -> Summary {
        let node = self.memory.node();
        let lock = self.memory.image(KEY, self.now);
        let mut rejected = Vec::new();
        if bounds.has_late_requests() {
            let parties = (0..=MOST).flat_map(|client| (0..CONNECTIONS).map(move |other| (client, other)));
            for (place, (client, connection)) in parties.enumerate() {
                let rejects = |ticks: &u64| {
                    let (at, number) = (self.now.0 + ticks * TICK_MS, connection_number(client, connection));
                    node.tombstones().rejects(KEY, &owner(client), number, Millis(at))
                };
                let ticks = (0..).take_while(rejects).count();
                if ticks > 0 {
                    rejected.push((u8::try_from(place).unwrap_or(0), u8::try_from(ticks).unwrap_or(u8::MAX)));
                }
            }
        }
        Summary {
            lock: lock.map(|lock| (lock.owner, lock.fence, lock.left_ms)),
            last_fence: node.stripes().last(Stripe::of(KEY)),
            high_water: node.state().high_water.common(),
            longest_lease_ms: node.state().longest_lease_ms,
            quarantine_ms: node.quarantine_left_ms(&mut self.now.clone()),
            rejected,
        }
    }
}
