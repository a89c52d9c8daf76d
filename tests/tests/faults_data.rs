//! Servers that throw their data away, run out of memory, or are looked after while everybody works.

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

/// Does harm to one node, to a majority and to all.
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

/// Under these, a server that has no room evicts anything.
const EVICT_ANYTHING: [&str; 3] = ["allkeys-random", "allkeys-lru", "allkeys-lfu"];
/// Under these it evicts what has an expiry of the server's, which no lock has, or nothing. One for each node.
const EVICT_NO_LOCKS: [&str; 5] =
    ["noeviction", "volatile-random", "volatile-lru", "volatile-lfu", "volatile-ttl"];

/// Lets a server evict all that it has, and gives it room again.
fn evict(round: usize, node: &Server) {
    let mut wire = node.connect();
    let policy = EVICT_ANYTHING[round % EVICT_ANYTHING.len()];
    let line = format!("CONFIG SET maxmemory-policy {policy} maxmemory 1");
    assert_eq!(wire.call_strs(&line), Answer::ok());
    eventually("everything is evicted", SOON, || {
        // Any write lets the server look for room first.
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

/// Holds a lock for much longer than it takes to run out of memory, beside a key that the server may evict.
fn hold_something(node: &Server) {
    let mut wire = node.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE kept me 60000"));
    assert_eq!(wire.call_strs("SET expires x EX 600"), Answer::ok());
}

/// The server has looked for room wherever it may, and the lock is still there; it can be given back without any.
fn must_still_hold_it(node: &Server, policy: &str) {
    let mut wire = node.connect();
    eventually("all that may be evicted is", SOON, || {
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
            // Whoever had a lock could give it back.
            for node in group {
                let mut wire = fleet[*node].connect();
                eventually("all locks are given back", SOON, || {
                    (wire.call_strs("DBSIZE") == Answer::Int(0)).then_some(())
                });
            }
        }
        group.iter().for_each(|node| limit(*node, 0));
        campaign.wait_for_holds_by_each(3);
    }
    campaign.finish(&fleet).assert_clean("out of memory");
}

/// What operators and cron jobs do to a server that works.
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

/// Whether an answer says that it was done, or begun: a script's own answers are a number and a yes.
fn is_done(answer: &Answer) -> bool {
    match answer {
        Answer::Status(_) => true,
        Answer::List(answers) => matches!(answers[..], [Answer::Int(_), Answer::Int(1)]),
        _ => false,
    }
}

#[test]
fn nodes_looked_after_and_killed_meanwhile() {
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
            // Some things cannot be done while the server writes its files, or waits because it was killed.
            let excuses = ["progress", "child", "REDLOCKQUARANTINE"];
            let is_busy =
                matches!(&answer, Answer::Error(text) if excuses.iter().any(|word| text.contains(word)));
            assert!(is_done(&answer) || is_busy, "{line}: {answer:?}");
        }
        assert!(done > 0, "{line} was done nowhere");
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
        // Two with the module and two without it are no majority.
        campaign.wait_for_failures_only(9);
        fleet[node].restart();
        campaign.wait_for_holds_by_each(3);
    }
    let urls = fleet.urls();
    campaign.finish_on(fleet.iter().take(3), &urls).assert_clean("the module missing on two of five");
}
