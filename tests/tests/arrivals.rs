//! Locks that arrive from another server or move to one, by `RESTORE` and `MIGRATE`: what the node stores about them,
//! and which client gets them.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, admit, eventually, granted, start_frozen};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A time to live and a fence that are larger than any other in these tests.
const LONG_MS: u64 = 600_000;
const HIGH: u64 = 50_000_000;

/// Gives the state file a folder of its own, so that a test can prevent the server from storing its state.
/// Returns the temporary directory, that folder and the builder.
fn with_a_folder_of_its_own(builder: ServerBuilder) -> (tempfile::TempDir, PathBuf, ServerBuilder) {
    let all = tempfile::tempdir().expect("a folder");
    let folder = all.path().join("state");
    fs::create_dir(&folder).expect("a subfolder");
    let file = folder.join("mine.state").display().to_string();
    (all, folder, builder.module_args(["state-file", &file]))
}

/// Renames the folder, so that the server cannot store anything in it. Returns the new name.
fn hide(folder: &PathBuf) -> PathBuf {
    let hidden = folder.with_extension("hidden");
    fs::rename(folder, &hidden).expect("a folder can be renamed");
    hidden
}

/// The `DUMP` of a long lock with a high fence.
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
    assert_eq!(wire.call_strs("REDLOCK.INSPECT k"), Answer::Nil, "the server saved no lock");
    let left_ms = quarantine_ms(&mut wire);
    assert!(
        left_ms >= LONG_MS,
        "a client may hold the restored lock for {LONG_MS} ms; quarantine: {left_ms} ms"
    );
    clock.advance_module(Duration::from_millis(left_ms + 1));
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE k mine 30000"));
    assert!(fence > HIGH.cast_signed(), "fence {fence} is not larger than {HIGH}");
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
        &folder.join("mine.state").display().to_string(),
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
    let id = wire.call_strs("REDLOCK.NODE").field("node-id").map(Answer::string).expect("a node id");
    let refused = wire.call(&["REDLOCK.ADMIT", &id, "0", "0"]);
    assert_eq!(refused.error_word(), Some("REDLOCKSTATE"), "{refused:?}");
    fs::rename(hidden, &folder).expect("a folder can be renamed");
    admit(&mut wire, 0, 0);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k theirs"), Answer::Int(1));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE k mine 1000")) > HIGH.cast_signed());
    let stored = fs::read_to_string(folder.join("mine.state")).expect("the state file");
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
        ("one millisecond over max-ttl", 1, 60_001),
        ("the largest number", 1, u64::MAX),
        ("the largest fence", (1 << 63) - 1, 1_000),
        ("both", (1 << 63) - 1, u64::MAX),
    ] {
        let answer = wire.call(&[b"RESTORE", &b"k"[..], b"0", &forged(&genuine, fence, left_ms)]);
        assert!(matches!(answer, Answer::Error(_)), "{case}: {answer:?}");
        assert_eq!(wire.call_strs("EXISTS k"), Answer::Int(0), "{case}");
        assert_eq!(wire.call_strs("REDLOCK.NODE"), before, "{case}");
    }
    // The control: an image that is made in the same way, with a fence and a lease that a node can grant.
    let answer = wire.call(&[b"RESTORE", &b"k"[..], b"0", &forged(&genuine, 77, 60_000)]);
    assert_eq!(answer, Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.RELEASE k theirs"), Answer::Int(1));
    assert_eq!(
        wire.call_strs("REDLOCK.ACQUIRE k mine 1000"),
        Answer::Int(78),
        "a loaded lock raises the fence of its key"
    );
}

/// `MIGRATE` sends the image that `DUMP` returns, so the target checks it like one of `RESTORE`. The source is a node that
/// holds such a lock, here by forged images and by raises.
#[test]
fn a_lock_that_the_target_could_not_have_granted_does_not_migrate() {
    const YEAR_MS: u64 = 365 * 24 * 3_600 * 1_000;
    let source = Server::builder().module_args(["max-ttl", &YEAR_MS.to_string()]).start();
    let target = Server::builder().tcp().module_args(["max-ttl", "60000"]).start();
    let (mut from, mut to) = (source.connect(), target.connect());
    assert_eq!(from.call_strs("REDLOCK.ACQUIRE genuine theirs 60000"), Answer::Int(1));
    let Answer::Text(genuine) = from.call_strs("DUMP genuine") else { panic!("a lock can be dumped") };
    let too_long = forged(&genuine, 1, YEAR_MS);
    assert_eq!(from.call(&[b"RESTORE", &b"long"[..], b"0", &too_long]), Answer::ok());
    // One command raises the fence of a fresh key up to 2^62; the second one raises it above.
    granted(&from.call_strs(&format!("REDLOCK.ACQUIRE high theirs 50000 FENCE {}", 1_u64 << 62)));
    let raised = granted(&from.call_strs(&format!("REDLOCK.EXTEND high theirs 50000 FENCE {}", i64::MAX)));
    assert_eq!(raised.unsigned_abs(), (1 << 62) + (1 << 20));
    let before = to.call_strs("REDLOCK.NODE");
    let port = target.port().expect("a port").to_string();
    for key in ["long", "high"] {
        let answer = from.call(&["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
        assert!(format!("{answer:?}").contains("Bad data format"), "{key}: {answer:?}");
        assert_eq!(from.call_strs(&format!("EXISTS {key}")), Answer::Int(1), "{key} stays where it was");
        assert_eq!(to.call_strs(&format!("EXISTS {key}")), Answer::Int(0), "{key}");
        assert_eq!(to.call_strs("REDLOCK.NODE"), before, "{key}");
    }
    // The control: an image that is forged in the same way, with a fence and a lease that the target can grant.
    assert_eq!(from.call(&[b"RESTORE", &b"short"[..], b"0", &forged(&genuine, 77, 60_000)]), Answer::ok());
    let answer = from.call(&["MIGRATE", "127.0.0.1", &port, "short", "0", "5000"]);
    assert_eq!(answer, Answer::ok());
    assert_eq!(to.call_strs("REDLOCK.RELEASE short theirs"), Answer::Int(1));
}

/// An image of a lock with another fence and another remaining time, as `RESTORE` accepts it: numbers of eight bytes,
/// and a correct checksum.
fn forged(genuine: &[u8], fence: u64, left_ms: u64) -> Vec<u8> {
    // Type, module id (9 bytes), the number of holders, then the two numbers, each after the opcode 2 for an unsigned
    // number.
    assert_eq!(genuine[10..12], [2, 0], "an exclusive lock");
    let mut image = genuine[..12].to_vec();
    let mut rest = &genuine[12..genuine.len() - 8];
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

/// The checksum at the end of an image: CRC-64 with the polynomial of Jones, reflected.
fn crc64(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u64::from(*byte), |sum, _| {
            (sum >> 1) ^ if sum & 1 == 1 { 0x95ac_9329_ac4b_c9b5 } else { 0 }
        })
    })
}

/// The length in bytes of a number in the RDB encoding, by its first byte.
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
    // With a long claim window, a lock that is handed on stays during the whole test.
    let source = Server::builder().module_args(["claim-window", "60000"]).start();
    let target = Server::builder().tcp().start();
    let (mut holder, mut waiter, mut other) = (source.connect(), source.connect(), source.connect());
    assert!(granted(&holder.call_strs("REDLOCK.ACQUIRE k theirs 600000")) > 0);
    let said = waiter.call_strs("REDLOCK.ACQUIRE k mine 600000 WAIT 1 600000 me");
    assert_eq!(said.list().len(), 3, "{said:?}");
    // This client also waits for another key, which stays and is free. After the migration, the request no longer
    // blocks that key.
    assert_eq!(other.call_strs("REDLOCK.MACQUIRE 2 stays k second 600000 WAIT 2 600000 me").list().len(), 3);
    assert_eq!(other.call_strs("REDLOCK.ACQUIRE stays third 600000 WAIT 3 600000 me").list().len(), 3);
    let port = target.port().expect("a port").to_string();
    assert_eq!(holder.call(&["MIGRATE", "127.0.0.1", &port, "k", "0", "5000"]), Answer::ok());
    eventually("no client waits", SOON, || {
        (source.info("redlock", "redlock_waiters").as_deref() == Some("0")).then_some(())
    });
    assert_eq!(
        holder.call_strs("EXISTS k"),
        Answer::Int(0),
        "the source handed on a lock that the target holds"
    );
    assert_eq!(
        source.info("redlock", "redlock_handoffs").as_deref(),
        Some("1"),
        "the source hands on only the key that stays"
    );
    assert_eq!(holder.call_strs("EXISTS stays"), Answer::Int(1));
    assert_eq!(
        target.connect().call_strs("REDLOCK.RELEASE k theirs"),
        Answer::Int(1),
        "the target holds the lock"
    );
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
