//! The event loop of a history.

mod aftermath;
mod conduct;
mod fault;
mod line;
mod operator;
mod replica;
mod start;

use super::Weakness;
use super::checks::{Checks, SessionId};
use super::client::{Client, name};
use super::clocks::{NodeTime, TrueTime};
use super::disk::Machine;
use super::identity::Known;
use super::network::{LinkDirection, delay};
use super::outcome::Outcome;
use super::plan::Plan;
use super::storage::Storage;
use fastrand::Rng;
use fault::Fault;
use operator::Admission;
use redlock_contract::HighWater;
use redlock_core::durable::{DurableState, HIGH_WATER_STEP};
use redlock_core::{CommandError, MemoryNode, NodeHost, Reply};
use redlock_proto::{Ask, Drift, Failure, FailureKind, LockMode, LockReply, NodeSet, Quorum, Request};
use replica::Replica;
use start::Backup;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::time::Duration;

/// A scheduled event. `node` is an index in the group; clients use it as the address; the server behind it
/// may change.
enum Coming {
    /// A request reaches the server that its client uses as the node.
    Request {
        node: usize,
        server: usize,
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
        reply: LockReply,
    },
    /// A push with a grant reaches a client.
    Push {
        node: usize,
        client: usize,
        connection: u64,
        message: Vec<u8>,
    },
    /// A client receives the pushes of a node again.
    Listening {
        node: usize,
        client: usize,
        connection: u64,
    },
    /// A server serves its waiters.
    Attend {
        server: usize,
    },
    /// A server detects that a connection is closed.
    Closed {
        server: usize,
        connection: u64,
    },
    /// A replica receives an effect of its master.
    Effect {
        replica: usize,
        words: Vec<Vec<u8>>,
    },
    /// A client uses another server as a node, or reconnects: to the node's own server if `server` is `None`.
    Move {
        client: usize,
        node: usize,
        server: Option<usize>,
    },
    /// An operator takes the next step of an admission.
    Admission(Admission),
    /// The periodic timer of a server runs.
    Cron {
        server: usize,
    },
    /// A client does something by itself.
    Wake {
        client: usize,
        session: SessionId,
        what: Wake,
    },
    /// A write, or a read of a client that shares the lock, reaches the storage.
    Access {
        client: usize,
        session: SessionId,
        key: usize,
        fence: u64,
        mode: LockMode,
    },
    Fault(Fault),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Begin,
    Patience,
    Extend,
    /// The holder checks the remaining validity; the number distinguishes the newest scheduled check from
    /// older ones.
    Notice(u32),
    Write,
    Release,
    /// The caller drops the call before it returns.
    Cancel,
    /// The process ends without a release.
    Vanish,
}

/// A server: a node of the group, or a replica.
struct SimNode {
    /// The index of the node that it is, or replicates.
    node: usize,
    memory: MemoryNode<Machine>,
    time: NodeTime,
    is_down: bool,
    /// The server was stopped for good.
    is_gone: bool,
    /// An older copy of its files.
    backup: Option<Backup>,
    stalled_until: TrueTime,
    /// A sweep for its waiters is scheduled.
    is_attending: bool,
    /// The latest time at which a command gave a lease under each key.
    touched: Vec<TrueTime>,
}

impl SimNode {
    fn new(node: usize, mut state: DurableState, plan: &Plan, chance: &mut Rng) -> Self {
        let time = NodeTime::any(chance, plan.clock_ppm);
        // The first start of a node: it has granted no fence yet.
        (state.incarnation, state.high_water) = (1, HighWater::new(HIGH_WATER_STEP));
        let mut machine = Machine::new(plan.weakness);
        machine.store(&state).expect("a store on a new disk succeeds");
        let mut memory = MemoryNode::hosted(state, machine);
        memory.node_mut().set_claim_window_ms(plan.claim_ms);
        let longest_ms = plan.longest_ms() * if plan.weakness == Weakness::LivesTooLong { 100 } else { 1 };
        memory.node_mut().set_max_ttl_ms(longest_ms.max(10));
        Self {
            node,
            memory,
            time,
            is_down: false,
            is_gone: false,
            backup: None,
            stalled_until: 0,
            is_attending: false,
            touched: vec![0; plan.keys],
        }
    }
}

/// An event with its time. Of two events at the same time the older one comes first.
struct Item {
    at: TrueTime,
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
    now: TrueTime,
    order: u64,
    coming: BinaryHeap<Reverse<Item>>,
    quorum: Quorum,
    drift: Drift,
    /// All servers: first one for each node, then replicas.
    servers: Vec<SimNode>,
    /// The server of each node.
    current: Vec<usize>,
    /// The lost nodes that an operator is about to replace.
    vacant: NodeSet,
    /// The vacant nodes that run with older files and do not know it.
    set_back: NodeSet,
    replicas: Vec<Option<Replica>>,
    clients: Vec<Client>,
    storage: Storage,
    checks: Checks,
    outcome: Outcome,
    sessions: SessionId,
    connections: u64,
    /// How many node ids were created.
    ids: u64,
    lines: Option<Vec<String>>,
}

/// Runs a history.
#[must_use]
pub fn run(plan: &Plan) -> Outcome {
    let mut world = World::new(plan, false);
    world.live();
    world.finish()
}

/// Runs a history and returns its log, up to the first broken invariant.
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
        let ignored = Drift::new(0.0, Duration::ZERO).expect("zero is a valid share");
        let drift = if plan.weakness == Weakness::DriftIgnored { ignored } else { Drift::default() };
        let state = |node: usize| DurableState::new(id_of(node as u64), 1 + node as u64);
        let servers: Vec<_> =
            (0..plan.nodes).map(|node| SimNode::new(node, state(node), plan, &mut chance)).collect();
        let known: Vec<_> = servers.iter().map(|server| Known::of(server.memory.node().state())).collect();
        let client = |number| Client::new(number, plan, known.clone(), &mut chance);
        let clients = (0..plan.clients).map(client).collect();
        let checks = Checks::new(plan.clocks_are_within_bounds());
        let mut world = Self {
            plan,
            chance,
            now: 0,
            order: 0,
            coming: BinaryHeap::new(),
            quorum,
            drift,
            servers,
            current: (0..plan.nodes).collect(),
            vacant: NodeSet::EMPTY,
            set_back: NodeSet::EMPTY,
            replicas: (0..plan.nodes).map(|_| None).collect(),
            clients,
            storage: Storage::default(),
            checks,
            outcome: Outcome { histories: 1, ..Outcome::default() },
            sessions: 0,
            connections: (plan.clients * plan.nodes) as u64,
            ids: plan.nodes as u64,
            lines: tells.then(Vec::new),
        };
        world.prepare();
        world
    }

    /// Schedules the first actions of the clients, and the faults.
    fn prepare(&mut self) {
        for client in 0..self.plan.clients {
            let at = self.chance.u64(0..2_000);
            self.schedule(at, Coming::Wake { client, session: 0, what: Wake::Begin });
        }
        self.schedule_faults();
    }

    fn schedule(&mut self, at: TrueTime, coming: Coming) {
        self.order += 1;
        self.coming.push(Reverse(Item { at: at.max(self.now), order: self.order, coming }));
    }

    fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (ms, us) = (self.now / 1_000, self.now % 1_000);
            lines.push(format!("{ms:6}.{us:03} ms  {}", line()));
        }
    }

    /// Runs all events, until none is left or an invariant is broken.
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
            Coming::Request { node, server, client, session, request, words, connection } => {
                self.request_arrives(node, server, client, session, request, words, connection);
            }
            Coming::Reply { node, client, session, request, reply } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Reply { node, client, session, request, reply });
                }
                self.reply_arrives(node, client, session, request, reply);
            }
            Coming::Push { node, client, connection, message } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Push { node, client, connection, message });
                }
                self.push_arrives(node, client, connection, &message);
            }
            Coming::Listening { node, client, connection } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Listening { node, client, connection });
                }
                self.listens_again(node, client, connection);
            }
            Coming::Attend { server } => {
                self.servers[server].is_attending = false;
                if !self.servers[server].is_down && self.now >= self.servers[server].stalled_until {
                    let sim = &mut self.servers[server];
                    sim.memory.sweep(sim.time.at(self.now));
                }
                self.attend(server);
            }
            Coming::Closed { server, connection } => {
                let sim = &mut self.servers[server];
                // A server that is down does nothing, and forgets its connections; a stalled server continues
                // later.
                if sim.is_down {
                    return;
                }
                if self.now < sim.stalled_until {
                    let at = sim.stalled_until;
                    return self.schedule(at, Coming::Closed { server, connection });
                }
                sim.memory.close(connection, sim.time.at(self.now));
                self.attend(server);
            }
            Coming::Effect { replica, words } => self.follow_master(replica, &words),
            Coming::Move { client, node, server } => self.move_client(client, node, server),
            Coming::Admission(admission) => self.go_on_with(admission),
            Coming::Cron { server } => self.cron(server),
            Coming::Wake { client, session, what } => {
                let until = self.clients[client].paused_until;
                if self.now < until {
                    return self.schedule(until, Coming::Wake { client, session, what });
                }
                self.wake(client, session, what);
            }
            Coming::Access { client, session, key, fence, mode } => {
                self.access_arrives(client, session, key, fence, mode);
            }
            Coming::Fault(fault) => self.inject(fault),
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one message")]
    fn request_arrives(
        &mut self,
        node: usize,
        server: usize,
        client: usize,
        session: SessionId,
        request: Request,
        words: Rc<Vec<Vec<u8>>>,
        connection: u64,
    ) {
        let sim = &mut self.servers[server];
        if sim.is_down {
            return;
        }
        if self.now < sim.stalled_until {
            let at = sim.stalled_until;
            let again = Coming::Request { node, server, client, session, request, words, connection };
            return self.schedule(at, again);
        }
        if !request.is_release() {
            // The request has been granted by now, if ever. The name of a key is one letter.
            let keys =
                sim.touched.iter_mut().enumerate().filter(|(key, _)| words.contains(&name(*key).to_vec()));
            keys.for_each(|(_, touched)| *touched = self.now);
        }
        let argv: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let node_reply = sim.memory.execute(&argv, connection, sim.time.at(self.now));
        let reply = lock_reply(node_reply);
        if self.has_died_in_a_store(server) {
            return;
        }
        self.attend(server);
        self.tell(|| {
            format!(
                "{} ← client {client}, session {session}: {:?} → {reply:?}",
                place(node, server),
                request.ask
            )
        });
        // A reply returns on the connection of the request; if that connection is closed, the reply is lost.
        let back = &mut self.clients[client].connections[node];
        if back.id != connection {
            return;
        }
        if let Some(at) = back.arrival(LinkDirection::ToClient, self.now, self.plan, &mut self.chance) {
            self.schedule(at, Coming::Reply { node, client, session, request, reply });
        } else {
            self.outcome.count("reply lost");
        }
    }

    fn send(&mut self, client: usize, request: Request, to: NodeSet) {
        let Some(active) = self.clients[client].active.as_mut() else { return };
        if let Ask::Wait { queue, .. } = request.ask {
            active.rounds.push((queue.stamp, request.sent));
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
            if self.clients[client].refused.contains(node) {
                let reply = LockReply::Failed(Failure::new(FailureKind::Down, ""));
                self.outcome.count("node refused");
                self.schedule(self.now + 1, Coming::Reply { node, client, session, request, reply });
                continue;
            }
            let server = self.clients[client].servers[node];
            let way = &mut self.clients[client].connections[node];
            let connection = way.id;
            if let Some(at) = way.arrival(LinkDirection::ToNode, self.now, self.plan, &mut self.chance) {
                let words = Rc::clone(&words);
                let coming = Coming::Request { node, server, client, session, request, words, connection };
                self.schedule(at, coming);
            } else {
                self.outcome.count("request lost");
            }
            if self.chance.u32(0..1000) < self.plan.repeated {
                self.outcome.count("request repeated");
                let at = self.now + delay(self.plan, &mut self.chance) * self.chance.u64(1..50);
                self.connections += 1;
                let (words, connection) = (Rc::clone(&words), self.connections);
                let coming = Coming::Request { node, server, client, session, request, words, connection };
                self.schedule(at, coming);
            }
            if !request.is_release() {
                let reply = LockReply::Failed(Failure::new(FailureKind::Silent, ""));
                self.schedule(
                    self.now + patience_us,
                    Coming::Reply { node, client, session, request, reply },
                );
            }
        }
    }

    fn access_arrives(&mut self, client: usize, session: SessionId, key: usize, fence: u64, mode: LockMode) {
        let was_valid = self.clients[client].believes_in(key, self.now) == Some(session);
        let passes = match mode {
            LockMode::Exclusive => self.storage.write(key, fence, session),
            LockMode::Shared => self.storage.read(key, fence),
        };
        let was_taken = passes || self.plan.weakness == Weakness::FencesUnchecked;
        self.outcome.turned_away += u64::from(!was_taken);
        let verdict = if was_taken { "accepted" } else { "rejected" };
        self.tell(|| format!("an access of session {session} to {key} with fence {fence} is {verdict}"));
        match mode {
            LockMode::Exclusive => self.checks.wrote(key, fence, was_taken, was_valid),
            LockMode::Shared => self.checks.read(key, fence, was_taken, was_valid),
        }
    }
}

/// A node id.
fn id_of(number: u64) -> String {
    format!("{number:040x}")
}

/// The name of a server in a log.
fn place(node: usize, server: usize) -> String {
    if node == server { format!("node {node}") } else { format!("node {node} (server {server})") }
}

fn lock_reply(node_reply: Result<Reply, CommandError>) -> LockReply {
    match node_reply {
        Ok(Reply::Integer(number)) => LockReply::Number(number),
        Ok(Reply::Queued { position, ticket, .. }) => LockReply::Queued { position, ticket },
        Ok(_) => LockReply::Nil,
        Err(CommandError::Quarantine { left_ms }) => {
            LockReply::Quarantined { left: Duration::from_millis(left_ms) }
        }
        Err(fault) => LockReply::Failed(Failure::rejected(fault.to_string())),
    }
}
