//! Renamed locks: a lock keeps its fence, and the next fence of the new key is larger.

use std::time::Duration;

use redlock_tests::{Answer, SOON, Server, Wire, admit, eventually};

fn fence(wire: &mut Wire, line: &str) -> i64 {
    let answer = wire.call_strs(line);
    assert!(matches!(answer, Answer::Int(1..)), "{line} answered {answer:?}");
    answer.int()
}

/// Takes a lock with a large fence and renames it to a key that has never been locked.
fn rename_a_lock(wire: &mut Wire) {
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE a first 60000 FENCE 50"), Answer::Int(50));
    assert_eq!(wire.call_strs("RENAME a b"), Answer::ok());
}

/// Commands that free the lock under its new name, each in another way.
const HISTORIES: [&[&str]; 5] = [
    &["REDLOCK.ACQUIRE b first 60000", "REDLOCK.RELEASE b first"],
    &["REDLOCK.EXTEND b first 60000", "REDLOCK.RELEASE b first"],
    &["REDLOCK.RELEASE b first"],
    &["REDLOCK.MEXTEND 1 b first 60000", "REDLOCK.MRELEASE 1 b first"],
    &["REDLOCK.MRELEASE 1 b first"],
];

#[test]
fn a_renamed_lock_keeps_its_fence_and_the_next_holder_gets_the_next() {
    let server = Server::start();
    let mut wire = server.connect();
    rename_a_lock(&mut wire);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE b first 60000"), Answer::Int(50), "the same lock");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE b first"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE b second 60000"), Answer::Int(51));
}

#[test]
fn however_the_lock_ends_the_next_fence_is_larger() {
    for history in HISTORIES {
        let server = Server::start();
        let mut wire = server.connect();
        rename_a_lock(&mut wire);
        for line in history {
            fence(&mut wire, line);
        }
        assert!(fence(&mut wire, "REDLOCK.ACQUIRE b second 60000") > 50, "{history:?}");
        assert!(fence(&mut wire, "REDLOCK.ACQUIRE a second 60000") > 50, "{history:?}: the old name");
    }
}

#[test]
fn after_a_renamed_lock_expires_the_next_fence_is_larger() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    rename_a_lock(&mut wire);
    clock.advance_module(Duration::from_millis(60_001));
    assert!(fence(&mut wire, "REDLOCK.ACQUIRE b second 60000") > 50, "expired");

    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    rename_a_lock(&mut wire);
    clock.advance_module(Duration::from_millis(60_001));
    eventually("the sweep has deleted the lock", SOON, || {
        clock.advance_module(Duration::from_millis(1));
        (wire.call_strs("EXISTS b") == Answer::Int(0)).then_some(())
    });
    assert!(fence(&mut wire, "REDLOCK.ACQUIRE b second 60000") > 50, "swept");
}

#[test]
fn after_a_failover_the_next_fence_of_a_renamed_lock_is_larger() {
    for history in HISTORIES {
        let master = Server::builder().tcp().start();
        let replica = Server::builder().replica_of(&master).start();
        replica.wait_for_replication(&master);
        let mut wire = master.connect();
        rename_a_lock(&mut wire);
        for line in history {
            fence(&mut wire, line);
        }
        replica.wait_for_replication(&master);
        let mut promoted = replica.connect();
        assert_eq!(promoted.call_strs("REPLICAOF NO ONE"), Answer::ok());
        admit(&mut promoted, 0, 0);
        assert!(fence(&mut promoted, "REDLOCK.ACQUIRE b second 60000") > 50, "{history:?}");
    }
}

#[test]
fn a_lock_renamed_over_another_never_lowers_a_fence() {
    let server = Server::start();
    let mut wire = server.connect();
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE a first 60000 FENCE 50"), Answer::Int(50));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE b loser 60000 FENCE 900"), Answer::Int(900));
    assert_eq!(wire.call_strs("RENAME a b"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.RELEASE b loser"), Answer::Int(0));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE b first"), Answer::Int(1));
    assert!(fence(&mut wire, "REDLOCK.ACQUIRE b second 60000") > 900);
}
