//! Five nodes, some of which are dead, hung, refusing, slow or mute: one or two of them cost nothing, three are
//! refused with the reason, and one that is repaired is used again.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{NODE_TIMEOUT, Network, TTL, until_all_answer};
use redlock_client::{Error, FailureKind, LockManager, Vote};
use redlock_tests::{Direction, SOON, eventually_async, in_time};
use std::time::Duration;

/// What can be wrong with a node.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Its process is gone.
    Dead,
    /// Its process stands still; its machine still takes connections.
    Hung,
    /// Its machine refuses connections.
    Refusing,
    /// Its machine takes connections and closes them.
    Slamming,
    /// It answers, later than the client waits.
    Slow,
    /// What is sent to it is lost.
    Deaf,
    /// What it says is lost.
    Mute,
}

impl Fault {
    fn inject(self, network: &mut Network, node: usize) {
        let proxy = &network.proxies[node];
        match self {
            Self::Dead => network.fleet[node].kill(),
            Self::Hung => network.fleet[node].pause(),
            Self::Refusing => proxy.refuse_connections(),
            Self::Slamming => proxy.close_new_connections(),
            Self::Slow => proxy.delay(Direction::ToClient, NODE_TIMEOUT + Duration::from_millis(300)),
            Self::Deaf => proxy.drop_bytes(Direction::ToServer),
            Self::Mute => proxy.drop_bytes(Direction::ToClient),
        }
    }

    fn heal(self, network: &mut Network, node: usize) {
        match self {
            Self::Dead => network.fleet[node].restart(),
            Self::Hung => network.fleet[node].resume(),
            _ => network.proxies[node].clear_faults(),
        }
    }

    /// How it may show: at first, and once it is known.
    fn shows_as(self) -> [FailureKind; 3] {
        match self {
            Self::Dead | Self::Refusing | Self::Slamming => {
                [FailureKind::Cut, FailureKind::Down, FailureKind::Down]
            }
            // A connection that is silent for long is given up.
            Self::Hung | Self::Slow | Self::Deaf | Self::Mute => {
                [FailureKind::Silent, FailureKind::Down, FailureKind::Cut]
            }
        }
    }
}

/// Every part of a lock's life, with nodes that are as they are now.
async fn works(manager: &LockManager, key: &str) {
    let guard = in_time("an acquire ends", SOON, manager.try_acquire(key, TTL)).await.expect("a free lock");
    assert!(guard.is_valid() && guard.fence() > 0);
    let before = guard.fence();
    in_time("an extension ends", SOON, guard.extend()).await.expect("a lock that is held");
    assert_eq!(guard.fence(), before, "an extension keeps the number");
    let report = in_time("a release ends", SOON, guard.release()).await;
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
}

/// What the nodes have to say when three of them are struck.
fn check_evidence(error: &Error, network: &Network, struck: &[usize], fault: Fault) {
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    assert!(error.is_retryable());
    assert_eq!(error.resource(), "lock");
    let nodes = error.nodes();
    assert_eq!(nodes.len(), 5);
    for (index, answer) in nodes.iter().enumerate() {
        assert_eq!(*answer.node, format!("127.0.0.1:{}", network.proxies[index].port()));
        match &answer.vote {
            Vote::Failed(failure) => {
                assert!(struck.contains(&index), "node {index} is well: {error}");
                assert!(fault.shows_as().contains(&failure.kind), "{fault:?}: {error}");
            }
            // Where three are known to be down nobody waits for the answers of the others.
            Vote::Granted { .. } | Vote::Pending => assert!(!struck.contains(&index), "{error}"),
            other => panic!("node {index} said {other}: {error}"),
        }
    }
}

async fn two_cost_nothing_three_are_refused_and_all_come_back(fault: Fault) {
    let mut network = Network::without_grace(5);
    let manager = network.manager().await;
    works(&manager, "lock").await;

    // One, and then another.
    for node in [0, 3] {
        let kept = manager.try_acquire("kept", TTL).await.expect("a free lock");
        fault.inject(&mut network, node);
        in_time("an extension ends", SOON, kept.extend()).await.expect("three of five have it");
        // First when the fault is news, then when it is known; and for a client that never knew it otherwise.
        works(&manager, "lock").await;
        works(&manager, "lock").await;
        works(&client::manager(network.urls()), "lock").await;
        let report = in_time("a release ends", SOON, kept.release()).await;
        assert!(report.is_free_on_a_majority(), "{report}");
    }

    let kept = manager.try_acquire("kept", TTL).await.expect("a free lock");
    fault.inject(&mut network, 4);
    let error = in_time("an extension ends", SOON, kept.extend()).await.expect_err("two are too few");
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    assert!(kept.is_valid(), "what was promised before still holds");
    // First when the third is news, then when it is known.
    for _ in 0..2 {
        let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        check_evidence(&refused.expect_err("two are too few"), &network, &[0, 3, 4], fault);
    }
    let report = in_time("a release ends", SOON, kept.release()).await;
    assert!(report.was_held() && !report.is_free_on_a_majority(), "{report}");

    for node in [0, 3, 4] {
        fault.heal(&mut network, node);
    }
    until_all_answer(&manager).await;
    network.fleet.reset_calls();
    works(&manager, "lock").await;
    let used = async || (network.fleet.calls("redlock.acquire") == [1; 5]).then_some(());
    eventually_async("every node is used again", SOON, used).await;
    network.until_free("lock").await;
    network.until_free("kept").await;
}

#[tokio::test]
async fn dead_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Dead).await;
}

#[tokio::test]
async fn hung_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Hung).await;
}

#[tokio::test]
async fn refusing_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Refusing).await;
}

#[tokio::test]
async fn nodes_that_close_every_connection() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Slamming).await;
}

#[tokio::test]
async fn slow_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Slow).await;
}

/// Late and in time are all the same to a vote: what counts is that a majority has answered.
#[tokio::test]
async fn slow_nodes_that_answer_in_time_have_their_votes() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for slow in 1..=5 {
        network.proxies[slow - 1].delay(Direction::ToClient, NODE_TIMEOUT / 10);
        works(&manager, "lock").await;
        network.until_free("lock").await;
    }
    // With all of them slow nobody else could have voted.
    network.fleet.reset_calls();
    works(&manager, "lock").await;
    network.until_free("lock").await;
    for command in ["redlock.acquire", "redlock.extend", "redlock.release"] {
        assert_eq!(network.fleet.calls(command), [1; 5], "{command}: nobody was asked twice");
    }
}

#[tokio::test]
async fn deaf_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Deaf).await;
}

#[tokio::test]
async fn mute_nodes() {
    two_cost_nothing_three_are_refused_and_all_come_back(Fault::Mute).await;
}

#[tokio::test]
async fn peers_14_nobody_waits_for_nodes_that_hang() {
    let mut network = Network::start(5);
    // A client that waited for them even once would not get through.
    let patient = client::builder().nodes(network.urls()).node_timeout(TTL).build().expect("addresses");
    until_all_answer(&patient).await;
    for node in [1, 2] {
        Fault::Hung.inject(&mut network, node);
    }
    for _ in 0..20 {
        works(&patient, "lock").await;
    }
}

#[tokio::test]
async fn peers_4_errors_of_a_minority_are_no_errors() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for node in [0, 1] {
        network.fleet[node].connect().call_strs("LPUSH lock value");
    }
    works(&manager, "lock").await;
    network.fleet[2].connect().call_strs("LPUSH lock value");
    let error = manager.try_acquire("lock", TTL).await.expect_err("three have no lock there");
    assert!(matches!(error, Error::NoQuorum(_)) && !error.is_retryable(), "{error:?}");
    let rejected = |vote: &Vote| matches!(vote, Vote::Failed(why) if why.kind == FailureKind::Rejected);
    assert_eq!(error.nodes().iter().filter(|answer| rejected(&answer.vote)).count(), 3, "{error}");
    for node in 0..3 {
        network.fleet[node].connect().call_strs("DEL lock");
    }
    network.until_free("lock").await;
}

#[tokio::test]
async fn what_the_nodes_do_not_allow_is_not_tried_again() {
    let network = Network::start(5);
    let manager = network.manager().await;
    for node in network.fleet.iter() {
        node.connect().call_strs("CONFIG SET redlock.max-ttl 1000");
    }
    let error = manager.acquire("lock", TTL).await.expect_err("longer than the nodes allow");
    assert!(matches!(error, Error::NoQuorum(_)) && !error.is_retryable(), "{error:?}");
    assert_eq!(error.report().map(redlock_client::QuorumReport::attempts), Some(1));
    // The last ones may hear of it when the verdict is clear.
    let asked = async || (network.fleet.calls("redlock.acquire") == [1; 5]).then_some(());
    eventually_async("every node is asked once", SOON, asked).await;
}

#[tokio::test]
async fn contention_is_told_from_an_outage() {
    let mut network = Network::start(5);
    let (one, other) = (network.manager().await, network.manager().await);
    let guard = one.try_acquire("lock", TTL).await.expect("a free lock");
    for node in [0, 1] {
        Fault::Dead.inject(&mut network, node);
    }
    let error = other.try_acquire("lock", TTL).await.expect_err("somebody holds it");
    assert!(matches!(error, Error::Contended(_)) && error.is_retryable(), "{error:?}");
    assert!(error.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{error}");
    drop(guard);
    let waited = in_time("the lock is free again", SOON, other.acquire("lock", TTL)).await;
    assert!(waited.expect("three of five are enough").is_valid());
}

#[tokio::test]
async fn a_quarantine_is_told_from_an_outage_and_waited_for() {
    let mut network = Network::start(3);
    let ttl = Duration::from_secs(3);
    let manager = network.manager().await;
    drop(manager.try_acquire("lock", ttl).await.expect("a free lock"));
    network.until_free("lock").await;
    for node in [0, 1] {
        network.fleet[node].kill();
        network.fleet[node].restart();
    }
    until_all_answer(&manager).await;
    let error = manager.try_acquire("lock", ttl).await.expect_err("two of three may have forgotten locks");
    assert!(matches!(error, Error::Quarantined { left, .. } if left <= ttl * 2), "{error:?}");
    assert!(error.is_retryable());
    let guard = in_time("they grant again", SOON, manager.acquire("lock", ttl)).await.expect("they do");
    assert!(guard.is_valid());
}
