//! Locks that come from another server, by `RESTORE` and `MIGRATE`: what the node remembers of them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, Builder, Clock, SOON, Server, Wire, eventually, granted};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than any lock that the other server has granted, and above all its fences.
const LONG_MS: u64 = 600_000;
const HIGH: u64 = 50_000_000;

/// A server on a clock that stands still.
fn frozen(builder: Builder) -> (Server, Clock) {
    let clock = Clock::new();
    clock.freeze_module();
    (builder.clock(&clock).start(), clock)
}

/// A server that can be kept from storing its ledger: the ledger has a folder of its own.
fn with_a_folder_of_its_own(builder: Builder) -> (tempfile::TempDir, PathBuf, Builder) {
    let all = tempfile::tempdir().expect("a folder");
    let folder = all.path().join("ledger");
    fs::create_dir(&folder).expect("a folder in a folder");
    let file = folder.join("mine").display().to_string();
    (all, folder, builder.module_args(["state-file", &file]))
}

/// Nothing can be stored in a folder that is not there. Tells the name that it has meanwhile.
fn hide(folder: &PathBuf) -> PathBuf {
    let hidden = folder.with_extension("hidden");
    fs::rename(folder, &hidden).expect("a folder can be renamed");
    hidden
}

/// The image of a long lock with a high fence.
fn image() -> Vec<u8> {
    let source = Server::start();
    let mut wire = source.connect();
    let line = format!("REDLOCK.ACQUIRE k theirs {LONG_MS} FENCE {HIGH}");
    assert_eq!(granted(&wire.call_strs(&line)), HIGH.cast_signed());
    let Answer::Text(image) = wire.call_strs("DUMP k") else { panic!("a lock can be dumped") };
    image
}

fn quarantine_ms(wire: &mut Wire) -> u64 {
    wire.call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int).unsigned_abs()
}

#[test]
fn what_was_restored_is_remembered_over_a_crash() {
    let (mut target, clock) = frozen(Server::builder());
    let mut wire = target.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE other mine 30000")) > 0);
    assert_eq!(wire.call(&[b"RESTORE", &b"k"[..], b"0", &image()]), Answer::ok());
    target.kill();
    target.restart();
    let mut wire = target.connect();
    assert_eq!(wire.call_strs("REDLOCK.INSPECT k"), Answer::Nil, "nothing was saved");
    let left_ms = quarantine_ms(&mut wire);
    assert!(left_ms >= LONG_MS, "the lock may be held so long: {left_ms}");
    clock.advance_module(Duration::from_millis(left_ms + 1));
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE k mine 30000"));
    assert!(fence > HIGH.cast_signed(), "{fence} goes back");
}

#[test]
fn what_cannot_be_remembered_is_not_taken() {
    let (_all, folder, builder) = with_a_folder_of_its_own(Server::builder());
    let target = builder.start();
    let mut wire = target.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE other mine 30000")) > 0);
    let (image, hidden) = (image(), hide(&folder));
    let refused = wire.call(&[b"RESTORE", &b"k"[..], b"0", &image]);
    assert!(matches!(refused, Answer::Error(_)), "{refused:?}");
    assert_eq!(wire.call_strs("EXISTS k"), Answer::Int(0));
    assert!(target.log().contains("cannot be written"), "{}", target.log());
    fs::rename(hidden, &folder).expect("a folder can be renamed");
    assert_eq!(wire.call(&[b"RESTORE", &b"k"[..], b"0", &image]), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.EXTEND k theirs 1000"), Answer::Int(HIGH.cast_signed()));
}

#[test]
fn a_replica_that_cannot_remember_follows_and_grants_nothing() {
    let master = Server::builder().tcp().start();
    let (_all, folder, builder) = with_a_folder_of_its_own(Server::builder());
    let replica = builder.module_args([
        "state-file",
        &folder.join("mine").display().to_string(),
        "restart-grace",
        "off",
    ]);
    let replica = replica.replica_of(&master).start();
    replica.catch_up(&master);
    let hidden = hide(&folder);
    assert_eq!(master.connect().call(&[b"RESTORE", &b"k"[..], b"0", &image()]), Answer::ok());
    replica.catch_up(&master);
    let mut wire = replica.connect();
    assert_eq!(wire.call_strs("REDLOCK.INSPECT k").field("fence"), Some(&Answer::Int(HIGH.cast_signed())));
    assert_eq!(wire.call_strs("REPLICAOF NO ONE"), Answer::ok());
    let refused = wire.call_strs("REDLOCK.ACQUIRE free mine 1000");
    assert_eq!(refused.error_word(), Some("REDLOCKSTATE"), "{refused:?}");
    fs::rename(hidden, &folder).expect("a folder can be renamed");
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE free mine 1000")) > HIGH.cast_signed());
    let ledger = fs::read_to_string(folder.join("mine")).expect("the ledger");
    let longest = ledger.lines().find_map(|line| line.strip_prefix("longest-ttl-ms "));
    let longest: u64 = longest.expect("a longest time").parse().expect("a number");
    assert!(longest >= LONG_MS - 60_000, "{longest}");
}

#[test]
fn fences_do_not_go_back_when_a_promise_could_not_be_withdrawn() {
    let (_all, folder, builder) = with_a_folder_of_its_own(Server::builder());
    let storing =
        builder.arg("appendonly", "yes").arg("appendfsync", "always").arg("aof-use-rdb-preamble", "no");
    let mut server = storing.start();
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs(&format!("REDLOCK.ACQUIRE k mine 1000 FENCE {HIGH}"))) > 0);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k mine"), Answer::Int(1));
    let stored =
        || fs::read_to_string(folder.join("mine")).ok().filter(|ledger| ledger.contains("grants-stored yes"));
    eventually("the ledger promises that grants are stored", SOON, stored);
    let hidden = hide(&folder);
    // From now on a crash may forget a grant, and the ledger cannot say so.
    assert_eq!(wire.call_strs("CONFIG SET appendfsync everysec"), Answer::ok());
    let refused = wire.call_strs("REDLOCK.ACQUIRE other mine 1000");
    assert_eq!(refused.error_word(), Some("REDLOCKSTATE"), "{refused:?}");
    fs::rename(hidden, &folder).expect("a folder can be renamed");
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE other mine 1000")) > 0);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE other mine"), Answer::Int(1));
    assert_eq!(wire.call_strs("CONFIG SET appendonly no"), Answer::ok());
    server.kill();
    fs::remove_dir_all(server.data_dir().join("appendonlydir")).expect("the AOF");
    server.restart();
    let mut wire = server.connect();
    let fence =
        eventually("the quarantine is over", SOON, || match wire.call_strs("REDLOCK.ACQUIRE k mine 1000") {
            Answer::Int(fence) => Some(fence),
            _ => None,
        });
    assert!(fence > HIGH.cast_signed(), "{fence} goes back");
}
