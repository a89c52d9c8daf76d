//! The operator, who admits a new node in place of a lost one.
//!
//! A lock with the vote of the lost node has the votes of a quorum. So in any quorum of the other nodes, at
//! least one knows its fence, once its holder has it. The operator stops the lost node, asks a quorum of the
//! others for the longest lease that they allow, and waits that long: a request that the lost node has
//! granted may still be in flight to the others, and its sender becomes a holder until its lease from the
//! lost node ends. Then the operator asks a quorum for their high-water marks, and admits the new node above
//! the largest mark of each stripe. Marks that are read before the wait do not contain the fences of such
//! late holders.

use super::start::{End, Kept};
use super::{Coming, World};
use crate::Weakness;
use crate::network::delay;
use redlock_contract::HighWater;
use redlock_contract::drift::with_drift;
use redlock_core::Reply;
use redlock_proto::NodeSet;

/// An admission in progress.
#[derive(Clone, Debug)]
pub(super) struct Admission {
    node: usize,
    /// The nodes that have answered in this round of questions.
    asked: NodeSet,
    floor: HighWater,
    wait_ms: u64,
    has_waited: bool,
}

impl Admission {
    fn of(node: usize) -> Self {
        Self { node, asked: NodeSet::EMPTY, floor: HighWater::default(), wait_ms: 0, has_waited: false }
    }
}

impl World<'_> {
    /// Whether the group can lose this node as well and still admit all lost nodes.
    pub(super) fn can_lose(&self, node: usize) -> bool {
        self.vacant.contains(node) || self.plan.nodes > self.vacant.len() + self.quorum.needed()
    }

    /// Marks a node as lost and starts its admission.
    pub(super) fn vacate(&mut self, node: usize) {
        if self.vacant.contains(node) {
            return;
        }
        self.vacant.insert(node);
        let at = self.now + self.chance.u64(0..self.plan.ttl_ms * 2_000);
        self.schedule(at, Coming::Admission(Admission::of(node)));
    }

    /// Takes the next step of an admission.
    pub(super) fn go_on_with(&mut self, mut admission: Admission) {
        let node = admission.node;
        self.stop_others(node);
        if self.set_back.contains(node) {
            return self.start_anew(admission);
        }
        let enough = match self.plan.weakness {
            Weakness::AdmittedAboveOneNode => 1,
            _ => self.quorum.needed(),
        };
        if admission.asked.len() < enough {
            self.ask_another(&mut admission);
        } else if !admission.has_waited {
            return self.wait(admission);
        } else if self.admit(&admission) {
            return;
        }
        // An operator would continue, but the history must end.
        let longest_ms = self.plan.horizon_ms + 20 * self.plan.longest_ms();
        if self.now < longest_ms * 1_000 {
            let pause = delay(self.plan, &mut self.chance) + self.chance.u64(0..self.plan.ttl_ms * 50);
            self.schedule(self.now + pause, Coming::Admission(admission));
        }
    }

    /// Waits until the promises of the lost node have expired, and asks the others again then.
    fn wait(&mut self, mut admission: Admission) {
        admission.has_waited = true;
        if self.plan.weakness != Weakness::AdmittedAboveEarlierMarks {
            (admission.asked, admission.floor) = (NodeSet::EMPTY, HighWater::default());
        }
        let at = self.now + with_drift(admission.wait_ms) * 1_000;
        self.schedule(at, Coming::Admission(admission));
    }

    /// Stops every other server of a node.
    fn stop_others(&mut self, node: usize) {
        if self.plan.weakness == Weakness::AdmittedBesideOld {
            return;
        }
        let is_other = |server: &usize| {
            let sim = &self.servers[*server];
            let is_replica = self.replicas[node].as_ref().is_some_and(|replica| replica.is(*server));
            sim.node == node && *server != self.current[node] && !sim.is_gone && !is_replica
        };
        let others: Vec<usize> = (0..self.servers.len()).filter(is_other).collect();
        others.into_iter().for_each(|server| self.stop_for_good(server));
    }

    /// Restarts a node that runs with older files, without its state file. Then it does not claim to be the
    /// old node.
    fn start_anew(&mut self, admission: Admission) {
        let server = self.current[admission.node];
        if !self.servers[server].is_down {
            self.set_back.remove(admission.node);
            let data = self.data_of(server, Kept::Saved);
            self.end_server(server, End::Kill);
            self.servers[server].memory.host_mut().disk.remove();
            self.start_server(server, data);
        }
        self.schedule(self.now + self.plan.ttl_ms * 10, Coming::Admission(admission));
    }

    /// Asks one more node, if a node that has not answered can be reached.
    fn ask_another(&mut self, admission: &mut Admission) {
        let can_be_asked = |node: &usize| {
            let sim = &self.servers[self.current[*node]];
            let is_member = *node != admission.node && !self.vacant.contains(*node);
            is_member && !admission.asked.contains(*node) && !sim.is_down && self.now >= sim.stalled_until
        };
        let others: Vec<usize> = (0..self.plan.nodes).filter(can_be_asked).collect();
        if others.is_empty() {
            return;
        }
        let other = others[self.chance.usize(0..others.len())];
        let sim = &self.servers[self.current[other]];
        let node = sim.memory.node();
        let wait_ms = match self.plan.weakness {
            Weakness::AdmittedAfterKnownLeases => self.longest_known(self.current[other]),
            _ => node.max_ttl_ms(),
        };
        admission.asked.insert(other);
        let marks = &node.state().high_water;
        match self.plan.weakness {
            Weakness::AdmittedAboveTheHighest => admission.floor.raise_common(marks.highest()),
            _ => admission.floor.include(marks),
        }
        admission.wait_ms = admission.wait_ms.max(wait_ms);
        let Admission { node, floor, wait_ms, .. } = admission.clone();
        self.tell(|| format!("the operator asks node {other} about node {node}: {floor:?}, {wait_ms} ms"));
    }

    /// The longest remaining lease on a server, in milliseconds.
    fn longest_known(&self, server: usize) -> u64 {
        let sim = &self.servers[server];
        let at = sim.time.at(self.now);
        let left = |key| sim.memory.image(&crate::client::name(key), at).map(|image| image.left_ms);
        (0..self.plan.keys).filter_map(left).max().unwrap_or(0)
    }

    /// Admits a node, if its server can be reached.
    fn admit(&mut self, admission: &Admission) -> bool {
        let server = self.current[admission.node];
        let sim = &mut self.servers[server];
        if sim.is_down || self.now < sim.stalled_until {
            return false;
        }
        let id = sim.memory.node().state().node_id.clone();
        let (floor, far) = (admission.floor.common().to_string(), admission.floor.far_text());
        let argv: [&[u8]; 6] =
            [b"REDLOCK.ADMIT", id.as_bytes(), floor.as_bytes(), b"0", b"FAR", far.as_bytes()];
        let reply = sim.memory.execute(&argv, u64::MAX, sim.time.at(self.now));
        self.tell(|| format!("the operator admits server {server} as node {}: {reply:?}", admission.node));
        if self.has_died_in_a_store(server) || reply != Ok(Reply::Integer(1)) {
            return false;
        }
        self.outcome.count("admission");
        self.vacant.remove(admission.node);
        for client in 0..self.plan.clients {
            if self.clients[client].servers[admission.node] == server {
                self.move_soon(client, admission.node);
            }
        }
        true
    }
}
