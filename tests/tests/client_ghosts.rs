//! No ghost locks: however a call ends, no node keeps a lock that no client holds.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{NODE_TIMEOUT, Network, TTL, manager, until_free};
use redlock_client::{Error, LockManager, LostReason, ReleaseOutcome};
use redlock_tests::{
    Answer, CommandFault, Direction, Fleet, Proxy, SOON, Server, eventually, eventually_async, in_time,
};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// Polls a future until it is ready or a number of polls is used up. The output is `None` if it was not ready by then.
struct PollLimit<F> {
    future: Pin<Box<F>>,
    times_left: usize,
}

impl<F: Future> Future for PollLimit<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(left) = self.times_left.checked_sub(1) else { return Poll::Ready(None) };
        self.times_left = left;
        match self.future.as_mut().poll(cx) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn polled<F: Future>(future: F, times: usize) -> PollLimit<F> {
    PollLimit { future: Box::pin(future), times_left: times }
}

/// Waits until the nodes have processed every request of a call that has ended, and the releases that follow from it.
///
/// A health request follows the earlier requests on the same connections. After the first reply, the client has seen
/// every grant and has sent its releases. After the second reply, the nodes have processed the releases.
async fn settle(manager: &LockManager) {
    for _ in 0..2 {
        manager.health().await.expect("a runtime");
    }
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_no_lock_wherever_it_stopped() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let mut finished = 0;
    for times in 0..8 {
        let outcome = polled(manager.acquire("lock", TTL), times).await;
        finished += usize::from(outcome.is_some_and(|outcome| outcome.is_ok()));
        settle(&manager).await;
        assert_eq!(network.fleet.fences("lock"), [None; 5], "dropped after {times} polls");
    }
    assert!(finished > 0, "some calls got the lock before they were dropped");
}

#[tokio::test]
async fn an_acquire_cancelled_between_two_attempts_leaves_no_lock() {
    let mut network = Network::start(5);
    let manager = network.polling_manager().await;
    for times in 1..16 {
        let blocker = manager.try_acquire("lock", TTL).await.expect("a free lock");
        let acquire = polled(manager.acquire("lock", TTL), times);
        assert!(
            in_time("the polls are used up", SOON, acquire).await.is_none(),
            "another client holds the lock"
        );
        blocker.release().await;
        settle(&manager).await;
        assert_eq!(network.fleet.fences("lock"), [None; 5], "dropped after {times} polls");
    }
}

#[tokio::test]
async fn an_acquire_dropped_before_its_first_poll_sends_nothing() {
    let network = Network::start(3);
    let manager = network.manager().await;
    drop(manager.acquire("lock", TTL));
    manager.health().await.expect("a runtime");
    assert_eq!(network.fleet.calls("redlock.acquire"), [0, 0, 0]);
}

#[tokio::test]
async fn an_acquire_cancelled_after_its_grant_releases_the_lock() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let mut acquire = Box::pin(manager.acquire("lock", TTL));
    assert!(polled(&mut acquire, 1).await.is_none(), "the nodes have not answered yet");
    // The health requests follow the acquire on the same connections, so its replies arrive first.
    manager.health().await.expect("a runtime");
    assert!(!network.fleet.is_free("lock"));
    drop(acquire);
    settle(&manager).await;
    assert_eq!(network.fleet.fences("lock"), [None; 5]);
}

#[tokio::test]
async fn peers_12_clean_up_does_not_depend_on_the_cancelled_call() {
    // (the direction in which bytes are held when the call is cancelled, how many nodes can answer before)
    for (way, answered) in [
        (Direction::ToServer, 0),
        (Direction::ToClient, 0),
        (Direction::ToClient, 2),
        (Direction::ToServer, 2),
    ] {
        let mut network = Network::start(5);
        let manager = network.manager().await;
        network.proxies[answered..].iter().for_each(|proxy| proxy.hold(way));
        let acquire = tokio::spawn({
            let manager = manager.clone();
            async move { manager.acquire("lock", TTL).await }
        });
        network.until_all_seen("REDLOCK.ACQUIRE", 1).await;
        acquire.abort();
        assert!(acquire.await.expect_err("the task was cancelled").is_cancelled());
        network.let_go();
        network.until_given_back("lock").await;
    }
}

#[tokio::test]
async fn an_acquire_cancelled_while_it_raises_the_fence_leaves_no_lock() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    for (node, fence) in [100, 200, 300, 400, 500].iter().enumerate() {
        let mut wire = network.fleet[node].connect();
        wire.call_strs(&format!("REDLOCK.ACQUIRE lock other 60000 FENCE {fence}"));
        wire.call_strs("REDLOCK.RELEASE lock other");
    }
    network.fleet.reset_calls();
    network.proxies.iter().for_each(|proxy| proxy.inject("REDLOCK.EXTEND", CommandFault::Hold));
    let acquire = tokio::spawn({
        let manager = manager.clone();
        async move { manager.acquire("lock", TTL).await }
    });
    // The client does not raise the node with the largest fence.
    for proxy in &network.proxies[..4] {
        proxy.until_command_count("REDLOCK.EXTEND", 1).await;
    }
    acquire.abort();
    network.let_go();
    network.until_given_back("lock").await;
}

#[tokio::test]
async fn an_acquire_that_times_out_leaves_no_lock() {
    let mut network = Network::start(5);
    let managers = [network.polling_manager().await, network.manager().await];
    for (manager, resource) in managers.into_iter().zip(["polled", "queued"]) {
        network.proxies[..3].iter().for_each(|proxy| proxy.hold(Direction::ToClient));
        let wait = Duration::from_millis(100);
        let error =
            manager.acquire_timeout(resource, TTL, wait).await.expect_err("three nodes do not answer");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        let granted = error.nodes().iter().filter(|answer| answer.vote.fence().is_some()).count();
        assert_eq!((error.nodes().len(), granted), (5, 2), "{error}");
        network.let_go();
        network.until_free(resource).await;
        settle(&manager).await;
        assert_eq!(network.fleet.fences(resource), [None; 5]);
    }
}

#[tokio::test]
async fn peers_6_a_lock_that_is_granted_too_late_is_released() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let ttl = Duration::from_millis(200);
    network.proxies.iter().for_each(|proxy| proxy.delay(Direction::ToClient, ttl * 2));
    let error =
        manager.try_acquire("lock", ttl).await.expect_err("the lock has expired when the replies arrive");
    assert!(matches!(error, Error::Expired(_)), "{error:?}");
    // The lock expires anyway. What matters is that every node gets a release.
    network.until_given_back("lock").await;
}

/// How many acquires a node has refused because their release came before them.
fn late_refusals(node: &Server) -> u64 {
    let count = node.info("redlock", "redlock_late_refusals").expect("redlock_late_refusals in INFO");
    count.parse().expect("a count")
}

/// The proxy holds an acquire on its way to the first node while its connection is closed. The client sends the release
/// over a new connection; then the acquire arrives.
async fn let_an_acquire_arrive_after_its_release(network: &mut Network) {
    let manager = network.manager().await;
    network.proxies[0].inject("REDLOCK.ACQUIRE", CommandFault::DeliverAfterClose);
    let guard = manager.try_acquire("lock", TTL).await.expect("two of three nodes are enough");
    network.proxies[0].until_hit().await;
    guard.release().await;
    let released = async || (network.fleet[0].calls("redlock.release") > 0).then_some(());
    eventually_async("the release arrives over a new connection", SOON, released).await;
    assert_eq!(network.fleet[0].calls("redlock.acquire"), 0);
    network.proxies[0].release_held();
    let arrived = || (network.fleet[0].calls("redlock.acquire") > 0).then_some(());
    eventually("the acquire has arrived", SOON, arrived);
}

#[tokio::test]
async fn peers_11_an_acquire_that_lands_after_its_own_release_is_refused() {
    let mut network = Network::start(3);
    let_an_acquire_arrive_after_its_release(&mut network).await;
    assert_eq!(late_refusals(&network.fleet[0]), 1);
    network.until_free("lock").await;
}

#[tokio::test]
async fn control_without_the_late_window_the_late_acquire_leaves_a_ghost() {
    let fleet = Fleet::start_with(3, |_, node| node.module_args(["late-window", "0"]));
    let mut network = Network::with_proxies(fleet);
    let_an_acquire_arrive_after_its_release(&mut network).await;
    assert!(network.fleet[0].connect().inspect("lock").is_some(), "no client holds the lock");
}

#[tokio::test]
async fn a_lock_that_a_slow_node_grants_after_the_release_is_released() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    // Requests arrive after the node timeout, on a connection that the client keeps.
    for proxy in &network.proxies[..2] {
        proxy.delay(Direction::ToServer, NODE_TIMEOUT + Duration::from_millis(200));
    }
    let guard = manager.try_acquire("lock", TTL).await.expect("three of five nodes are enough");
    let report = guard.release().await;
    assert!(report.is_free_on_a_majority(), "{report}");
    let arrived = async || (network.fleet.calls("redlock.acquire") == [1; 5]).then_some(());
    eventually_async("the acquire has reached the slow nodes", SOON, arrived).await;
    network.until_given_back("lock").await;
}

#[tokio::test]
async fn peers_9_dropping_a_guard_releases_the_lock_without_blocking() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    network.hold(Direction::ToServer);
    // This runtime has one thread: a drop that blocked would block everything.
    drop(guard);
    network.let_go();
    network.until_free("lock").await;
}

#[tokio::test]
async fn a_guard_can_be_dropped_outside_a_runtime() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    std::thread::spawn(move || drop(guard)).join().expect("dropping does not panic");
    network.until_free("lock").await;
}

#[tokio::test]
async fn peers_20_releasing_an_expired_lock_is_not_an_error() {
    let mut fleet = Fleet::start(5);
    let manager = manager(fleet.urls());
    let guard = manager.try_acquire("lock", Duration::from_millis(300)).await.expect("a free lock");
    assert_eq!(in_time("the lock expires", SOON, guard.lost()).await, LostReason::Expired);
    assert!(!guard.is_valid());
    until_free(&mut fleet, "lock").await;
    let report = in_time("a release ends", SOON, guard.release()).await;
    assert!(!report.was_held());
    assert_eq!(report.freed(), 0, "{report}");
    assert!(report.nodes().iter().any(|node| node.outcome == ReleaseOutcome::NotHeld), "{report}");
}

#[tokio::test]
async fn peers_5_extending_an_expired_lock_does_not_create_it_again() {
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let guard = manager.try_acquire("lock", Duration::from_millis(300)).await.expect("a free lock");
    until_free(&mut fleet, "lock").await;
    let error = guard.extend().await.expect_err("the lock has expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    assert!(!guard.is_valid());
    manager.health().await.expect("a runtime");
    assert!(fleet.is_free("lock"));
}

#[tokio::test]
async fn peers_5_extending_a_deleted_lock_reports_the_loss_and_does_not_create_it_again() {
    let mut fleet = Fleet::start(3);
    let manager = manager(fleet.urls());
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    manager.health().await.expect("a runtime");
    for node in fleet.iter() {
        assert_eq!(node.connect().call_strs("DEL lock"), Answer::Int(1));
    }
    let error = guard.extend().await.expect_err("no node holds the lock");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error:?}");
    assert!(!guard.is_valid());
    assert_eq!(in_time("the guard reports the loss", SOON, guard.lost()).await, LostReason::Gone);
    assert!(fleet.is_free("lock"));
}

#[tokio::test]
async fn peers_13_an_extension_in_flight_does_not_revive_a_released_lock() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    network.hold(Direction::ToServer);
    {
        let mut extend = pin!(guard.extend());
        assert!(polled(&mut extend, 1).await.is_none(), "the extension has not reached the nodes");
        network.until_all_seen("REDLOCK.EXTEND", 1).await;
    }
    let held = guard.held();
    let release = tokio::spawn(guard.release());
    network.until_all_seen("REDLOCK.RELEASE", 1).await;
    network.let_go();
    let report = release.await.expect("a release ends");
    assert!(report.is_free_on_a_majority(), "{report}");
    network.until_given_back("lock").await;
    // The client has read the replies to the extension: they arrived before those to the release.
    assert!(!held.is_valid(), "the guard does not become valid again");
    assert!(network.fleet.calls("redlock.extend").iter().all(|calls| *calls == 1));
}

#[test]
fn flush_releases_every_dropped_lock_before_the_runtime_ends() {
    let mut fleet = Fleet::start(5);
    let urls = fleet.urls();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(async {
        let manager = manager(&urls);
        let mut guards = Vec::new();
        for lock in 0..50 {
            guards.push(manager.try_acquire(format!("lock:{lock}"), TTL).await.expect("a free lock"));
        }
        drop(guards);
        in_time("the flush ends", SOON, manager.flush()).await;
    });
    runtime.shutdown_background();
    for lock in 0..50 {
        let key = format!("lock:{lock}");
        eventually(&format!("{key} is free"), SOON, || fleet.is_free(&key).then_some(()));
    }
}

#[tokio::test]
async fn flush_does_not_wait_for_nodes_that_hang() {
    let network = Network::start(5);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    network.proxies.iter().for_each(|proxy: &Proxy| proxy.hold(Direction::ToServer));
    drop(guard);
    in_time("the flush ends", SOON, manager.flush()).await;
}

#[tokio::test]
async fn a_guard_that_outlives_its_manager_still_releases_its_lock() {
    let mut network = Network::start(5);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    drop(manager);
    assert!(guard.is_valid());
    drop(guard);
    network.until_free("lock").await;
}

#[tokio::test]
async fn a_wait_that_is_cancelled_while_a_node_hangs_leaves_no_lock_on_it() {
    let mut network = Network::start(5);
    let holder = manager(network.fleet.urls());
    let guard = holder.try_acquire("lock", TTL).await.expect("a free lock");
    // The request to the first node stays in a socket, and later requests to that node are not sent.
    let hasty = client::builder().node_timeout(Duration::from_millis(300));
    let hasty = hasty.nodes(network.urls()).build().expect("addresses of nodes");
    client::until_all_answer(&hasty).await;
    network.proxies[0].hold(Direction::ToServer);
    let waiting = tokio::spawn({
        let hasty = hasty.clone();
        async move { hasty.acquire("lock", TTL).await }
    });
    for proxy in &network.proxies[1..] {
        proxy.until_command_count("REDLOCK.ACQUIRE", 3).await;
    }
    waiting.abort();
    assert!(waiting.await.expect_err("the task was cancelled").is_cancelled());
    guard.release().await;
    network.proxies[0].release_held();
    eventually_async("the hung node has processed the acquires and the releases", SOON, async || {
        let acquired = network.fleet[0].calls("redlock.acquire") >= 2;
        let released = network.fleet[0].calls("redlock.release") >= 2;
        (acquired && released && network.fleet.is_free("lock")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn an_acquire_with_a_time_to_live_shorter_than_the_delay_fails_with_expired() {
    let mut network = Network::start(3);
    let manager = client::builder()
        .retry(redlock_client::Retry::fixed(Duration::from_millis(20)).give_up_after(NODE_TIMEOUT))
        .nodes(network.urls())
        .build()
        .expect("addresses of nodes");
    client::until_all_answer(&manager).await;
    let ttl = Duration::from_millis(200);
    network.proxies.iter().for_each(|proxy| proxy.delay(Direction::ToClient, ttl * 2));
    let error = in_time("an acquire ends", SOON, manager.acquire("lock", ttl)).await;
    let error = error.expect_err("the lock has expired when the replies arrive");
    assert!(matches!(error, Error::Expired(_)), "{error:?}");
    network.until_free("lock").await;
}

#[tokio::test]
async fn flush_does_not_wait_for_nodes_that_refuse_the_release() {
    let mut network = Network::start(3);
    let manager = network.manager().await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    let require_replicas = |fleet: &Fleet, count: &str| {
        let set = format!("CONFIG SET min-replicas-to-write {count}");
        fleet.iter().for_each(|node| drop(node.connect().call_strs(&set)));
    };
    require_replicas(&network.fleet, "1");
    drop(guard);
    // Each node answers with an error, and the client repeats the release until the lock would have expired.
    in_time("the flush ends", SOON, manager.flush()).await;
    assert!(!network.fleet.is_free("lock"));
    require_replicas(&network.fleet, "0");
    network.until_free("lock").await;
}
