//! What a server stores and loads: owner, fence, label and times of each lock, and the fences of released keys.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{
    Answer, FakeClock, InspectReply, SOON, Server, ServerBuilder, Wire, eventually, granted, start_frozen,
};
use std::fs;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Bytes that break text formats, C strings and line protocols.
const KEY: &[u8] = b"job \0\r\n\xff";
const OWNER: &[u8] = b"\0owner\r\n\xfe\"";
const LABEL: &[u8] = b"night\0ly \xff\r\n";

fn aof(fsync: &str) -> ServerBuilder {
    // These tests check what the server keeps. Without this setting, the node would be in quarantine after a crash.
    let builder = Server::builder().module_args(["restart-grace", "off"]);
    builder.arg("appendonly", "yes").arg("appendfsync", fsync)
}

fn call(wire: &mut Wire, name: &str, rest: &[&[u8]]) -> Answer {
    wire.call(&[&[name.as_bytes(), KEY, OWNER], rest].concat())
}

/// Takes and extends a lock, and takes and releases another one, whose fence the node must not forget.
fn prepare(wire: &mut Wire, clock: &FakeClock) -> InspectReply {
    assert_eq!(call(wire, "REDLOCK.ACQUIRE", &[b"60000", b"FENCE", b"41", b"LABEL", LABEL]), Answer::Int(41));
    clock.advance_module(Duration::from_secs(5));
    assert_eq!(call(wire, "REDLOCK.EXTEND", &[b"60000"]), Answer::Int(41));
    assert_eq!(call(wire, "REDLOCK.EXTEND", &[b"60000"]), Answer::Int(41));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE released me 60000 FENCE 1000"), Answer::Int(1000));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
    let before = wire.inspect(KEY).expect("the lock is held");
    let expected = InspectReply {
        fence: 41,
        label: LABEL.into(),
        pttl: 60_000,
        held_ms: 5_000,
        extensions: 2,
        waiters: 0,
        holders: vec![],
    };
    assert_eq!(before, expected);
    before
}

/// Asserts that a client sees the lock as before, and that the lock still works.
fn verify(wire: &mut Wire, before: &InspectReply, pttl: RangeInclusive<i64>, held_ms: RangeInclusive<i64>) {
    let after = wire.inspect(KEY).expect("the lock is still held");
    assert_eq!((after.fence, &after.label, after.extensions), (41, &before.label, 2));
    assert!(pttl.contains(&after.pttl), "{after:?}");

    let stranger: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", KEY, b"stranger", b"1000"];
    assert_eq!(wire.call(&stranger), Answer::Nil);
    assert_eq!(wire.call(&[b"REDLOCK.RELEASE", KEY, b"stranger"]), Answer::Int(0));
    assert_eq!(call(wire, "REDLOCK.EXTEND", &[b"60000"]), Answer::Int(41), "the lock still has its owner");
    assert_eq!(call(wire, "REDLOCK.RELEASE", &[]), Answer::Int(1));
    assert!(
        granted(&wire.call(&stranger[..3].iter().copied().chain([&b"5000"[..]]).collect::<Vec<_>>())) > 41
    );
    assert!(held_ms.contains(&after.held_ms), "{after:?}");
}

fn verify_released_fence(wire: &mut Wire) {
    let next = granted(&wire.call_strs("REDLOCK.ACQUIRE released another 60000"));
    assert!(next > 1000, "fence {next} is not larger than 1000");
}

#[test]
fn a_snapshot_keeps_locks_and_fences() {
    // The node granted nothing after the snapshot, but cannot know that: without the setting it would be in quarantine.
    let (mut server, clock) = start_frozen(Server::builder().module_args(["restart-grace", "off"]));
    let before = prepare(&mut server.connect(), &clock);
    clock.advance_module(Duration::from_secs(2));
    assert_eq!(server.connect().call_strs("SAVE"), Answer::ok());
    server.kill();
    server.restart();
    let mut wire = server.connect();
    // The remaining time and the time held are those at the moment of the snapshot.
    verify(&mut wire, &before, 58_000..=58_000, 7_000..=7_000);
    verify_released_fence(&mut wire);
}

#[test]
fn a_clean_shutdown_keeps_locks_and_fences() {
    let (mut server, clock) = start_frozen(Server::builder().arg("save", "3600 1"));
    let before = prepare(&mut server.connect(), &clock);
    server.restart();
    let mut wire = server.connect();
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

#[test]
fn debug_reload_keeps_locks_and_fences() {
    let (server, clock) = start_frozen(Server::builder().debug_commands());
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    assert_eq!(wire.call_strs("DEBUG RELOAD"), Answer::ok());
    // The server may free the old value in the background. Until then the module counts both.
    eventually("the module counts the lock once", SOON, || {
        (server.info("redlock", "redlock_locks")? == "1").then_some(())
    });
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

#[test]
fn a_reloaded_lock_still_expires() {
    let (server, clock) = start_frozen(Server::builder().debug_commands());
    let mut wire = server.connect();
    prepare(&mut wire, &clock);
    assert_eq!(wire.call_strs("DEBUG RELOAD"), Answer::ok());
    clock.advance_module(Duration::from_secs(61));
    eventually("the reloaded lock is swept", SOON, || {
        (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
    });
}

#[test]
fn an_append_only_file_keeps_locks_over_a_crash() {
    let (mut server, clock) = start_frozen(aof("always"));
    let before = prepare(&mut server.connect(), &clock);
    clock.advance_module(Duration::from_secs(2));
    server.kill();
    server.restart();
    let mut wire = server.connect();
    // The file has the remaining time at the last effect. The time since then may be missing: the lock may last longer,
    // never shorter.
    verify(&mut wire, &before, 58_000..=60_000, 5_000..=7_000);
    verify_released_fence(&mut wire);
}

#[test]
fn an_append_only_file_keeps_locks_over_a_restart() {
    let (mut server, clock) = start_frozen(aof("everysec"));
    let before = prepare(&mut server.connect(), &clock);
    server.restart();
    let mut wire = server.connect();
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

#[test]
fn an_append_only_file_may_be_loaded_twice() {
    let (server, clock) = start_frozen(aof("always").debug_commands());
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    assert_eq!(wire.call_strs("DEBUG LOADAOF"), Answer::ok());
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

fn rewrite(server: &Server) {
    let answer = server.connect().call_strs("BGREWRITEAOF");
    assert!(matches!(answer, Answer::Status(_)), "{answer:?}");
    eventually("the append-only file is rewritten", SOON, || {
        let field = |name| server.info("persistence", name);
        let busy = field("aof_rewrite_in_progress")? == "1" || field("aof_rewrite_scheduled")? == "1";
        (!busy && field("aof_last_bgrewrite_status")? == "ok").then_some(())
    });
}

#[test]
fn an_append_only_file_rewritten_with_an_rdb_preamble_keeps_everything() {
    let (mut server, clock) = start_frozen(aof("always").arg("aof-use-rdb-preamble", "yes"));
    let before = prepare(&mut server.connect(), &clock);
    rewrite(&server);
    server.kill();
    server.restart();
    let mut wire = server.connect();
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

#[test]
fn an_append_only_file_rewritten_as_commands_keeps_locks_and_fences() {
    let (mut server, clock) = start_frozen(aof("always").arg("aof-use-rdb-preamble", "no"));
    let before = prepare(&mut server.connect(), &clock);
    rewrite(&server);
    server.kill();
    server.restart();
    let mut wire = server.connect();
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    // The file has no command for the fence of a released key. The state file covers it.
    verify_released_fence(&mut wire);
}

#[test]
fn an_append_only_file_rewritten_as_commands_and_a_clean_shutdown_keep_fences() {
    let (mut server, clock) = start_frozen(aof("everysec").arg("aof-use-rdb-preamble", "no"));
    let before = prepare(&mut server.connect(), &clock);
    rewrite(&server);
    server.restart();
    let mut wire = server.connect();
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
    verify_released_fence(&mut wire);
}

/// The content of all append-only files, in upper case.
fn written(server: &Server) -> String {
    let folder = server.data_dir().join("appendonlydir");
    let files =
        fs::read_dir(folder).expect("the append-only folder").map(|file| file.expect("a file").path());
    let read = |path| String::from_utf8_lossy(&fs::read(path).expect("a readable file")).to_uppercase();
    files.map(read).collect()
}

#[test]
fn the_append_only_file_contains_effects_and_no_requests() {
    for rewritten in ["as appended", "as rewritten"] {
        let (server, clock) = start_frozen(aof("always").arg("aof-use-rdb-preamble", "no"));
        let mut wire = server.connect();
        prepare(&mut wire, &clock);
        granted(&wire.call_strs("REDLOCK.MACQUIRE 2 a b me 60000"));
        granted(&wire.call_strs("REDLOCK.MEXTEND 2 a b me 60000"));
        if rewritten == "as rewritten" {
            rewrite(&server);
        }
        let text = written(&server);
        assert!(text.contains("REDLOCK.APPLY"), "{rewritten}: {text}");
        for request in ["REDLOCK.ACQUIRE", "REDLOCK.EXTEND", "REDLOCK.MACQUIRE", "REDLOCK.MEXTEND"] {
            assert!(!text.contains(request), "{rewritten}: {request} in {text}");
        }
    }
}

/// Replication sends the same command. A lock with the largest fences would make its key unobtainable for ever.
#[test]
fn a_lock_with_a_fence_that_no_node_grants_is_ignored_with_a_line_in_the_log() {
    const MOST: u64 = 8_070_450_532_247_928_831;
    let mut server = aof("always").arg("aof-use-rdb-preamble", "no").start();
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE mine me 600000"));
    server.kill();
    let folder = server.data_dir().join("appendonlydir");
    let files =
        fs::read_dir(folder).expect("the append-only folder").map(|file| file.expect("a file").path());
    let mut latest = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof"));
    let latest = latest.next().expect("the file with the latest commands");
    let mut text = fs::read(&latest).expect("a readable file");
    for (key, fence) in [("beyond", MOST + 1), ("highest", MOST)] {
        let words = ["REDLOCK.APPLY", key, "secret-owner", &fence.to_string(), "600000"];
        text.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
        words.iter().for_each(|word| {
            text.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        });
    }
    fs::write(&latest, text).expect("a writable file");
    server.restart();
    let mut wire = server.connect();
    assert_eq!(wire.inspect("mine").map(|lock| lock.fence), Some(1), "the rest of the file is loaded");
    assert_eq!(wire.inspect("beyond"), None);
    assert_eq!(wire.inspect("highest").map(|lock| lock.fence), Some(MOST.cast_signed()));
    let log = server.log();
    let line = log.lines().find(|line| line.contains("is ignored")).expect("a line in the log");
    assert!(line.contains(&format!("argument 3 (fence) must be an integer from 1 to {MOST}")), "{line}");
    assert!(!log.contains("secret-owner"), "an owner is a secret: {log}");
}

#[test]
fn a_refused_request_writes_nothing() {
    let (server, _clock) = start_frozen(aof("always"));
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 60000"));
    let before = written(&server);
    for line in [
        "REDLOCK.ACQUIRE lock other 60000",
        "REDLOCK.EXTEND lock other 60000",
        "REDLOCK.RELEASE lock other",
        "REDLOCK.MACQUIRE 2 free lock other 60000",
        "REDLOCK.MEXTEND 2 free lock me 60000",
        "REDLOCK.MRELEASE 2 free lock me",
        "REDLOCK.ACQUIRE lock me 0",
        "REDLOCK.INSPECT lock",
        "REDLOCK.NODE",
    ] {
        wire.call_strs(line);
        assert_eq!(written(&server), before, "{line}");
    }
}

#[test]
fn changes_count_towards_the_next_snapshot() {
    let (server, _clock) = start_frozen(Server::builder());
    // After a cron, the server knows that it has no replica and no append-only file: only snapshots store changes.
    server.wait_for_cron();
    let mut wire = server.connect();
    let changes =
        || server.info("persistence", "rdb_changes_since_last_save").and_then(|n| n.parse::<u64>().ok());
    for line in [
        "REDLOCK.ACQUIRE lock me 60000",
        "REDLOCK.ACQUIRE lock me 60000",
        "REDLOCK.EXTEND lock me 60000",
        "REDLOCK.RELEASE lock me",
        "REDLOCK.MACQUIRE 2 a b me 60000",
        "REDLOCK.MEXTEND 2 a b me 60000",
        "REDLOCK.MRELEASE 2 a b me",
    ] {
        let before = changes();
        granted(&wire.call_strs(line));
        assert!(changes() > before, "{line} does not count as a change");
    }
}

#[test]
fn an_append_only_file_enabled_later_misses_no_lock() {
    let (mut server, _clock) = start_frozen(Server::builder().arg("appendfsync", "always"));
    server.wait_for_cron();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE before me 60000"));
    assert_eq!(wire.call_strs("CONFIG SET appendonly yes"), Answer::ok());
    granted(&wire.call_strs("REDLOCK.ACQUIRE during me 60000"));
    eventually("the append-only file is enabled", SOON, || {
        let field = |name| server.info("persistence", name);
        let busy = field("aof_rewrite_in_progress")? == "1" || field("aof_rewrite_scheduled")? == "1";
        (!busy && field("aof_enabled")? == "1").then_some(())
    });
    granted(&wire.call_strs("REDLOCK.ACQUIRE after me 60000"));
    assert_eq!(wire.call_strs("CONFIG REWRITE"), Answer::ok());
    server.kill();
    server.restart();
    let mut wire = server.connect();
    for key in ["before", "during", "after"] {
        assert!(wire.inspect(key).is_some(), "{key}");
    }
}

#[test]
fn grants_in_transactions_and_scripts_are_stored() {
    let (mut server, _clock) = start_frozen(aof("always"));
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("MULTI"), Answer::ok());
    for line in [
        "REDLOCK.ACQUIRE one me 60000 FENCE 10",
        "REDLOCK.MACQUIRE 2 two three me 60000 FENCE 20",
        "REDLOCK.ACQUIRE gone me 60000 FENCE 30",
        "REDLOCK.RELEASE gone me",
    ] {
        assert_eq!(wire.call_strs(line), Answer::Status("QUEUED".into()));
    }
    let replies = [10, 20, 30, 1].map(Answer::Int).to_vec();
    assert_eq!(wire.call_strs("EXEC"), Answer::List(replies));
    let script = "return redis.call('REDLOCK.ACQUIRE', KEYS[1], ARGV[1], 60000, 'FENCE', 40)";
    assert_eq!(wire.call(&["EVAL", script, "1", "four", "me"]), Answer::Int(40));

    server.kill();
    server.restart();
    let mut wire = server.connect();
    for (key, fence) in [("one", 10), ("two", 20), ("three", 20), ("four", 40)] {
        assert_eq!(wire.inspect(key).map(|lock| lock.fence), Some(fence), "{key}");
        assert_eq!(wire.call(&["REDLOCK.RELEASE", key, "me"]), Answer::Int(1), "{key}");
    }
    assert_eq!(wire.call_strs("EXISTS gone"), Answer::Int(0));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE gone another 60000")) > 30);
}

#[test]
fn a_lock_may_be_dumped_and_restored() {
    let (server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    let Answer::Text(image) = wire.call(&[b"DUMP", KEY]) else { panic!("a lock can be dumped") };
    assert_eq!(wire.call(&[b"DEL", KEY]), Answer::Int(1));
    assert_eq!(wire.inspect(KEY), None);
    assert_eq!(wire.call(&[b"RESTORE", KEY, b"0", &image]), Answer::ok());
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
}

#[test]
fn a_lock_cannot_be_copied() {
    let (server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    let before = prepare(&mut wire, &clock);
    let answer = wire.call(&[b"COPY", KEY, b"clone"]);
    assert!(
        matches!(answer, Answer::Error(_)),
        "a copy would be a second lock of the same owner and fence: {answer:?}"
    );
    assert_eq!(wire.call_strs("EXISTS clone"), Answer::Int(0));
    verify(&mut wire, &before, 60_000..=60_000, 5_000..=5_000);
}
