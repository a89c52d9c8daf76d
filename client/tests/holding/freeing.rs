//! Releasing a lock: by a release, by a drop of its guard or of the acquire, or after it expired.

use crate::common::{TTL, manager};
use crate::futures_poll;
use redlock_client::memory::MemoryNodes;
use redlock_client::{LockManager, LostReason, ReleaseOutcome, WaitPolicy};
use std::time::Duration;
use tokio::time::{advance, timeout};

#[tokio::test(start_paused = true)]
async fn dropping_a_guard_frees_the_lock() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    drop(locks.acquire("job", TTL).await.expect("free"));
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn a_release_notifies_the_handles_of_the_lock() {
    let guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    let held = guard.held();
    let token = held.cancellation_token().expect("a runtime");
    assert!(held.is_valid() && !token.is_cancelled());
    guard.release().await;
    assert!(!held.is_valid());
    assert_eq!(held.lost().await, LostReason::Released);
    token.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_lock_is_no_error() {
    let guard = LockManager::in_memory(3).acquire("job", TTL).await.expect("free");
    advance(TTL * 2).await;
    let report = guard.release().await;
    assert!(!report.was_held());
    assert_eq!(report.freed(), 0);
    assert!(report.nodes().iter().all(|node| node.outcome == ReleaseOutcome::NotHeld), "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let nodes = MemoryNodes::new(3);
    let manager =
        || LockManager::builder().memory(&nodes).wait_policy(WaitPolicy::Queue).build().expect("fine");
    let (locks, other) = (manager(), manager());
    let guard = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn(async move { other.acquire("job", TTL).await.map(|guard| guard.fence()) });
    advance(Duration::from_millis(5)).await;
    waiting.abort();
    assert!(waiting.await.expect_err("cancelled").is_cancelled());
    advance(Duration::from_millis(5)).await;
    guard.release().await;
    // The cancelled waiter has not got the lock.
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
    assert_eq!(locks.try_acquire("job", TTL).await.expect("free").fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_leaves_nothing_behind() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    // The future is polled once and dropped: the nodes may have granted, and no guard releases the lock.
    {
        let mut acquire = Box::pin(locks.acquire("job", TTL));
        let polled = futures_poll(acquire.as_mut()).await;
        assert!(polled.is_none(), "one poll is not enough: {polled:?}");
    }
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
    drop(locks.try_acquire("job", TTL).await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_cancelled_with_its_answer_unread_leaves_nothing_behind() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let mut acquire = Box::pin(locks.acquire("job", TTL));
    assert!(futures_poll(acquire.as_mut()).await.is_none());
    // The driver has the grants; the caller has not read the result.
    while !nodes.holds(2, "job") {
        tokio::task::yield_now().await;
    }
    drop(acquire);
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn several_resources_are_freed_though_one_of_them_is_gone() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire_many(["a", "b"], TTL).await.expect("free");
    (0..3).for_each(|node| assert!(nodes.delete(node, "a")));
    guard.release().await;
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "b")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_gets_its_release_when_it_is_back() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire("job", TTL).await.expect("free");
    nodes.silence(0);
    guard.release().await;
    assert!(nodes.holds(0, "job"));
    nodes.revive(0);
    assert!(!nodes.holds(0, "job"));
}

#[tokio::test]
async fn flush_does_not_wait_for_later_calls() {
    let locks = LockManager::in_memory(3);
    let busy: Vec<_> = (0..8)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                loop {
                    drop(locks.acquire(format!("job {task}"), TTL).await);
                }
            })
        })
        .collect();
    timeout(TTL, locks.flush()).await.expect("flush does not wait for later calls");
    busy.into_iter().for_each(|task| task.abort());
}

/// The driver of a lock runs on the runtime that acquired the lock.
#[test]
fn a_release_in_flight_survives_the_end_of_the_runtime_of_its_lock() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let build = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (first, second) = (build(), build());
    let guard = first.block_on(locks.acquire("job", TTL)).expect("a free lock");
    second.block_on(async {
        let mut release = Box::pin(guard.release());
        assert!(futures_poll(release.as_mut()).await.is_none(), "the first runtime does not run");
        std::thread::spawn(move || drop(first)).join().expect("the first runtime ends");
        release.await;
        locks.flush().await;
    });
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_a_detached_lock_that_is_being_freed() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let detached = locks.acquire("job", TTL).await.expect("a free lock").detach();
    (0..3).for_each(|node| nodes.hang(node));
    let mut release = Box::pin(locks.release_detached(&detached));
    assert!(futures_poll(release.as_mut()).await.is_none());
    drop(release);
    let mut flush = Box::pin(locks.flush());
    assert!(timeout(NODE_TIMEOUT / 2, &mut flush).await.is_err(), "the nodes may still answer");
    timeout(NODE_TIMEOUT, flush).await.expect("flush returns after the node timeout");
}

/// The default node timeout.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);
