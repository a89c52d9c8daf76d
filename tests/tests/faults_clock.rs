//! Wall clocks that jump on one node, on a majority and on all nodes, while a node runs and while it is down.

use redlock_tests::campaign::{Campaign, LockMethod, Violation, Workload};
use redlock_tests::{FakeClock, Fleet, ServerBuilder};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");
const HOUR: i64 = 3600;

/// Starts five nodes, each with its own clock.
fn start(describe: impl Fn(ServerBuilder) -> ServerBuilder) -> (Fleet, Vec<FakeClock>) {
    let clocks: Vec<FakeClock> = (0..5).map(|_| FakeClock::new()).collect();
    (Fleet::start_with(5, |node, builder| describe(builder).clock(&clocks[node])), clocks)
}

#[test]
fn wall_clocks_jump_under_running_nodes() {
    let (fleet, clocks) = start(|node| node);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (group, seconds) in [
        (&[0][..], HOUR),
        (&[1, 2, 3], HOUR),
        (&[0, 1, 2, 3, 4], -2 * HOUR),
        (&[4], -HOUR),
        (&[0, 1, 2, 3, 4], 24 * HOUR),
        (&[2, 3, 4], -HOUR),
    ] {
        group.iter().for_each(|node: &usize| clocks[*node].jump_wall(seconds));
        campaign.count_fault();
        campaign.wait_for_holds_by_each(5);
    }
    campaign.finish(&fleet).assert_clean("wall clock jumps");
}

/// Keys that expire by the server's wall clock expire when it jumps.
#[test]
fn control_wall_clocks_jump_under_plain_locks() {
    let (fleet, clocks) = start(ServerBuilder::without_module);
    let work = Workload { lock: LockMethod::PLAIN, ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(10);
        (0..5).for_each(|node: usize| clocks[node].jump_wall(HOUR));
        campaign.wait_for_holds(10);
    });
}

#[test]
fn nodes_come_back_with_a_wrong_wall_clock() {
    let (mut fleet, clocks) = start(|node| node.arg("appendonly", "yes").arg("appendfsync", "always"));
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (group, seconds) in
        [(&[0, 1, 2][..], HOUR), (&[0, 1, 2, 3, 4], -2 * HOUR), (&[0, 1, 2, 3, 4], 3 * HOUR)]
    {
        // The clock jumps just before the crash, so the node restarts with a wrong clock.
        group.iter().for_each(|node: &usize| clocks[*node].jump_wall(seconds));
        fleet.crash(group);
        campaign.count_fault();
        campaign.wait_for_holds_by_each(3);
    }
    campaign.finish(&fleet).assert_clean("restart with a wrong wall clock, AOF always");
}

/// A plain lock is lost even with every write on disk.
#[test]
fn control_plain_locks_on_nodes_that_come_back_with_a_wrong_wall_clock() {
    let (mut fleet, clocks) =
        start(|node| node.without_module().arg("appendonly", "yes").arg("appendfsync", "always"));
    let work = Workload { lock: LockMethod::PLAIN, ttl: Duration::from_millis(1500), ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(10);
        (0..5).for_each(|node: usize| clocks[node].jump_wall(HOUR));
        fleet.crash(&[0, 1, 2, 3, 4]);
        campaign.wait_for_holds(10);
    });
}

fn is_overlap(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. })
}
