//! Nodes that crash while client processes use them, and restart with all, some or none of their data.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, LockMethod, Violation, Workload};
use redlock_tests::{Fleet, Server, ServerBuilder};
use std::fs::{self, OpenOptions};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

/// The nodes that crash in each round: a minority, a majority or all.
const GROUPS: [&[usize]; 6] = [&[0], &[1, 2], &[3, 4, 0], &[0, 1, 2, 3, 4], &[2], &[1, 2, 3, 4]];

/// How often the test goes through all groups.
fn rounds() -> usize {
    if std::env::var_os("REDLOCK_LONG").is_some() { 10 } else { 1 }
}

/// A node that grants at once after a crash, although it may have forgotten locks.
fn forgetful(node: ServerBuilder) -> ServerBuilder {
    node.module_args(["restart-grace", "off"])
}

fn append_only(node: ServerBuilder, fsync: &str) -> ServerBuilder {
    node.arg("appendonly", "yes").arg("appendfsync", fsync)
}

fn is_overlap(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. })
}

/// Locks that last longer than all nodes need to restart.
fn long_locks() -> Workload {
    Workload { ttl: Duration::from_secs(3), keys: 6, ..Workload::default() }
}

fn crash_again_and_again(name: &str, mut fleet: Fleet, meanwhile: impl Fn(&Server) + Sync) {
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(5);
    for group in GROUPS.iter().cycle().take(GROUPS.len() * rounds()) {
        fleet.crash_and(group, &meanwhile);
        campaign.count_fault();
        campaign.wait_for_holds(15);
    }
    campaign.wait_for_holds_by_each(5);
    campaign.finish(&fleet).assert_clean(name);
}

/// Crashes nodes that lack the protection until the checks detect two holders.
fn crash_until_seen(mut fleet: Fleet, work: Workload, meanwhile: impl Fn(&Server) + Sync) {
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(10);
        fleet.crash_and(&[0, 1, 2, 3, 4], &meanwhile);
        campaign.wait_for_holds(10);
    });
}

#[test]
fn nodes_killed_without_persistence() {
    crash_again_and_again("kill -9, nothing kept", Fleet::start(5), |_| {});
}

#[test]
fn control_nodes_killed_without_persistence_and_without_the_wait() {
    crash_until_seen(Fleet::start_with(5, |_, node| forgetful(node)), long_locks(), |_| {});
}

#[test]
fn control_plain_locks_on_nodes_killed_without_persistence() {
    let fleet = Fleet::start_with(5, |_, node| node.without_module());
    crash_until_seen(fleet, Workload { lock: LockMethod::PLAIN, ..long_locks() }, |_| {});
}

/// Nodes without their state file are new nodes, and their fences start at 1 again. New clients have seen no larger
/// fence that they could send to the nodes.
#[test]
fn control_nodes_and_clients_that_forget_all_fences() {
    let mut fleet = Fleet::start(5);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    let is_about_numbers = |violation: &Violation| {
        matches!(violation, Violation::FenceNotLarger { .. } | Violation::FenceRepeated { .. })
    };
    campaign.inject_until_violation(is_about_numbers, |campaign| {
        campaign.wait_for_holds(10);
        while !campaign.processes.is_empty() {
            campaign.kill(0);
        }
        fleet.crash_and(&[0, 1, 2, 3, 4], forget_all_fences);
        (0..3).for_each(|_| campaign.add_process(&fleet.urls()));
        campaign.wait_for_holds(10);
    });
}

fn forget_all_fences(node: &Server) {
    let files = fs::read_dir(node.data_dir()).expect("the server's folder").flatten();
    let mut states = files.filter(|file| file.file_name().to_string_lossy().ends_with(".state"));
    let state = states.next().expect("the node has a state file");
    fs::remove_file(state.path()).expect("the test may change this file");
}

#[test]
fn nodes_killed_with_an_append_only_file_synced_always() {
    let fleet = Fleet::start_with(5, |_, node| append_only(node, "always"));
    crash_again_and_again("kill -9, AOF always", fleet, |_| {});
}

#[test]
fn nodes_that_lose_power_with_an_append_only_file_synced_every_second() {
    let fleet = Fleet::start_with(5, |_, node| append_only(node, "everysec"));
    crash_again_and_again("power loss, AOF everysec", fleet, lose_what_was_not_synced);
}

#[test]
fn control_nodes_that_lose_power_without_the_wait() {
    let fleet = Fleet::start_with(5, |_, node| append_only(forgetful(node), "everysec"));
    // The nodes load the locks that were held in the middle of the file. With many keys, other locks are held by now.
    crash_until_seen(fleet, Workload { keys: 30, ..long_locks() }, lose_what_was_not_synced);
}

/// Cuts off the second half of the append-only file, as if the disk had not written it yet.
fn lose_what_was_not_synced(node: &Server) {
    let folder = node.data_dir().join("appendonlydir");
    let files = fs::read_dir(folder).expect("the server's append-only files").flatten();
    for file in files.filter(|file| file.file_name().to_string_lossy().ends_with(".incr.aof")) {
        let file = OpenOptions::new().write(true).open(file.path()).expect("the test may change this file");
        let length = file.metadata().expect("the test may change this file").len();
        file.set_len(length / 2).expect("the file can be truncated");
    }
}
