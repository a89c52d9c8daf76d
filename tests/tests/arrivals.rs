//! Locks that come from another server or leave for one, by `RESTORE` and `MIGRATE`: what the node remembers of them,
//! and who gets them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, admit, eventually, granted, start_frozen};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// Longer than any lock that the other server has granted, and above all its fences.
const LONG_MS: u64 = 600_000;
const HIGH: u64 = 50_000_000;

/// A server that can be kept from storing its state: the state file has a folder of its own.
fn with_a_folder_of_its_own(builder: ServerBuilder) -> (tempfile::TempDir, PathBuf, ServerBuilder) {
    let all = tempfile::tempdir().expect("a folder");
    let folder = all.path().join("state");
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
    let (mut target, clock) = start_frozen(Server::builder());
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
    replica.wait_for_replication(&master);
    let hidden = hide(&folder);
    assert_eq!(master.connect().call(&[b"RESTORE", &b"k"[..], b"0", &image()]), Answer::ok());
    replica.wait_for_replication(&master);
    let mut wire = replica.connect();
    assert_eq!(wire.call_strs("REDLOCK.INSPECT k").field("fence"), Some(&Answer::Int(HIGH.cast_signed())));
    assert_eq!(wire.call_strs("REPLICAOF NO ONE"), Answer::ok());
    let id = wire.call_strs("REDLOCK.NODE").field("node-id").map(Answer::string).expect("an id");
    let refused = wire.call(&["REDLOCK.ADMIT", &id, "0", "0"]);
    assert_eq!(refused.error_word(), Some("REDLOCKSTATE"), "{refused:?}");
    fs::rename(hidden, &folder).expect("a folder can be renamed");
    admit(&mut wire, 0, 0);
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE free mine 1000")) > HIGH.cast_signed());
    let stored = fs::read_to_string(folder.join("mine")).expect("the state file");
    let longest = stored.lines().find_map(|line| line.strip_prefix("longest-lease-ms "));
    let longest: u64 = longest.expect("a longest lease").parse().expect("a number");
    assert!(longest >= LONG_MS - 60_000, "{longest}");
}

#[test]
fn a_forged_image_is_refused_and_changes_nothing() {
    let server = Server::builder().module_args(["max-ttl", "60000"]).start();
    let mut wire = server.connect();
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE k theirs 60000")) > 0);
    let Answer::Text(genuine) = wire.call_strs("DUMP k") else { panic!("a lock can be dumped") };
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k theirs"), Answer::Int(1));
    let before = wire.call_strs("REDLOCK.NODE");
    for (case, fence, left_ms) in [
        ("a year too long", 1, 60_001),
        ("as long as a number can say", 1, u64::MAX),
        ("the last of all fences", (1 << 63) - 1, 1_000),
        ("both", (1 << 63) - 1, u64::MAX),
    ] {
        let answer = wire.call(&[b"RESTORE", &b"k"[..], b"0", &forged(&genuine, fence, left_ms)]);
        assert!(matches!(answer, Answer::Error(_)), "{case}: {answer:?}");
        assert_eq!(wire.call_strs("EXISTS k"), Answer::Int(0), "{case}");
        assert_eq!(wire.call_strs("REDLOCK.NODE"), before, "{case}");
    }
    // The control: an image that is made in the same way and says what a node could have granted.
    let answer = wire.call(&[b"RESTORE", &b"k"[..], b"0", &forged(&genuine, 77, 60_000)]);
    assert_eq!(answer, Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k theirs"), Answer::Int(1));
    assert_eq!(
        wire.call_strs("REDLOCK.ACQUIRE k mine 1000"),
        Answer::Int(78),
        "a loaded lock raises its key"
    );
}

/// An image of a lock with another fence and another time left, as `RESTORE` takes it: numbers of eight bytes, and the
/// checksum that belongs to them.
fn forged(genuine: &[u8], fence: u64, left_ms: u64) -> Vec<u8> {
    // Type, module id (9 bytes), then the two numbers, each after the opcode 2 for an unsigned number.
    let mut image = genuine[..10].to_vec();
    let mut rest = &genuine[10..genuine.len() - 8];
    for number in [fence, left_ms] {
        image.push(2);
        image.push(0x81);
        image.extend_from_slice(&number.to_be_bytes());
        assert_eq!(rest[0], 2, "an unsigned number");
        rest = &rest[1 + length_of(rest[1])..];
    }
    image.extend_from_slice(rest);
    let checksum = crc64(&image);
    image.extend_from_slice(&checksum.to_le_bytes());
    image
}

/// The checksum that the server puts behind an image: CRC-64 with the polynomial of Jones, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}

/// How many bytes a number takes that begins with this one.
fn length_of(first: u8) -> usize {
    match first {
        0x81 => 9,
        0x80 => 5,
        _ if first >> 6 == 1 => 2,
        _ => 1,
    }
}

#[test]
fn a_lock_that_migrates_is_not_handed_on_where_it_was() {
    // What is handed on here stays for as long as the test looks at it.
    let source = Server::builder().module_args(["claim-window", "60000"]).start();
    let target = Server::builder().tcp().start();
    let (mut holder, mut waiter, mut other) = (source.connect(), source.connect(), source.connect());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k theirs 600000")) > 0);
    let said = waiter.call_strs("REDLOCK.ACQUIRE k mine 600000 WAIT 1 600000 me");
    assert_eq!(said.list().len(), 3, "{said:?}");
    // Waits for another key as well, which stays and is free: that one is nobody's turn any longer.
    assert_eq!(other.call_strs("REDLOCK.MACQUIRE 2 stays k second 600000 WAIT 2 600000 me").list().len(), 3);
    assert_eq!(other.call_strs("REDLOCK.ACQUIRE stays third 600000 WAIT 3 600000 me").list().len(), 3);
    let port = target.port().expect("a port").to_string();
    assert_eq!(holder.call(&["MIGRATE", "127.0.0.1", &port, "k", "0", "5000"]), Answer::ok());
    eventually("nobody waits", SOON, || {
        (source.info("redlock", "redlock_waiters").as_deref() == Some("0")).then_some(())
    });
    assert_eq!(holder.call_strs("EXISTS k"), Answer::Int(0), "handed out twice");
    assert_eq!(source.info("redlock", "redlock_handoffs").as_deref(), Some("1"), "of the key that stays");
    assert_eq!(holder.call_strs("EXISTS stays"), Answer::Int(1));
    assert_eq!(target.connect().call_strs("REDLOCK.RELEASE k theirs"), Answer::Int(1), "it is held there");
}

#[test]
fn a_lock_that_was_saved_and_then_deleted_is_handed_on() {
    for save in ["SAVE", "DEBUG RELOAD"] {
        let source = Server::builder().debug_commands().start();
        let (mut holder, mut waiter) = (source.connect(), source.connect());
        assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k theirs 600000")) > 0);
        waiter.call_strs("REDLOCK.ACQUIRE k mine 600000 WAIT 1 600000 me");
        let both = vec![save.split(' ').collect(), vec!["DEL", "k"]];
        assert_eq!(holder.pipeline(both), [Answer::ok(), Answer::Int(1)], "{save}");
        eventually("the lock is handed on", SOON, || {
            (source.info("redlock", "redlock_handoffs").as_deref() == Some("1")).then_some(())
        });
    }
}
