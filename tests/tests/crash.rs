//! Crashes: whatever the server loses of its data set, it repeats no fence and grants no held lock.

#![allow(clippy::expect_used, reason = "helpers of tests")]

mod traffic;

use redlock_tests::history::{History, HistoryViolation, Observation, ObservationKind, PromisedLease};
use redlock_tests::{Answer, SOON, Server, ServerBuilder, Wire, eventually, granted, seed, start_frozen};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};
use traffic::{Progress, Traffic};

/// A server that grants again at once after a crash, although it may have forgotten locks.
fn without_quarantine() -> ServerBuilder {
    Server::builder().module_args(["restart-grace", "off"])
}

#[test]
fn a_crash_without_persistence_loses_locks_but_no_fence() {
    let (mut server, _clock) = start_frozen(without_quarantine());
    let mut largest = [0; 3];
    let keys = ["held", "released", "untouched"];
    for round in 0..5 {
        let mut wire = server.connect();
        assert_eq!(wire.call_strs("DBSIZE"), Answer::Int(0), "round {round}");
        for (key, largest) in keys.into_iter().zip(&mut largest).take(2) {
            // Steps of every size; the last two are larger than what the node reserves at a time (2^20).
            let floor = *largest + [0, 7, 1 << 20, 1 << 31, 1 << 32][round];
            let fence =
                granted(&wire.call(&["REDLOCK.ACQUIRE", key, "me", "60000", "FENCE", &floor.to_string()]));
            assert!(
                fence > *largest && fence >= floor,
                "round {round}: {key} has fence {fence} after {largest}"
            );
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
fn a_crash_after_many_grants_loses_no_fence() {
    let (mut server, _clock) = start_frozen(without_quarantine());
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
fn a_node_that_may_have_forgotten_locks_grants_none_until_they_have_expired() {
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

/// The number of crashes for each kind of persistence: 6, or 200 with `scripts/test --long`.
fn rounds() -> u32 {
    if std::env::var_os("REDLOCK_LONG").is_some() { 200 } else { 6 }
}

/// Kills a server again and again while clients use it, and restarts it with the data that is left. About half of the
/// crashes come right after the command `upkeep`, such as a save. Returns the violations.
fn crash_under_load(name: &str, seed: u64, builder: ServerBuilder, upkeep: &str) -> Vec<HistoryViolation> {
    let mut server = builder.start();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut traffic = Traffic::new(seed);
    let mut held = 0;
    traffic.take_for_longest(&mut server.connect());
    for _ in 0..rounds() {
        let progress = Progress::default();
        // Most crashes happen among grants; some in quarantine, or before the server reads the first request.
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
                    // The server may reject the command, for example while a save is running.
                    let _ = server.connect().call_strs(upkeep);
                }
            },
        );
        held += traffic.history().held_at(Instant::now());
        server.restart();
    }
    // Grants after the last crash show whether it lost anything.
    let progress = Progress::default();
    work_until_crash(&mut traffic, &mut server, &progress, || progress.grants.load(Relaxed) >= 50, |_| {});
    let (grants, violations) = (traffic.history().grants(), traffic.history().violations());
    assert!(held > 0, "{name}, seed {seed}: no lock was held at any crash, so the test checks nothing");
    println!("{name}: {grants} grants, {held} held at a crash, {} violations", violations.len());
    violations
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
            // If a client panics, its own message is better than a timeout here.
            (is_enough() || clients.is_finished()).then_some(())
        });
        before_crash(server);
        server.kill();
    });
}

fn verify(name: &str, fixed: u64, builder: ServerBuilder, upkeep: &str) {
    let seed = seed(fixed);
    let violations = crash_under_load(name, seed, builder, upkeep);
    let messages: Vec<String> = violations.iter().map(HistoryViolation::to_string).collect();
    assert!(violations.is_empty(), "{name}, seed {seed}: {}", messages.join("; "));
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
fn crashes_under_load_without_the_quarantine_repeat_no_fence() {
    // Here the number of early grants depends on chance. The last test shows one without chance.
    let violations = crash_under_load("no quarantine", seed(0x5eed_0006), without_quarantine(), "PING");
    let repeated: Vec<_> = violations
        .iter()
        .filter(|violation| matches!(violation, HistoryViolation::FenceNotLarger { .. }))
        .collect();
    assert!(repeated.is_empty(), "{repeated:?}");
}

fn append_only(fsync: &str) -> ServerBuilder {
    Server::builder().arg("appendonly", "yes").arg("appendfsync", fsync)
}

/// Acquires the lock and records the grant in the history.
fn grant(wire: &mut Wire, history: &mut History, owner: u64) {
    let sent = Instant::now();
    let answer = wire.call(&["REDLOCK.ACQUIRE", "lock", &owner.to_string(), "10000"]);
    let fence = granted(&answer);
    let promise = PromisedLease { fence, sent, answered: Instant::now(), ttl: Duration::from_secs(10) };
    history.record(Observation { key: 0, owner, kind: ObservationKind::Granted(promise) });
}

#[test]
fn without_the_quarantine_a_second_client_gets_the_lock_and_the_checker_detects_it() {
    let mut server = without_quarantine().start();
    let mut history = History::default();
    grant(&mut server.connect(), &mut history, 1);
    server.kill();
    server.restart();
    grant(&mut server.connect(), &mut history, 2);
    let violations = history.violations();
    assert!(
        matches!(violations[..], [HistoryViolation::EarlyGrant { .. }]),
        "one early grant, and the fence grows: {violations:?}"
    );
}
