//! Clients that may use their own keys only, and mean harm.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, SOON, Server, eventually, granted, start_frozen};
use std::time::Duration;

const LAST_FENCE: i64 = i64::MAX;

#[test]
fn a_client_that_raises_its_own_key_leaves_all_others_obtainable() {
    let mut server = Server::builder().module_args(["restart-grace", "off"]).start();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE evil:1 me 60000"));
    let good = granted(&wire.call_strs("REDLOCK.ACQUIRE good me 60000"));
    let raise = format!("REDLOCK.EXTEND evil:1 me 60000 FENCE {LAST_FENCE}");
    let evil = (0..2_000).map(|_| granted(&wire.call_strs(&raise))).max().expect("some raises");
    assert!(evil > 1 << 62, "or this shows nothing");
    for round in 0..3 {
        server.kill();
        server.restart();
        let mut wire = server.connect();
        let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE good me 60000"));
        assert!(fence > good && fence < 1 << 24, "start {round}: one key moved all others: {fence}");
        let next = granted(&wire.call_strs("REDLOCK.ACQUIRE evil:1 me 60000"));
        assert!(next > evil && next < LAST_FENCE, "start {round}: {next}");
    }
}

#[test]
fn many_raised_keys_use_up_no_fences() {
    let mut server = Server::builder().module_args(["restart-grace", "off"]).start();
    let mut wire = server.connect();
    let lines = (0..1_500).map(|key| {
        let line = format!("REDLOCK.ACQUIRE evil:{key} me 60000 FENCE {LAST_FENCE}");
        line.split(' ').map(str::to_owned).collect::<Vec<_>>()
    });
    assert!(wire.pipeline(lines.collect::<Vec<_>>()).iter().all(|answer| matches!(answer, Answer::Int(1..))));
    for round in 0..2 {
        server.kill();
        server.restart();
        let mut wire = server.connect();
        for key in ["good", "better", "evil:7"] {
            let fence = granted(&wire.call(&["REDLOCK.ACQUIRE", key, "me", "60000"]));
            assert!(fence < LAST_FENCE - (1 << 61), "start {round}, {key}: {fence}");
        }
    }
    let far: usize =
        server.info("redlock", "redlock_far_stripes").and_then(|far| far.parse().ok()).expect("far");
    assert!(far <= 1_024, "{far}");
}

#[test]
fn waiters_are_bounded_in_bytes() {
    let server = Server::builder().module_args(["max-waiters-memory", "1000000"]).start();
    let (mut holder, mut waiter) = (server.connect(), server.connect());
    let long = "k".repeat(1 << 20);
    granted(&holder.call(&["REDLOCK.ACQUIRE", &long, "me", "60000"]));
    let wait = |key: &str, owner: &str| {
        ["REDLOCK.ACQUIRE", key, owner, "60000", "WAIT", "1", "60000", "channel"].map(str::to_owned)
    };
    let answer = waiter.call(&wait(&long, "other"));
    assert_eq!(answer.error_word(), Some("REDLOCKWAITERS"), "a key of a mebibyte: {answer:?}");
    let key = "k".repeat(4_096);
    granted(&holder.call(&["REDLOCK.ACQUIRE", &key, "me", "60000"]));
    let mut queued = 0;
    let refused = loop {
        let answer = waiter.call(&wait(&key, &format!("owner{queued}")));
        if answer.error_word().is_some() {
            break answer;
        }
        queued += 1;
        assert!(queued < 1_000, "a megabyte holds no thousand of them");
    };
    assert_eq!(refused.error_word(), Some("REDLOCKWAITERS"), "{refused:?}");
    assert!(queued > 50, "{queued}");
    let bytes: u64 =
        server.info("redlock", "redlock_memory_bytes").and_then(|bytes| bytes.parse().ok()).expect("bytes");
    assert!(bytes < 3_000_000, "{bytes}");
    // A client that asks without WAIT is answered as ever, and room is made when a waiter leaves.
    assert_eq!(waiter.call(&["REDLOCK.ACQUIRE", &key, "another", "60000"]), Answer::Nil);
    drop(waiter);
    eventually("the waiters have left", SOON, || {
        (server.info("redlock", "redlock_waiters")? == "0").then_some(())
    });
    assert_eq!(holder.call(&wait(&key, "next")).list().len(), 3);
}

/// A long lock that is over must not prolong the quarantine of every later crash.
#[test]
fn one_long_lock_does_not_cost_every_later_crash_its_length() {
    let (mut server, clock) = start_frozen(Server::builder().module_args(["max-ttl", "86400000"]));
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE long me 86400000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE long me"), Answer::Int(1));
    server.wait_for_cron();
    // The node lowers its longest lease after a minute without such a lock.
    clock.advance_module(Duration::from_secs(61));
    let lease = || server.info("redlock", "redlock_longest_lease_ms")?.parse::<u64>().ok();
    eventually("the long lease is forgotten", SOON, || lease().filter(|lease| *lease <= 65_536));
    server.kill();
    server.restart();
    let left = server.connect().call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int);
    assert!((1..70_000).contains(&left), "{left} ms");
    // While it is held, a crash waits for all of it.
    let mut server = Server::builder().module_args(["max-ttl", "86400000"]).start();
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE long me 86400000"));
    server.wait_for_cron();
    server.kill();
    server.restart();
    let left = server.connect().call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int);
    assert!(left >= 86_400_000, "{left} ms");
}
