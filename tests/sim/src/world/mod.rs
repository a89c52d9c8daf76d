//! What happens next, until nothing does.

mod aftermath;
mod conduct;
mod line;

use super::Weakness;
use super::checks::{Checks, SessionId, Violation};
use super::client::{Client, name};
use super::clocks::{NodeTime, True};
use super::network::{Way, delay};
use super::plan::Plan;
use super::storage::Storage;
use fastrand::Rng;
use redlock_core::{Fault, MemoryNode, Reply as NodeReply};
use redlock_proto::{Ask, Drift, Failure, FailureKind, NodeSet, Quorum, Reply, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// What came of a history.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must never be, and was. Empty if all is well.
    pub violations: Vec<Violation>,
    /// How many things happened.
    pub steps: u64,
    /// How many attempts there were.
    pub attempts: u64,
    /// How many of them held their lock.
    pub holds: u64,
    /// How many second rounds it took.
    pub promotions: u64,
    /// How many extensions succeeded.
    pub extensions: u64,
    /// How many writes the storage turned away.
    pub turned_away: u64,
    /// How many locks were handed to somebody who waited.
    pub handoffs: u64,
    /// How many attempts gave way to an older one.
    pub yields: u64,
}

impl Outcome {
    /// Counts another history in.
    pub fn add(&mut self, other: &Self) {
        self.violations.extend_from_slice(&other.violations);
        self.steps += other.steps;
        self.attempts += other.attempts;
        self.holds += other.holds;
        self.promotions += other.promotions;
        self.extensions += other.extensions;
        self.turned_away += other.turned_away;
        self.handoffs += other.handoffs;
        self.yields += other.yields;
    }
}

/// Something that is going to happen.
enum Coming {
    /// A request reaches a node.
    Request {
        node: usize,
        client: usize,
        session: SessionId,
        request: Request,
        words: Rc<Vec<Vec<u8>>>,
        connection: u64,
    },
    /// A reply reaches a client.
    Reply {
        node: usize,
        client: usize,
        session: SessionId,
        request: Request,
        reply: Reply,
    },
    /// The news of a grant reaches a client.
    News {
        node: usize,
        client: usize,
        connection: u64,
        message: Vec<u8>,
    },
    /// A node looks after those who wait there.
    Attend {
        node: usize,
    },
    /// A node notices that a connection is gone.
    Closed {
        node: usize,
        connection: u64,
    },
    /// A client does something of its own accord.
    Wake {
        client: usize,
        session: SessionId,
        what: Wake,
    },
    /// A write reaches the storage.
    Write {
        client: usize,
        session: SessionId,
        key: usize,
        fence: u64,
    },
    Trouble(Trouble),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Begin,
    Patience,
    Extend,
    /// The holder looks how much time is left; the number tells the newest plan to look from older ones.
    Notice(u32),
    Write,
    Release,
    /// The call is dropped before it is answered.
    Cancel,
    /// The process ends without a word.
    Vanish,
}

#[derive(Clone, Copy, Debug)]
enum Trouble {
    /// Without its memory, or with all that it knew but who was connected and who waited.
    Crash {
        node: usize,
        down_us: u64,
        keeps_memory: bool,
    },
    Restart {
        node: usize,
        keeps_memory: bool,
    },
    Stall {
        node: usize,
        us: u64,
    },
    Cut {
        client: usize,
        node: usize,
        way: Way,
        us: u64,
    },
    Break {
        client: usize,
        node: usize,
    },
    Pause {
        client: usize,
        us: u64,
        sleeps: bool,
    },
}

struct SimNode {
    memory: MemoryNode,
    time: NodeTime,
    is_down: bool,
    stalled_until: True,
    /// Those who wait there are going to be looked after.
    is_attending: bool,
}

/// Something that is going to happen at its time. Of two at the same time the older one comes first.
struct Item {
    at: True,
    order: u64,
    coming: Coming,
}

impl PartialEq for Item {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Item {}

impl PartialOrd for Item {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Item {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

struct World<'a> {
    plan: &'a Plan,
    chance: Rng,
    now: True,
    order: u64,
    coming: BinaryHeap<Reverse<Item>>,
    quorum: Quorum,
    drift: Drift,
    nodes: Vec<SimNode>,
    clients: Vec<Client>,
    storage: Storage,
    checks: Checks,
    outcome: Outcome,
    sessions: SessionId,
    connections: u64,
    lines: Option<Vec<String>>,
}

/// Runs a history.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan, false);
    world.live();
    world.finish()
}

/// Runs a history and tells it, line by line, up to the first thing that must not be.
#[must_use]
pub fn trace(plan: &Plan) -> (Outcome, Vec<String>) {
    let mut world = World::new(plan, true);
    world.live();
    let lines = world.lines.take().unwrap_or_default();
    (world.finish(), lines)
}

impl<'a> World<'a> {
    fn new(plan: &'a Plan, tells: bool) -> Self {
        let mut chance = Rng::with_seed(plan.seed);
        let quorum = Quorum::of(plan.nodes).expect("a plan has nodes");
        let ignored = Drift::new(0.0, Duration::ZERO).expect("nothing is a share");
        let drift = if plan.weakness == Weakness::DriftIgnored { ignored } else { Drift::default() };
        let node = |number: usize, chance: &mut Rng| SimNode {
            memory: fresh_node(number, plan),
            time: NodeTime::any(chance, plan.clock_ppm),
            is_down: false,
            stalled_until: 0,
            is_attending: false,
        };
        let nodes = (0..plan.nodes).map(|number| node(number, &mut chance)).collect();
        let clients = (0..plan.clients).map(|number| Client::new(number, plan, &mut chance)).collect();
        let checks = Checks::new(plan.clocks_are_within_bounds());
        let mut world = Self {
            plan,
            chance,
            now: 0,
            order: 0,
            coming: BinaryHeap::new(),
            quorum,
            drift,
            nodes,
            clients,
            storage: Storage::default(),
            checks,
            outcome: Outcome::default(),
            sessions: 0,
            connections: (plan.clients * plan.nodes) as u64,
            lines: tells.then(Vec::new),
        };
        world.prepare();
        world
    }

    /// Lays out what the clients and the world are up to.
    fn prepare(&mut self) {
        for client in 0..self.plan.clients {
            let at = self.chance.u64(0..2_000);
            self.schedule(at, Coming::Wake { client, session: 0, what: Wake::Begin });
        }
        let ttl_us = self.plan.ttl_ms * 1_000;
        let plan = self.plan;
        for _ in 0..plan.crashes {
            let (node, down_us) = (self.any_node(), self.chance.u64(0..ttl_us));
            // Where a rule is left out, every crash is one that the rule is there for.
            let keeps_memory = down_us % 3 == 0 && plan.weakness == Weakness::None;
            self.trouble(Trouble::Crash { node, down_us, keeps_memory });
        }
        for _ in 0..plan.stalls {
            let (node, us) = (self.any_node(), self.chance.u64(0..2 * ttl_us));
            self.trouble(Trouble::Stall { node, us });
        }
        for _ in 0..plan.cuts {
            let (client, node, us) = (self.any_client(), self.any_node(), self.chance.u64(0..3 * ttl_us));
            let ways: &[Way] =
                [&[Way::There][..], &[Way::Back], &[Way::There, Way::Back]][self.chance.usize(0..3)];
            for way in ways {
                self.trouble(Trouble::Cut { client, node, way: *way, us });
            }
        }
        for _ in 0..plan.breaks {
            let (client, node) = (self.any_client(), self.any_node());
            self.trouble(Trouble::Break { client, node });
        }
        for _ in 0..plan.pauses {
            let (client, us) = (self.any_client(), self.chance.u64(0..3 * ttl_us));
            let sleeps = self.chance.bool();
            self.trouble(Trouble::Pause { client, us, sleeps });
        }
    }

    fn any_node(&mut self) -> usize {
        self.chance.usize(0..self.plan.nodes)
    }

    fn any_client(&mut self) -> usize {
        self.chance.usize(0..self.plan.clients)
    }

    fn trouble(&mut self, trouble: Trouble) {
        let at = self.chance.u64(0..self.plan.horizon_ms * 1_000);
        self.schedule(at, Coming::Trouble(trouble));
    }

    fn schedule(&mut self, at: True, coming: Coming) {
        self.order += 1;
        self.coming.push(Reverse(Item { at: at.max(self.now), order: self.order, coming }));
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (ms, us) = (self.now / 1_000, self.now % 1_000);
            lines.push(format!("{ms:6}.{us:03} ms  {}", line()));
        }
    }

    /// Lets everything happen, until nothing is left or something must not be.
    fn live(&mut self) {
        while let Some(Reverse(item)) = self.coming.pop() {
            self.now = item.at;
            self.outcome.steps += 1;
            self.happen(item.coming);
            if !self.checks.violations.is_empty() {
                let found = self.checks.violations.clone();
                self.tell(|| format!("VIOLATION {found:?}"));
                return;
            }
        }
        self.afterwards();
    }

    fn finish(mut self) -> Outcome {
        self.outcome.violations = std::mem::take(&mut self.checks.violations);
        self.outcome
    }

    fn happen(&mut self, coming: Coming) {
        match coming {
            Coming::Request { node, client, session, request, words, connection } => {
                self.request_arrives(node, client, session, request, words, connection);
            }
            Coming::Reply { node, client, session, request, reply } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Reply { node, client, session, request, reply });
                }
                self.reply_arrives(node, client, session, request, reply);
            }
            Coming::News { node, client, connection, message } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::News { node, client, connection, message });
                }
                self.news_arrives(node, client, connection, &message);
            }
            Coming::Attend { node } => {
                self.nodes[node].is_attending = false;
                if !self.nodes[node].is_down && self.now >= self.nodes[node].stalled_until {
                    let sim = &mut self.nodes[node];
                    sim.memory.sweep(sim.time.at(self.now));
                }
                self.attend(node);
            }
            Coming::Closed { node, connection } => {
                let sim = &mut self.nodes[node];
                sim.memory.close(connection, sim.time.at(self.now));
                self.attend(node);
            }
            Coming::Wake { client, session, what } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Wake { client, session, what });
                }
                self.wake(client, session, what);
            }
            Coming::Write { client, session, key, fence } => self.write_arrives(client, session, key, fence),
            Coming::Trouble(trouble) => self.strike(trouble),
        }
    }

    fn strike(&mut self, trouble: Trouble) {
        self.tell(|| format!("{trouble:?}"));
        let now = self.now;
        match trouble {
            Trouble::Crash { node, down_us, keeps_memory } => {
                self.nodes[node].is_down = true;
                self.schedule(now + down_us, Coming::Trouble(Trouble::Restart { node, keeps_memory }));
            }
            Trouble::Restart { node, keeps_memory } => {
                let sim = &mut self.nodes[node];
                sim.is_down = false;
                let at = sim.time.at(now);
                match self.plan.weakness {
                    _ if keeps_memory => {
                        for client in &self.clients {
                            sim.memory.close(client.connections[node].id, at);
                        }
                    }
                    Weakness::FencesForgotten => {
                        let wait_ms = sim.memory.node().ledger().quarantine_ms();
                        sim.memory = fresh_node(node, self.plan);
                        sim.memory.node_mut().quarantine(wait_ms, &mut { at });
                    }
                    Weakness::NoQuarantine => {
                        sim.memory.crash(at);
                        sim.memory.node_mut().end_quarantine();
                    }
                    _ => sim.memory.crash(at),
                }
                sim.memory.node_mut().set_claim_window_ms(self.plan.claim_ms);
                // Whoever was connected is not any more.
                for client in 0..self.plan.clients {
                    self.reconnect(client, node);
                }
            }
            Trouble::Stall { node, us } => self.nodes[node].stalled_until = now + us,
            Trouble::Cut { client, node, way, us } => {
                self.clients[client].connections[node].cut(way, now + us)
            }
            Trouble::Break { client, node } => {
                let old = self.clients[client].connections[node].id;
                let at = now + self.chance.u64(0..self.plan.ttl_ms * 500);
                self.schedule(at, Coming::Closed { node, connection: old });
                if self.plan.weakness == Weakness::TakenBackAtOnce {
                    self.take_back(client, node);
                }
                self.reconnect(client, node);
            }
            Trouble::Pause { client, us, sleeps } => {
                let client = &mut self.clients[client];
                client.paused_until = client.paused_until.max(now + us);
                if let Some(active) = &mut client.active {
                    active.has_paused = true;
                }
                if sleeps {
                    client.clock.slept(us);
                }
            }
        }
    }

    fn request_arrives(
        &mut self,
        node: usize,
        client: usize,
        session: SessionId,
        request: Request,
        words: Rc<Vec<Vec<u8>>>,
        connection: u64,
    ) {
        let sim = &mut self.nodes[node];
        if sim.is_down {
            return;
        }
        if self.now < sim.stalled_until {
            let at = sim.stalled_until;
            return self.schedule(at, Coming::Request { node, client, session, request, words, connection });
        }
        let argv: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let said = sim.memory.execute(&argv, connection, sim.time.at(self.now));
        let reply = reply_of(said);
        self.attend(node);
        self.tell(|| {
            format!("node {node} ← client {client}, session {session}: {:?} → {reply:?}", request.ask)
        });
        // A reply goes back on the connection that asked; on one that is gone it gets nowhere.
        let back = &mut self.clients[client].connections[node];
        if back.id != connection {
            return;
        }
        if let Some(at) = back.arrival(Way::Back, self.now, self.plan, &mut self.chance) {
            self.schedule(at, Coming::Reply { node, client, session, request, reply });
        }
    }

    fn send(&mut self, client: usize, request: Request, to: NodeSet) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        if let Ask::Wait { line, .. } = request.ask {
            active.rounds.push((line.stamp, request.sent));
        }
        let (session, names) = (active.id, active.keys.iter().map(|key| name(*key)).collect::<Vec<_>>());
        let words = request.with_words(&names, active.owner.as_bytes(), b"", |words| {
            Rc::new(words.iter().map(|word| word.to_vec()).collect::<Vec<_>>())
        });
        self.tell(|| format!("client {client}, session {session} asks {:?}: {:?}", to, request.ask));
        let patience_us = (self.plan.ttl_ms / 4).max(20) * 1_000;
        for node in to.iter() {
            let way = &mut self.clients[client].connections[node];
            let connection = way.id;
            if let Some(at) = way.arrival(Way::There, self.now, self.plan, &mut self.chance) {
                let words = Rc::clone(&words);
                self.schedule(at, Coming::Request { node, client, session, request, words, connection });
            }
            if self.chance.u32(0..1000) < self.plan.repeated {
                let at = self.now + delay(self.plan, &mut self.chance) * self.chance.u64(1..50);
                self.connections += 1;
                let (words, connection) = (Rc::clone(&words), self.connections);
                self.schedule(at, Coming::Request { node, client, session, request, words, connection });
            }
            if !request.is_release() {
                let reply = Reply::Failed(Failure::new(FailureKind::Silent, ""));
                self.schedule(
                    self.now + patience_us,
                    Coming::Reply { node, client, session, request, reply },
                );
            }
        }
    }

    fn write_arrives(&mut self, client: usize, session: SessionId, key: usize, fence: u64) {
        let was_valid = self.clients[client].believes_in(key, self.now) == Some(session);
        let was_taken =
            self.storage.write(key, fence, session) || self.plan.weakness == Weakness::FencesUnchecked;
        self.outcome.turned_away += u64::from(!was_taken);
        let verdict = if was_taken { "taken" } else { "turned away" };
        self.tell(|| format!("a write of session {session} to {key} with fence {fence} is {verdict}"));
        self.checks.wrote(key, fence, was_taken, was_valid);
    }
}

/// A node as a history begins with it.
fn fresh_node(number: usize, plan: &Plan) -> MemoryNode {
    let mut memory = MemoryNode::new(&format!("{number:040}"));
    memory.node_mut().set_claim_window_ms(plan.claim_ms);
    memory
}

fn reply_of(said: Result<NodeReply, Fault>) -> Reply {
    match said {
        Ok(NodeReply::Integer(number)) => Reply::Number(number),
        Ok(NodeReply::Queued { position, ticket, .. }) => Reply::Queued { position, ticket },
        Ok(_) => Reply::Nil,
        Err(Fault::Quarantine { left_ms }) => Reply::Quarantined { left: Duration::from_millis(left_ms) },
        Err(fault) => Reply::Failed(Failure::new(FailureKind::Rejected, fault.to_string())),
    }
}
