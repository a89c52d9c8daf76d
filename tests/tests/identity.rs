//! The identity of a node: a server acts as a node only with that node's own, latest state file. Every other server
//! has a node id of its own and does not vote until an operator admits it.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, ServerBuilder, Wire, admit, granted, skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

const FILE: &str = "redlock.state";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a data folder")
}

fn saving(folder: &Path) -> ServerBuilder {
    Server::builder().arg("save", "3600 1").data_dir(folder)
}

fn node(wire: &mut Wire, field: &str) -> Answer {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field(field).unwrap_or_else(|| panic!("no {field} in {node:?}")).clone()
}

/// Starts a node, takes a lock and shuts the node down cleanly. Returns the node id and the fence of the lock.
fn past(folder: &Path) -> (Answer, i64) {
    let mut server = saving(folder).start();
    let mut wire = server.connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE held me 60000 FENCE 5000000"));
    let id = node(&mut wire, "node-id");
    server.shutdown();
    (id, fence)
}

/// Asserts that the server does not vote for this reason, and reports it in `REDLOCK.NODE`, `INFO` and the log.
fn verify_non_voting(server: &Server, reason: &str, old_id: &Answer) {
    let mut wire = server.connect();
    let answer = wire.call_strs("REDLOCK.ACQUIRE free other 1000");
    assert_eq!(answer.error_word(), Some("REDLOCKNOVOTE"), "{reason}: {answer:?}");
    assert_eq!(node(&mut wire, "non-voting-reason"), Answer::text(reason));
    assert_eq!(server.info("redlock", "redlock_voting"), Some("0".into()));
    assert_eq!(server.info("redlock", "redlock_non_voting_reason"), Some(reason.into()));
    assert_ne!(node(&mut wire, "node-id"), *old_id, "{reason}: the server has a node id of its own");
    assert!(server.log().contains("does not vote"), "{}", server.log());
}

fn copy_all(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(format!("{}/.", from.display())).arg(to).status();
    assert!(status.expect("cp is installed").success());
}

#[test]
fn a_server_without_state_file_and_data_is_new_and_votes() {
    let folder = folder();
    let server = saving(folder.path()).start();
    let mut wire = server.connect();
    assert_eq!((node(&mut wire, "voting"), node(&mut wire, "origin")), (Answer::Int(1), Answer::text("new")));
    assert_eq!(node(&mut wire, "non-voting-reason"), Answer::text(""));
    assert_eq!(server.info("redlock", "redlock_non_voting_reason"), Some(String::new()));
    granted(&wire.call_strs("REDLOCK.ACQUIRE free me 1000"));
}

#[test]
fn a_new_server_can_be_configured_to_wait_for_its_admission() {
    let folder = folder();
    let mut server = saving(folder.path()).module_args(["new-node", "non-voting"]).start();
    verify_non_voting(&server, "new-node", &Answer::text(""));
    let mut wire = server.connect();
    admit(&mut wire, 7_000_000, 0);
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE free me 1000"));
    assert!(fence > 7_000_000, "{fence}");
    server.restart();
    assert_eq!(node(&mut server.connect(), "voting"), Answer::Int(1), "new-node applies to new nodes only");
    let refused = saving(folder.path()).module_args(["new-node", "maybe"]).try_start();
    assert!(refused.expect_err("the server refuses a bad argument").log.contains("voting, non-voting"));
}

#[test]
fn a_copied_disk_does_not_vote_and_the_original_does() {
    let (original, copy) = (folder(), folder());
    let (id, fence) = past(original.path());
    copy_all(original.path(), copy.path());
    let mut server = saving(copy.path()).start();
    verify_non_voting(&server, "copied-state-file", &id);
    assert_eq!(server.connect().inspect("held").map(|lock| lock.fence), Some(fence));
    let own = node(&mut server.connect(), "node-id");
    for end in ["shutdown", "crash"] {
        if end == "crash" {
            server.kill();
        }
        server.restart();
        assert_eq!(node(&mut server.connect(), "voting"), Answer::Int(0), "{end}");
        assert_eq!(node(&mut server.connect(), "node-id"), own, "{end}");
    }
    let server = saving(original.path()).start();
    let mut wire = server.connect();
    assert_eq!((node(&mut wire, "node-id"), node(&mut wire, "voting")), (id, Answer::Int(1)));
    assert_eq!(node(&mut wire, "quarantine-ms"), Answer::Int(0), "the original has forgotten nothing");
}

#[test]
fn a_state_file_that_was_put_back_does_not_vote() {
    let folder = folder();
    let (id, _) = past(folder.path());
    let file = folder.path().join(FILE);
    let older = fs::read(&file).expect("a state file");
    drop(saving(folder.path()).start());
    // First into the present file, as `cp` does, then as a new file.
    for replace in [false, true] {
        if replace {
            fs::remove_file(&file).expect("the file can be removed");
        }
        fs::write(&file, &older).expect("the file can be written");
        let server = saving(folder.path()).start();
        verify_non_voting(&server, "copied-state-file", &id);
    }
}

#[test]
fn a_moved_folder_is_the_same_node() {
    let parent = folder();
    let (before, after) = (parent.path().join("before"), parent.path().join("after"));
    fs::create_dir(&before).expect("the folder can be created");
    let (id, _) = past(&before);
    fs::rename(&before, &after).expect("the folder can be moved");
    let server = saving(&after).start();
    let mut wire = server.connect();
    assert_eq!((node(&mut wire, "node-id"), node(&mut wire, "voting")), (id, Answer::Int(1)));
}

#[test]
fn data_with_locks_and_no_state_file_does_not_vote() {
    let folder = folder();
    let (id, fence) = past(folder.path());
    fs::remove_file(folder.path().join(FILE)).expect("the file can be removed");
    let server = saving(folder.path()).start();
    verify_non_voting(&server, "no-state-file", &id);
    let mut wire = server.connect();
    admit(&mut wire, 0, 0);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE held other 1000"), Answer::Nil, "the loaded lock is held");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE held me"), Answer::Int(1));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE held other 1000")) > fence);
}

#[test]
fn a_state_file_of_another_node_does_not_vote() {
    let (one, other) = (folder(), folder());
    let (id, _) = past(one.path());
    past(other.path());
    // The test moves the file: a copy would have another reason.
    fs::rename(other.path().join(FILE), one.path().join(FILE)).expect("the file can be moved");
    verify_non_voting(&saving(one.path()).start(), "foreign-data", &id);
}

#[test]
fn data_of_another_node_does_not_vote() {
    for keep in ["RDB", "AOF"] {
        let (one, other) = (folder(), folder());
        let builder = |folder: &TempDir| match keep {
            "RDB" => saving(folder.path()),
            _ => Server::builder().arg("appendonly", "yes").data_dir(folder.path()),
        };
        let mut ids = Vec::new();
        for folder in [&one, &other] {
            let mut server = builder(folder).start();
            let mut wire = server.connect();
            granted(&wire.call_strs("REDLOCK.ACQUIRE held me 60000"));
            ids.push(node(&mut wire, "node-id"));
            server.shutdown();
        }
        for name in ["dump.rdb", "appendonlydir"] {
            let (from, to) = (other.path().join(name), one.path().join(name));
            if from.exists() {
                let _ = fs::remove_dir_all(&to);
                let _ = fs::remove_file(&to);
                fs::rename(from, to).expect("the data can be moved");
            }
        }
        verify_non_voting(&builder(&one).start(), "foreign-data", &ids[0]);
    }
}

#[test]
fn an_older_snapshot_of_its_own_puts_a_node_into_quarantine() {
    let folder = folder();
    let mut server = saving(folder.path()).start();
    let mut wire = server.connect();
    let first = granted(&wire.call_strs("REDLOCK.ACQUIRE first me 60000"));
    assert_eq!(wire.call_strs("SAVE"), Answer::ok());
    let older = fs::read(folder.path().join("dump.rdb")).expect("a snapshot");
    let second = granted(&wire.call_strs("REDLOCK.ACQUIRE second me 60000 FENCE 3000000"));
    server.shutdown();
    fs::write(folder.path().join("dump.rdb"), older).expect("the file can be written");
    server.restart();
    let mut wire = server.connect();
    assert_eq!(node(&mut wire, "voting"), Answer::Int(1), "the node votes, with an older data set");
    assert!(node(&mut wire, "quarantine-ms").int() >= 60_000);
    assert!(node(&mut wire, "high-water").int() > first.max(second));
}

#[test]
fn several_state_files_do_not_vote_and_cannot_be_admitted() {
    let folder = folder();
    let (id, _) = past(folder.path());
    fs::copy(folder.path().join(FILE), folder.path().join("other.state")).expect("the file can be copied");
    let server = saving(folder.path()).start();
    verify_non_voting(&server, "several-state-files", &id);
    let log = server.log();
    assert!(log.lines().any(|line| line.contains(FILE) && line.contains("other.state")), "{log}");
    let mut wire = server.connect();
    let own = node(&mut wire, "node-id").string();
    let answer = wire.call(&["REDLOCK.ADMIT", &own, "0", "0"]);
    assert_eq!(answer.error_word(), Some("REDLOCKNOVOTE"), "{answer:?}");
    drop(server);
    // The remedy that the error message names.
    fs::remove_file(folder.path().join("other.state")).expect("the file can be removed");
    let server = saving(folder.path()).start();
    assert_eq!(node(&mut server.connect(), "node-id"), id);
    // The node does not take a file of another program for a state file.
    drop(server);
    fs::write(folder.path().join("game.state"), "level 3").expect("the folder is writable");
    assert_eq!(node(&mut saving(folder.path()).start().connect(), "node-id"), id);
}

#[test]
fn an_admitted_node_stays_admitted_over_restarts() {
    let (original, copy) = (folder(), folder());
    past(original.path());
    copy_all(original.path(), copy.path());
    let mut server = saving(copy.path()).start();
    admit(&mut server.connect(), 9_000_000, 0);
    let id = node(&mut server.connect(), "node-id");
    server.restart();
    let mut wire = server.connect();
    assert_eq!((node(&mut wire, "node-id"), node(&mut wire, "voting")), (id, Answer::Int(1)));
    assert_eq!(node(&mut wire, "origin"), Answer::text("admitted"));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE free me 1000")) > 9_000_000);
}

#[test]
fn only_an_administrator_may_admit_and_break() {
    let server = Server::start();
    let mut wire = server.connect();
    let flavor = server.flavor();
    if !flavor.at_least(7, 2) {
        return skip(&format!("{flavor} has no ACL categories for module commands"));
    }
    for (rules, allowed) in [
        ("+@all -@admin", false),
        ("+@all -@dangerous", false),
        ("+@write +@read +@fast", false),
        ("+redlock.admit +redlock.break", true),
    ] {
        let user: Vec<&str> = ["ACL", "SETUSER", "u", "reset", "on", "nopass", "~*"]
            .into_iter()
            .chain(rules.split(' '))
            .collect();
        assert_eq!(wire.call(&user), Answer::ok());
        for command in ["REDLOCK.ADMIT id 0 0", "REDLOCK.BREAK k"] {
            let dry = wire.call_strs(&format!("ACL DRYRUN u {command}"));
            assert_eq!(dry == Answer::ok(), allowed, "{rules}, {command}: {dry:?}");
        }
    }
}
