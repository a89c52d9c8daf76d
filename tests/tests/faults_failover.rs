//! Masters that crash before their last grants are replicated, and the replicas that take over.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, Violation, Workload};
use redlock_tests::{Answer, Fleet, SOON, Sentinel, Server, ServerBuilder, Wire, admit, eventually};
use std::thread;
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// Five masters, each with a replica, and one sentinel that monitors them.
struct SentinelNode {
    sentinel: Sentinel,
    masters: Fleet,
    replicas: Vec<Server>,
}

impl SentinelNode {
    fn start(describe: impl Fn(ServerBuilder) -> ServerBuilder) -> Self {
        let masters = Fleet::start_with(5, |_, node| describe(node));
        let replicas = masters.iter().map(|master| describe(Server::builder()).replica_of(master));
        let replicas: Vec<Server> = replicas.map(ServerBuilder::start).collect();
        let sentinel = Sentinel::start();
        for (node, (master, replica)) in masters.iter().zip(&replicas).enumerate() {
            replica.wait_for_replication(master);
            sentinel.watch(&name(node), master);
        }
        for node in 0..5 {
            eventually("the sentinel knows the replica", SOON * 3, || {
                let known = sentinel.connect().call(&["SENTINEL", "REPLICAS", &name(node)]);
                (known.list().len() == 1).then_some(())
            });
        }
        Self { sentinel, masters, replicas }
    }

    fn addresses(&self) -> Vec<String> {
        (0..5).map(|node| format!("watched:{}@{}", name(node), self.sentinel.url())).collect()
    }

    /// Breaks the replication of these masters for good: the replicas get no later grant.
    fn cut(&self, nodes: &[usize]) {
        for node in nodes {
            self.replicas[*node].pause();
            let mut master = self.masters[*node].connect();
            assert_eq!(master.call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
        }
    }

    /// Kills these masters, and lets the sentinel promote their replicas.
    fn fail_over(&mut self, nodes: &[usize]) {
        for node in nodes {
            self.masters[*node].kill();
            self.replicas[*node].resume();
        }
        let sentinel = &self.sentinel;
        thread::scope(|scope| {
            for node in nodes {
                scope.spawn(move || sentinel.fail_over(&name(*node)));
            }
        });
    }
}

impl SentinelNode {
    /// Admits the new master of a node as an operator would: the floor is the largest high-water mark of the voting
    /// nodes. The old master has stopped.
    fn admit(&self, node: usize, voters: &[usize], servers: &dyn Fn(usize) -> Wire) {
        let high_water = |voter: &usize| {
            let said = servers(*voter).call_strs("REDLOCK.NODE");
            said.field("high-water").map_or(0, Answer::int)
        };
        let floor = voters.iter().map(high_water).max().unwrap_or(0);
        admit(&mut self.replicas[node].connect(), floor, MAX_TTL_MS);
    }
}

/// The longest lease that these nodes grant, in milliseconds, and so the wait after an admission.
const MAX_TTL_MS: u64 = 5_000;

fn limited(node: ServerBuilder) -> ServerBuilder {
    node.module_args(["max-ttl", &MAX_TTL_MS.to_string()])
}

fn name(node: usize) -> String {
    format!("node-{node}")
}

#[test]
fn replicas_that_lack_the_last_grants_take_over_and_are_admitted() {
    let mut watched = SentinelNode::start(limited);
    let mut campaign = Campaign::start(CONTENDER, &watched.addresses(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (group, voters, promoted) in [(&[0, 1][..], &[2, 3, 4][..], &[][..]), (&[2, 3], &[0, 1, 4], &[0, 1])]
    {
        watched.cut(group);
        campaign.wait_for_holds(20);
        watched.fail_over(group);
        campaign.count_fault();
        // The other nodes are a majority and grant locks.
        campaign.wait_for_holds_by_each(2);
        for node in group {
            let servers = |voter: usize| match promoted.contains(&voter) {
                true => watched.replicas[voter].connect(),
                false => watched.masters[voter].connect(),
            };
            watched.admit(*node, voters, &servers);
        }
        for node in group {
            eventually("the admitted node votes", SOON, || {
                let said = watched.replicas[*node].connect().call_strs("REDLOCK.NODE");
                (said.field("quarantine-ms") == Some(&Answer::Int(0))).then_some(())
            });
        }
        campaign.wait_for_holds_by_each(3);
    }
    let addresses = watched.addresses();
    let SentinelNode { masters, replicas, .. } = &watched;
    let voters = [&replicas[0], &replicas[1], &replicas[2], &replicas[3], &masters[4]];
    campaign
        .finish_on(voters, &addresses)
        .assert_clean("failover of masters that are ahead of their replicas");
}

/// The operator admits nodes that have forgotten locks, and lets them grant at once.
#[test]
fn control_replicas_that_lack_the_last_grants_are_admitted_without_the_wait() {
    let mut watched = SentinelNode::start(|node| node);
    // Leases last much longer than a failover takes, so many clients hold a lock before and after it.
    let work = Workload { ttl: Duration::from_secs(30), keys: 12, ..Workload::default() };
    watched.cut(&[0, 1, 2, 3, 4]);
    let mut campaign = Campaign::start(CONTENDER, &watched.addresses(), work);
    campaign.wait_for_holds_by_each(2);
    watched.fail_over(&[0, 1, 2, 3, 4]);
    for replica in &watched.replicas {
        admit(&mut replica.connect(), 0, 0);
    }
    // Most tasks of the other processes still hold locks.
    campaign.add_process(&watched.addresses());
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| campaign.wait_for_holds(1));
}
