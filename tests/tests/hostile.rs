//! Hostile clients: each may use only its own keys, and tries to harm the node and the locks of others.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_client::LockManager;
use redlock_core::fence::Stripe;
use redlock_tests::{Answer, Fleet, SOON, Server, eventually, granted, start_frozen};
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
    assert!(evil > 1 << 62, "the test needs a very high fence");
    for round in 0..3 {
        server.kill();
        server.restart();
        let mut wire = server.connect();
        let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE good me 60000"));
        assert!(
            fence > good && fence < 1 << 24,
            "start {round}: one key raised the fences of all others: {fence}"
        );
        let next = granted(&wire.call_strs("REDLOCK.ACQUIRE evil:1 me 60000"));
        assert!(next > evil && next < LAST_FENCE, "start {round}: {next}");
    }
}

#[test]
fn many_raised_keys_do_not_use_up_the_fences_of_others() {
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
    let far: usize = server
        .info("redlock", "redlock_far_stripes")
        .and_then(|far| far.parse().ok())
        .expect("the number of far stripes");
    assert!(far <= 1_024, "{far}");
}

/// The key of a hostile client that has the same fence counter as another key.
fn twin_of(key: &str) -> String {
    let stripe = Stripe::of(key.as_bytes());
    let twins = (0..).map(|number| format!("evil:{number}"));
    twins.into_iter().find(|twin| Stripe::of(twin.as_bytes()) == stripe).expect("a twin")
}

/// The hostile client raises one counter with many commands, on each node another number of times.
#[tokio::test]
async fn raises_on_some_nodes_delay_a_lock_and_do_not_prevent_it() {
    let fleet = Fleet::start(3);
    let twin = twin_of("good");
    let raise = format!("REDLOCK.EXTEND {twin} me 60000 FENCE {LAST_FENCE}");
    let mut largest = Vec::new();
    for (node, raises) in [(0, 100), (1, 300)] {
        let mut wire = fleet[node].connect();
        granted(&wire.call_strs(&format!("REDLOCK.ACQUIRE {twin} me 60000")));
        largest.push((0..raises).map(|_| granted(&wire.call_strs(&raise))).max().expect("some raises"));
    }
    assert!(largest[1] - largest[0] > 150 << 20, "the test needs many commands: {largest:?}");
    let locks = LockManager::builder().nodes(fleet.urls()).node_timeout(SOON).build().expect("a manager");
    let guard = locks.acquire("good", Duration::from_secs(60)).await.expect("the lock can be acquired");
    assert!(guard.fence() > largest[0].try_into().expect("a fence"), "{} after {largest:?}", guard.fence());
    guard.release().await;
}

/// Raised counters become too many for marks of their own, and then the common mark goes up. After a restart, all keys
/// of the raised nodes start far apart.
#[tokio::test]
async fn raises_of_many_keys_leave_others_obtainable_after_restarts() {
    let mut fleet = Fleet::start_with(3, |_, node| node.module_args(["restart-grace", "off"]));
    for (node, raises) in [(0, 100), (1, 300)] {
        let mut wire = fleet[node].connect();
        let lines = (0..2_000).map(|key| {
            let line = format!("REDLOCK.ACQUIRE evil:{key} me 60000 FENCE {LAST_FENCE}");
            line.split(' ').map(str::to_owned).collect::<Vec<_>>()
        });
        wire.pipeline(lines.collect::<Vec<_>>());
        let raise = format!("REDLOCK.EXTEND evil:0 me 60000 FENCE {LAST_FENCE}");
        for _ in 0..raises {
            granted(&wire.call_strs(&raise));
        }
        fleet[node].kill();
        fleet[node].restart();
    }
    let locks = LockManager::builder().nodes(fleet.urls()).node_timeout(SOON).build().expect("a manager");
    let guard = locks.acquire("good", Duration::from_secs(60)).await.expect("the lock can be acquired");
    guard.release().await;
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
    assert_eq!(answer.error_word(), Some("REDLOCKWAITERS"), "a key of 1 MiB: {answer:?}");
    let key = "k".repeat(4_096);
    granted(&holder.call(&["REDLOCK.ACQUIRE", &key, "me", "60000"]));
    let mut queued = 0;
    let refused = loop {
        let answer = waiter.call(&wait(&key, &format!("owner{queued}")));
        if answer.error_word().is_some() {
            break answer;
        }
        queued += 1;
        assert!(queued < 1_000, "one megabyte cannot hold 1000 such waiters");
    };
    assert_eq!(refused.error_word(), Some("REDLOCKWAITERS"), "{refused:?}");
    assert!(queued > 50, "{queued}");
    let bytes: u64 = server
        .info("redlock", "redlock_memory_bytes")
        .and_then(|bytes| bytes.parse().ok())
        .expect("a number of bytes");
    assert!(bytes < 3_000_000, "{bytes}");
    // An acquire without WAIT gets its usual reply, and a waiter that leaves frees its memory.
    assert_eq!(waiter.call(&["REDLOCK.ACQUIRE", &key, "another", "60000"]), Answer::Nil);
    drop(waiter);
    eventually("the waiters have left", SOON, || {
        (server.info("redlock", "redlock_waiters")? == "0").then_some(())
    });
    assert_eq!(holder.call(&wait(&key, "next")).list().len(), 3);
}

/// A long lock that has ended must not prolong the quarantine after every later crash.
#[test]
fn a_released_long_lock_does_not_prolong_later_quarantines() {
    let (mut server, clock) = start_frozen(Server::builder().module_args(["max-ttl", "86400000"]));
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE long me 86400000"));
    assert_eq!(wire.call_strs("REDLOCK.RELEASE long me"), Answer::Int(1));
    server.wait_for_cron();
    // The node lowers its longest lease after a minute without such a lock.
    clock.advance_module(Duration::from_secs(61));
    let lease = || server.info("redlock", "redlock_longest_lease_ms")?.parse::<u64>().ok();
    eventually("the node lowers its longest lease", SOON, || lease().filter(|lease| *lease <= 65_536));
    server.kill();
    server.restart();
    let left = server.connect().call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int);
    assert!((1..70_000).contains(&left), "{left} ms");
    // While the long lock is held, the quarantine after a crash covers its whole time to live.
    let mut server = Server::builder().module_args(["max-ttl", "86400000"]).start();
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE long me 86400000"));
    server.wait_for_cron();
    server.kill();
    server.restart();
    let left = server.connect().call_strs("REDLOCK.NODE").field("quarantine-ms").map_or(0, Answer::int);
    assert!(left >= 86_400_000, "{left} ms");
}
