//! Pending releases for nodes that were unreachable, and how clients and nodes reconnect.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{Network, TTL, builder, manager, until_all_answer, until_free, until_held, until_waiting};
use redlock_client::{Error, LockManager, LockStatus};
use redlock_tests::{Answer, CommandFault, Fleet, SOON, Server, eventually_async, in_time};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The pending releases exceed what one connection buffers (16 MiB).
#[tokio::test]
async fn many_pending_releases_do_not_keep_a_repaired_node_unused() {
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
    let released = async || (fleet[0].calls("redlock.release") >= 600).then_some(());
    eventually_async("the node gets every release", SOON, released).await;
    assert!(manager.health().await.expect("a runtime").nodes[0].can_grant());
}

#[tokio::test]
async fn a_pending_release_of_several_keys_frees_those_that_remain() {
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

/// A waiting client repeats its request over a new connection, with the same owner. The first request may still arrive
/// later.
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
    eventually_async("the client repeats its request over a new connection", SOON, asked).await;
    for holder in &mut holders {
        assert_eq!(holder.call_strs("REDLOCK.RELEASE lock holder"), Answer::Int(1));
    }
    let guard =
        in_time("the client gets the lock", SOON, acquire).await.expect("no panic").expect("a free lock");
    assert!(guard.release().await.is_free_on_a_majority());
    in_time("the flush ends", SOON, manager.flush()).await;
    network.until_free("lock").await;
    let before = network.fleet[0].calls("redlock.acquire");
    network.proxies[0].release_held();
    let arrived = async || (network.fleet[0].calls("redlock.acquire") > before).then_some(());
    eventually_async("the first request arrives", SOON, arrived).await;
    assert!(network.fleet[0].connect().inspect("lock").is_none(), "no client would free this lock");
}

#[tokio::test]
async fn a_short_outage_is_retried_before_a_quarantine_ends() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    drop(manager.acquire("long", TTL).await.expect("a free lock"));
    manager.flush().await;
    network.fleet.crash(&[2]);
    until_all_answer(&manager).await;
    network.proxies[1].refuse_connections();
    let away = async || manager.health().await.expect("a runtime").nodes[1].state.is_err().then_some(());
    eventually_async("the client has detected the outage", SOON, away).await;
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
        let outcome = in_time("the client retries", SOON, call).await.expect("no panic");
        outcome.unwrap_or_else(|error| panic!("two of three nodes can grant: {error}"));
    }
}

/// The client claims a handed-off lock with an extension. Keep-alive must not send a second one.
#[tokio::test]
async fn with_lock_extends_a_lock_from_the_queue_once() {
    const TURNS: u64 = 5;
    // A claim window that is long enough even on a busy machine.
    let fleet = Fleet::start_with(3, |_, node| node.module_args(["claim-window", "5000"]));
    let [holder, waiter] = [manager(fleet.urls()), manager(fleet.urls())];
    until_all_answer(&holder).await;
    until_all_answer(&waiter).await;
    for _ in 0..TURNS {
        let guard = holder.acquire("lock", TTL).await.expect("a free lock");
        let until_claimed = async |lock: redlock_client::LockHandle| {
            let is_claimed = async || (lock.remaining() > TTL / 2).then_some(());
            eventually_async("the claim is confirmed", SOON, is_claimed).await;
            Ok::<_, Error>(())
        };
        let hand_on = async {
            until_waiting(&fleet, 1).await;
            guard.release().await;
        };
        let work = async { tokio::join!(waiter.with_lock("lock", TTL, until_claimed), hand_on).0 };
        in_time("the work ends", SOON, work).await.expect("the work succeeds");
    }
    assert!(
        fleet.calls("redlock.extend").iter().all(|calls| *calls <= TURNS),
        "{:?}",
        fleet.calls("redlock.extend")
    );
}

/// On a new connection, only the reply to the subscription is outstanding, and it arrives late.
#[tokio::test]
async fn a_node_that_answers_its_subscription_late_keeps_its_connection() {
    let network = Network::start(3);
    let builder = builder().node_timeout(Duration::from_millis(300)).connect_timeout(SOON);
    let manager = builder.nodes(network.urls()).build().expect("addresses");
    until_all_answer(&manager).await;
    let node = &network.proxies[0];
    let before = node.accepted();
    node.inject("SUBSCRIBE", CommandFault::Hold);
    node.cut();
    node.until_hit().await;
    let is_down = async || manager.health().await.expect("a runtime").nodes[0].state.is_err().then_some(());
    eventually_async("the client has detected the silent node", SOON, is_down).await;
    node.release_held();
    until_all_answer(&manager).await;
    assert_eq!(node.accepted(), before + 1, "the client keeps the connection");
}

#[tokio::test]
async fn flush_does_not_wait_for_releases_that_begin_after_it() {
    let mut fleet = Fleet::start(3);
    let manager =
        builder().node_timeout(Duration::from_millis(300)).nodes(fleet.urls()).build().expect("addresses");
    until_all_answer(&manager).await;
    fleet[0].kill();
    let is_flushed = Arc::new(AtomicBool::new(false));
    let others = tokio::spawn({
        let (manager, is_flushed) = (manager.clone(), Arc::clone(&is_flushed));
        async move {
            let mut locks = 0;
            while !is_flushed.load(Ordering::SeqCst) {
                let guard = manager.try_acquire("theirs", TTL).await.expect("two of three nodes");
                // This release stays pending for the dead node.
                guard.release().await;
                locks += 1;
            }
            locks
        }
    });
    drop(manager.try_acquire("ours", TTL).await.expect("two of three nodes"));
    in_time("the flush ends", SOON, manager.flush()).await;
    is_flushed.store(true, Ordering::SeqCst);
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
    assert!(manager.try_acquire("lock", TTL).await.is_err(), "replicas grant no lock");
}

#[tokio::test]
async fn inspection_reports_a_lock_of_another_library() {
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
        seen.nodes.iter().map(|node| node.is_foreign.clone().expect("an answer")).collect();
    assert_eq!(are_foreign, [true, true, false]);
    let refused = manager.try_acquire("lock", TTL).await;
    assert!(matches!(refused, Err(Error::Contended(_))), "{refused:?}");
    for node in fleet.iter().take(2) {
        node.connect().call_strs("DEL lock");
    }
    until_free(&mut fleet, "lock").await;
}

/// If several runtimes share a manager, the first one that uses it runs its driver.
#[test]
fn a_call_outlives_the_runtime_that_serves_it() {
    let mut fleet = Fleet::start(3);
    let [mine, theirs] = [manager(fleet.urls()), manager(fleet.urls())];
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let (first, second) = (runtime().expect("a runtime"), runtime().expect("a runtime"));
    // One node can grant to the call, and two nodes hold the lock for the other client.
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
        let guard = in_time("the call ends", 2 * SOON, call).await.expect("no panic").expect("a free lock");
        guard.release().await;
        mine.flush().await;
        let left =
            eventually_async("no node holds the lock", SOON, async || fleet.is_free("lock").then_some(()));
        left.await;
    });
    drop(second);
}
