//! The sweep: an expired lock leaves the keyspace by itself, so that plain commands no longer see the key.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_core::sweep_budget::MOST_STEPS;
use redlock_tests::{Answer, FakeClock, SOON, Server, Wire, eventually};
use std::time::{Duration, Instant};

const OVER: Duration = Duration::from_millis(10_001);

fn acquire(wire: &mut Wire, line: &str) {
    let answer = wire.call_strs(&format!("REDLOCK.ACQUIRE {line}"));
    assert!(matches!(answer, Answer::Int(1..)), "ACQUIRE {line} answered {answer:?}");
}

/// A server that grants at once after a flush, instead of a quarantine until the flushed locks would have expired.
fn start_without_grace() -> (Server, FakeClock) {
    let clock = FakeClock::new();
    clock.freeze_module();
    (Server::builder().module_args(["restart-grace", "off"]).clock(&clock).start(), clock)
}

fn select(wire: &mut Wire, database: u8) {
    assert_eq!(wire.call_strs(&format!("SELECT {database}")), Answer::ok());
}

/// Waits with DBSIZE, which accesses no key. The module's clock advances meanwhile, at about half its real speed.
fn wait_for_keys(wire: &mut Wire, clock: &FakeClock, count: i64) {
    eventually("only unexpired keys remain", SOON, || {
        clock.advance_module(Duration::from_millis(1));
        (wire.call_strs("DBSIZE") == Answer::Int(count)).then_some(())
    });
}

#[test]
fn plain_commands_do_not_see_an_expired_lock() {
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
fn on_real_time_an_expired_lock_is_swept_soon_and_never_early() {
    let server = Server::start();
    let mut wire = server.connect();
    let start = Instant::now();
    acquire(&mut wire, "lock me 200");
    eventually("the lock is swept", SOON, || (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(()));
    let elapsed = start.elapsed();
    assert!(elapsed >= Duration::from_millis(200), "swept after {elapsed:?}");
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
    // Another lock with the same key, where the first one was: the sweep must not confuse the two.
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
fn a_lock_renamed_over_another_is_not_swept_at_its_deadline() {
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
    // Each command removes the first lock, and its deadline with it.
    for removal in ["DEL lock", "UNLINK lock", "FLUSHDB", "FLUSHALL ASYNC", "REDLOCK.RELEASE lock me"] {
        let (server, clock) = start_without_grace();
        let mut wire = server.connect();
        acquire(&mut wire, "lock me 10000");
        wire.call_strs(removal);
        assert_eq!(wire.call_strs("EXISTS lock"), Answer::Int(0), "{removal}");
        // A server may free flushed values in the background.
        eventually("the removed lock is no longer counted", SOON, || {
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

/// Takes the locks `lock:0` to `lock:{count - 1}`, each for 5 to 10 s.
fn acquire_many(wire: &mut Wire, count: i64) {
    let command = |number: i64| {
        let ttl = 5_000 + number % 5_000;
        ["REDLOCK.ACQUIRE".into(), format!("lock:{number}"), "me".into(), ttl.to_string()].to_vec()
    };
    let answers = wire.pipeline((0..count).map(command).collect());
    assert!(answers.iter().all(|answer| matches!(answer, Answer::Int(1..))));
}

#[test]
fn twenty_thousand_expired_locks_are_swept() {
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

/// The number of locks, as `REDLOCK.NODE` and as `INFO` report it.
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
            // The server frees the locks in the background.
            let forgotten = || (counted(&server, &mut wire) == none).then_some(());
            eventually("the flushed locks are no longer counted", SOON, forgotten);
        } else {
            assert_eq!(counted(&server, &mut wire), none, "{flush}");
        }
        // New locks with the same names, which outlive the old deadlines.
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
fn locks_that_are_renamed_all_the_time_are_swept() {
    const OTHERS: i64 = 20_000;
    const MOVING: i64 = 16;
    // With a fast cron, several passes of the search end while the locks move.
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
    // The locks expire under other keys than they were granted under, so the module has to search for them.
    assert!(rename(&mut wire, 0).iter().all(|answer| *answer == Answer::ok()));
    clock.advance_module(OVER);
    // A scan guarantees to return only keys that stay in place, and these keys do not.
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

/// The number of locks in each transaction of the append-only file. The server writes the effects of one call of the
/// module, if there are several, as one transaction.
fn locks_by_transaction(server: &Server) -> Vec<usize> {
    let folder = server.data_dir().join("appendonlydir");
    let files = std::fs::read_dir(folder).expect("the append-only folder").flatten();
    let file = files.map(|file| file.path()).find(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let bytes = std::fs::read(file.expect("an append-only file")).expect("a readable file");
    let text = String::from_utf8_lossy(&bytes);
    let transactions = text.split("MULTI\r\n").skip(1).filter_map(|rest| rest.split("EXEC\r\n").next());
    transactions.map(|commands| commands.matches("\r\nlock:").count()).collect()
}

/// One call of the sweep must not block the server for long, and many expired locks must not take many calls. The time
/// of the module stands still, so only the number of steps limits a call.
#[test]
fn a_burst_of_expired_locks_is_swept_in_few_calls_of_limited_size() {
    const LOCKS: usize = 20_000;
    let clock = FakeClock::new();
    clock.freeze_module();
    let server = Server::builder().arg("appendonly", "yes").arg("appendfsync", "no").clock(&clock).start();
    let mut wire = server.connect();
    acquire_many(&mut wire, LOCKS as i64);
    clock.advance_module(OVER);
    let is_empty = |wire: &mut Wire| wire.call_strs("DBSIZE") == Answer::Int(0);
    eventually("all locks are swept", SOON, || is_empty(&mut wire).then_some(()));
    let calls: Vec<usize> = locks_by_transaction(&server).into_iter().filter(|locks| *locks > 1).collect();
    // A call that sweeps a single lock writes no transaction.
    assert!((LOCKS - LOCKS / 100..=LOCKS).contains(&calls.iter().sum()), "{calls:?}");
    assert!(calls.iter().all(|locks| *locks <= MOST_STEPS), "a call may sweep {MOST_STEPS}: {calls:?}");
    assert!(calls.len() <= LOCKS / 1_000, "{} calls: {calls:?}", calls.len());
}
