//! Wait queues over a quorum of real servers.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

#[path = "../client/mod.rs"]
mod client;
mod forged;
mod misbehaving;
mod repeated;

use client::{Network, TTL, builder, until_all_answer, until_held, until_waiting, waiters, waiters_at};
use redlock_client::{Error, Guard, LockManager, NodeAnswer, Vote, WaitPolicy};
use redlock_tests::{Direction, Fleet, SOON, eventually_async, in_time};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// A client that queues for a held lock.
fn manager<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> LockManager {
    builder()
        .wait_policy(WaitPolicy::Queue)
        .nodes(urls.into_iter().map(Into::into))
        .build()
        .expect("addresses of nodes")
}

fn wait_for(locks: &LockManager, resource: &'static str) -> JoinHandle<Result<Guard, Error>> {
    let locks = locks.clone();
    tokio::spawn(async move { locks.acquire(resource, TTL).await })
}

async fn served(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    in_time("the waiter gets the lock", SOON, waiting).await.expect("no panic").expect("the lock")
}

async fn connected(network: &Network) -> LockManager {
    let locks = manager(network.urls());
    until_all_answer(&locks).await;
    locks
}

#[tokio::test]
async fn waiters_are_served_in_order_without_polling() {
    let network = Network::start(5);
    let mut clients = Vec::new();
    for _ in 0..7 {
        clients.push(connected(&network).await);
    }
    verify_served_in_order(&network.fleet, clients).await;
}

/// The first of seven clients acquires a lock, and the others queue for it. Checks that they get it in their order.
async fn verify_served_in_order(fleet: &Fleet, clients: Vec<LockManager>) {
    let started = Instant::now();
    fleet.reset_calls();
    let mut clients = clients.into_iter();
    let holder = clients.next().expect("seven clients");
    let first = holder.acquire("job", TTL).await.expect("free");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, locks) in (0..6_u64).zip(clients) {
        let order = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            let guard = locks.acquire("job", TTL).await.expect("the lock, after a wait");
            order.lock().expect("no panic").push(number);
            assert!(guard.is_valid());
            guard.release().await;
        }));
        until_waiting(fleet, number + 1).await;
    }
    first.release().await;
    for task in tasks {
        in_time("every waiter gets the lock", SOON, task).await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4, 5]);
    // No client polls. Each of the seven clients sends one acquire to each node, a second one if the first reply is
    // slow, and more only after seconds in the queue.
    let at_most = 7 * (2 + started.elapsed().as_secs());
    let calls = fleet.calls("redlock.acquire");
    assert!(calls.iter().all(|calls| (7..=at_most).contains(calls)), "{calls:?}");
    until_waiting(fleet, 0).await;
}

#[tokio::test]
async fn a_wait_that_ends_leaves_the_queue_empty() {
    let mut network = Network::start(5);
    let (holder, other) = (connected(&network).await, connected(&network).await);
    let guard = holder.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&other, "job");
    until_waiting(&network.fleet, 1).await;
    waiting.abort();
    until_waiting(&network.fleet, 0).await;
    let timed_out = other.acquire_timeout("job", TTL, Duration::from_millis(50)).await;
    let error = timed_out.expect_err("the lock is held");
    assert!(matches!(&error, Error::Timeout { .. }) && error.report().is_some(), "{error:?}");
    until_waiting(&network.fleet, 0).await;
    guard.release().await;
    network.until_free("job").await;
    // A process that ends abruptly leaves the queue when its connections close.
    let guard = holder.acquire("job", TTL).await.expect("free");
    let (end, is_to_end) = tokio::sync::oneshot::channel::<()>();
    let gone = std::thread::spawn({
        let urls = network.urls();
        move || {
            let runtime =
                tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let locks = manager(urls);
            runtime.spawn(async move { locks.acquire("job", TTL).await });
            let _ = runtime.block_on(is_to_end);
            // The tasks end at once and send no more commands.
            runtime.shutdown_background();
        }
    });
    until_waiting(&network.fleet, 1).await;
    end.send(()).expect("the thread waits for the signal");
    until_waiting(&network.fleet, 0).await;
    gone.join().expect("no panic");
    guard.release().await;
    network.until_free("job").await;
}

#[tokio::test]
async fn dead_nodes_are_not_waited_for() {
    let mut network = Network::start(5);
    let (holder, other) = (connected(&network).await, connected(&network).await);
    network.fleet[0].kill();
    network.fleet[3].kill();
    let guard = holder.acquire("job", TTL).await.expect("three of five nodes are enough");
    until_held([1, 2, 4].iter().map(|node| &network.fleet[*node]), "job").await;
    let waiting = wait_for(&other, "job");
    let has_queued =
        async || [1, 2, 4].iter().all(|node| waiters_at(&network.fleet[*node]) == 1).then_some(());
    eventually_async("the client queues on the other nodes", SOON, has_queued).await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn a_waiter_survives_broken_connections_and_a_restart() {
    let network = Network::without_grace(5);
    let other = connected(&network).await;
    verify_survives_broken_connections_and_a_restart(network, &other).await;
}

/// Checks that a waiter gets the lock although connections break and a server restarts during its wait.
async fn verify_survives_broken_connections_and_a_restart(mut network: Network, other: &LockManager) {
    let holder = connected(&network).await;
    let guard = holder.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(other, "job");
    until_waiting(&network.fleet, 1).await;
    network.proxies[1].cut();
    network.proxies[2].cut();
    network.fleet[4].kill();
    network.fleet[4].restart();
    // The restarted node has forgotten the lock and grants it to the waiter. That is one vote of five.
    eventually_async("the client has queued again on the other four nodes", SOON, async || {
        let there = waiters(&network.fleet);
        (there[..4].iter().all(|count| *count == 1)).then_some(())
    })
    .await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn an_expired_lock_is_handed_to_the_waiter() {
    let network = Network::start(3);
    let (holder, other) = (connected(&network).await, connected(&network).await);
    let guard = holder.acquire("job", Duration::from_millis(300)).await.expect("free");
    let fence = guard.fence();
    std::mem::forget(guard);
    let next = served(wait_for(&other, "job")).await;
    assert_eq!(next.fence(), fence + 1);
}

#[tokio::test]
async fn several_resources_are_waited_for_as_one() {
    let network = Network::start(3);
    let (holder, other) = (connected(&network).await, connected(&network).await);
    let one = holder.acquire("one", TTL).await.expect("free");
    let two = holder.acquire("two", TTL).await.expect("free");
    let waiting = tokio::spawn(async move { other.acquire_many(["two", "one"], TTL).await });
    until_waiting(&network.fleet, 1).await;
    one.release().await;
    two.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn waiters_with_a_round_trip_longer_than_the_claim_window_are_served() {
    let network = Network::start(3);
    for node in network.fleet.iter() {
        node.connect().call_strs("CONFIG SET redlock.claim-window 20");
    }
    let holder = manager(network.fleet.urls());
    let guard = holder.acquire("job", TTL).await.expect("free");
    network.proxies.iter().for_each(|proxy| proxy.delay(Direction::ToClient, Duration::from_millis(60)));
    let far = [connected(&network).await, connected(&network).await];
    let [one, other] = far.map(|locks| wait_for(&locks, "job"));
    until_waiting(&network.fleet, 2).await;
    guard.release().await;
    // Neither waiter can claim a hand-off in time. The lock must not go back and forth between them for ever.
    let use_once = async |waiting| served(waiting).await.release().await;
    tokio::join!(use_once(one), use_once(other));
}

#[tokio::test]
async fn the_first_call_of_a_manager_queues() {
    let fleet = Fleet::start(5);
    // One node hangs: a client can queue without it.
    fleet[4].pause();
    let holder = manager(fleet.urls());
    let guard = holder.acquire("job", TTL).await.expect("free");
    until_held(fleet.iter().take(4), "job").await;
    let newcomer = manager(fleet.urls());
    let waiting = wait_for(&newcomer, "job");
    let all_wait = || fleet.iter().take(4).all(|node| waiters_at(node) == 1).then_some(());
    eventually_async("the client queues on the other nodes", SOON, async || all_wait()).await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
    fleet[4].resume();
}

#[tokio::test]
async fn a_client_that_cannot_queue_polls() {
    // A user that may not subscribe, with both protocols; and a module that is too old for queues.
    let fleet = Fleet::start_with(3, |_, node| {
        node.user("app", "on >secret ~* resetchannels -@all +redlock.acquire +redlock.extend +redlock.release +redlock.node +hello")
    });
    let as_app = |url: &String| url.replace("redis://", "redis://app:secret@");
    let resp3 = manager(fleet.urls().iter().map(as_app));
    let resp2 = manager(fleet.urls().iter().map(as_app).map(|url| format!("{url}?protocol=2")));
    let old_module = Network::start(3);
    for proxy in &old_module.proxies {
        let greeting = format!("*4\r\n$7\r\nnode-id\r\n$5\r\nn{:04}\r\n", proxy.port() % 10_000);
        let greeting = greeting.replacen("*4", "*6", 1);
        proxy.forge_reply(
            "REDLOCK.NODE",
            format!("{greeting}$7\r\nversion\r\n$5\r\n0.0.9\r\n$13\r\nquarantine-ms\r\n:0\r\n"),
        );
    }
    let old_module_client = manager(old_module.urls());
    for (locks, fleet) in [(resp3, &fleet), (resp2, &fleet), (old_module_client, &old_module.fleet)] {
        fleet.reset_calls();
        let guard = locks.acquire("job", TTL).await.expect("free");
        let waiting = wait_for(&locks, "job");
        let has_polled = async || fleet.calls("redlock.acquire").iter().all(|calls| *calls > 3).then_some(());
        eventually_async("the client polls", SOON, has_polled).await;
        assert!(waiters(fleet).iter().all(|count| *count == 0));
        guard.release().await;
        assert!(served(waiting).await.is_valid());
    }
}

#[tokio::test]
async fn a_client_polls_when_its_wait_policy_says_so() {
    let network = Network::start(3);
    let urls = network.urls();
    let locks = builder().wait_policy(WaitPolicy::Poll).nodes(urls).build().expect("addresses");
    until_all_answer(&locks).await;
    let guard = locks.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&locks, "job");
    let has_polled =
        async || network.fleet.calls("redlock.acquire").iter().all(|calls| *calls > 3).then_some(());
    eventually_async("the client polls", SOON, has_polled).await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn a_client_polls_when_the_queue_is_full() {
    let mut fleet = Fleet::start_with(3, |_, node| node.module_args(["max-waiters", "0"]));
    let locks = manager(fleet.urls());
    until_all_answer(&locks).await;
    let guard = locks.acquire("job", TTL).await.expect("free");
    let error =
        locks.acquire_timeout("job", TTL, Duration::from_millis(300)).await.expect_err("the lock is held");
    assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
    let is_refused = |answer: &NodeAnswer| answer.vote == Vote::Refused;
    assert!(error.nodes().len() == 3 && error.nodes().iter().all(is_refused), "{error}");
    let waiting = wait_for(&locks, "job");
    let has_polled = async || fleet.calls("redlock.acquire").iter().all(|calls| *calls > 4).then_some(());
    eventually_async("the client polls", SOON, has_polled).await;
    guard.release().await;
    served(waiting).await.release().await;
    client::until_free(&mut fleet, "job").await;
}

#[tokio::test]
async fn a_single_attempt_does_not_overtake_a_waiter() {
    let network = Network::start(5);
    let (holder, patient, hasty) =
        (connected(&network).await, connected(&network).await, connected(&network).await);
    for _ in 0..20 {
        let guard = holder.acquire("job", TTL).await.expect("free");
        let waiting = wait_for(&patient, "job");
        until_waiting(&network.fleet, 1).await;
        let attempts = async {
            let mut refused = 0;
            loop {
                match hasty.try_acquire("job", TTL).await {
                    Ok(_) => panic!("the single attempt overtook the waiter after {refused} refusals"),
                    Err(Error::Contended(_)) => refused += 1,
                    Err(error) => panic!("{error}"),
                }
                tokio::task::yield_now().await;
            }
        };
        let hand_off = async {
            guard.release().await;
            served(waiting).await
        };
        // The single attempts go on during the whole hand-off.
        let next = tokio::select! {
            next = hand_off => next,
            never = attempts => never,
        };
        next.release().await;
        until_waiting(&network.fleet, 0).await;
    }
}
