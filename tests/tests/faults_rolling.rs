//! Maintenance under load: the nodes are restarted or upgraded one after the other, some have an older module for a
//! while, and clients get locks all the time.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_client::LockManager;
use redlock_tests::campaign::{Campaign, Violation, Workload};
use redlock_tests::{
    Answer, Fleet, OLDER_VERSION, SOON, Server, ServerBuilder, eventually, module_path, older_module,
};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");

fn node_says(node: &Server, field: &str) -> Answer {
    node.connect().call_strs("REDLOCK.NODE").field(field).cloned().expect("a field of REDLOCK.NODE")
}

/// Waits until the node grants again, as an operator does before the next node.
fn until_it_grants(node: &Server) {
    eventually("the node grants again", SOON, || {
        (node_says(node, "quarantine-ms") == Answer::Int(0)).then_some(())
    });
}

/// Restarts every node in turn. While a node is down, every process must get locks.
fn roll(fleet: &mut Fleet, campaign: &mut Campaign) {
    for node in 0..5 {
        fleet[node].shutdown();
        campaign.count_fault();
        campaign.wait_for_holds_by_each(2);
        fleet[node].restart();
        until_it_grants(&fleet[node]);
        campaign.wait_for_holds_by_each(2);
    }
}

/// The version of every node, from the health report of a client.
fn versions(fleet: &Fleet) -> Vec<String> {
    let locks = LockManager::builder().nodes(fleet.urls()).node_timeout(SOON).build_blocking();
    let health = locks.expect("addresses of nodes").health().expect("a runtime");
    health.nodes.into_iter().map(|node| node.state.expect("a node that answers").version).collect()
}

/// One module file per node, which the test can replace by another module.
struct Modules {
    folder: TempDir,
}

impl Modules {
    /// The same module for five nodes.
    fn all(module: &Path) -> Self {
        let modules = Self { folder: TempDir::new().expect("a folder") };
        modules.replace_all(module);
        modules
    }

    fn file(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node-{node}-libredlock.so"))
    }

    /// Replaces the module files atomically: a running server has mapped the old file.
    fn replace_all(&self, module: &Path) {
        for node in 0..5 {
            let draft = self.file(node).with_extension("draft");
            fs::copy(module, &draft).expect("the test may write to its folder");
            fs::rename(draft, self.file(node)).expect("the test may write to its folder");
        }
    }
}

fn keeps_nothing(node: ServerBuilder) -> ServerBuilder {
    node
}

fn keeps_everything(node: ServerBuilder) -> ServerBuilder {
    node.arg("appendonly", "yes")
}

fn restart_in_turn(name: &str, describe: fn(ServerBuilder) -> ServerBuilder) {
    let mut fleet = Fleet::start_with(5, |_, node| describe(node));
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(2);
    roll(&mut fleet, &mut campaign);
    campaign.finish(&fleet).assert_clean(name);
}

#[test]
fn nodes_restarted_in_turn_without_persistence() {
    restart_in_turn("rolling restart, nothing kept", keeps_nothing);
}

#[test]
fn nodes_restarted_in_turn_with_an_append_only_file() {
    restart_in_turn("rolling restart, AOF", keeps_everything);
}

#[test]
fn control_nodes_restarted_in_turn_without_the_wait() {
    let forgetful = |_, node: ServerBuilder| node.module_args(["restart-grace", "off"]);
    let mut fleet = Fleet::start_with(5, forgetful);
    let work = Workload { ttl: Duration::from_secs(3), ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(5);
        for node in 0..5 {
            fleet[node].restart();
        }
        campaign.wait_for_holds(5);
    });
}

/// Writes a copy of the module that reports another version.
fn newer_module(file: &Path) {
    let mut bytes = fs::read(module_path()).expect("the module");
    let (old, new) = (env!("CARGO_PKG_VERSION").as_bytes(), NEWER.as_bytes());
    assert_eq!(old.len(), new.len(), "both versions must have the same length");
    let places: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, word)| *word == old).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the module file contains its version");
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(file, bytes).expect("the test may write to its folder");
    let rights = fs::metadata(module_path()).expect("the module").permissions();
    fs::set_permissions(file, rights).expect("the test owns the file");
}

/// A version of the same length as the present one.
const NEWER: &str = "0.9.9";
const PRESENT: &str = env!("CARGO_PKG_VERSION");

#[test]
fn nodes_upgraded_in_turn() {
    let modules = Modules::all(&module_path());
    let mut fleet =
        Fleet::start_with(5, |node, builder| keeps_everything(builder).module_file(&modules.file(node)));
    let versions = |fleet: &Fleet| -> Vec<String> {
        // From INFO: other replies may have the version in machine code, where the replacement does not change it.
        fleet.iter().filter_map(|node| node.info("redlock", "redlock_version")).collect()
    };
    assert_eq!(versions(&fleet), [PRESENT; 5]);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(2);
    let newer = modules.folder.path().join("newer.so");
    newer_module(&newer);
    modules.replace_all(&newer);
    roll(&mut fleet, &mut campaign);
    assert_eq!(versions(&fleet), [NEWER; 5]);
    campaign.finish(&fleet).assert_clean("rolling upgrade");
}

/// From an older module to the present one, with the same data files. There is no way back: the format of the state
/// file has changed.
#[test]
fn nodes_upgraded_in_turn_from_an_older_module() {
    let Some(older) = older_module() else { return };
    let modules = Modules::all(&older);
    let mut fleet =
        Fleet::start_with(5, |node, builder| keeps_everything(builder).module_file(&modules.file(node)));
    assert_eq!(versions(&fleet), [OLDER_VERSION; 5]);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(2);
    modules.replace_all(&module_path());
    roll(&mut fleet, &mut campaign);
    assert_eq!(versions(&fleet), [PRESENT; 5]);
    // Now all nodes support wait queues, and clients use them.
    let handed_on =
        |node: &Server| node.info("redlock", "redlock_handoffs").is_some_and(|count| count != "0");
    eventually("a node hands a lock to a waiter", SOON, || {
        campaign.wait_for_holds(5);
        fleet.iter().any(handed_on).then_some(())
    });
    campaign.finish(&fleet).assert_no_violations("rolling upgrade from an older module");
}

/// The same upgrade of all nodes at once, without persistence and without quarantine.
#[test]
fn control_nodes_upgraded_at_once_from_an_older_module_without_the_wait() {
    let Some(older) = older_module() else { return };
    let modules = Modules::all(&older);
    let mut fleet = Fleet::start_with(5, |node, builder| {
        builder.module_args(["restart-grace", "off"]).module_file(&modules.file(node))
    });
    let work = Workload { ttl: Duration::from_secs(3), ..Workload::default() };
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(5);
        modules.replace_all(&module_path());
        for node in 0..5 {
            fleet[node].restart();
        }
        campaign.wait_for_holds(5);
    });
}

/// Two nodes of five have an older module. They vote like the others: with any one of these they are a majority.
#[test]
fn nodes_with_an_older_module() {
    let Some(older) = older_module() else { return };
    let is_behind = |node: usize| node < 2;
    let mut fleet = Fleet::start_with(
        5,
        |node, builder| {
            if is_behind(node) { builder.module_file(&older) } else { builder }
        },
    );
    let expected: [&str; 5] =
        std::array::from_fn(|node| if is_behind(node) { OLDER_VERSION } else { PRESENT });
    assert_eq!(versions(&fleet), expected);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(5);
    // While the nodes with the older module are down, clients queue on the others.
    for group in [&[0][..], &[2, 3], &[0, 1], &[1, 4]] {
        group.iter().for_each(|node| fleet[*node].kill());
        campaign.count_fault();
        campaign.wait_for_holds_by_each(3);
        group.iter().for_each(|node| fleet[*node].restart());
        campaign.wait_for_holds_by_each(2);
    }
    campaign.finish(&fleet).assert_no_violations("an older module on two of five");
}
