//! Masters that die before their replicas have heard of the last grants, and the replicas that follow them.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, Violation, Work};
use redlock_tests::{Answer, Builder, Fleet, SOON, Sentinel, Server, eventually};
use std::thread;
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_contender");

/// Five masters under the eyes of one sentinel, each with a replica.
struct Watched {
    sentinel: Sentinel,
    masters: Fleet,
    replicas: Vec<Server>,
}

impl Watched {
    fn start(describe: impl Fn(Builder) -> Builder) -> Self {
        let masters = Fleet::start_with(5, |_, node| describe(node));
        let replicas = masters.iter().map(|master| describe(Server::builder()).replica_of(master));
        let replicas: Vec<Server> = replicas.map(Builder::start).collect();
        let sentinel = Sentinel::start();
        for (node, (master, replica)) in masters.iter().zip(&replicas).enumerate() {
            replica.catch_up(master);
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

    /// Whatever these masters grant from now on, their replicas never hear of.
    fn cut(&self, nodes: &[usize]) {
        for node in nodes {
            self.replicas[*node].pause();
            let mut master = self.masters[*node].connect();
            assert_eq!(master.call_strs("CLIENT KILL TYPE replica"), Answer::Int(1));
        }
    }

    /// These masters die, and their replicas take their places.
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

fn name(node: usize) -> String {
    format!("node-{node}")
}

#[test]
fn replicas_that_lack_the_last_grants_take_over() {
    let mut watched = Watched::start(|node| node);
    let mut campaign = Campaign::begin(CONTENDER, &watched.addresses(), Work::default());
    campaign.until_all_hold(3);
    for group in [&[0, 1][..], &[2, 3, 4]] {
        watched.cut(group);
        campaign.until_more_holds(20);
        watched.fail_over(group);
        campaign.note_fault();
        campaign.until_all_hold(5);
    }
    let addresses = watched.addresses();
    campaign
        .finish_on(&watched.replicas, &addresses)
        .must_be_clean("failover of masters that are ahead of their replicas");
}

#[test]
fn control_replicas_that_lack_the_last_grants_take_over_without_the_wait() {
    let mut watched = Watched::start(|node| node.module_args(["restart-grace", "off"]));
    // Much longer than a failover takes: many of those who hold a lock before still hold it after.
    let work = Work { ttl: Duration::from_secs(30), keys: 12, ..Work::default() };
    watched.cut(&[0, 1, 2, 3, 4]);
    let mut campaign = Campaign::begin(CONTENDER, &watched.addresses(), work);
    campaign.until_all_hold(2);
    watched.fail_over(&[0, 1, 2, 3, 4]);
    // Most of the others are busy with what they hold.
    campaign.join_in(&watched.addresses());
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.until_seen(is_overlap, |campaign| campaign.until_more_holds(1));
}
