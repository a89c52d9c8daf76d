//! A lock whose time is over leaves the keyspace by itself, so that commands which know nothing of locks
//! find the key gone.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::{Duration, Instant};

const OVER: Duration = Duration::from_millis(10_001);

fn acquire(wire: &mut Wire, line: &str) {
    let answer = wire.call_strs(&format!("REDLOCK.ACQUIRE {line}"));
    assert!(matches!(answer, Answer::Int(1..)), "ACQUIRE {line} answered {answer:?}");
}

/// A server that grants at once after a flush, and does not wait until the flushed locks would be over.
fn start_without_grace() -> (Server, FakeClock) {
    let clock = FakeClock::new();
    clock.freeze_module();
    (Server::builder().module_args(["restart-grace", "off"]).clock(&clock).start(), clock)
}

fn select(wire: &mut Wire, database: u8) {
    assert_eq!(wire.call_strs(&format!("SELECT {database}")), Answer::ok());
}

/// Waits on DBSIZE alone, which looks at no key. Time goes on meanwhile, at about half its true speed.
fn wait_for_keys(wire: &mut Wire, clock: &FakeClock, count: i64) {
    eventually("only keys with time left remain", SOON, || {
        clock.advance_module(Duration::from_millis(1));
        (wire.call_strs("DBSIZE") == Answer::Int(count)).then_some(())
    });
}

#[test]
fn plain_commands_see_the_key_gone() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    assert_eq!(wire.call_strs("SET lock plain NX PX 1000"), Answer::Nil);
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(1));
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 0);
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(0));
    assert_eq!(wire.call_strs("TYPE lock"), Answer::Status("none".into()));
    assert_eq!(
        wire.call_strs("SCAN 0 COUNT 100"),
        Answer::List(vec![Answer::text("0"), Answer::List(vec![])])
    );
    assert_eq!(wire.call_strs("SET lock plain NX PX 1000"), Answer::ok());
    assert_eq!(server.info("redlock", "redlock_expirations"), Some("1".into()));
    assert_eq!(server.info("redlock", "redlock_locks"), Some("0".into()));
}

#[test]
fn on_true_time_it_goes_soon_and_never_early() {
    let server = Server::start();
    let mut wire = server.connect();
    let start = Instant::now();
    acquire(&mut wire, "lock me 200");
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
    let gone = start.elapsed();
    assert!(gone >= Duration::from_millis(200), "gone after {gone:?}");
}

#[test]
fn every_database_is_swept() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    for database in [0, 3, 15] {
        select(&mut wire, database);
        acquire(&mut wire, "short me 10000");
        acquire(&mut wire, "long me 60000");
    }
    clock.advance_module(OVER);
    for database in [0, 3, 15] {
        select(&mut wire, database);
        wait_for_keys(&mut wire, &clock, 1);
        assert_eq!(wire.call_strs("EXISTS long"), Answer::Int(1));
    }
}

#[test]
fn a_lock_is_swept_where_swapdb_took_it() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    assert_eq!(wire.call_strs("SWAPDB 0 1"), Answer::ok());
    // The same name where the lock used to be: the sweep must not take one for the other.
    acquire(&mut wire, "lock other 60000");
    clock.advance_module(OVER);
    select(&mut wire, 1);
    wait_for_keys(&mut wire, &clock, 0);
    select(&mut wire, 0);
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(1));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1));
}

#[test]
fn a_lock_is_swept_under_its_new_name() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "old me 10000");
    assert_eq!(wire.call_strs("RENAME old new"), Answer::ok());
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE new other 1000"), Answer::Nil, "the lock moved with its key");
    assert!(wire.inspect("old").is_none());
    acquire(&mut wire, "old other 60000");
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 1);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE old other"), Answer::Int(1));
}

#[test]
fn a_lock_is_swept_where_move_took_it() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    assert_eq!(wire.call_strs("MOVE lock 2"), Answer::Int(1));
    clock.advance_module(OVER);
    select(&mut wire, 2);
    wait_for_keys(&mut wire, &clock, 0);
}

#[test]
fn a_renamed_lock_takes_the_place_of_another() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock loser 10000");
    acquire(&mut wire, "spare winner 60000");
    acquire(&mut wire, "witness me 10000");
    assert_eq!(wire.call_strs("RENAME spare lock"), Answer::ok());
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 1);
    assert_eq!(wire.call_strs("REDLOCK.RELEASE lock winner"), Answer::Int(1));
}

#[test]
fn an_old_deadline_does_not_end_a_new_lock() {
    // However the first lock goes, its deadline goes with it.
    for removal in ["DEL lock", "UNLINK lock", "FLUSHDB", "FLUSHALL ASYNC", "REDLOCK.RELEASE lock me"] {
        let (server, clock) = start_without_grace();
        let mut wire = server.connect();
        acquire(&mut wire, "lock me 10000");
        wire.call_strs(removal);
        assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(0), "{removal}");
        // A server may free flushed values in the background.
        eventually("the lock is not counted any more", SOON, || {
            (server.info("redlock", "redlock_locks")? == "0").then_some(())
        });
        acquire(&mut wire, "lock other 60000");
        acquire(&mut wire, "witness me 10000");
        clock.advance_module(OVER);
        wait_for_keys(&mut wire, &clock, 1);
        assert_eq!(wire.call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1), "{removal}");
    }
}

#[test]
fn a_plain_value_set_over_a_lock_is_not_swept() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    assert_eq!(wire.call_strs("SET lock plain"), Answer::ok());
    acquire(&mut wire, "witness me 10000");
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 1);
    assert_eq!(wire.call_strs("GET lock"), Answer::text("plain"));
}

#[test]
fn an_extended_lock_is_swept_at_its_new_deadline() {
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire(&mut wire, "lock me 10000");
    acquire(&mut wire, "witness me 10000");
    assert!(matches!(wire.call_strs("REDLOCK.EXTEND lock me 15000"), Answer::Int(1..)));
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 1);
    assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(1));
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 0);
}

/// Takes `lock:0` to `lock:{count - 1}`, for five to ten seconds.
fn acquire_many(wire: &mut Wire, count: i64) {
    let command = |number: i64| {
        let ttl = 5_000 + number % 5_000;
        ["REDLOCK.ACQUIRE".into(), format!("lock:{number}"), "me".into(), ttl.to_string()].to_vec()
    };
    let answers = wire.pipeline((0..count).map(command).collect());
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Int(1..))));
}

#[test]
fn twenty_thousand_locks_go() {
    const LOCKS: i64 = 20_000;
    let (server, clock) = Server::start_frozen();
    let mut wire = server.connect();
    acquire_many(&mut wire, LOCKS);
    assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(LOCKS));
    clock.advance_module(OVER);
    wait_for_keys(&mut wire, &clock, 0);
    assert_eq!(server.info("redlock", "redlock_expirations"), Some(LOCKS.to_string()));
    assert_eq!(server.info("redlock", "redlock_locks"), Some("0".into()));
}

/// How many locks there are, by both accounts of it.
fn counted(server: &Server, wire: &mut Wire) -> (Option<Answer>, Option<String>) {
    (wire.call_strs("REDLOCK.NODE").field("locks").cloned(), server.info("redlock", "redlock_locks"))
}

fn memory_bytes(server: &Server) -> i64 {
    let field = server.info("redlock", "redlock_memory_bytes");
    field.and_then(|digits| digits.parse().ok()).expect("a number of bytes")
}

#[test]
fn flushed_locks_are_forgotten_at_once_and_for_good() {
    const LOCKS: i64 = 50_000;
    for flush in ["FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB SYNC", "FLUSHDB ASYNC"] {
        let (server, clock) = start_without_grace();
        let mut wire = server.connect();
        let empty = memory_bytes(&server);
        acquire_many(&mut wire, LOCKS);
        let full = memory_bytes(&server);
        assert!(full > empty + LOCKS * 32, "{full} bytes for {LOCKS} locks");
        assert_eq!(wire.call_strs(flush), Answer::ok());
        let none = (Some(Answer::Int(0)), Some("0".to_string()));
        if flush.ends_with("ASYNC") {
            // The server is still busy with freeing them, in the background.
            let forgotten = || (counted(&server, &mut wire) == none).then_some(());
            eventually("the flushed locks are not counted any more", SOON, forgotten);
        } else {
            assert_eq!(counted(&server, &mut wire), none, "{flush}");
        }
        // Of the same names, and to outlive the old deadlines.
        acquire(&mut wire, "lock:1 other 60000");
        acquire(&mut wire, "lock:2 other 60000");
        acquire(&mut wire, "witness me 10000");
        clock.advance_module(OVER);
        wait_for_keys(&mut wire, &clock, 2);
        eventually("the memory of the flushed locks is free", SOON, || {
            (memory_bytes(&server) < empty + (full - empty) / 50).then_some(())
        });
        assert_eq!(counted(&server, &mut wire), (Some(Answer::Int(2)), Some("2".into())), "{flush}");
        assert_eq!(server.info("redlock", "redlock_expirations"), Some("1".into()), "{flush}: the witness");
        for key in ["lock:1", "lock:2"] {
            assert_eq!(wire.call(&["REDLOCK.RELEASE", key, "other"]), Answer::Int(1), "{flush}: {key}");
        }
        acquire(&mut wire, "lock:3 me 10000");
    }
}

#[test]
fn locks_that_never_stand_still_are_swept_all_the_same() {
    const OTHERS: i64 = 20_000;
    const MOVING: i64 = 16;
    // A quick cron searches quickly, so that a few searches go by while the locks move.
    let clock = FakeClock::new();
    clock.freeze_module();
    let server = Server::builder().arg("hz", "100").clock(&clock).start();
    let mut wire = server.connect();
    let other = |number| ["SET".to_string(), format!("other:{number}"), "value".into()].to_vec();
    assert!(wire.pipeline((0..OTHERS).map(other).collect()).iter().all(|answer| *answer == Answer::ok()));
    let rename = |wire: &mut Wire, number: i64| {
        let command =
            |lock| ["RENAME".into(), format!("{lock}:{number}"), format!("{lock}:{}", number + 1)].to_vec();
        wire.pipeline((0..MOVING).map(command).collect())
    };
    for lock in 0..MOVING {
        acquire(&mut wire, &format!("{lock}:0 me 10000"));
    }
    // Not where they were granted when their time is over, so that the sweep has to look for them.
    assert!(rename(&mut wire, 0).iter().all(|answer| *answer == Answer::ok()));
    clock.advance_module(OVER);
    // A search sees keys that stay where they are, and these do not.
    let mut number = 0;
    eventually("the locks have been renamed often enough", SOON, || {
        number += 1;
        let answers = rename(&mut wire, number);
        let swept = |answer: &Answer| *answer == Answer::Error("ERR no such key".into());
        assert!(answers.iter().all(|answer| swept(answer) || *answer == Answer::ok()), "{answers:?}");
        (answers.iter().all(swept) || number == 1_000).then_some(())
    });
    wait_for_keys(&mut wire, &clock, OTHERS);
    assert_eq!(server.info("redlock", "redlock_locks"), Some("0".into()));
    assert_eq!(server.info("redlock", "redlock_expirations"), Some(MOVING.to_string()));
}
