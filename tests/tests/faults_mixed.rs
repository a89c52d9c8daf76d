//! Several kinds of faults at the same time, at random.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use fastrand::Rng;
use redlock_tests::campaign::{Campaign, Violation, Workload};
use redlock_tests::{Answer, Direction, FakeClock, Fleet, Proxy, ServerBuilder, seed};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// How many rounds of faults the test injects.
fn rounds() -> usize {
    if std::env::var_os("REDLOCK_LONG").is_some() { 300 } else { 12 }
}

/// Five nodes with a clock each, and for every client process a proxy in front of each node.
struct Nodes {
    fleet: Fleet,
    clocks: Vec<FakeClock>,
    ways: Vec<Vec<Proxy>>,
    chance: Rng,
}

impl Nodes {
    fn start(seed: u64, describe: impl Fn(usize, ServerBuilder) -> ServerBuilder) -> Self {
        let clocks: Vec<FakeClock> = (0..5).map(|_| FakeClock::new()).collect();
        let fleet = Fleet::start_with(5, |index, node| describe(index, node).clock(&clocks[index]));
        let ways = (0..3).map(|_| fleet.iter().map(Proxy::to).collect()).collect();
        Self { fleet, clocks, ways, chance: Rng::with_seed(seed) }
    }

    fn urls(&self, process: usize) -> Vec<String> {
        self.ways[process].iter().map(Proxy::url).collect()
    }

    fn campaign(&self, work: Workload) -> Campaign {
        let urls: Vec<_> = (0..3).map(|process| self.urls(process)).collect();
        Campaign::start_with_routes(CONTENDER, &urls, work)
    }

    fn any_nodes(&mut self) -> Vec<usize> {
        let count = self.chance.usize(1..=5);
        self.chance.choose_multiple(0..5, count)
    }

    /// Injects a random fault. Some faults last until `heal`.
    fn inject(&mut self, campaign: &mut Campaign) {
        let nodes = self.any_nodes();
        match self.chance.u8(0..9) {
            0 | 1 => self.fleet.crash(&nodes),
            2 => nodes.iter().for_each(|node| self.fleet[*node].pause()),
            3 => {
                let seconds = self.chance.i64(-100_000..100_000);
                nodes.iter().for_each(|node| self.clocks[*node].jump_wall(seconds));
            }
            4 => {
                for node in nodes {
                    // A paused node would not answer.
                    self.fleet[node].resume();
                    assert_eq!(self.fleet[node].connect().call_strs("FLUSHALL"), Answer::ok());
                }
            }
            5 => {
                let process = self.chance.usize(..campaign.processes.len());
                campaign.processes[process].pause();
            }
            6 => {
                campaign.kill(0);
                // The new process uses the proxies of the killed one.
                self.ways.rotate_left(1);
                campaign.add_process(&self.urls(2));
            }
            7 => self.ways.iter().for_each(|ways| nodes.iter().for_each(|node| ways[*node].cut())),
            _ => {
                let process = self.chance.usize(..3);
                let (way, deed) = (self.chance.bool(), self.chance.u8(0..4));
                let way = if way { Direction::ToServer } else { Direction::ToClient };
                for proxy in nodes.iter().map(|node| &self.ways[process][*node]) {
                    match deed {
                        0 => proxy.drop_bytes(way),
                        1 => proxy.hold(way),
                        2 => proxy.delay(way, Duration::from_millis(60)),
                        _ => proxy.refuse_connections(),
                    }
                }
            }
        }
        campaign.count_fault();
    }

    fn heal(&self, campaign: &Campaign) {
        self.fleet.iter().for_each(|node| node.resume());
        campaign.processes.iter().for_each(|process| process.resume());
        self.ways.iter().flatten().for_each(Proxy::clear_faults);
    }
}

fn everything_goes_wrong(name: &str, fixed: u64, describe: impl Fn(usize, ServerBuilder) -> ServerBuilder) {
    let seed = seed(fixed);
    let mut world = Nodes::start(seed, describe);
    let mut campaign = world.campaign(Workload::default());
    campaign.wait_for_holds_by_each(2);
    for _ in 0..rounds() {
        for _ in 0..world.chance.u8(1..4) {
            world.inject(&mut campaign);
        }
        // Locks may or may not be available now. Attempts end in any case, if a process runs.
        if world.chance.bool() && campaign.any_running() {
            campaign.wait_for_attempts(8);
        }
        world.heal(&campaign);
        campaign.wait_for_holds(5);
    }
    campaign.wait_for_holds_by_each(2);
    campaign.finish(&world.fleet).assert_clean(&format!("{name}, seed {seed}"));
}

#[test]
fn everything_goes_wrong_without_persistence() {
    everything_goes_wrong("mixed faults, nothing kept", 0x5eed_0101, |_, node| node);
}

#[test]
fn everything_goes_wrong_with_an_append_only_file() {
    let describe = |index: usize, node: ServerBuilder| {
        let fsync = if index.is_multiple_of(2) { "always" } else { "everysec" };
        node.arg("appendonly", "yes").arg("appendfsync", fsync)
    };
    everything_goes_wrong("mixed faults, AOF", 0x5eed_0102, describe);
}

#[test]
fn control_everything_goes_wrong_without_the_wait() {
    let mut world = Nodes::start(0x5eed_0103, |_, node| node.module_args(["restart-grace", "off"]));
    let mut campaign = world.campaign(Workload { ttl: Duration::from_secs(1), ..Workload::default() });
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(5);
        world.inject(campaign);
        world.heal(campaign);
        campaign.wait_for_holds(5);
    });
}
