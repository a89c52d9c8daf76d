//! A flush deletes locks that clients rely on: the node grants them to no other client before they would have expired.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, FakeClock, Server, ServerBuilder, Wire, granted, start_frozen};
use std::thread;
use std::time::Duration;

/// Every command that empties a database, also those that free memory in the background.
const FLUSHES: [&str; 6] =
    ["FLUSHALL", "FLUSHALL SYNC", "FLUSHALL ASYNC", "FLUSHDB", "FLUSHDB SYNC", "FLUSHDB ASYNC"];

fn refused(wire: &mut Wire, line: &str, case: &str) {
    let answer = wire.call_strs(line);
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{case}: {line}: {answer:?}");
}

fn left_ms(wire: &mut Wire) -> i64 {
    let node = wire.call_strs("REDLOCK.NODE");
    node.field("quarantine-ms").unwrap_or_else(|| panic!("no quarantine-ms in {node:?}")).int()
}

fn quarantines(server: &Server) -> Option<String> {
    server.info("redlock", "redlock_quarantines")
}

fn pass(clock: &FakeClock, ms: i64) {
    clock.advance_module(Duration::from_millis(ms.unsigned_abs()));
}

/// Runs the test for every flush in parallel, each on its own server: the servers mostly wait for their timers.
fn with_every_flush(test: impl Fn(&str) + Sync) {
    thread::scope(|scope| {
        for flush in FLUSHES {
            let test = &test;
            scope.spawn(move || test(flush));
        }
    });
}

#[test]
fn flushed_locks_are_not_granted_before_their_time() {
    with_every_flush(|flush| {
        let (server, clock) = start_frozen(Server::builder());
        let mut wire = server.connect();
        let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE long me 10000"));
        granted(&wire.call_strs("REDLOCK.ACQUIRE short me 3000"));
        pass(&clock, 1_000);
        assert_eq!(wire.call_strs(flush), Answer::ok());
        // The quarantine must also last over the server's own periodic tasks.
        server.wait_for_cron();
        let left = left_ms(&mut wire);
        assert!((9_000..=9_100).contains(&left), "{flush}: until the last lock would expire, {left} ms");
        assert_eq!(quarantines(&server), Some("1".into()), "{flush}");
        assert!(
            server.log().lines().any(|line| line.contains("redlock") && line.contains("flush")),
            "{flush}"
        );
        for line in
            ["REDLOCK.ACQUIRE long other 1000", "REDLOCK.ACQUIRE long me 1000", "REDLOCK.ACQUIRE new me 1000"]
        {
            refused(&mut wire, line, flush);
        }
        refused(&mut wire, "REDLOCK.MACQUIRE 2 long new other 1000", flush);
        assert_eq!(wire.call_strs("REDLOCK.RELEASE long me"), Answer::Int(0), "{flush}");
        assert_eq!(wire.call_strs("REDLOCK.EXTEND long me 1000"), Answer::Nil, "{flush}");
        assert_eq!(wire.call_strs("REDLOCK.INSPECT long"), Answer::Nil, "{flush}");
        assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0), "{flush}");

        pass(&clock, 8_999);
        refused(&mut wire, "REDLOCK.ACQUIRE long other 1000", &format!("{flush}, until the end"));
        pass(&clock, 102);
        assert_eq!(left_ms(&mut wire), 0, "{flush}");
        assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE long other 1000")) > fence, "{flush}");
    });
}

#[test]
fn a_flush_within_a_transaction_or_a_script_counts_as_well() {
    let (server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000"));
    for line in ["MULTI", "FLUSHALL", "REDLOCK.ACQUIRE lock other 10000"] {
        assert!(matches!(wire.call_strs(line), Answer::Status(_)), "{line}");
    }
    let replies = wire.call_strs("EXEC");
    assert_eq!(replies.list()[1].error_word(), Some("REDLOCKQUARANTINE"), "{replies:?}");
    pass(&clock, 10_101);
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000"));
    assert_eq!(wire.call(&["EVAL", "redis.call('FLUSHDB')", "0"]), Answer::Nil);
    refused(&mut wire, "REDLOCK.ACQUIRE lock other 10000", "a script");
}

#[test]
fn many_flushed_locks_are_as_safe_as_one() {
    with_every_flush(|flush| {
        let (server, clock) = start_frozen(Server::builder());
        let mut wire = server.connect();
        let acquire =
            |n: u32| ["REDLOCK.ACQUIRE".into(), format!("lock:{n}"), "me".into(), "10000".into()].to_vec();
        wire.pipeline((0..20_000).map(acquire).collect()).iter().for_each(|answer| {
            granted(answer);
        });
        assert_eq!(wire.call_strs(flush), Answer::ok());
        // The module forgets the locks in small steps. No command speeds that up, and several ticks pass.
        server.wait_for_cron();
        refused(&mut wire, "REDLOCK.ACQUIRE lock:1 other 1000", flush);
        pass(&clock, 9_999);
        refused(&mut wire, "REDLOCK.ACQUIRE lock:19999 other 1000", flush);
        pass(&clock, 102);
        granted(&wire.call_strs("REDLOCK.ACQUIRE lock:19999 other 1000"));
    });
}

#[test]
fn an_extended_lock_counts_with_its_new_deadline() {
    let (server, clock) = start_frozen(Server::builder());
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 1000"));
    granted(&wire.call_strs("REDLOCK.EXTEND lock me 10000"));
    assert_eq!(wire.call_strs("FLUSHALL"), Answer::ok());
    pass(&clock, 9_999);
    refused(&mut wire, "REDLOCK.ACQUIRE lock other 1000", "extended");
    pass(&clock, 102);
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 1000"));
}

#[test]
fn locks_of_other_databases_stay_and_work_during_the_wait() {
    let (server, _clock) = start_frozen(Server::builder());
    let (mut here, mut there) = (server.connect(), server.connect());
    assert_eq!(there.call_strs("SELECT 3"), Answer::ok());
    granted(&here.call_strs("REDLOCK.ACQUIRE lock me 10000"));
    let fence = granted(&there.call_strs("REDLOCK.ACQUIRE lock me 60000"));
    assert_eq!(here.call_strs("FLUSHDB"), Answer::ok());
    let left = left_ms(&mut here);
    assert!((10_000..=10_100).contains(&left), "for the flushed lock alone: {left} ms");
    refused(&mut here, "REDLOCK.ACQUIRE lock other 1000", "the flushed database");
    assert_eq!(there.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil);
    assert_eq!(there.call_strs("REDLOCK.ACQUIRE lock me 60000"), Answer::Int(fence));
    assert_eq!(there.call_strs("REDLOCK.EXTEND lock me 60000"), Answer::Int(fence));
    assert_eq!(there.inspect("lock").map(|lock| lock.fence), Some(fence));
    assert_eq!(there.call_strs("REDLOCK.RELEASE lock me"), Answer::Int(1));
}

#[test]
fn a_flush_of_nothing_held_costs_nothing() {
    for flush in FLUSHES {
        let (server, clock) = start_frozen(Server::builder());
        let mut wire = server.connect();
        let mut elsewhere = server.connect();
        assert_eq!(elsewhere.call_strs("SELECT 3"), Answer::ok());
        assert_eq!(wire.call_strs(flush), Answer::ok(), "an empty server");
        granted(&wire.call_strs("REDLOCK.ACQUIRE released me 10000"));
        assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
        granted(&wire.call_strs("REDLOCK.ACQUIRE broken me 10000"));
        assert_eq!(wire.call_strs("DEL broken"), Answer::Int(1));
        granted(&wire.call_strs("REDLOCK.ACQUIRE over me 1000"));
        pass(&clock, 1_001);
        assert_eq!(wire.call_strs("SET plain value"), Answer::ok());
        if flush.starts_with("FLUSHDB") {
            granted(&elsewhere.call_strs("REDLOCK.ACQUIRE held me 10000"));
        }
        assert_eq!(wire.call_strs(flush), Answer::ok());
        assert_eq!(left_ms(&mut wire), 0, "{flush}");
        assert_eq!(quarantines(&server), Some("0".into()), "{flush}");
        granted(&wire.call_strs("REDLOCK.ACQUIRE released other 10000"));
    }
}

#[test]
fn a_second_flush_does_not_shorten_the_wait() {
    let (server, clock) = start_frozen(Server::builder());
    let (mut wire, mut elsewhere) = (server.connect(), server.connect());
    assert_eq!(elsewhere.call_strs("SELECT 3"), Answer::ok());
    granted(&elsewhere.call_strs("REDLOCK.ACQUIRE short me 2000"));
    granted(&wire.call_strs("REDLOCK.ACQUIRE long me 10000"));
    assert_eq!(wire.call_strs("FLUSHDB"), Answer::ok());
    assert_eq!(elsewhere.call_strs("FLUSHDB"), Answer::ok());
    server.wait_for_cron();
    assert_eq!(wire.call_strs("FLUSHALL"), Answer::ok());
    pass(&clock, 9_999);
    refused(&mut wire, "REDLOCK.ACQUIRE long other 1000", "after three flushes");
}

#[test]
fn a_second_flush_lengthens_the_wait_if_it_must() {
    let (server, clock) = start_frozen(Server::builder());
    let (mut wire, mut elsewhere) = (server.connect(), server.connect());
    assert_eq!(elsewhere.call_strs("SELECT 3"), Answer::ok());
    granted(&elsewhere.call_strs("REDLOCK.ACQUIRE long me 10000"));
    granted(&wire.call_strs("REDLOCK.ACQUIRE short me 2000"));
    assert_eq!(wire.call_strs("FLUSHDB"), Answer::ok());
    assert_eq!(elsewhere.call_strs("FLUSHDB"), Answer::ok());
    server.wait_for_cron();
    pass(&clock, 9_999);
    refused(&mut elsewhere, "REDLOCK.ACQUIRE long other 1000", "after both flushes");
}

#[test]
fn an_end_of_the_server_during_the_wait_does_not_shorten_it() {
    let append_only = |fsync| Server::builder().arg("appendonly", "yes").arg("appendfsync", fsync);
    let keeps: [(&str, ServerBuilder); 4] = [
        ("nothing", Server::builder()),
        ("RDB", Server::builder().arg("save", "3600 1")),
        ("AOF everysec", append_only("everysec")),
        ("AOF always", append_only("always")),
    ];
    for (keep, builder) in keeps {
        for end in ["crash", "shutdown"] {
            let (mut server, clock) = start_frozen(builder.clone());
            granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 10000"));
            assert_eq!(server.connect().call_strs("FLUSHALL"), Answer::ok());
            if end == "crash" {
                server.kill();
            }
            server.restart();
            pass(&clock, 9_999);
            // Another key: with AOF everysec, a crash can lose the FLUSHALL, and then the lock is held again.
            refused(
                &mut server.connect(),
                "REDLOCK.ACQUIRE fresh other 1000",
                &format!("keeping {keep}, {end}"),
            );
        }
    }
}

#[test]
fn a_reload_is_no_flush() {
    let (server, _clock) = start_frozen(Server::builder().debug_commands());
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000"));
    assert_eq!(wire.call_strs("DEBUG RELOAD"), Answer::ok());
    assert_eq!(left_ms(&mut wire), 0);
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE lock other 1000"), Answer::Nil);
    granted(&wire.call_strs("REDLOCK.ACQUIRE fresh other 1000"));
}

/// DEL is the administrator's way to break a lock. It shows what a flush would do without the quarantine.
#[test]
fn a_deleted_lock_is_granted_at_once() {
    for delete in ["DEL lock", "UNLINK lock"] {
        let (server, _clock) = start_frozen(Server::builder());
        let mut wire = server.connect();
        let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 10000"));
        assert_eq!(wire.call_strs(delete), Answer::Int(1));
        assert_eq!(left_ms(&mut wire), 0, "{delete}");
        assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 10000")) > fence, "{delete}");
        assert_eq!(wire.call_strs("REDLOCK.EXTEND lock me 10000"), Answer::Nil, "{delete}");
        assert_eq!(quarantines(&server), Some("0".into()), "{delete}");
    }
}
