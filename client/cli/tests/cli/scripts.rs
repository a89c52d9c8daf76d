//! acquire, extend, release, inspect.

use crate::processes::SIGTERM;
use crate::program::{LOST, Launcher, NO_QUORUM, NOT_ACQUIRED, USAGE, names};
use redlock_tests::{Fleet, SOON, eventually};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_lock_is_handed_from_command_to_command() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = r#"
        set -e
        lock=$("$0" acquire --ttl 1m job) || exit
        eval "$lock"
        export REDLOCK_OWNER REDLOCK_FENCE
        "$0" extend --ttl 2m job
        "$0" release job
        echo "fence $REDLOCK_FENCE ttl $REDLOCK_TTL_MS"
    "#;
    let mut command = std::process::Command::new("sh");
    command.args(["-c", script, crate::program::PATH]);
    let prepared = redlock.command(&[]);
    for (name, value) in prepared.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let said = redlock.finish(command).succeeds();
    assert!(said.stdout.contains("job is held for 1m58s more, fence 1\n"), "{said:?}");
    assert!(said.stdout.contains("job is free on 3 of 3 nodes\nfence 1 ttl 60000\n"), "{said:?}");
    assert!(fleet.is_free("job"));
}

#[test]
fn a_lock_is_handed_over_as_json() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "--ttl", "1m", "job"]).succeeds().json();
    assert_eq!(names(&lock), ["fence", "owner", "resource", "ttl_ms", "valid_ms"]);
    assert_eq!(
        (&lock["resource"], &lock["fence"], &lock["ttl_ms"]),
        (&"job".into(), &1.into(), &60_000.into())
    );
    let owner = lock["owner"].as_str().expect("an owner");
    redlock.run(&["--json", "acquire", "job"]).exits(NOT_ACQUIRED);

    let extended = redlock.run(&["--json", "extend", "--ttl", "5m", "--owner", owner, "--fence", "1", "job"]);
    let extended = extended.succeeds().json();
    assert_eq!(names(&extended), ["fence", "resource", "ttl_ms", "valid_ms"]);
    assert!(extended["valid_ms"].as_u64() > Some(60_000));

    let released = redlock.run(&["--json", "release", "--owner", owner, "job"]).succeeds().json();
    assert_eq!(names(&released), ["freed", "nodes", "resource"]);
    assert_eq!(released["nodes"][0]["answer"], "freed");
    assert!(fleet.is_free("job"));
}

#[test]
fn a_file_keeps_the_owner() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    assert_eq!(said.stdout, "REDLOCK_FENCE=1\nREDLOCK_TTL_MS=30000\n", "no owner is printed");
    let mode = std::fs::metadata(redlock.path().join("lock")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A file that is there may hold the owner of another lock.
    redlock.run(&["acquire", "--owner-file", "lock", "other"]).exits(USAGE);
    assert!(fleet.is_free("other"));
    // A lock that was not had leaves no file.
    redlock.run(&["acquire", "--owner-file", "none", "job"]).exits(NOT_ACQUIRED);
    assert!(!redlock.path().join("none").exists());
    redlock.run(&["extend", "--owner-file", "lock", "job"]).succeeds();
    redlock.run(&["release", "--owner-file", "lock", "job"]).succeeds();
    assert!(fleet.is_free("job"));
}

/// A script may have exported the owner and the fence of one lock, and name the file of another.
#[test]
fn a_file_on_the_command_line_goes_before_the_environment() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let other = redlock.run(&["--json", "acquire", "other"]).succeeds().json();
    redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    let run = |arguments: &[&str]| {
        let mut command = redlock.command(arguments);
        command.env("REDLOCK_OWNER", other["owner"].as_str().expect("an owner")).env("REDLOCK_FENCE", "77");
        redlock.finish(command)
    };
    run(&["extend", "--owner-file", "lock", "job"]).succeeds();
    run(&["release", "--owner-file", "lock", "job"]).succeeds();
    assert!(fleet.is_free("job") && !fleet.is_free("other"));
    // Two options that say different things are a mistake, and the variable alone still counts.
    run(&["release", "--owner-file", "lock", "--owner", "0123456789abcdef", "other"]).exits(USAGE);
    run(&["release", "other"]).succeeds();
    assert!(fleet.is_free("other"));
    let mut command = redlock.command(&["release", "other"]);
    let said = redlock.finish({
        command.env("REDLOCK_OWNER", "");
        command
    });
    assert!(said.exits(USAGE).stderr.contains("no owner"), "an empty variable is none");
}

#[test]
fn what_is_not_held_is_neither_extended_nor_freed() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "job"]).succeeds().json();
    let owner = lock["owner"].as_str().expect("an owner");
    let stranger = "0123456789abcdef0123456789abcdef";
    redlock.run(&["extend", "--owner", stranger, "--fence", "1", "job"]).exits(LOST);
    redlock.run(&["release", "--owner", stranger, "job"]).exits(LOST);
    redlock.run(&["extend", "--owner", owner, "--fence", "2", "job"]).exits(LOST);
    assert!(!fleet.is_free("job"));
    redlock.run(&["extend", "--owner", owner, "job"]).exits(USAGE);
    redlock.run(&["extend", "--fence", "1", "job"]).exits(USAGE);
    redlock.run(&["release", "job"]).exits(USAGE);
    redlock.run(&["release", "--owner", "short", "job"]).exits(USAGE);
    fleet[0].kill();
    fleet[1].kill();
    redlock.run(&["extend", "--owner", owner, "--fence", "1", "job"]).exits(NO_QUORUM);
    let said = redlock.run(&["--json", "release", "--owner", owner, "job"]).exits(NO_QUORUM);
    assert_eq!(said.json_error()["reason"], "no_quorum");
}

#[test]
fn whoever_asks_is_told_who_holds_a_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["inspect", "job"]).exits(1);
    assert!(said.stdout.starts_with("job is free\n"), "{said:?}");
    let free = redlock.run(&["--json", "inspect", "job"]).exits(1).json();
    assert_eq!(names(&free), ["lock", "nodes", "resource", "state"]);
    assert_eq!((&free["state"], &free["lock"]), (&"free".into(), &serde_json::Value::Null));

    redlock.run(&["acquire", "--label", "night \u{1b}[2J shift", "job"]).succeeds();
    let said = redlock.run(&["inspect", "job"]).succeeds();
    assert!(said.stdout.starts_with("job is held by night \u{fffd}[2J shift, fence 1, "), "{said:?}");
    let held = redlock.run(&["--json", "inspect", "job"]).succeeds().json();
    assert_eq!(held["state"], "held");
    assert_eq!(names(&held["lock"]), ["extensions", "fence", "held_ms", "label", "left_ms", "waiters"]);
    assert_eq!(names(&held["nodes"][0]), ["lock", "node", "state"]);

    fleet[0].kill();
    fleet[1].kill();
    let unclear = redlock.run(&["--json", "inspect", "job"]).exits(NO_QUORUM).json();
    assert_eq!(unclear["state"], "unclear");
    assert_eq!(names(&unclear["nodes"][0]), ["error", "node", "state"]);
}

#[test]
fn a_wait_for_a_lock_can_be_given_up() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "job"]).succeeds().json();
    let waiting = redlock.start(&["acquire", "--wait", "forever", "--owner-file", "lock", "job"]);
    eventually("it waits", SOON, || {
        let waiters = fleet.iter().map(|node| node.info("redlock", "redlock_waiters"));
        waiters.flatten().all(|count| count == "1").then_some(())
    });
    waiting.signal(SIGTERM);
    waiting.finish().exits(143);
    assert!(!redlock.path().join("lock").exists());
    redlock.run(&["release", "--owner", lock["owner"].as_str().expect("an owner"), "job"]).succeeds();
    eventually("nobody has it", SOON, || fleet.is_free("job").then_some(()));
}

#[test]
fn a_lock_that_cannot_be_handed_over_is_given_back() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut command = redlock.command(&["acquire", "job"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device that is full");
    command.stdout(full).stderr(std::process::Stdio::null());
    let status = redlock_tests::spawn(command).expect("the program starts").wait().expect("it ends");
    assert_eq!(status.code(), Some(115));
    assert!(fleet.is_free("job"));
}

/// Nodes count a key that somebody has set with `SET NX PX` as held: so it must not be called free.
#[test]
fn a_plain_key_is_not_called_free() {
    let rules = "on >hush ~* &* -@all +hello +redlock.inspect +redlock.node";
    let mut fleet = Fleet::start_with(3, |_, node| node.user("app", rules));
    let redlock = Launcher::of(&fleet);
    for node in fleet.iter().take(2) {
        node.connect().call(&["SET", "app:job", "somebody", "NX", "PX", "600000"]);
    }
    redlock.run(&["--prefix", "app:", "acquire", "job"]).exits(NOT_ACQUIRED);
    let said = redlock.run(&["--prefix", "app:", "inspect", "job"]).succeeds();
    assert!(said.stdout.starts_with("job is held by a plain key, as SET NX PX makes one: "), "{said:?}");
    assert_eq!(said.stdout.matches("plain key  -      9m5").count(), 2, "{said:?}");
    let seen = redlock.run(&["--json", "--prefix", "app:", "inspect", "job"]).succeeds().json();
    assert_eq!((&seen["state"], &seen["lock"]), (&"foreign".into(), &serde_json::Value::Null));
    assert_eq!(names(&seen["nodes"][0]), ["left_ms", "node", "state"]);
    assert!(seen["nodes"][0]["left_ms"].as_u64() > Some(500_000), "{seen}");
    assert_eq!(seen["nodes"][2]["state"], "free");
    // One of three keeps nobody from the lock, and one without an end is told as such.
    fleet[0].connect().call(&["DEL", "app:job"]);
    redlock.run(&["--prefix", "app:", "inspect", "job"]).exits(1);
    for node in fleet.iter() {
        node.connect().call(&["SET", "app:job", "somebody"]);
    }
    let said = redlock.run(&["--prefix", "app:", "inspect", "job"]).succeeds();
    assert!(said.stdout.lines().next().is_some_and(|line| line.ends_with("no label, no end")), "{said:?}");
    // Whoever may not see such keys is told that there may be some.
    let urls: Vec<String> =
        fleet.urls().iter().map(|url| url.replace("redis://", "redis://app:hush@")).collect();
    let said = Launcher::at(&urls).run(&["--prefix", "app:", "inspect", "job"]).exits(1);
    assert!(said.stderr.contains("+type and +pttl are needed"), "{said:?}");
    // Neither: one has it, one has it not, one is away.
    fleet[1].connect().call(&["DEL", "app:job"]);
    fleet[2].kill();
    redlock.run(&["--prefix", "app:", "inspect", "job"]).exits(NO_QUORUM);
}
