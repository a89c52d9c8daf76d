//! Maintenance under load: every node is restarted and upgraded in turn, and nobody has to stop for it.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, Violation, Work};
use redlock_tests::{Answer, Builder, Fleet, SOON, Server, eventually, module_path};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

const CONTENDER: &str = env!("CARGO_BIN_EXE_contender");

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
        campaign.note_fault();
        campaign.until_all_hold(2);
        fleet[node].restart();
        until_it_grants(&fleet[node]);
        campaign.until_all_hold(2);
    }
}

fn keeps_nothing(node: Builder) -> Builder {
    node
}

fn keeps_everything(node: Builder) -> Builder {
    node.arg("appendonly", "yes")
}

fn restart_in_turn(name: &str, describe: fn(Builder) -> Builder) {
    let mut fleet = Fleet::start_with(5, |_, node| describe(node));
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), Work::default());
    campaign.until_all_hold(2);
    roll(&mut fleet, &mut campaign);
    campaign.finish(&fleet).must_be_clean(name);
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
    let forgetful = |_, node: Builder| node.module_args(["restart-grace", "off"]);
    let mut fleet = Fleet::start_with(5, forgetful);
    let work = Work { ttl: Duration::from_secs(3), ..Work::default() };
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), work);
    let is_overlap = |violation: &Violation| matches!(violation, Violation::Overlap { .. });
    campaign.until_seen(is_overlap, |campaign| {
        campaign.until_more_holds(5);
        for node in 0..5 {
            fleet[node].restart();
        }
        campaign.until_more_holds(5);
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
    // Put into place as a whole: a server that runs has the old file mapped.
    let draft = file.with_extension("draft");
    fs::write(&draft, bytes).expect("a folder of ours");
    let rights = fs::metadata(module_path()).expect("the module").permissions();
    fs::set_permissions(&draft, rights).expect("a file of ours");
    fs::rename(draft, file).expect("a folder of ours");
}

/// As long as the true one.
const NEWER: &str = "0.9.9";

#[test]
fn nodes_upgraded_in_turn() {
    let folder = TempDir::new().expect("a folder");
    let file = |node: usize| folder.path().join(format!("node-{node}-libredlock.so"));
    for node in 0..5 {
        fs::copy(module_path(), file(node)).expect("a folder of ours");
    }
    let mut fleet = Fleet::start_with(5, |node, builder| keeps_everything(builder).module_file(&file(node)));
    let versions = |fleet: &Fleet| -> Vec<String> {
        // Of INFO: where a reply has its version in the code itself, changing the file's texts does not change it.
        fleet.iter().filter_map(|node| node.info("redlock", "redlock_version")).collect()
    };
    assert_eq!(versions(&fleet), [env!("CARGO_PKG_VERSION"); 5]);
    let mut campaign = Campaign::begin(CONTENDER, &fleet.urls(), Work::default());
    campaign.until_all_hold(2);
    for node in 0..5 {
        newer_module(&file(node));
    }
    roll(&mut fleet, &mut campaign);
    assert_eq!(versions(&fleet), [NEWER; 5]);
    campaign.finish(&fleet).must_be_clean("rolling upgrade");
}
