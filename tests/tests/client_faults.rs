//! Five nodes, some of them dead, hung, refusing, slow, deaf or mute. Every call succeeds with two faulty nodes. With
//! three, it fails with an error that names the reason. The client uses repaired nodes again.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{NODE_TIMEOUT, Network, TTL, until_all_answer};
use redlock_client::{Error, FailureKind, LockManager, LostReason, NodeAnswer, Vote};
use redlock_tests::{Answer, Direction, SOON, eventually_async, in_time};
use std::time::{Duration, Instant};

/// A fault of a node or of the connection to it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Its process was killed.
    Dead,
    /// Its process is stopped; the kernel still accepts connections.
    Hung,
    /// Its connections are refused.
    Refusing,
    /// Its connections are accepted and closed at once.
    Closing,
    /// Its replies arrive after the node timeout of the client.
    Slow,
    /// The requests to it are lost.
    Deaf,
    /// Its replies are lost.
    Mute,
}

impl Fault {
    fn inject(self, network: &mut Network, node: usize) {
        let proxy = &network.proxies[node];
        match self {
            Self::Dead => network.fleet[node].kill(),
            Self::Hung => network.fleet[node].pause(),
            Self::Refusing => proxy.refuse_connections(),
            Self::Closing => proxy.close_new_connections(),
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

    /// The failures that a call may report for this fault: when it is new, and once the client has detected it.
    fn failure_kinds(self) -> [FailureKind; 3] {
        match self {
            Self::Dead | Self::Refusing | Self::Closing => {
                [FailureKind::Cut, FailureKind::Down, FailureKind::Down]
            }
            // The client gives up a connection that is silent for long.
            Self::Hung | Self::Slow | Self::Deaf | Self::Mute => {
                [FailureKind::Silent, FailureKind::Down, FailureKind::Cut]
            }
        }
    }
}

/// Acquires, extends and releases a lock, and checks that each call succeeds.
async fn works(manager: &LockManager, key: &str) {
    let guard = in_time("an acquire ends", SOON, manager.try_acquire(key, TTL)).await.expect("a free lock");
    assert!(guard.is_valid() && guard.fence() > 0);
    let before = guard.fence();
    in_time("an extension ends", SOON, guard.extend()).await.expect("a lock that is held");
    assert_eq!(guard.fence(), before, "an extension keeps the fence");
    let report = in_time("a release ends", SOON, guard.release()).await;
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
}

/// Checks the votes in the error of a call when these three nodes are faulty.
fn check_votes(error: &Error, resource: &str, network: &Network, faulty: &[usize], fault: Fault) {
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    assert!(error.is_retryable());
    assert_eq!(error.resource(), resource);
    let nodes = error.nodes();
    assert_eq!(nodes.len(), 5);
    for (index, answer) in nodes.iter().enumerate() {
        assert_eq!(*answer.node, format!("127.0.0.1:{}", network.proxies[index].port()));
        match &answer.vote {
            Vote::Failed(failure) => {
                assert!(faulty.contains(&index), "node {index} is healthy: {error}");
                assert!(fault.failure_kinds().contains(&failure.kind), "{fault:?}: {error}");
            }
            Vote::Granted { .. } => assert!(!faulty.contains(&index), "{error}"),
            other => panic!("vote of node {index}: {other}: {error}"),
        }
    }
}

async fn verify_two_are_tolerated_three_are_not_and_all_recover(fault: Fault) {
    let mut network = Network::without_grace(5);
    let manager = network.manager().await;
    works(&manager, "lock").await;

    // One faulty node, and then two.
    for node in [0, 3] {
        let kept = manager.try_acquire("kept", TTL).await.expect("a free lock");
        fault.inject(&mut network, node);
        in_time("an extension ends", SOON, kept.extend()).await.expect("three of five nodes hold the lock");
        // While the fault is new, once the client has detected it, and with a client that connects after the fault.
        works(&manager, "lock").await;
        works(&manager, "lock").await;
        works(&client::manager(network.urls()), "lock").await;
        let report = in_time("a release ends", SOON, kept.release()).await;
        assert!(report.is_free_on_a_majority(), "{report}");
    }

    let kept = manager.try_acquire("kept", TTL).await.expect("a free lock");
    fault.inject(&mut network, 4);
    let error = in_time("an extension ends", SOON, kept.extend())
        .await
        .expect_err("two of five nodes are not a majority");
    check_votes(&error, "kept", &network, &[0, 3, 4], fault);
    assert!(kept.is_valid(), "the lease that was granted before the fault lasts");
    // While the third fault is new, and once the client has detected it.
    for _ in 0..2 {
        let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let error = refused.expect_err("two of five nodes are not a majority");
        check_votes(&error, "lock", &network, &[0, 3, 4], fault);
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
    eventually_async("the client uses every node again", SOON, used).await;
    network.until_free("lock").await;
    network.until_free("kept").await;
}

#[tokio::test]
async fn two_dead_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Dead).await;
}

#[tokio::test]
async fn two_hung_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Hung).await;
}

#[tokio::test]
async fn two_refusing_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Refusing).await;
}

#[tokio::test]
async fn two_nodes_that_close_every_connection_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Closing).await;
}

#[tokio::test]
async fn two_slow_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Slow).await;
}

/// A late reply is a vote like any other if it arrives within the node timeout.
#[tokio::test]
async fn slow_nodes_that_answer_in_time_vote() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for slow in 1..=5 {
        network.proxies[slow - 1].delay(Direction::ToClient, NODE_TIMEOUT / 10);
        works(&manager, "lock").await;
        network.until_free("lock").await;
    }
    // Now all nodes are slow, so each call has succeeded with slow votes.
    network.fleet.reset_calls();
    works(&manager, "lock").await;
    network.until_free("lock").await;
    for command in ["redlock.acquire", "redlock.extend", "redlock.release"] {
        assert_eq!(network.fleet.calls(command), [1; 5], "{command}: each node gets one request");
    }
}

#[tokio::test]
async fn two_deaf_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Deaf).await;
}

#[tokio::test]
async fn two_mute_nodes_are_tolerated_and_three_are_not() {
    verify_two_are_tolerated_three_are_not_and_all_recover(Fault::Mute).await;
}

#[tokio::test]
async fn peers_14_no_call_waits_for_hung_nodes() {
    let mut network = Network::start(5);
    // With this node timeout, a client that waited for a hung node once would wait for ten minutes.
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
async fn peers_4_errors_of_a_minority_do_not_fail_a_call() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for node in [0, 1] {
        network.fleet[node].connect().call_strs("LPUSH lock value");
    }
    works(&manager, "lock").await;
    network.fleet[2].connect().call_strs("LPUSH lock value");
    let error = manager.try_acquire("lock", TTL).await.expect_err("three nodes have a list under this key");
    assert!(matches!(error, Error::Rejected(_)) && !error.is_retryable(), "{error:?}");
    let rejected = |vote: &Vote| matches!(vote, Vote::Failed(why) if why.kind == FailureKind::Rejected);
    assert_eq!(error.nodes().iter().filter(|answer| rejected(&answer.vote)).count(), 3, "{error}");
    for node in 0..3 {
        network.fleet[node].connect().call_strs("DEL lock");
    }
    network.until_free("lock").await;
}

#[tokio::test]
async fn a_time_to_live_above_the_limit_of_the_nodes_is_not_retried() {
    let network = Network::start(5);
    let manager = network.manager().await;
    for node in network.fleet.iter() {
        node.connect().call_strs("CONFIG SET redlock.max-ttl 1000");
    }
    let error =
        manager.acquire("lock", TTL).await.expect_err("the time to live is longer than the nodes allow");
    assert!(matches!(error, Error::Rejected(_)) && !error.is_retryable(), "{error:?}");
    assert_eq!(error.report().map(redlock_client::QuorumReport::attempts), Some(1));
    // The last requests may arrive after the call has failed.
    let asked = async || (network.fleet.calls("redlock.acquire") == [1; 5]).then_some(());
    eventually_async("every node gets one request", SOON, asked).await;
}

#[tokio::test]
async fn a_refusal_names_the_holder_and_lists_no_healthy_node_as_unanswered() {
    let network = Network::start(5);
    let holder = client::builder().nodes(network.urls()).label("night job on web-3").build();
    let holder = holder.expect("addresses of nodes");
    let manager = network.manager().await;
    let guard = holder.acquire("lock", TTL).await.expect("a free lock");
    for _ in 0..20 {
        let error = manager.try_acquire("lock", TTL).await.expect_err("another client holds the lock");
        assert!(matches!(error, Error::Contended(_)), "{error:?}");
        for answer in error.nodes() {
            assert_eq!(answer.vote, Vote::Refused, "{error}");
            let lock = answer.holder.as_ref().unwrap_or_else(|| panic!("{error}"));
            assert_eq!((lock.label.as_str(), lock.fence), ("night job on web-3", guard.fence()), "{error}");
            assert!(lock.left > TTL / 2 && lock.left <= TTL, "{error}");
        }
        let text = error.to_string();
        assert!(
            text.contains("held by another client, \"night job on web-3\", ") && text.contains(" ms left"),
            "{text}"
        );
    }
    // Also after the end of a wait.
    let error = manager.acquire_timeout("lock", TTL, Duration::from_millis(50)).await.expect_err("held");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    assert!(error.nodes().iter().all(|answer| answer.holder.is_some()), "{error}");
    // A success asks nothing.
    guard.release().await;
    network.fleet.reset_calls();
    manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
    assert_eq!(network.fleet.calls("redlock.inspect"), [0; 5]);
}

/// A majority of the answers decides an extension: the other nodes are healthy, too.
#[tokio::test]
async fn a_failed_or_lost_extension_lists_no_healthy_node_as_unanswered() {
    let mut network = Network::without_grace(5);
    let manager = network.manager().await;
    let has_answered = |error: &Error, nodes: std::ops::Range<usize>, test: fn(&Vote) -> bool| {
        assert!(error.nodes()[nodes].iter().all(|answer| test(&answer.vote)), "{error}");
    };
    for round in 0..20 {
        let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
        client::until_held(network.fleet.iter(), "lock").await;
        for node in &network.fleet.iter().collect::<Vec<_>>()[..3] {
            node.connect().call_strs("DEL lock");
        }
        let error = guard.extend().await.expect_err("three nodes have lost the lock");
        assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "round {round}: {error:?}");
        has_answered(&error, 0..3, |vote| *vote == Vote::Refused);
        has_answered(&error, 3..5, |vote| matches!(vote, Vote::Granted { .. }));
        guard.release().await;
        network.until_free("lock").await;
    }
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    client::until_held(network.fleet.iter(), "lock").await;
    for node in 0..3 {
        network.fleet[node].kill();
    }
    for round in 0..20 {
        let error = guard.extend().await.expect_err("two of five nodes are not a majority");
        assert!(matches!(error, Error::NoQuorum(_)), "round {round}: {error:?}");
        has_answered(&error, 0..3, |vote| matches!(vote, Vote::Failed(_)));
        has_answered(&error, 3..5, |vote| matches!(vote, Vote::Granted { .. }));
    }
    assert!(guard.is_valid());
}

/// The grants that come after a majority are votes, too.
#[tokio::test]
async fn the_error_of_an_expired_lock_lists_every_grant() {
    let network = Network::start(5);
    let manager = network.manager().await;
    for _ in 0..5 {
        let guard = manager.acquire("lock", Duration::from_millis(300)).await.expect("a free lock");
        assert_eq!(in_time("the lock expires", SOON, guard.lost()).await, LostReason::Expired);
        let error = guard.extend().await.expect_err("the lock has expired");
        assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error:?}");
        let has_granted = |answer: &NodeAnswer| matches!(answer.vote, Vote::Granted { .. });
        assert!(error.nodes().len() == 5 && error.nodes().iter().all(has_granted), "{error}");
    }
}

#[tokio::test]
async fn a_refusal_of_several_resources_names_the_one_that_is_held_and_its_holder() {
    let network = Network::start(3);
    let holder =
        client::builder().nodes(network.urls()).label("night job on web-3").key_prefix("app:").build();
    let holder = holder.expect("addresses of nodes");
    let asker =
        client::builder().nodes(network.urls()).key_prefix("app:").build().expect("addresses of nodes");
    let guard = holder.acquire("stock:7", TTL).await.expect("a free lock");
    client::until_held(network.fleet.iter(), "app:stock:7").await;
    let resources = ["orders:42", "stock:7", "stock:8"];
    let mut error = asker.try_acquire_many(resources, TTL).await.expect_err("one of them is held");
    assert!(matches!(error, Error::Contended(_)), "{error:?}");
    for _ in 0..2 {
        for answer in error.nodes() {
            let lock = answer.holder.as_ref().unwrap_or_else(|| panic!("{error}"));
            assert_eq!((lock.label.as_str(), lock.fence), ("night job on web-3", guard.fence()), "{error}");
            assert_eq!(answer.held_resource.as_deref(), Some("stock:7"), "{error}");
        }
        assert!(
            error.to_string().contains("held by another client: stock:7, \"night job on web-3\", "),
            "{error}"
        );
        let waited = asker.acquire_many_timeout(resources, TTL, Duration::from_millis(50)).await;
        error = waited.expect_err("one of them is held");
    }
    // The client asks for no more than 16 keys on each node.
    let many: Vec<String> =
        (0..40).map(|number| format!("stock:{number:02}")).chain(["stock:7".into()]).collect();
    network.fleet.reset_calls();
    let error = asker.try_acquire_many(&many, TTL).await.expect_err("one of them is held");
    assert!(
        error.nodes().iter().all(|answer| answer.vote == Vote::Refused && answer.holder.is_none()),
        "{error}"
    );
    assert_eq!(network.fleet.calls("redlock.inspect"), [16; 3]);
}

/// The first acquire waits for the first handshakes, and not long for those of hung nodes.
#[tokio::test]
async fn nodes_that_hang_from_the_start_do_not_delay_the_first_acquire() {
    let network = Network::start(5);
    network.fleet[0].pause();
    network.proxies[1].drop_bytes(Direction::ToClient);
    let patient = client::builder().nodes(network.urls()).node_timeout(TTL).connect_timeout(TTL);
    let manager = patient.build().expect("addresses of nodes");
    let first = in_time("the first acquire ends", SOON, manager.acquire("lock", TTL)).await;
    first.expect("three of five are enough").release().await;
    network.fleet[0].resume();
}

#[tokio::test]
async fn a_node_that_hangs_does_not_delay_a_refusal_for_long() {
    let network = Network::start(5);
    let (holder, manager) = (network.manager().await, network.manager().await);
    let _guard = holder.acquire("lock", TTL).await.expect("a free lock");
    network.fleet[4].pause();
    let started = Instant::now();
    let error = manager.try_acquire("lock", TTL).await.expect_err("another client holds the lock");
    let took = started.elapsed();
    network.fleet[4].resume();
    assert!(took < client::NODE_TIMEOUT / 2, "{took:?}");
    assert!(error.nodes()[..4].iter().all(|answer| answer.holder.is_some()), "{error}");
}

#[tokio::test]
async fn a_rejected_request_is_no_lack_of_a_quorum() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    // An extension keeps the validity, and says why it failed.
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    let limit = |milliseconds: u32| {
        let setting = format!("CONFIG SET redlock.max-ttl {milliseconds}");
        network.fleet.iter().for_each(|node| drop(node.connect().call_strs(&setting)));
    };
    limit(1_000);
    let error = guard.extend().await.expect_err("the time to live is above the limit");
    assert!(matches!(error, Error::Rejected(_)) && guard.is_valid(), "{error:?}");
    assert!(error.to_string().contains("REDLOCKTTL"), "{error}");
    limit(3_600_000);
    guard.release().await;
    network.until_free("lock").await;
    // One rejection does not decide: a node that is down may come back.
    network.fleet[0].connect().call_strs("LPUSH lock value");
    network.fleet[1].kill();
    let error = manager.try_acquire("lock", TTL).await.expect_err("one node is no majority");
    assert!(matches!(error, Error::NoQuorum(_)) && error.is_retryable(), "{error:?}");
    let push =
        async || (network.fleet[2].connect().call_strs("LPUSH lock value") == Answer::Int(1)).then_some(());
    eventually_async("the client releases the grant of the third node", SOON, push).await;
    let error = manager.try_acquire("lock", TTL).await.expect_err("two nodes have a list under this key");
    assert!(matches!(error, Error::Rejected(_)) && !error.is_retryable(), "{error:?}");
    assert_eq!(error.reason(), "rejected");
    assert!(error.to_string().contains("WRONGTYPE"), "the error quotes the nodes: {error}");
}

#[tokio::test]
async fn contention_is_distinguished_from_an_outage() {
    let mut network = Network::start(5);
    let (one, other) = (network.manager().await, network.manager().await);
    let guard = one.try_acquire("lock", TTL).await.expect("a free lock");
    for node in [0, 1] {
        Fault::Dead.inject(&mut network, node);
    }
    let error = other.try_acquire("lock", TTL).await.expect_err("another client holds the lock");
    assert!(matches!(error, Error::Contended(_)) && error.is_retryable(), "{error:?}");
    assert!(error.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{error}");
    drop(guard);
    let waited = in_time("the lock is free again", SOON, other.acquire("lock", TTL)).await;
    assert!(waited.expect("three of five are enough").is_valid());
}

#[tokio::test]
async fn a_quarantine_is_distinguished_from_an_outage_and_waited_out() {
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
    let error =
        manager.try_acquire("lock", ttl).await.expect_err("two of three nodes may have forgotten locks");
    assert!(matches!(error, Error::Quarantined { left, .. } if left <= ttl * 2), "{error:?}");
    assert!(error.is_retryable());
    let guard =
        in_time("the nodes grant again", SOON, manager.acquire("lock", ttl)).await.expect("a free lock");
    assert!(guard.is_valid());
}
