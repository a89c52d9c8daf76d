//! How many requests a lock costs, counted on the nodes, and which fences it gets.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, manager, until_all_answer, until_free};
use redlock_client::LockManager;
use redlock_core::fence::Stripe;
use redlock_tests::{Answer, Direction, Fleet, SOON, in_time};
use std::collections::HashSet;

/// Keys that share no fence counter. Two keys with one counter may get their fences in a different order on every
/// node.
fn independent_keys(count: usize) -> Vec<String> {
    let mut stripes = HashSet::new();
    let keys = (0..).map(|number| format!("lock:{number}"));
    keys.filter(|key| stripes.insert(Stripe::of(key.as_bytes()))).take(count).collect()
}

/// Waits until the nodes have processed everything that was sent before. A health request follows on the same
/// connections, so its replies come last.
async fn settle(manager: &LockManager) {
    manager.health().await.expect("a runtime");
}

/// Five nodes and a client that is connected to all of them. The call counts of the nodes start at 0.
async fn start() -> (Fleet, LockManager) {
    let fleet = Fleet::start(5);
    let manager = manager(fleet.urls());
    until_all_answer(&manager).await;
    fleet.reset_calls();
    (fleet, manager)
}

fn calls(fleet: &Fleet) -> [Vec<u64>; 3] {
    ["redlock.acquire", "redlock.extend", "redlock.release"].map(|command| fleet.calls(command))
}

#[tokio::test]
async fn one_task_sends_one_request_to_each_node_for_an_acquire_and_one_for_a_release() {
    let (fleet, manager) = start().await;
    for _ in 0..50 {
        manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
    }
    for key in independent_keys(50) {
        manager.try_acquire(key, TTL).await.expect("a free lock").release().await;
    }
    assert_eq!(fleet.calls("redlock.node"), [0; 5], "the client sends no other command");
    settle(&manager).await;
    assert_eq!(calls(&fleet), [vec![100; 5], vec![0; 5], vec![100; 5]]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn so_do_64_tasks() {
    let (fleet, manager) = start().await;
    let tasks: Vec<_> = independent_keys(64)
        .into_iter()
        .map(|key| {
            let manager = manager.clone();
            tokio::spawn(async move {
                for _ in 0..20 {
                    manager.try_acquire(&key, TTL).await.expect("a free lock").release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        in_time("a task ends", SOON, task).await.expect("no panic");
    }
    settle(&manager).await;
    assert_eq!(calls(&fleet), [vec![64 * 20; 5], vec![0; 5], vec![64 * 20; 5]]);
}

#[tokio::test]
async fn an_extension_is_one_request_to_each_node() {
    let (fleet, manager) = start().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    for _ in 0..10 {
        guard.extend().await.expect("a lock that is held");
    }
    guard.release().await;
    settle(&manager).await;
    assert_eq!(calls(&fleet), [vec![1; 5], vec![10; 5], vec![1; 5]]);
}

#[tokio::test]
async fn peers_19_one_connection_serves_everything() {
    let network = Network::start(5);
    let manager = network.manager().await;
    let tasks: Vec<_> = independent_keys(32)
        .into_iter()
        .map(|key| {
            let manager = manager.clone();
            tokio::spawn(
                async move { manager.try_acquire(key, TTL).await.expect("a free lock").release().await },
            )
        })
        .collect();
    for task in tasks {
        in_time("a task ends", SOON, task).await.expect("no panic");
    }
    for proxy in &network.proxies {
        assert_eq!(proxy.accepted(), 1);
    }
}

#[tokio::test]
async fn peers_17_numbers_start_at_one_and_rise_by_one_on_every_node_alike() {
    let (mut fleet, manager) = start().await;
    let other = client::manager(fleet.urls());
    for round in 1..=10 {
        let who = if round % 2 == 0 { &manager } else { &other };
        let guard = who.acquire("lock", TTL).await.expect("a free lock");
        assert_eq!(guard.fence(), round);
        settle(who).await;
        assert_eq!(fleet.fences("lock"), [i64::try_from(round).ok(); 5]);
        guard.extend().await.expect("a lock that is held");
        assert_eq!(guard.fence(), round, "an extension keeps the fence");
        guard.release().await;
        settle(who).await;
    }
    assert_eq!(manager.try_acquire("another", TTL).await.expect("a free lock").fence(), 1);
}

#[tokio::test]
async fn peers_17_numbers_go_on_rising_when_every_node_has_crashed() {
    // No lock is held when the nodes crash, so they need no quarantine.
    let mut fleet = Fleet::start_with(3, |_, node| node.module_args(["restart-grace", "off"]));
    let manager = manager(fleet.urls());
    let mut last = 0;
    for _ in 0..3 {
        let guard =
            in_time("an acquire ends", SOON, manager.acquire("lock", TTL)).await.expect("a free lock");
        assert!(guard.fence() > last, "{} after {last}", guard.fence());
        last = guard.fence();
        guard.release().await;
        until_free(&mut fleet, "lock").await;
        for node in 0..3 {
            fleet[node].kill();
            fleet[node].restart();
        }
        until_all_answer(&manager).await;
    }
}

/// Raises the fences of some nodes, as if the other nodes had missed grants. 0 leaves a node as it is.
fn raise(fleet: &Fleet, fences: [u64; 5]) {
    for (node, fence) in fences.iter().enumerate().filter(|(_, fence)| **fence > 0) {
        let mut wire = fleet[node].connect();
        let granted = wire.call_strs(&format!("REDLOCK.ACQUIRE lock elsewhere 60000 FENCE {fence}"));
        assert_eq!(granted, Answer::Int(fence.cast_signed()));
        assert_eq!(wire.call_strs("REDLOCK.RELEASE lock elsewhere"), Answer::Int(1));
    }
    fleet.reset_calls();
}

#[tokio::test]
async fn nodes_that_differ_need_no_second_round_where_a_majority_agrees() {
    // (the last fence of each node, the nodes that answer last, the fence of the next lock)
    let agreed: [([u64; 5], [usize; 2], u64); 3] = [
        ([0, 0, 0, 700, 0], [3, 4], 1),
        ([900, 0, 0, 0, 700], [0, 4], 1),
        // The fence of the majority is enough, even if it is not the largest.
        ([40, 40, 40, 41, 90], [3, 4], 41),
    ];
    for (counted, late, fence) in agreed {
        let network = Network::start(5);
        let manager = network.manager().await;
        raise(&network.fleet, counted);
        late.iter().for_each(|node| network.proxies[*node].hold(Direction::ToClient));
        let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
        assert_eq!(guard.fence(), fence, "{counted:?}");
        network.let_go();
        settle(&manager).await;
        assert_eq!(calls(&network.fleet), [vec![1; 5], vec![0; 5], vec![0; 5]], "{counted:?}");
    }
}

#[tokio::test]
async fn nodes_of_which_no_majority_agrees_are_brought_together_and_stay_so() {
    for counted in [[100, 200, 300, 400, 500], [0, 0, 70, 70, 90], [5, 0, 0, 9, 9]] {
        let (mut fleet, manager) = start().await;
        raise(&fleet, counted);
        let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
        let largest = counted.iter().max().copied().unwrap_or_default() + 1;
        assert!(guard.fence() <= largest, "{counted:?}: {}", guard.fence());
        settle(&manager).await;
        // A majority has at least this fence. A larger fence that arrived late may have raised some nodes further.
        let held = fleet.fences("lock");
        let own = i64::try_from(guard.fence()).ok();
        assert!(held.iter().filter(|fence| **fence >= own).count() >= 3, "{counted:?}: {own:?} of {held:?}");
        let extends: u64 = fleet.calls("redlock.extend").iter().sum();
        assert!(extends > 0, "{counted:?}: the client needs a second round");
        let before = guard.fence();
        guard.release().await;
        settle(&manager).await;

        // After that, one round is enough for this client and for any other.
        fleet.reset_calls();
        let other = client::manager(fleet.urls());
        until_all_answer(&other).await;
        let mut last = before;
        for who in [&manager, &other, &manager] {
            let guard = who.try_acquire("lock", TTL).await.expect("a free lock");
            assert!(guard.fence() > last, "{counted:?}: {} after {last}", guard.fence());
            last = guard.fence();
            guard.release().await;
            settle(who).await;
        }
        assert_eq!(calls(&fleet)[..2], [vec![3; 5], vec![0; 5]], "{counted:?}");
    }
}

#[tokio::test]
async fn a_node_that_was_away_is_brought_along() {
    let mut network = Network::without_grace(3);
    let manager = network.manager().await;
    network.proxies[0].refuse_connections();
    let mut last = 0;
    for _ in 0..5 {
        let guard = manager.try_acquire("lock", TTL).await.expect("two of three nodes are enough");
        last = guard.fence();
        guard.release().await;
    }
    network.proxies[0].clear_faults();
    until_all_answer(&manager).await;
    // Now a node dies that granted all locks. The node that missed them must still grant a larger fence.
    network.fleet[1].kill();
    let guard = manager.try_acquire("lock", TTL).await.expect("two of three nodes are enough");
    assert!(guard.fence() > last, "{} after {last}", guard.fence());
}

/// A client can raise a fence to any number up to 2^62 with one command.
#[tokio::test]
async fn nodes_whose_fences_are_far_apart_agree_on_one() {
    let fleet = Fleet::start(3);
    let mut largest = [0; 3];
    for (node, floor) in [(1, 1_i64 << 50), (2, 3 << 60)] {
        let mut wire = fleet[node].connect();
        largest[node] = wire.call_strs(&format!("REDLOCK.ACQUIRE lock other 60000 FENCE {floor}")).int();
        assert_eq!(wire.call_strs("REDLOCK.RELEASE lock other"), Answer::Int(1));
    }
    let manager = manager(fleet.urls());
    until_all_answer(&manager).await;
    let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock", TTL)).await;
    let guard = guard.unwrap_or_else(|error| panic!("{largest:?}: {error}"));
    // The client raises to the nearest fence that it knows of: that of the node in the middle, unless the first node
    // answers so late that the client has begun to raise before. The ballot's own tests cover the choice.
    let possible = [largest[1], largest[2]].map(|fence| u64::try_from(fence).expect("a fence") + 1);
    assert!(possible.contains(&guard.fence()), "{} is not among {possible:?}", guard.fence());
    assert!(guard.is_valid());
    guard.release().await;
}
