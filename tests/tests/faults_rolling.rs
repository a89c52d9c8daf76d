//! Maintenance under load: every node is restarted, upgraded or taken back in turn, some are behind the others for a
//! while, and nobody has to stop for it.

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

/// What an operator waits for before it goes on to the next node.
fn until_it_grants(node: &Server) {
    eventually("the node grants again", SOON, || {
        (node_says(node, "quarantine-ms") == Answer::Int(0)).then_some(())
    });
}

/// Takes every node down in order. While it is down every process must go on to get locks.
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

/// What every node says of its version, to a client that asks for its health.
fn versions(fleet: &Fleet) -> Vec<String> {
    let locks = LockManager::builder().nodes(fleet.urls()).node_timeout(SOON).build_blocking();
    let health = locks.expect("addresses of nodes").health().expect("a runtime");
    health.nodes.into_iter().map(|node| node.state.expect("a node that answers").version).collect()
}

/// A file of each node's own, which can be changed for another module.
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

    /// Puts another module into place, as a whole: a server that runs has the one before mapped.
    fn replace_all(&self, module: &Path) {
        for node in 0..5 {
            let draft = self.file(node).with_extension("draft");
            fs::copy(module, &draft).expect("a folder of ours");
            fs::rename(draft, self.file(node)).expect("a folder of ours");
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

/// The module under another version, which it says it is.
fn newer_module(file: &Path) {
    let mut bytes = fs::read(module_path()).expect("the module");
    let (old, new) = (env!("CARGO_PKG_VERSION").as_bytes(), NEWER.as_bytes());
    assert_eq!(old.len(), new.len(), "a file keeps its shape");
    let places: Vec<usize> =
        bytes.windows(old.len()).enumerate().filter(|(_, word)| *word == old).map(|(at, _)| at).collect();
    assert!(!places.is_empty(), "the module has its version in it");
    for at in places {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    fs::write(file, bytes).expect("a folder of ours");
    let rights = fs::metadata(module_path()).expect("the module").permissions();
    fs::set_permissions(file, rights).expect("a file of ours");
}

/// As long as the true one.
const NEWER: &str = "0.9.9";
const PRESENT: &str = env!("CARGO_PKG_VERSION");

#[test]
fn nodes_upgraded_in_turn() {
    let modules = Modules::all(&module_path());
    let mut fleet =
        Fleet::start_with(5, |node, builder| keeps_everything(builder).module_file(&modules.file(node)));
    let versions = |fleet: &Fleet| -> Vec<String> {
        // Of INFO: where a reply has its version in the code itself, changing the file's texts does not change it.
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

/// From a module of the past to the present one, over the same files. There is no way back: the state file has another
/// format.
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
    // Now that all nodes let them, clients wait in line.
    let handed_on =
        |node: &Server| node.info("redlock", "redlock_handoffs").is_some_and(|count| count != "0");
    eventually("somebody waits in line", SOON, || {
        campaign.wait_for_holds(5);
        fleet.iter().any(handed_on).then_some(())
    });
    campaign.finish(&fleet).assert_no_violations("rolling upgrade from an older module");
}

/// The same upgrade where nothing is kept and nobody waits, of all nodes at once.
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

/// Two nodes of five are behind. They vote like the others, and with any one of those they are a majority.
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
    // Without those that are behind, clients wait in line at the others until one of them is back.
    for group in [&[0][..], &[2, 3], &[0, 1], &[1, 4]] {
        group.iter().for_each(|node| fleet[*node].kill());
        campaign.count_fault();
        campaign.wait_for_holds_by_each(3);
        group.iter().for_each(|node| fleet[*node].restart());
        campaign.wait_for_holds_by_each(2);
    }
    campaign.finish(&fleet).assert_no_violations("an older module on two of five");
}
