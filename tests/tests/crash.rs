//! Crashes: whatever of the data set is lost, no number comes twice and nobody gets a lock that is held.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod traffic;

use redlock_tests::history::{History, HistoryViolation, Observation, ObservationKind, PromisedLease};
use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, eventually, granted, seed, start_frozen};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{Progress, Traffic};

/// Grants again at once after a crash, whatever it may have forgotten.
fn forgetful() -> ServerBuilder {
    Server::builder().module_args(["restart-grace", "off"])
}

#[test]
fn a_crash_without_persistence_loses_locks_but_no_number() {
    let (mut server, _clock) = start_frozen(forgetful());
    let mut largest = [0; 3];
    let keys = ["held", "released", "untouched"];
    for round in 0..5 {
        let mut wire = server.connect();
        assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0), "round {round}");
        for (key, largest) in keys.into_iter().zip(&mut largest).take(2) {
            // Steps of every size, up to what one wish may lift and over what is put aside at a time.
            let floor = *largest + [0, 7, 1 << 20, 1 << 31, 1 << 32][round];
            let fence =
                granted(&wire.call(&["REDLOCK.ACQUIRE", key, "me", "60000", "FENCE", &floor.to_string()]));
            assert!(fence > *largest && fence >= floor, "round {round}: {key} has {fence} after {largest}");
            *largest = fence;
        }
        assert_eq!(wire.call_strs("REDLOCK.RELEASE released me"), Answer::Int(1));
        server.kill();
        server.restart();
    }
    let mut wire = server.connect();
    for (key, largest) in keys.into_iter().zip(largest) {
        assert!(granted(&wire.call(&["REDLOCK.ACQUIRE", key, "other", "60000"])) > largest, "{key}");
    }
}

#[test]
fn a_crash_after_many_grants_loses_no_number() {
    let (mut server, _clock) = start_frozen(forgetful());
    let mut wire = server.connect();
    let pair =
        [["REDLOCK.ACQUIRE", "lock", "me", "60000"].to_vec(), ["REDLOCK.RELEASE", "lock", "me"].to_vec()];
    let answers = wire.pipeline(std::iter::repeat_n(pair, 10_000).flatten().collect());
    let largest = answers.iter().map(Answer::int).max().expect("answers");
    assert!(largest >= 10_000);
    server.kill();
    server.restart();
    assert!(granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock other 60000")) > largest);
}

#[test]
fn a_node_that_may_have_forgotten_locks_grants_none_until_they_have_run_out() {
    let (mut server, clock) = start_frozen(Server::builder());
    let before = granted(&server.connect().call_strs("REDLOCK.ACQUIRE lock me 5000"));
    server.kill();
    server.restart();
    let mut wire = server.connect();
    let answer = wire.call_strs("REDLOCK.ACQUIRE lock other 5000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"), "{answer:?}");
    clock.advance_module(Duration::from_secs(6));
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE lock other 5000")) > before);
}

/// Crashes per way of keeping data: a handful, or `scripts/test --long`.
fn rounds() -> u32 {
    if std::env::var_os("REDLOCK_LONG").is_some() { 200 } else { 6 }
}

/// Kills a server again and again while clients work on it, and starts it on what it left behind. Half of
/// the crashes come while the server does its `upkeep`. Hands over what was wrong.
fn crash_under_load(name: &str, seed: u64, builder: ServerBuilder, upkeep: &str) -> Vec<HistoryViolation> {
    let mut server = builder.start();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut traffic = Traffic::new(seed);
    let mut held = 0;
    traffic.take_for_longest(&mut server.connect());
    for _ in 0..rounds() {
        let progress = Progress::default();
        // Mostly amid grants; now and then in quarantine, or before the first request is read.
        let (counter, goal) = match random.u8(0..4) {
            0 => (&progress.answers, random.u64(0..400)),
            _ => (&progress.grants, random.u64(1..2_000)),
        };
        let busy = random.bool();
        work_until_crash(
            &mut traffic,
            &mut server,
            &progress,
            || counter.load(Relaxed) >= goal,
            |server| {
                if busy {
                    // An answer that it cannot be done now is fine too.
                    let _ = server.connect().call_strs(upkeep);
                }
            },
        );
        held += traffic.history().held_at(Instant::now());
        server.restart();
    }
    // The last crash counts when the locks are granted again.
    let progress = Progress::default();
    work_until_crash(&mut traffic, &mut server, &progress, || progress.grants.load(Relaxed) >= 50, |_| {});
    let (grants, breaches) = (traffic.history().grants(), traffic.history().violations());
    assert!(held > 0, "{name}, seed {seed}: no lock was held at any crash, this shows nothing");
    println!("{name}: {grants} grants, {held} held at a crash, {} breaches", breaches.len());
    breaches
}

fn work_until_crash(
    traffic: &mut Traffic,
    server: &mut Server,
    progress: &Progress,
    is_enough: impl Fn() -> bool,
    before_crash: impl FnOnce(&Server),
) {
    let mut wire = server.connect();
    thread::scope(|scope| {
        let clients = scope.spawn(|| traffic.run(&mut wire, progress));
        eventually("the clients have done some work", SOON, || {
            // A client that panics has more to say about it than this wait.
            (is_enough() || clients.is_finished()).then_some(())
        });
        before_crash(server);
        server.kill();
    });
}

fn verify(name: &str, fixed: u64, builder: ServerBuilder, upkeep: &str) {
    let seed = seed(fixed);
    let breaches = crash_under_load(name, seed, builder, upkeep);
    let told: Vec<String> = breaches.iter().map(HistoryViolation::to_string).collect();
    assert!(breaches.is_empty(), "{name}, seed {seed}: {}", told.join("; "));
}

#[test]
fn crashes_under_load_without_persistence() {
    verify("no persistence", 0x5eed_0001, Server::builder(), "PING");
}

#[test]
fn crashes_under_load_with_snapshots() {
    verify("RDB", 0x5eed_0002, Server::builder().arg("save", "1 1"), "BGSAVE");
}

#[test]
fn crashes_under_load_with_an_append_only_file_synced_every_second() {
    verify("AOF everysec", 0x5eed_0003, append_only("everysec"), "BGREWRITEAOF");
}

#[test]
fn crashes_under_load_with_an_append_only_file_synced_always() {
    verify("AOF always", 0x5eed_0004, append_only("always"), "BGREWRITEAOF");
}

#[test]
fn crashes_under_load_without_the_wait_still_give_no_number_twice() {
    // How many locks are granted too early is a matter of luck here; the last test leaves nothing to luck.
    let breaches = crash_under_load("no wait", seed(0x5eed_0006), forgetful(), "PING");
    let numbers: Vec<_> =
        breaches.iter().filter(|breach| matches!(breach, HistoryViolation::FenceNotLarger { .. })).collect();
    assert!(numbers.is_empty(), "{numbers:?}");
}

fn append_only(fsync: &str) -> ServerBuilder {
    Server::builder().arg("appendonly", "yes").arg("appendfsync", fsync)
}

/// One grant, as the checker wants it.
fn grant(wire: &mut Wire, history: &mut History, owner: u64) {
    let sent = Instant::now();
    let answer = wire.call(&["REDLOCK.ACQUIRE", "lock", &owner.to_string(), "10000"]);
    let fence = granted(&answer);
    let promise = PromisedLease { fence, sent, answered: Instant::now(), ttl: Duration::from_secs(10) };
    history.record(Observation { key: 0, owner, kind: ObservationKind::Granted(promise) });
}

#[test]
fn without_the_wait_a_second_client_gets_the_lock_and_the_checker_sees_it() {
    let mut server = forgetful().start();
    let mut history = History::default();
    grant(&mut server.connect(), &mut history, 1);
    server.kill();
    server.restart();
    grant(&mut server.connect(), &mut history, 2);
    let breaches = history.violations();
    assert!(
        matches!(breaches[..], [HistoryViolation::EarlyGrant { .. }]),
        "early, and the fence still grows: {breaches:?}"
    );
}
