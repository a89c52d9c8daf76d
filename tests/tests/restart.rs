//! Restarts: after which ends of a server all its locks certainly survive, and the quarantine after all other ends.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_contract::Quarantine;
use redlock_tests::{
    Answer, FakeClock, SOON, Server, ServerBuilder, Wire, eventually, granted, start_frozen,
};
use std::fs;
use std::process::Command;
use std::time::Duration;

const TTL_MS: i64 = 60_000;

fn append_only(fsync: &str) -> ServerBuilder {
    Server::builder().arg("appendonly", "yes").arg("appendfsync", fsync)
}

fn snapshots() -> ServerBuilder {
    Server::builder().arg("save", "3600 1")
}

fn grace(builder: ServerBuilder, grace: &str) -> ServerBuilder {
    builder.module_args(["restart-grace", grace])
}

fn take(server: &Server, key: &str) -> i64 {
    granted(&server.connect().call(&["REDLOCK.ACQUIRE", key, "me", &TTL_MS.to_string()]))
}

fn node(wire: &mut Wire, field: &str) -> Answer {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field(field).unwrap_or_else(|| panic!("no {field} in {node:?}")).clone()
}

fn left_ms(server: &Server) -> i64 {
    node(&mut server.connect(), "quarantine-ms").int()
}

/// Whether the append-only file contains a key.
fn is_written(server: &Server, key: &str) -> bool {
    let files = fs::read_dir(server.data_dir().join("appendonlydir")).expect("append-only files").flatten();
    let key = format!("\r\n{key}\r\n");
    let mut texts = files.map(|file| fs::read(file.path()).expect("a readable file"));
    texts.any(|text| text.windows(key.len()).any(|part| part == key.as_bytes()))
}

/// Ends a server by a crash, a signal or a command, and starts it again.
fn end_and_restart(server: &mut Server, end: &str) {
    match end {
        "crash" => server.kill(),
        "SIGTERM" => {
            let pid = server.pid().to_string();
            assert!(Command::new("kill").arg(&pid).status().expect("kill is installed").success());
        }
        _ => {
            if let Ok(answer) = server.connect().try_call(&end.split(' ').collect::<Vec<_>>()) {
                panic!("{end}: {answer:?}");
            }
        }
    }
    eventually("the server has ended", SOON, || (!server.is_running()).then_some(()));
    server.kill();
    server.restart();
}

/// Asserts that the node grants nothing until the longest lease has ended, and answers all other commands meanwhile.
fn verify_quarantine(server: &Server, clock: &FakeClock, case: &str) {
    let mut wire = server.connect();
    let left = left_ms(server);
    assert!((TTL_MS + TTL_MS / 100 + 2..=TTL_MS * 9 / 8).contains(&left), "{case}: {left} ms");
    let answer = wire.call_strs("REDLOCK.ACQUIRE fresh other 1000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{case}: {answer:?}");
    let reported = Quarantine::parse(answer.string().as_bytes());
    assert_eq!(reported, Some(Quarantine { left_ms: left.unsigned_abs() }), "{case}: {answer:?}");
    let answer = wire.call_strs("REDLOCK.MACQUIRE 2 fresh new other 1000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{case}: {answer:?}");
    assert_eq!(wire.call_strs("REDLOCK.EXTEND fresh other 1000"), Answer::Nil, "{case}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE fresh other"), Answer::Int(0), "{case}");
    assert_eq!(wire.call_strs("REDLOCK.INSPECT fresh"), Answer::Nil, "{case}");

    clock.advance_module(Duration::from_millis(left.unsigned_abs() - 1));
    let answer = wire.call_strs("REDLOCK.ACQUIRE fresh third 1000");
    assert_eq!(
        answer.error_word(),
        Some("REDLOCKQUARANTINE"),
        "{case}, until the last millisecond: {answer:?}"
    );
    clock.advance_module(Duration::from_millis(2));
    granted(&wire.call_strs("REDLOCK.ACQUIRE fresh third 1000"));
    assert_eq!(left_ms(server), 0, "{case}");
}

fn verify_no_quarantine(server: &Server, case: &str) {
    assert_eq!(left_ms(server), 0, "{case}");
    let quarantines = server.info("redlock", "redlock_quarantines");
    assert_eq!(quarantines.as_deref(), Some("0"), "{case}: the node counts no quarantine");
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE fresh other 1000"));
}

type Persistence = fn() -> ServerBuilder;

/// The ways in which a server stores its data.
const KEEPS: [(&str, Persistence); 4] = [
    ("nothing", Server::builder),
    ("RDB", snapshots),
    ("AOF everysec", || append_only("everysec")),
    ("AOF always", || append_only("always")),
];

#[test]
fn a_node_with_locks_is_in_quarantine_unless_a_clean_end_stored_them_all() {
    for (keep, builder) in KEEPS {
        for end in ["crash", "SHUTDOWN", "SIGTERM", "SHUTDOWN NOSAVE", "SHUTDOWN SAVE"] {
            let case = format!("keeping {keep}, {end}");
            let (mut server, clock) = start_frozen(builder());
            let fence = take(&server, "lock");
            end_and_restart(&mut server, end);
            // An append-only file is complete after any shutdown. RDB is complete if the shutdown made a snapshot.
            let kept = match (keep, end) {
                (_, "crash") => false,
                ("nothing", _) => end == "SHUTDOWN SAVE",
                ("RDB", _) => end != "SHUTDOWN NOSAVE",
                _ => true,
            };
            if kept {
                verify_no_quarantine(&server, &case);
                let mut wire = server.connect();
                assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil, "{case}");
                assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 1000"), Answer::Int(fence), "{case}");
            } else {
                verify_quarantine(&server, &clock, &case);
                assert!(server.log().contains("quarantine"), "{case}");
            }
        }
    }
}

#[test]
fn a_node_without_locks_is_in_quarantine_only_after_a_crash() {
    for (keep, builder) in KEEPS {
        for end in ["crash", "SHUTDOWN", "SHUTDOWN NOSAVE"] {
            let case = format!("keeping {keep}, {end}");
            let (mut server, clock) = start_frozen(builder());
            let fence = take(&server, "lock");
            assert_eq!(server.connect().call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
            end_and_restart(&mut server, end);
            // The node cannot know whether it granted locks after the state that it has loaded.
            if end == "crash" {
                verify_quarantine(&server, &clock, &case);
            } else {
                verify_no_quarantine(&server, &case);
            }
            clock.advance_module(Duration::from_secs(100));
            assert!(take(&server, "lock") > fence, "{case}");
        }
    }
}

#[test]
fn loaded_locks_can_be_released_and_not_extended_in_quarantine() {
    let (mut server, clock) = start_frozen(append_only("everysec"));
    let fences = ["kept", "refreshed", "released"].map(|key| take(&server, key));
    // The server writes later when the disk is busy.
    eventually("the last grant is in the file", SOON, || is_written(&server, "released").then_some(()));
    server.kill();
    server.restart();
    let mut wire = server.connect();
    assert!(left_ms(&server) > 0);
    // The loaded locks may have been released before the crash, and another client may hold them on other nodes.
    for line in ["REDLOCK.EXTEND kept me 60000", "REDLOCK.ACQUIRE refreshed me 60000"] {
        assert_eq!(wire.call_strs(line).error_word(), Some("REDLOCKQUARANTINE"), "{line}");
    }
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE kept other 60000"), Answer::Nil);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    let answer = wire.call_strs("REDLOCK.ACQUIRE released other 60000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
    assert_eq!(wire.inspect("kept").map(|lock| lock.fence), Some(fences[0]));
    clock.advance_module(Duration::from_secs(100));
    assert!(take(&server, "kept") > fences[0]);
}

#[test]
fn a_second_restart_does_not_shorten_the_quarantine() {
    for end in ["crash", "SHUTDOWN", "SHUTDOWN NOSAVE", "SHUTDOWN SAVE"] {
        for (keep, builder) in &KEEPS[..3] {
            let (mut server, clock) = start_frozen(builder());
            take(&server, "lock");
            server.kill();
            server.restart();
            clock.advance_module(Duration::from_secs(1));
            end_and_restart(&mut server, end);
            verify_quarantine(&server, &clock, &format!("keeping {keep}, {end} in quarantine"));
        }
    }
}

#[test]
fn an_older_append_only_file_is_not_taken_for_the_latest() {
    // With appendfsync always, every grant is in the file before its reply. Even then the file may be an older copy.
    for fsync in ["always", "everysec"] {
        let (mut server, clock) = start_frozen(append_only(fsync));
        take(&server, "first");
        let folder = server.data_dir().join("appendonlydir");
        eventually("the first grant is in the file", SOON, || is_written(&server, "first").then_some(()));
        let older: Vec<_> = fs::read_dir(&folder)
            .expect("the append-only folder")
            .flatten()
            .map(|file| (file.path(), fs::read(file.path()).expect("a readable file")))
            .collect();
        take(&server, "second");
        server.kill();
        for (path, bytes) in older {
            fs::write(path, bytes).expect("the file can be written");
        }
        server.restart();
        assert_eq!(
            server.connect().call_strs("EXISTS first second"),
            Answer::Int(1),
            "the older file must lack the second lock"
        );
        verify_quarantine(&server, &clock, &format!("an older file, appendfsync {fsync}"));
    }
}

#[test]
fn a_truncated_append_only_file_leads_to_quarantine() {
    let (mut server, clock) = start_frozen(append_only("always"));
    take(&server, "first");
    take(&server, "second");
    server.kill();
    let folder = server.data_dir().join("appendonlydir");
    let files =
        fs::read_dir(folder).expect("the append-only folder").map(|file| file.expect("a file").path());
    let file = files.into_iter().find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("a file");
    let bytes = fs::read(&file).expect("a readable file");
    fs::write(&file, &bytes[..bytes.len() - 10]).expect("the file can be written");
    server.restart();
    assert_eq!(server.connect().call_strs("DBSIZE"), Answer::Int(1), "the server loads the rest of the file");
    verify_quarantine(&server, &clock, "the last grant is cut off");
}

/// The append-only file has no checksum: the server loads a changed digit without an error.
#[test]
fn a_digit_changed_in_the_append_only_file_lowers_no_fence() {
    let (mut server, clock) = start_frozen(append_only("always"));
    let mut wire = server.connect();
    let before = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000 FENCE 7777777"));
    assert_eq!(before, 7_777_777);
    server.kill();
    let folder = server.data_dir().join("appendonlydir");
    let mut changed = 0;
    for file in fs::read_dir(folder).expect("the append-only folder").flatten() {
        let mut bytes = fs::read(file.path()).expect("a readable file");
        let places = bytes.windows(7).enumerate().filter(|(_, word)| *word == b"7777777").map(|(at, _)| at);
        for at in places.collect::<Vec<_>>() {
            bytes[at] ^= b'7' ^ b'1';
            changed += 1;
        }
        fs::write(file.path(), bytes).expect("the file can be written");
    }
    assert!(changed > 0, "the file contains the fence");
    server.restart();
    let mut wire = server.connect();
    assert_eq!(
        wire.inspect("lock").map(|lock| lock.fence),
        Some(1_777_777),
        "the server loads the changed digit"
    );
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
    // The state file has a checksum, and covers the largest fence.
    clock.advance_module(Duration::from_secs(100));
    assert!(take(&server, "lock") > before);
}

#[test]
fn an_append_only_file_that_missed_a_run_of_the_server_leads_to_quarantine() {
    let folder = tempfile::tempdir().expect("a data folder");
    let clock = FakeClock::new();
    clock.freeze_module();
    let with_aof = || append_only("always").data_dir(folder.path()).clock(&clock).start();
    take(&with_aof(), "kept");
    let without_aof = Server::builder().data_dir(folder.path()).clock(&clock).start();
    assert!(left_ms(&without_aof) >= TTL_MS, "this server has not loaded the file");
    clock.advance_module(Duration::from_secs(100));
    take(&without_aof, "lost");
    drop(without_aof);
    let server = with_aof();
    assert_eq!(server.connect().call_strs("EXISTS kept lost"), Answer::Int(1));
    verify_quarantine(&server, &clock, "a run without the file in between");
}

#[test]
fn a_crash_after_a_clean_restart_leads_to_quarantine() {
    let (mut server, clock) = start_frozen(snapshots());
    take(&server, "lock");
    server.restart();
    verify_no_quarantine(&server, "a clean restart");
    server.kill();
    server.restart();
    verify_quarantine(&server, &clock, "a crash after a clean restart");
}

#[test]
fn an_older_snapshot_is_not_taken_for_the_last_one() {
    // Changes after the snapshot. The shutdown without saving loses all of them.
    let changes: [&[&str]; 5] = [
        &["REDLOCK.ACQUIRE another me 60000"],
        &["REDLOCK.RELEASE lock me", "REDLOCK.ACQUIRE lock other 60000"],
        &["REDLOCK.RELEASE lock me", "REDLOCK.ACQUIRE lock me 60000"],
        &["REDLOCK.EXTEND lock me 60000 FENCE 500"],
        &["REDLOCK.RELEASE lock me", "REDLOCK.ACQUIRE another me 60000"],
    ];
    for lines in changes {
        let (mut server, clock) = start_frozen(snapshots());
        take(&server, "lock");
        assert_eq!(server.connect().call_strs("SAVE"), Answer::ok());
        for line in lines {
            granted(&server.connect().call_strs(line));
        }
        end_and_restart(&mut server, "SHUTDOWN NOSAVE");
        verify_quarantine(&server, &clock, &format!("{lines:?}"));
    }
}

#[test]
fn a_snapshot_from_before_an_extension_does_not_end_the_lock_early() {
    for line in
        ["REDLOCK.EXTEND lock me 60000", "REDLOCK.ACQUIRE lock me 60000", "REDLOCK.MEXTEND 1 lock me 60000"]
    {
        let (mut server, clock) = start_frozen(snapshots());
        granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 1000"));
        assert_eq!(server.connect().call_strs("SAVE"), Answer::ok());
        granted(&server.connect().call_strs(line));
        end_and_restart(&mut server, "SHUTDOWN NOSAVE");
        // The snapshot has a lock of one second, and the extension granted one minute.
        clock.advance_module(Duration::from_millis(59_000));
        let answer = server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000");
        let refused = answer == Answer::Nil || answer.error_word() == Some("REDLOCKQUARANTINE");
        assert!(refused, "{line}: the node must not grant the lock to a second holder: {answer:?}");
    }
}

#[test]
fn a_failed_shutdown_does_not_count_as_a_clean_end() {
    let (mut server, clock) = start_frozen(snapshots());
    take(&server, "lock");
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("SAVE"), Answer::ok());
    // A folder in place of the snapshot makes SHUTDOWN SAVE fail, and the server continues.
    let (snapshot, aside) = (server.data_dir().join("dump.rdb"), server.data_dir().join("aside"));
    fs::rename(&snapshot, &aside).expect("the file can be renamed");
    fs::create_dir_all(snapshot.join("in the way")).expect("the folder can be created");
    let answer = wire.call_strs("SHUTDOWN SAVE");
    assert!(matches!(answer, Answer::Error(_)), "{answer:?}");
    assert!(server.is_running());
    // The server saves its data before it tells the module that it ends.
    let state = fs::read_to_string(server.data_dir().join("redlock.state")).expect("a state file");
    assert!(state.contains("\nlocks-at-shutdown unknown\n"), "{state}");
    fs::remove_dir_all(&snapshot).expect("the folder can be removed");
    fs::rename(&aside, &snapshot).expect("the file can be renamed");
    take(&server, "granted after the snapshot");
    server.kill();
    server.restart();
    verify_quarantine(&server, &clock, "a crash after a failed shutdown");
}

#[test]
fn a_removed_data_set_leads_to_quarantine() {
    for (keep, builder) in [KEEPS[1], KEEPS[2]] {
        let (mut server, clock) = start_frozen(builder());
        take(&server, "lock");
        server.shutdown();
        for entry in fs::read_dir(server.data_dir()).expect("the server's dir") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                fs::remove_dir_all(path).expect("the folder can be removed");
            } else if path.extension().is_some_and(|kind| kind == "rdb") {
                fs::remove_file(path).expect("the file can be removed");
            }
        }
        server.restart();
        verify_quarantine(&server, &clock, keep);
    }
}

/// The append-only file has the whole time to live of each lock, which is longer than the longest lease that may still
/// run.
#[test]
fn a_clean_restart_needs_no_quarantine_after_the_longest_lease_was_lowered() {
    let (mut server, clock) = start_frozen(append_only("everysec"));
    let fence = granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 600000"));
    let longest = |server: &Server| node(&mut server.connect(), "longest-lease-ms").int();
    let at_first = longest(&server);
    // The node lowers it when more than half of the lease has been over for a minute.
    clock.advance_module(Duration::from_secs(400));
    server.wait_for_cron();
    clock.advance_module(Duration::from_secs(61));
    eventually("the longest lease is lowered", SOON, || (longest(&server) < at_first).then_some(()));
    let lowered = longest(&server);
    server.shutdown();
    server.restart();
    verify_no_quarantine(&server, "with a lower longest lease");
    let mut wire = server.connect();
    let left_ms = wire.inspect("lock").expect("a loaded lock").pttl;
    assert!((1..=lowered).contains(&left_ms), "{left_ms} of {lowered}");
    assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 1000"), Answer::Int(fence));
}

#[test]
fn a_new_node_grants_at_once_and_reports_that_it_is_new() {
    let (mut server, _clock) = start_frozen(Server::builder());
    verify_no_quarantine(&server, "a new node");
    assert_eq!(node(&mut server.connect(), "started"), Answer::text("new"));
    assert!(server.log().lines().any(|line| line.contains("redlock") && line.contains("new")));
    let id = node(&mut server.connect(), "node-id");
    assert_eq!(id.string().len(), 40, "{id:?}");
    for end in ["crash", "SHUTDOWN", "SHUTDOWN NOSAVE", "crash"] {
        end_and_restart(&mut server, end);
        let mut wire = server.connect();
        assert_eq!(node(&mut wire, "started"), Answer::text("resumed"), "{end}");
        assert_eq!(node(&mut wire, "node-id"), id, "{end}: still the same node");
    }
    let another = Server::start();
    assert_ne!(node(&mut another.connect(), "node-id"), id);
}

#[test]
fn a_node_that_never_granted_needs_no_quarantine() {
    let (mut server, _clock) = start_frozen(Server::builder());
    server.kill();
    server.restart();
    verify_no_quarantine(&server, "a crash of a node that never granted");
}

#[test]
fn with_restart_grace_always_a_node_is_in_quarantine_after_any_start() {
    let (mut server, clock) = start_frozen(grace(snapshots(), "always"));
    // A new node may replace one that has granted locks, so its quarantine lasts max-ttl.
    let left = left_ms(&server);
    assert!(left >= 3_600_000, "{left}");
    let answer = server.connect().call_strs("REDLOCK.ACQUIRE lock me 60000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
    clock.advance_module(Duration::from_millis(left.unsigned_abs() + 1));
    take(&server, "lock");
    for end in ["SHUTDOWN", "crash"] {
        end_and_restart(&mut server, end);
        verify_quarantine(&server, &clock, end);
        clock.advance_module(Duration::from_secs(100));
    }
}

#[test]
fn with_restart_grace_always_the_quarantine_of_a_new_node_lasts_max_ttl() {
    let builder = Server::builder().module_args(["restart-grace", "always", "max-ttl", "5000"]);
    let (server, clock) = start_frozen(builder);
    assert!((5_000..=5_100).contains(&left_ms(&server)), "{}", left_ms(&server));
    clock.advance_module(Duration::from_millis(5_101));
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 5000"));
}

#[test]
fn with_restart_grace_off_a_node_grants_a_held_lock_again_but_no_fence_twice() {
    for (keep, builder) in KEEPS {
        let (mut server, _clock) = start_frozen(grace(builder(), "off"));
        let fence = take(&server, "lock");
        server.kill();
        server.restart();
        verify_no_quarantine(&server, keep);
        let answer = server.connect().call_strs("REDLOCK.ACQUIRE lock other 1000");
        if keep == "nothing" || keep == "RDB" {
            assert!(granted(&answer) > fence, "{keep}: granted again, with a larger fence");
        }
    }
}

#[test]
fn restart_grace_can_be_set_at_run_time_for_the_next_start() {
    let (mut server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    let get = |wire: &mut Wire| wire.call_strs("CONFIG GET redlock.restart-grace").list()[1].string();
    assert_eq!(get(&mut wire), "auto");
    take(&server, "lock");
    assert_eq!(wire.call_strs("CONFIG SET redlock.restart-grace off"), Answer::ok());
    assert_eq!(get(&mut wire), "off");
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    server.kill();
    server.restart();
    verify_no_quarantine(&server, "off");
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("CONFIG SET redlock.restart-grace always"), Answer::ok());
    assert_eq!(left_ms(&server), 0, "the setting applies from the next start");
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    assert!(matches!(wire.call_strs("CONFIG SET redlock.restart-grace sometimes"), Answer::Error(_)));
    server.restart();
    verify_quarantine(&server, &clock, "always");
}
