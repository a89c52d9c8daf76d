//! Locks in scripts: `redlock acquire`, `extend`, `release` and `inspect`.

use crate::processes::SIGTERM;
use crate::program::{INTERNAL, LOST, Launcher, NO_QUORUM, NOT_ACQUIRED, REJECTED, USAGE, names};
use redlock_tests::{Fleet, SOON, eventually};
use std::os::unix::fs::PermissionsExt;

#[test]
fn a_script_acquires_extends_and_releases_a_lock() {
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
fn owner_and_fence_are_passed_on_as_json() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "--ttl", "1m", "job"]).succeeds().json();
    assert_eq!(names(&lock), ["fence", "mode", "owner", "resource", "ttl_ms", "valid_ms"]);
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
fn an_owner_file_replaces_the_printed_owner() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    assert_eq!(
        said.stdout, "REDLOCK_FENCE=1\nREDLOCK_TTL_MS=30000\nREDLOCK_MODE=exclusive\n",
        "no owner is printed"
    );
    let mode = std::fs::metadata(redlock.path().join("lock")).expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // An existing file is not overwritten: it may hold the owner of another lock.
    redlock.run(&["acquire", "--owner-file", "lock", "other"]).exits(USAGE);
    assert!(fleet.is_free("other"));
    // Without the lock, no file is left.
    redlock.run(&["acquire", "--owner-file", "none", "job"]).exits(NOT_ACQUIRED);
    assert!(!redlock.path().join("none").exists());
    redlock.run(&["extend", "--owner-file", "lock", "job"]).succeeds();
    // A release that failed keeps the file: the name of the resource may be wrong.
    redlock.run(&["release", "--owner-file", "lock", "jib"]).exits(LOST);
    redlock.run(&["release", "--owner-file", "lock", "job"]).succeeds();
    assert!(fleet.is_free("job"));
    // So the next acquire can use the same name.
    assert!(!redlock.path().join("lock").exists());
    redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
}

/// 110 is for a call that must be changed, 115 for a file that cannot be used.
#[test]
fn an_owner_file_that_cannot_be_used_is_not_a_usage_error() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["acquire", "--owner-file", "no/such/folder", "job"]).exits(INTERNAL);
    assert!(said.stderr.contains("cannot create no/such/folder"), "{said:?}");
    for command in ["extend", "release"] {
        let error =
            redlock.run(&["--json", command, "--owner-file", "none", "job"]).exits(INTERNAL).json_error();
        assert_eq!((&error["reason"], &error["exit_code"]), (&"internal".into(), &INTERNAL.into()));
    }
    std::fs::write(redlock.path().join("lock"), "").expect("a file");
    let said = redlock.run(&["acquire", "--owner-file", "lock", "job"]).exits(USAGE);
    assert!(said.stderr.contains("lock exists already"), "{said:?}");
}

/// A node that does not extend a lock does not say why: the lock may be free.
#[test]
fn extend_does_not_guess_who_holds_the_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let owner = "0123456789abcdef0123456789abcdef";
    let error =
        redlock.run(&["--json", "extend", "--owner", owner, "--fence", "1", "job"]).exits(LOST).json_error();
    let message = error["message"].as_str().expect("a message");
    assert!(message.contains("not held by this owner") && !message.contains("another"), "{error}");
    assert_eq!(error["nodes"][0]["answer"], "not held by this owner");
    fleet[1].kill();
    fleet[2].kill();
    let said = redlock.run(&["extend", "--owner", owner, "--fence", "1", "job"]).exits(NO_QUORUM);
    assert!(!said.stderr.contains("held by another"), "{said:?}");
}

#[test]
fn errors_name_the_resource_and_the_answers_as_json() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let owner = "0123456789abcdef0123456789abcdef";
    let fails = |arguments: &[&str], code: i32, nodes: usize| {
        let error = redlock.run(&[&["--json"], arguments].concat()).exits(code).json_error();
        assert_eq!(error["resource"], "job", "{arguments:?}: {error}");
        let answers = error["nodes"].as_array().map_or(0, Vec::len);
        assert_eq!(answers, nodes, "{arguments:?}: {error}");
        if nodes > 0 {
            let of_holder: &[&str] = if code == NOT_ACQUIRED { &["label", "left_ms"] } else { &[] };
            let expected = [&["answer"], of_holder, &["node"]].concat();
            assert_eq!(names(&error["nodes"][0]), expected, "{arguments:?}: {error}");
        }
    };
    fails(&["release", "--owner", owner, "job"], LOST, 3);
    fails(&["release", "job"], USAGE, 0);
    fails(&["run", "job", "--", "no-such-command"], 127, 0);
    fails(&["run", "--kill-after", "1h", "job", "--", "true"], USAGE, 0);
    redlock.run(&["acquire", "--ttl", "9m", "job"]).succeeds();
    fails(&["run", "job", "--", "true"], NOT_ACQUIRED, 3);
    fails(&["break", "job"], USAGE, 0);
    fleet[1].kill();
    fleet[2].kill();
    fails(&["release", "--owner", owner, "job"], NO_QUORUM, 3);
    fails(&["break", "--yes", "job"], NO_QUORUM, 3);
    fails(&["acquire", "job"], NO_QUORUM, 3);
}

#[test]
fn a_missing_permission_has_an_exit_code_of_its_own() {
    let rules = "on >hush ~* &* -@all +hello +redlock.node +redlock.inspect";
    let fleet = Fleet::start_with(3, |_, node| node.user("watcher", rules));
    let login = |url: &String| url.replace("redis://", "redis://watcher:hush@");
    let watcher = Launcher::at(&fleet.urls().iter().map(login).collect::<Vec<_>>());
    let owner = "0123456789abcdef0123456789abcdef";
    let lines: [&[&str]; 5] = [
        &["run", "job", "--", "touch", "ran"],
        &["run", "--wait", "10m", "job", "--", "touch", "ran"],
        &["acquire", "job"],
        &["extend", "--owner", owner, "--fence", "1", "job"],
        &["release", "--owner", owner, "job"],
    ];
    for line in lines {
        let error = watcher.run(&[&["--json"], line].concat()).exits(REJECTED).json_error();
        assert_eq!(
            (&error["reason"], &error["exit_code"]),
            (&"rejected".into(), &REJECTED.into()),
            "{error}"
        );
        let answers = error["nodes"].as_array().expect("nodes").iter().map(|node| &node["answer"]);
        let quotes = answers.filter(|answer| answer.as_str().is_some_and(|words| words.contains("NOPERM")));
        assert_eq!(quotes.count(), 3, "{line:?}: {error}");
    }
    assert!(!watcher.path().join("ran").exists());
}

/// A script may have exported the owner and the fence of one lock, and name the file of another.
#[test]
fn an_owner_file_overrides_the_environment() {
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
    // The two options together are an error. Without them, the variable counts.
    run(&["release", "--owner-file", "lock", "--owner", "0123456789abcdef", "other"]).exits(USAGE);
    run(&["release", "other"]).succeeds();
    assert!(fleet.is_free("other"));
    let mut command = redlock.command(&["release", "other"]);
    let said = redlock.finish({
        command.env("REDLOCK_OWNER", "");
        command
    });
    assert!(said.exits(USAGE).stderr.contains("no owner"), "an empty variable counts as not set");
}

#[test]
fn only_the_holder_can_extend_and_release() {
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
fn inspect_shows_the_holder() {
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
    assert_eq!(
        names(&held["lock"]),
        ["extensions", "fence", "held_ms", "holders", "label", "left_ms", "mode", "waiters"]
    );
    assert_eq!(names(&held["nodes"][0]), ["lock", "node", "state"]);

    fleet[0].kill();
    fleet[1].kill();
    let unclear = redlock.run(&["--json", "inspect", "job"]).exits(NO_QUORUM).json();
    assert_eq!(unclear["state"], "unclear");
    assert_eq!(names(&unclear["nodes"][0]), ["error", "node", "state"]);
}

#[test]
fn a_signal_ends_the_wait_of_acquire() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "job"]).succeeds().json();
    let waiting = redlock.start(&["acquire", "--wait", "forever", "--owner-file", "lock", "job"]);
    eventually("every node has one waiter", SOON, || {
        let waiters = fleet.iter().map(|node| node.info("redlock", "redlock_waiters"));
        waiters.flatten().all(|count| count == "1").then_some(())
    });
    waiting.signal(SIGTERM);
    waiting.finish().exits(143);
    assert!(!redlock.path().join("lock").exists());
    redlock.run(&["release", "--owner", lock["owner"].as_str().expect("an owner"), "job"]).succeeds();
    eventually("no node holds the lock", SOON, || fleet.is_free("job").then_some(()));
}

#[test]
fn acquire_releases_a_lock_that_it_cannot_print() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut command = redlock.command(&["acquire", "job"]);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    command.stdout(full).stderr(std::process::Stdio::null());
    let status = redlock_tests::spawn(command).expect("the program starts").wait().expect("the program ends");
    assert_eq!(status.code(), Some(115));
    assert!(fleet.is_free("job"));
}

/// For the nodes, a key that a client has set with `SET NX PX` is held. So inspect must not call it free.
#[test]
fn inspect_shows_a_plain_key_as_held() {
    let rules = "on >hush ~* &* -@all +hello +redlock.inspect +redlock.node";
    let mut fleet = Fleet::start_with(3, |_, node| node.user("app", rules));
    let redlock = Launcher::of(&fleet);
    for node in fleet.iter().take(2) {
        node.connect().call(&["SET", "app:job", "somebody", "NX", "PX", "600000"]);
    }
    redlock.run(&["--prefix", "app:", "acquire", "job"]).exits(NOT_ACQUIRED);
    let said = redlock.run(&["--prefix", "app:", "inspect", "job"]).succeeds();
    assert!(said.stdout.starts_with("job is held by a plain key (SET NX PX): "), "{said:?}");
    assert_eq!(said.stdout.matches("plain key  -      9m5").count(), 2, "{said:?}");
    let seen = redlock.run(&["--json", "--prefix", "app:", "inspect", "job"]).succeeds().json();
    assert_eq!((&seen["state"], &seen["lock"]), (&"foreign".into(), &serde_json::Value::Null));
    assert_eq!(names(&seen["nodes"][0]), ["left_ms", "node", "state"]);
    assert!(seen["nodes"][0]["left_ms"].as_u64() > Some(500_000), "{seen}");
    assert_eq!(seen["nodes"][2]["state"], "free");
    // A plain key on one of three nodes does not block the lock. A key that never expires is shown as such.
    fleet[0].connect().call(&["DEL", "app:job"]);
    redlock.run(&["--prefix", "app:", "inspect", "job"]).exits(1);
    for node in fleet.iter() {
        node.connect().call(&["SET", "app:job", "somebody"]);
    }
    let said = redlock.run(&["--prefix", "app:", "inspect", "job"]).succeeds();
    assert!(said.stdout.lines().next().is_some_and(|line| line.ends_with("no label, no expiry")), "{said:?}");
    // A user who cannot see plain keys gets a note about the missing permissions.
    let urls: Vec<String> =
        fleet.urls().iter().map(|url| url.replace("redis://", "redis://app:hush@")).collect();
    let said = Launcher::at(&urls).run(&["--prefix", "app:", "inspect", "job"]).exits(1);
    assert!(said.stderr.contains("this user needs +type and +pttl"), "{said:?}");
    // Neither held nor free on a majority: one node has the key, one has not, one is down.
    fleet[1].connect().call(&["DEL", "app:job"]);
    fleet[2].kill();
    redlock.run(&["--prefix", "app:", "inspect", "job"]).exits(NO_QUORUM);
}
