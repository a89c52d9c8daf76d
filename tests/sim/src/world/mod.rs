//! What happens next, until nothing does.

mod aftermath;
mod conduct;
mod line;
mod trouble;

use super::Weakness;
use super::checks::{Checks, SessionId};
use super::client::{Client, name};
use super::clocks::{NodeTime, True};
use super::network::{Way, delay};
use super::outcome::Outcome;
use super::plan::Plan;
use super::storage::Storage;
use fastrand::Rng;
use redlock_core::{Fault, MemoryNode, Reply as NodeReply};
use redlock_proto::{Ask, Drift, Failure, FailureKind, NodeSet, Quorum, Reply, Request};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;
use trouble::Trouble;

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
    /// A client hears the news of a node again.
    Listening {
        node: usize,
        client: usize,
        connection: u64,
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

struct SimNode {
    memory: MemoryNode,
    time: NodeTime,
    is_down: bool,
    stalled_until: True,
    /// Those who wait there are going to be looked after.
    is_attending: bool,
    /// When anything last gave somebody time under a key.
    touched: Vec<True>,
}

impl SimNode {
    fn new(number: usize, plan: &Plan, chance: &mut Rng) -> Self {
        Self {
            memory: fresh_node(number, plan),
            time: NodeTime::any(chance, plan.clock_ppm),
            is_down: false,
            stalled_until: 0,
            is_attending: false,
            touched: vec![0; plan.keys],
        }
    }
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
        let nodes = (0..plan.nodes).map(|number| SimNode::new(number, plan, &mut chance)).collect();
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
        self.lay_out_troubles();
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
        self.outcome.turns = self.checks.turns;
        self.outcome.orderly = u64::from(self.checks.turns > 0);
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
            Coming::Listening { node, client, connection } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Listening { node, client, connection });
                }
                self.listens_again(node, client, connection);
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
                // What is down does nothing, and forgets who was connected; what stands still finds out later.
                if sim.is_down {
                    return;
                }
                if self.now < sim.stalled_until {
                    let at = sim.stalled_until;
                    return self.schedule(at, Coming::Closed { node, connection });
                }
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
        if !request.is_release() {
            // Whatever it has got, it has got by now; a name is one letter.
            let keys =
                sim.touched.iter_mut().enumerate().filter(|(key, _)| words.contains(&name(*key).to_vec()));
            keys.for_each(|(_, touched)| *touched = self.now);
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
        } else {
            self.outcome.count("reply lost");
        }
    }

    fn send(&mut self, client: usize, request: Request, to: NodeSet) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        if let Ask::Wait { line, .. } = request.ask {
            active.rounds.push((line.stamp, request.sent));
        }
        let (session, names) = (active.id, active.keys.iter().map(|key| name(*key)).collect::<Vec<_>>());
        let mut asked = request;
        if self.plan.weakness == Weakness::LivesTooLong {
            asked.ttl *= 100;
        }
        let words = asked.with_words(&names, active.owner.as_bytes(), b"", |words| {
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
            } else {
                self.outcome.count("request lost");
            }
            if self.chance.u32(0..1000) < self.plan.repeated {
                self.outcome.count("request repeated");
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
