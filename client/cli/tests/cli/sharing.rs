//! Shared locks: `run --shared`, and `acquire --shared` with extend and release.

use crate::processes::SIGTERM;
use crate::program::{LOST, Launcher, NOT_ACQUIRED, Running, USAGE};
use redlock_tests::Fleet;

fn hold_shared(redlock: &Launcher) -> Running {
    let script = "echo $REDLOCK_FENCE; exec sleep 600";
    let mut running = redlock.start(&["run", "--shared", "job", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "1");
    running
}

#[test]
fn commands_share_a_lock_and_exclude_others() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let (mut one, mut two) = (hold_shared(&redlock), hold_shared(&redlock));
    redlock.run(&["run", "job", "--", "true"]).exits(NOT_ACQUIRED);
    let shown = redlock.run(&["inspect", "job"]).succeeds();
    assert!(shown.stdout.starts_with("job is held, shared by 2: "), "{shown:?}");
    let listed = redlock.run(&["ls"]).succeeds();
    assert!(listed.stdout.contains("shared by 2: "), "{listed:?}");
    let shown = redlock.run(&["--json", "inspect", "job"]).succeeds().json();
    let lock = &shown["lock"];
    assert_eq!((&lock["mode"], lock["holders"].as_array().map(Vec::len)), (&"shared".into(), Some(2)));
    for running in [&mut one, &mut two] {
        running.signal(SIGTERM);
    }
    one.finish().exits(143);
    two.finish().exits(143);
    assert!(fleet.is_free("job"));
    let said = redlock.run(&["run", "job", "--", "sh", "-c", "echo $REDLOCK_FENCE"]).succeeds();
    assert_eq!(said.stdout, "2\n", "a writer has a larger fence than the readers before it");
}

#[test]
fn a_command_with_the_exclusive_lock_waits_for_all_that_share_it() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let reader = hold_shared(&redlock);
    let mut writer = redlock.start(&["run", "--wait", "forever", "job", "--", "echo", "alone"]);
    // A reader behind the writer does not overtake it.
    until_queued(&fleet, "job");
    redlock.run(&["run", "--shared", "job", "--", "true"]).exits(NOT_ACQUIRED);
    reader.signal(SIGTERM);
    reader.finish().exits(143);
    assert_eq!(writer.line(), "alone");
    writer.finish().exits(0);
}

/// Waits until every node has a waiter for a key.
fn until_queued(fleet: &Fleet, key: &str) {
    for node in fleet.iter() {
        redlock_tests::eventually("a client waits", redlock_tests::SOON, || {
            node.connect().inspect(key).filter(|lock| lock.waiters > 0).map(drop)
        });
    }
}

#[test]
fn several_resources_cannot_be_shared_together() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["run", "--shared", "a", "b", "--", "true"]).exits(USAGE);
    assert!(said.stderr.contains("--shared takes one resource"), "{said:?}");
    assert!(fleet.is_free("a") && fleet.is_free("b"));
}

#[test]
fn scripts_extend_and_release_a_shared_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["acquire", "--shared", "--owner-file", "one", "job"]).succeeds();
    assert_eq!(said.stdout, "REDLOCK_FENCE=1\nREDLOCK_TTL_MS=30000\nREDLOCK_MODE=shared\n");
    let shown = redlock.run(&["--json", "acquire", "--shared", "job"]).succeeds().json();
    assert_eq!((&shown["mode"], &shown["fence"]), (&"shared".into(), &1.into()));
    let owner = shown["owner"].as_str().expect("an owner").to_owned();
    // Another reader raises the fence of all readers.
    for node in fleet.iter() {
        let raised = node.connect().call_strs("REDLOCK.ACQUIRE job third 30000 SHARED FENCE 9");
        assert_eq!(raised, redlock_tests::Answer::Int(9));
    }
    let fenced = ["--owner", &owner, "--fence", "1", "job"];
    redlock.run(&["extend", "--owner-file", "one", "job"]).succeeds();
    redlock.run(&[&["extend", "--shared"][..], &fenced].concat()).succeeds();
    let exported = |mode: &str| {
        let mut command = redlock.command(&["extend", "--fence", "1", "job"]);
        command.env("REDLOCK_OWNER", &owner).env("REDLOCK_MODE", mode);
        redlock.finish(command)
    };
    exported("shared").succeeds();
    exported("exclusive").exits(LOST);
    // Without the mode, a larger fence means that another client has held the lock.
    redlock.run(&[&["extend"][..], &fenced].concat()).exits(LOST);
    redlock.run(&[&["release"][..], &fenced].concat()).succeeds();
    redlock.run(&["release", "--owner-file", "one", "job"]).succeeds();
    for node in fleet.iter() {
        assert_eq!(node.connect().call_strs("REDLOCK.RELEASE job third"), redlock_tests::Answer::Int(1));
    }
    assert!(fleet.is_free("job"));
}
