//! Numbers of nodes: from 1 to 9, odd and even. Also which nodes count: each node once, and only nodes with the module.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{TTL, manager, until_all_answer, until_free};
use redlock_client::{Error, LockManager, Vote};
use redlock_tests::{Answer, Direction, Fleet, Proxy, SOON, eventually_async, in_time};
use std::time::Duration;

/// Acquires, extends and releases a lock, and checks that each call succeeds.
async fn works(manager: &LockManager) {
    let guard =
        in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await.expect("a free lock");
    in_time("an extension ends", SOON, guard.extend()).await.expect("a lock that is held");
    let report = in_time("a release ends", SOON, guard.release()).await;
    assert!(report.is_free_on_a_majority(), "{report}");
}

#[tokio::test]
async fn any_minority_may_be_missing_and_no_more() {
    for size in [1, 2, 3, 4, 5, 7, 9] {
        let mut fleet = Fleet::start(size);
        let manager = manager(fleet.urls());
        until_all_answer(&manager).await;
        works(&manager).await;
        until_free(&mut fleet, "lock").await;
        let spare = (size - 1) / 2;
        for node in 0..spare {
            fleet[node].kill();
        }
        works(&manager).await;
        until_free(&mut fleet, "lock").await;
        fleet[spare].kill();
        let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
        let error = refused.expect_err("the quorum is a majority of all nodes, not of the living ones");
        assert!(matches!(error, Error::NoQuorum(_)), "{size} nodes: {error:?}");
        assert_eq!(error.nodes().len(), size);
        until_free(&mut fleet, "lock").await;
    }
}

#[tokio::test]
async fn peers_2_a_tie_is_a_refusal() {
    for size in [2, 4, 6] {
        let mut fleet = Fleet::start(size);
        let manager = manager(fleet.urls());
        for node in 0..size / 2 {
            let taken = fleet[node].connect().call_strs("REDLOCK.ACQUIRE lock other 600000");
            assert_eq!(taken, Answer::Int(1));
        }
        let refused = in_time("a tie ends", SOON, manager.try_acquire("lock", TTL)).await;
        let error = refused.expect_err("half of the nodes are not a majority");
        assert!(matches!(error, Error::Contended(_)), "{size} nodes: {error:?}");
        // The client releases the locks of its half. The test releases those of the other half.
        for node in 0..size / 2 {
            assert_eq!(fleet[node].connect().call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1));
        }
        until_free(&mut fleet, "lock").await;
        works(&manager).await;
    }
}

#[tokio::test]
async fn one_node_under_two_addresses_is_an_error() {
    let mut fleet = Fleet::start(2);
    // The same server by TCP, by its socket, and by another name.
    let aliases = [fleet[0].url(), fleet[0].unix_url(), fleet[0].url().replace("127.0.0.1", "localhost")];
    // The other two nodes are a majority, and still the error comes.
    for urls in [aliases.clone(), [aliases[0].clone(), aliases[1].clone(), fleet[1].url()]] {
        let twice = manager(&urls);
        // The client has seen both addresses as soon as every node has answered once.
        twice.health().await.expect("a runtime");
        let refused = in_time("an acquire ends", SOON, twice.try_acquire("lock", TTL)).await;
        let error = refused.expect_err("a node with two addresses");
        assert!(matches!(error, Error::Config(_)) && !error.is_retryable(), "{error:?}");
        let text = error.to_string();
        let named = twice.nodes().iter().filter(|name| text.contains(&***name)).count();
        assert!(named == 2 && text.contains("are the same node"), "{text}");
        until_free(&mut fleet, "lock").await;
    }
}

/// The first acquire of a program may be its only one. A majority must not grant before the client knows the last node.
#[tokio::test]
async fn one_node_under_two_addresses_is_an_error_at_the_first_use() {
    let mut fleet = Fleet::start(2);
    // All addresses are equally far away: the client waits for the last one as long again as the majority took.
    let proxies = [&fleet[0], &fleet[0], &fleet[1]].map(Proxy::to);
    for proxy in &proxies {
        proxy.delay(Direction::ToServer, Duration::from_millis(40));
    }
    let [one, twin, other] = proxies.each_ref().map(Proxy::url);
    let orders = [[&one, &twin, &other], [&other, &one, &twin], [&twin, &other, &one]]
        .map(|urls| urls.map(String::clone));
    for round in 0..12 {
        let twice = manager(&orders[round % 3]);
        let first = match round % 2 {
            0 => in_time("an acquire ends", SOON, twice.try_acquire("lock", TTL)).await,
            _ => in_time("an acquire ends", SOON, twice.acquire("lock", TTL)).await,
        };
        let error = first.expect_err("a node with two addresses");
        assert!(matches!(error, Error::Config(_)) && !error.is_retryable(), "round {round}: {error:?}");
    }
    until_free(&mut fleet, "lock").await;
}

#[test]
fn a_repeated_address_is_a_configuration_error() {
    let url = "redis://127.0.0.1:6379";
    let built = client::builder().nodes([url, "redis://127.0.0.1:6380", url]).build();
    assert!(matches!(built, Err(Error::Config(_))), "{built:?}");
}

#[tokio::test]
async fn nodes_without_the_module_do_not_vote() {
    let plain_below = |count: usize| {
        move |index: usize, node: redlock_tests::ServerBuilder| {
            if index < count { node.without_module() } else { node }
        }
    };
    let two = Fleet::start_with(5, plain_below(2));
    works(&manager(two.urls())).await;

    let three = Fleet::start_with(5, plain_below(3));
    let refused = in_time("an acquire ends", SOON, manager(three.urls()).try_acquire("lock", TTL)).await;
    let error = refused.expect_err("two of five nodes are not a majority");
    assert!(matches!(error, Error::Rejected(_)), "{error:?}");
    for answer in &error.nodes()[..3] {
        let Vote::Failed(why) = &answer.vote else { panic!("{error}") };
        assert!(why.to_string().contains("module"), "{why}");
    }
    for plain in 0..3 {
        assert_eq!(three[plain].connect().call_strs("DBSIZE"), Answer::Int(0));
    }
}

#[tokio::test]
async fn peers_7_resources_that_read_alike_when_joined_stay_apart() {
    let fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let one = manager.try_acquire_many(["ab", "c"], TTL).await.expect("free locks");
    let other = manager.try_acquire_many(["a", "bc"], TTL).await.expect("other locks");
    assert!(one.is_valid() && other.is_valid());
    let overlapping = manager.try_acquire_many(["bc", "c"], TTL).await;
    assert!(matches!(overlapping, Err(Error::Contended(_))), "{overlapping:?}");
}

#[tokio::test]
async fn several_resources_in_any_order_never_deadlock() {
    let mut fleet = Fleet::start(5);
    let manager = manager(fleet.urls());
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let tasks: Vec<_> = (0..16)
        .map(|task: usize| {
            let manager = manager.clone();
            tokio::spawn(async move {
                let guard = manager
                    .acquire_many(orders[task % orders.len()], TTL)
                    .await
                    .expect("the locks, after a wait");
                assert_eq!(guard.resources().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
                let fence = guard.fence();
                guard.release().await;
                fence
            })
        })
        .collect();
    let mut fences = Vec::new();
    for task in tasks {
        fences.push(in_time("every task gets the locks", SOON * 3, task).await.expect("no panic"));
    }
    fences.sort_unstable();
    fences.dedup();
    assert_eq!(fences.len(), 16, "every holder has a different fence");
    for key in ["a", "b", "c"] {
        until_free(&mut fleet, key).await;
    }
}

#[tokio::test]
async fn nodes_that_swap_addresses_vote_again() {
    let mut fleet = Fleet::start(3);
    let places = tempfile::tempdir().expect("a directory");
    let place = |number: usize| places.path().join(format!("{number}.sock"));
    let put = |node: &redlock_tests::Server, number: usize| {
        let _ = std::fs::remove_file(place(number));
        let socket = node.unix_url().replace("redis+unix://", "");
        std::os::unix::fs::symlink(socket, place(number)).expect("a link");
    };
    (0..3).for_each(|number| put(&fleet[number], number));
    let manager = manager((0..3).map(|number| format!("redis+unix://{}", place(number).display())));
    client::until_all_answer(&manager).await;
    let ids = async || {
        let health = manager.health().await.expect("a runtime");
        let ids = health.nodes.iter().map(|node| node.state.as_ref().ok().map(|state| state.id.clone()));
        ids.collect::<Option<Vec<_>>>()
    };
    let before = ids().await.expect("a node id from every node");
    // First two nodes swap addresses, then all three nodes get another address.
    for order in [[1, 0, 2], [2, 1, 0]] {
        (0..3).for_each(|number| put(&fleet[order[number]], number));
        fleet.iter().for_each(|node| drop(node.connect().call_strs("CLIENT KILL TYPE normal SKIPME yes")));
        fleet.iter().for_each(|node| drop(node.connect().call_strs("CLIENT KILL TYPE pubsub SKIPME yes")));
        let expected = order.map(|node| before[node].clone());
        eventually_async("the client finds each node at its new address", SOON, async || {
            (ids().await? == expected).then_some(())
        })
        .await;
        works(&manager).await;
        until_free(&mut fleet, "lock").await;
    }
}
