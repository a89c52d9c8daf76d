//! Replicas: they follow a node with a delay, lose the connection to it, or are promoted.

use super::fault::Fault;
use super::start::{End, Kept};
use super::{Coming, SimNode, World, id_of};
use crate::Weakness;
use crate::clocks::TrueTime;
use crate::network::delay;
use redlock_contract::drift::with_drift;
use redlock_contract::{HighWater, NonVoting};
use redlock_core::NodeHost;
use redlock_core::durable::{DurableState, HIGH_WATER_STEP};
use redlock_core::fence::Stripes;

/// The replica of a node.
pub(super) struct Replica {
    server: usize,
    /// The longest replication delay, in microseconds.
    lag_us: u64,
    /// Effects from this time on are lost.
    cut_from: TrueTime,
    last: TrueTime,
}

/// How a replica becomes a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Promotion {
    /// After the old master has died.
    OldIsDead,
    /// While the old master lives.
    OldLives,
    /// The replica is shut down cleanly and started as a master.
    Restart,
}

/// How far the fences of a promoted replica leap with `Weakness::LeapAfterPromotion`.
const LEAP: u64 = 1 << 40;

impl Replica {
    /// Whether this is the server of the replica.
    pub(super) fn is(&self, server: usize) -> bool {
        self.server == server
    }
}

impl World<'_> {
    /// Gives a node a replica, unless it has one.
    pub(super) fn attach_replica(&mut self, node: usize) {
        if self.replicas[node].is_some() {
            return;
        }
        self.ids += 1;
        let mut state = DurableState::new(id_of(self.ids), self.ids);
        state.non_voting = Some(NonVoting::Replica);
        let server = self.servers.len();
        self.servers.push(SimNode::new(node, state, self.plan, &mut self.chance));
        self.servers[node].memory.host_mut().effects = Some(Vec::new());
        let ttl_us = self.plan.ttl_ms * 1_000;
        let lag_us = [1_000, ttl_us / 2, 3 * ttl_us][self.chance.usize(0..3)];
        let is_cut = self.chance.u32(0..3) == 0;
        let cut_from = if is_cut { self.chance.u64(0..self.plan.horizon_ms * 1_000) } else { TrueTime::MAX };
        self.replicas[node] = Some(Replica { server, lag_us, cut_from, last: 0 });
    }

    /// Sends the effects of a node to its replica, if it has one.
    pub(super) fn replicate(&mut self, server: usize) {
        let sim = &mut self.servers[server];
        let Some(effects) = sim.memory.host_mut().effects.as_mut().map(std::mem::take) else { return };
        let Some(replica) = &mut self.replicas[sim.node] else { return };
        if self.now >= replica.cut_from {
            return;
        }
        let mut coming = Vec::new();
        for words in effects {
            let lag_us = delay(self.plan, &mut self.chance) + self.chance.u64(0..=replica.lag_us);
            replica.last = (self.now + lag_us).max(replica.last + 1);
            coming.push((replica.last, Coming::Effect { replica: replica.server, words }));
        }
        coming.into_iter().for_each(|(at, coming)| self.schedule(at, coming));
    }

    /// A replica receives an effect of its master. A promoted replica ignores it.
    pub(super) fn follow_master(&mut self, replica: usize, words: &[Vec<u8>]) {
        let sim = &mut self.servers[replica];
        if self.current[sim.node] == replica {
            return;
        }
        let argv: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        sim.touched.fill(self.now);
        sim.memory.follow(&argv, sim.time.at(self.now)).expect("a replica follows its master");
    }

    /// Promotes the replica of a node, if the group can do without the node meanwhile.
    pub(super) fn promote(&mut self, node: usize, how: Promotion) {
        if self.vacant.contains(node) || !self.can_lose(node) {
            return;
        }
        let Some(replica) = self.replicas[node].take() else { return };
        let (server, old) = (replica.server, std::mem::replace(&mut self.current[node], replica.server));
        self.outcome.count(match how {
            Promotion::OldIsDead => "promotion after a death",
            Promotion::OldLives => "promotion beside the old master",
            Promotion::Restart => "replica started as a master",
        });
        self.tell(|| format!("server {server} is promoted to node {node}: {how:?}"));
        self.servers[old].memory.host_mut().effects = None;
        for client in 0..self.plan.clients {
            if how == Promotion::OldIsDead || self.chance.bool() {
                self.move_soon(client, node);
            }
        }
        if how == Promotion::OldIsDead {
            self.stop_for_good(old);
        }
        if how == Promotion::Restart {
            if self.chance.bool() {
                self.stop_for_good(old);
            }
            let data = self.data_of(server, Kept::Saved);
            self.end_server(server, End::Shutdown);
            let at = self.now + self.chance.u64(0..self.plan.ttl_ms * 200);
            self.schedule(at, Coming::Fault(Fault::Restart { server, data }));
        }
        if self.plan.weakness.promoted_votes() {
            self.vote_unadmitted(server);
        } else {
            self.vacate(node);
        }
    }

    /// A deliberate bug: a promoted replica votes with what it has received.
    fn vote_unadmitted(&mut self, server: usize) {
        let longest_ms = self.plan.longest_ms();
        let sim = &mut self.servers[server];
        if self.plan.weakness == Weakness::RestartedReplicaVotes {
            return;
        }
        let mut state = sim.memory.node().state().clone();
        let above = HighWater::new(state.high_water.highest() + LEAP);
        let wait_ms = match self.plan.weakness {
            Weakness::PromotedWaitsForHeardLeases => state.quarantine_ms(),
            _ => with_drift(longest_ms),
        };
        state.non_voting = None;
        state.high_water = above.plus(HIGH_WATER_STEP);
        sim.memory.host_mut().store(&state).expect("no store of a replica is torn");
        let mut at = sim.time.at(self.now);
        sim.memory.node_mut().set_state(state);
        sim.memory.node_mut().stripes_mut().raise_to(Stripes::above(&above));
        sim.memory.node_mut().quarantine(wait_ms, &mut at);
    }

    /// Stops a server for good. Its clients look for the node elsewhere.
    pub(super) fn stop_for_good(&mut self, server: usize) {
        let sim = &mut self.servers[server];
        let node = sim.node;
        (sim.is_gone, sim.is_down) = (true, true);
        for client in 0..self.plan.clients {
            if self.clients[client].servers[node] == server {
                self.move_soon(client, node);
            }
        }
    }

    /// Schedules that a client looks up the server of a node.
    pub(super) fn move_soon(&mut self, client: usize, node: usize) {
        let at = self.now + self.chance.u64(0..self.plan.ttl_ms * 500);
        self.schedule(at, Coming::Move { client, node, server: None });
    }
}
