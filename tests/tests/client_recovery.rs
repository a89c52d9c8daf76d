//! What a client still owes to nodes that were away, and how both come back to each other.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, builder, manager, until_all_answer, until_free, until_held, until_waiting};
use redlock_client::{Error, LockManager, LockStatus};
use redlock_tests::{Answer, CommandFault, Fleet, SOON, Server, eventually_async, in_time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// More than a connection takes at once.
#[tokio::test]
async fn much_that_is_owed_does_not_keep_a_repaired_node_away() {
    let mut fleet = Fleet::start_with(3, |_, node| node.module_args(["restart-grace", "off"]));
    let manager = manager(fleet.urls());
    until_all_answer(&manager).await;
    let mut guards = Vec::new();
    for lock in 0..600 {
        let key = format!("{lock:06}{}", "k".repeat(40_000));
        guards.push(manager.try_acquire(key, TTL).await.expect("a free lock"));
    }
    fleet[0].kill();
    for guard in guards {
        guard.release().await;
    }
    fleet[0].restart();
    until_all_answer(&manager).await;
    let told = async || (fleet[0].calls("redlock.release") >= 600).then_some(());
    eventually_async("it is told of every release", SOON, told).await;
    assert!(manager.health().await.expect("a runtime").nodes[0].can_grant());
}

#[tokio::test]
async fn of_several_keys_those_that_are_left_are_freed_over_a_new_connection() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let guard = manager.acquire_many(["a", "b"], TTL).await.expect("free locks");
    until_held(network.fleet.iter(), "b").await;
    for node in network.fleet.iter() {
        assert_eq!(node.connect().call_strs("DEL a"), Answer::Int(1));
    }
    network.proxies[0].refuse_connections();
    guard.release().await;
    network.proxies[0].clear_faults();
    network.until_free("b").await;
}

/// Whoever waits asks a node again over a new connection, under the same owner. Its first request may arrive after all.
#[tokio::test]
async fn a_request_that_arrives_after_the_release_is_not_granted() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let mut holders: Vec<_> = (1..3).map(|node| network.fleet[node].connect()).collect();
    for holder in &mut holders {
        assert!(matches!(holder.call_strs("REDLOCK.ACQUIRE lock holder 600000"), Answer::Int(1..)));
    }
    network.proxies[0].inject("REDLOCK.ACQUIRE", CommandFault::DeliverAfterClose);
    let acquire = tokio::spawn({
        let manager = manager.clone();
        async move { manager.acquire("lock", TTL).await }
    });
    let asked = async || (network.fleet[0].calls("redlock.acquire") > 0).then_some(());
    eventually_async("it is asked again over a new connection", SOON, asked).await;
    for holder in &mut holders {
        assert_eq!(holder.call_strs("REDLOCK.RELEASE lock holder"), Answer::Int(1));
    }
    let guard =
        in_time("the lock is had", SOON, acquire).await.expect("no panic").expect("nobody is in the way");
    assert!(guard.release().await.is_free_on_a_majority());
    in_time("all is told", SOON, manager.flush()).await;
    network.until_free("lock").await;
    let before = network.fleet[0].calls("redlock.acquire");
    network.proxies[0].release_held();
    let arrived = async || (network.fleet[0].calls("redlock.acquire") > before).then_some(());
    eventually_async("the first request arrives", SOON, arrived).await;
    assert!(network.fleet[0].connect().inspect("lock").is_none(), "nobody is left who would free it");
}

#[tokio::test]
async fn a_node_that_is_away_for_a_moment_is_not_waited_for_as_long_as_one_in_quarantine() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    drop(manager.acquire("long", TTL).await.expect("a free lock"));
    manager.flush().await;
    network.fleet.crash(&[2]);
    until_all_answer(&manager).await;
    network.proxies[1].refuse_connections();
    let away = async || manager.health().await.expect("a runtime").nodes[1].state.is_err().then_some(());
    eventually_async("it is known to be away", SOON, away).await;
    let [patient, bounded] = ["patient", "bounded"].map(|key| {
        let manager = manager.clone();
        tokio::spawn(async move {
            match key {
                "patient" => manager.acquire(key, TTL).await.map(drop),
                _ => manager.acquire_timeout(key, TTL, SOON).await.map(drop),
            }
        })
    });
    network.proxies[1].clear_faults();
    for call in [patient, bounded] {
        let outcome = in_time("it is tried again", SOON, call).await.expect("no panic");
        outcome.unwrap_or_else(|error| panic!("two of three grant: {error}"));
    }
}

/// A lock that was handed on is claimed, and keeping it alive has nothing to add.
#[tokio::test]
async fn work_under_a_lock_that_was_waited_for_extends_it_once() {
    const TURNS: u64 = 5;
    // So long that a claim is confirmed in good time, whatever else the machine does.
    let fleet = Fleet::start_with(3, |_, node| node.module_args(["claim-window", "5000"]));
    let [holder, waiter] = [manager(fleet.urls()), manager(fleet.urls())];
    until_all_answer(&holder).await;
    until_all_answer(&waiter).await;
    for _ in 0..TURNS {
        let guard = holder.acquire("lock", TTL).await.expect("a free lock");
        let until_claimed = async |view: redlock_client::LockHandle| {
            let is_claimed = async || (view.remaining() > TTL / 2).then_some(());
            eventually_async("the claim is confirmed", SOON, is_claimed).await;
            Ok::<_, Error>(())
        };
        let hand_on = async {
            until_waiting(&fleet, 1).await;
            guard.release().await;
        };
        let work = async { tokio::join!(waiter.with_lock("lock", TTL, until_claimed), hand_on).0 };
        in_time("the work ends", SOON, work).await.expect("it was held");
    }
    assert!(
        fleet.calls("redlock.extend").iter().all(|calls| *calls <= TURNS),
        "{:?}",
        fleet.calls("redlock.extend")
    );
}

/// The answer to the subscription is the only one that is due on a new connection, and comes late.
#[tokio::test]
async fn a_node_that_was_slow_to_begin_with_is_used_at_once() {
    let network = Network::start(3);
    let brisk = builder().node_timeout(Duration::from_millis(300)).connect_timeout(SOON);
    let manager = brisk.nodes(network.urls()).build().expect("addresses");
    until_all_answer(&manager).await;
    let node = &network.proxies[0];
    let before = node.accepted();
    node.inject("SUBSCRIBE", CommandFault::Hold);
    node.cut();
    node.until_hit().await;
    let given_up = async || manager.health().await.expect("a runtime").nodes[0].state.is_err().then_some(());
    eventually_async("nobody asks it while it does not answer", SOON, given_up).await;
    node.release_held();
    until_all_answer(&manager).await;
    assert_eq!(node.accepted(), before + 1, "over the same connection");
}

#[tokio::test]
async fn closing_does_not_wait_for_what_others_free_meanwhile() {
    let mut fleet = Fleet::start(3);
    let manager =
        builder().node_timeout(Duration::from_millis(300)).nodes(fleet.urls()).build().expect("addresses");
    until_all_answer(&manager).await;
    fleet[0].kill();
    let is_closed = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (manager, is_closed) = (manager.clone(), Arc::clone(&is_closed));
        async move {
            let mut locks = 0;
            while !is_closed.load(Ordering::SeqCst) {
                let guard = manager.try_acquire("theirs", TTL).await.expect("two of three");
                // The node that is away is owed this one.
                guard.release().await;
                locks += 1;
            }
            locks
        }
    });
    drop(manager.try_acquire("ours", TTL).await.expect("two of three"));
    in_time("closing ends", SOON, manager.flush()).await;
    is_closed.store(true, Ordering::SeqCst);
    assert!(others.await.expect("no panic") > 0);
}

#[tokio::test]
async fn replicas_do_not_count_as_nodes_that_grant() {
    let master = Server::builder().tcp().start();
    let replicas: Vec<Server> = (0..3).map(|_| Server::builder().tcp().replica_of(&master).start()).collect();
    replicas.iter().for_each(|replica| replica.wait_for_replication(&master));
    let manager = manager(replicas.iter().map(Server::url));
    let health = manager.health().await.expect("a runtime");
    assert!(!health.can_grant());
    assert!(health.nodes.iter().all(|node| node.state.as_ref().is_ok_and(|state| state.is_replica)));
    assert!(manager.try_acquire("lock", TTL).await.is_err(), "nor do they grant");
}

#[tokio::test]
async fn a_lock_of_another_library_is_seen() {
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    assert_eq!(manager.inspect("lock").await.expect("a runtime").status, LockStatus::Free);
    for node in fleet.iter().take(2) {
        assert_eq!(node.connect().call_strs("SET lock somebody NX PX 600000"), Answer::ok());
    }
    let seen = manager.inspect("lock").await.expect("a runtime");
    assert!(seen.is_held() && seen.lock().is_none(), "{seen:?}");
    assert_eq!(seen.status, LockStatus::Foreign);
    let are_foreign: Vec<bool> =
        seen.nodes.iter().map(|node| node.is_foreign.clone().expect("seen")).collect();
    assert_eq!(are_foreign, [true, true, false]);
    let refused = manager.try_acquire("lock", TTL).await;
    assert!(matches!(refused, Err(Error::Contended(_))), "{refused:?}");
    for node in fleet.iter().take(2) {
        node.connect().call_strs("DEL lock");
    }
    until_free(&mut fleet, "lock").await;
}

/// A manager that is shared by runtimes is served by the first one that uses it.
#[test]
fn a_call_outlives_the_runtime_that_serves_it() {
    let mut fleet = Fleet::start(3);
    let [mine, theirs] = [manager(fleet.urls()), manager(fleet.urls())];
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (first, second) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    // A node that grants to the call, and two that are in its way.
    let holder = second.block_on(theirs.acquire("lock", TTL)).expect("a free lock");
    second.block_on(until_held(fleet.iter(), "lock"));
    assert_eq!(fleet[0].connect().call_strs("DEL lock"), Answer::Int(1));
    first.block_on(until_all_answer(&mine));
    let call = second.spawn({
        let mine: LockManager = mine.clone();
        async move { mine.acquire("lock", TTL).await }
    });
    second.block_on(until_held(fleet.iter().take(1), "lock"));
    first.shutdown_background();
    second.block_on(async {
        holder.release().await;
        let guard = in_time("the call goes on", 2 * SOON, call).await.expect("no panic").expect("free now");
        guard.release().await;
        mine.flush().await;
        let left =
            eventually_async("nothing is left behind", SOON, async || fleet.is_free("lock").then_some(()));
        left.await;
    });
    drop(second);
}
