//! Servers that delete their data, run out of memory, or are maintained while clients use them.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_tests::campaign::{Campaign, LockMethod, Violation, Workload};
use redlock_tests::{Answer, Fleet, SOON, Server, ServerBuilder, eventually, granted};
use std::time::Duration;

const CONTENDER: &str = env!("CARGO_BIN_EXE_campaign_client");
const ALL: [usize; 5] = [0, 1, 2, 3, 4];

fn is_overlap(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. })
}

fn forgetful(node: ServerBuilder) -> ServerBuilder {
    node.module_args(["restart-grace", "off"])
}

fn long_locks() -> Workload {
    Workload { ttl: Duration::from_secs(2), ..Workload::default() }
}

/// Injects a fault on one node, on a majority and on all nodes. The number of the round selects a variant.
fn harm_more_and_more(name: &str, fleet: Fleet, harm: impl Fn(usize, &Server)) {
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (round, group) in [&[0][..], &[1, 2, 3], &ALL, &[4, 2], &ALL].into_iter().enumerate() {
        group.iter().for_each(|node| harm(round, &fleet[*node]));
        campaign.count_fault();
        campaign.wait_for_holds(15);
    }
    campaign.wait_for_holds_by_each(3);
    campaign.finish(&fleet).assert_clean(name);
}

fn harm_until_seen(fleet: &Fleet, work: Workload, harm: impl Fn(&Server)) {
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), work);
    campaign.inject_until_violation(is_overlap, |campaign| {
        campaign.wait_for_holds(10);
        fleet.iter().for_each(&harm);
        campaign.wait_for_holds(10);
    });
}

fn flush(round: usize, node: &Server) {
    let line = ["FLUSHALL", "FLUSHDB ASYNC", "FLUSHALL ASYNC", "FLUSHDB SYNC"][round % 4];
    assert_eq!(node.connect().call_strs(line), Answer::ok());
}

#[test]
fn nodes_flushed() {
    harm_more_and_more("FLUSHALL and FLUSHDB", Fleet::start(5), flush);
}

#[test]
fn control_nodes_flushed_without_the_wait() {
    let fleet = Fleet::start_with(5, |_, node| forgetful(node));
    harm_until_seen(&fleet, long_locks(), |node| flush(0, node));
}

#[test]
fn control_plain_locks_on_nodes_flushed() {
    let fleet = Fleet::start_with(5, |_, node| node.without_module());
    harm_until_seen(&fleet, Workload { lock: LockMethod::PLAIN, ..long_locks() }, |node| flush(0, node));
}

/// With these policies, a server without free memory evicts any key.
const EVICT_ANYTHING: [&str; 3] = ["allkeys-random", "allkeys-lru", "allkeys-lfu"];
/// With these policies, the server evicts no key, or only keys with an expiry of the server, which no lock has. One
/// policy per node.
const EVICT_NO_LOCKS: [&str; 5] =
    ["noeviction", "volatile-random", "volatile-lru", "volatile-lfu", "volatile-ttl"];

/// Makes a server evict all its keys, and removes the memory limit again.
fn evict(round: usize, node: &Server) {
    let mut wire = node.connect();
    let policy = EVICT_ANYTHING[round % EVICT_ANYTHING.len()];
    let line = format!("CONFIG SET maxmemory-policy {policy} maxmemory 1");
    assert_eq!(wire.call_strs(&line), Answer::ok());
    eventually("everything is evicted", SOON, || {
        // Before each write the server tries to free memory.
        assert_eq!(wire.call_strs("SET filler x").error_word(), Some("OOM"));
        (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
    });
    assert_eq!(wire.call_strs("CONFIG SET maxmemory 0"), Answer::ok());
}

#[test]
fn nodes_that_evict_locks() {
    harm_more_and_more("eviction", Fleet::start(5), evict);
}

#[test]
fn control_nodes_that_evict_locks_without_the_wait() {
    let fleet = Fleet::start_with(5, |_, node| forgetful(node));
    harm_until_seen(&fleet, long_locks(), |node| evict(0, node));
}

/// Takes a lock that outlasts the test, and sets a key that the server may evict.
fn hold_something(node: &Server) {
    let mut wire = node.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE kept me 60000"));
    assert_eq!(wire.call_strs("SET expires x EX 600"), Answer::ok());
}

/// Asserts that the server has evicted all keys that it may evict, that the lock is still held, and that it can be
/// released without free memory.
fn must_still_hold_it(node: &Server, policy: &str) {
    let mut wire = node.connect();
    eventually("the server has evicted what it may", SOON, || {
        assert_eq!(wire.call_strs("SET filler x").error_word(), Some("OOM"), "{policy}");
        let left = wire.call_strs("EXISTS expires");
        (left == Answer::Int(i64::from(policy == "noeviction"))).then_some(())
    });
    assert!(wire.inspect("kept").is_some(), "{policy}");
    assert_eq!(wire.call_strs("REDLOCK.RELEASE kept me"), Answer::Int(1), "{policy}");
    assert!(matches!(wire.call_strs("DEL expires"), Answer::Int(_)), "{policy}");
}

#[test]
fn nodes_out_of_memory() {
    let fleet = Fleet::start(5);
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    let limit = |node: usize, bytes: u8| {
        let policy = EVICT_NO_LOCKS[node];
        let line = format!("CONFIG SET maxmemory-policy {policy} maxmemory {bytes}");
        assert_eq!(fleet[node].connect().call_strs(&line), Answer::ok());
    };
    for group in [&[0, 1][..], &[2, 3, 4], &ALL] {
        group.iter().for_each(|node| hold_something(&fleet[*node]));
        group.iter().for_each(|node| limit(*node, 1));
        campaign.count_fault();
        group.iter().for_each(|node| must_still_hold_it(&fleet[*node], EVICT_NO_LOCKS[*node]));
        if group.len() < 3 {
            campaign.wait_for_holds_by_each(3);
        } else {
            campaign.wait_for_failures_only(9);
            // Each holder could release its lock.
            for node in group {
                let mut wire = fleet[*node].connect();
                eventually("all locks are released", SOON, || {
                    (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
                });
            }
        }
        group.iter().for_each(|node| limit(*node, 0));
        campaign.wait_for_holds_by_each(3);
    }
    campaign.finish(&fleet).assert_clean("out of memory");
}

/// Maintenance commands that operators and cron jobs run.
const UPKEEP: [&str; 8] = [
    "BGREWRITEAOF",
    "DEBUG RELOAD",
    "BGSAVE",
    "EVAL return{redis.call('REDLOCK.ACQUIRE','script','me','50'),redis.call('REDLOCK.RELEASE','script','me')} 0",
    "DEBUG RELOAD",
    "SCRIPT FLUSH",
    "CONFIG REWRITE",
    "BGREWRITEAOF",
];

/// Whether the server has run the command, or started it in the background. The script returns a fence and 1.
fn is_done(answer: &Answer) -> bool {
    match answer {
        Answer::Status(_) => true,
        Answer::List(answers) => matches!(answers[..], [Answer::Int(_), Answer::Int(1)]),
        _ => false,
    }
}

#[test]
fn nodes_are_maintained_and_killed_under_load() {
    let mut fleet = Fleet::start_with(5, |_, node| node.debug_commands().arg("appendonly", "yes"));
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(3);
    for (round, line) in UPKEEP.into_iter().enumerate() {
        let mut done = 0;
        for node in fleet.iter() {
            let mut wire = node.connect();
            for queued in ["MULTI", "REDLOCK.ACQUIRE together me 50", "REDLOCK.RELEASE together me"] {
                assert!(matches!(wire.call_strs(queued), Answer::Status(_)), "{queued}");
            }
            assert!(matches!(wire.call_strs("EXEC"), Answer::List(_)));
            let answer = wire.call_strs(line);
            done += usize::from(is_done(&answer));
            // The server refuses some commands while it writes its files or is in quarantine after a crash.
            let excuses = ["progress", "child", "REDLOCKQUARANTINE"];
            let is_busy =
                matches!(&answer, Answer::Error(text) if excuses.iter().any(|word| text.contains(word)));
            assert!(is_done(&answer) || is_busy, "{line}: {answer:?}");
        }
        assert!(done > 0, "no node has run {line}");
        campaign.count_fault();
        campaign.wait_for_holds(5);
        if round % 3 == 2 {
            fleet.crash(&ALL[..3]);
            campaign.wait_for_holds(5);
        }
    }
    campaign.wait_for_holds_by_each(3);
    campaign.finish(&fleet).assert_clean("upkeep and kill -9");
}

#[test]
fn nodes_without_the_module() {
    let mut fleet = Fleet::start_with(5, |index, node| if index < 3 { node } else { node.without_module() });
    let mut campaign = Campaign::start(CONTENDER, &fleet.urls(), Workload::default());
    campaign.wait_for_holds_by_each(5);
    for node in 0..3 {
        fleet[node].kill();
        campaign.count_fault();
        // Two nodes with the module are no majority of five.
        campaign.wait_for_failures_only(9);
        fleet[node].restart();
        campaign.wait_for_holds_by_each(3);
    }
    let urls = fleet.urls();
    campaign.finish_on(fleet.iter().take(3), &urls).assert_clean("the module missing on two of five");
}
