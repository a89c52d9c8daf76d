//! Extending a lock, keeping it alive, and detecting its loss.

use crate::common::{LEASE, TTL, manager};
use crate::futures_poll;
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager, LostReason, Vote};
use std::time::Duration;
use tokio::time::{Instant, advance, timeout};

#[tokio::test(start_paused = true)]
async fn the_validity_ends_before_the_leases_of_the_nodes() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(LEASE).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!((0..3).all(|node| nodes.holds(node, "job")), "no other client can acquire the lock yet");
}

#[tokio::test(start_paused = true)]
async fn an_extension_counts_from_now() {
    let guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    advance(Duration::from_secs(8)).await;
    assert_eq!(guard.extend().await.expect("still held"), LEASE);
    assert_eq!(guard.extend_to(Duration::from_secs(20)).await.expect("still held").as_secs(), 19);
    assert_eq!(guard.ttl(), Duration::from_secs(20));
}

#[tokio::test(start_paused = true)]
async fn an_extension_never_revives_an_expired_lock() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(LEASE).await;
    let error = guard.extend().await.expect_err("the lock has expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_leaves_the_lock_as_it_was() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(Duration::from_secs(1)).await;
    nodes.silence(0);
    nodes.silence(1);
    let error = guard.extend().await.expect_err("one node is not a majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    assert_eq!(guard.remaining(), LEASE - Duration::from_secs(1), "the failed extension changes nothing");
    nodes.revive(0);
    guard.extend().await.expect("two nodes are a majority");
    assert_eq!(guard.remaining(), LEASE);
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_notified_before_the_validity_ends() {
    let guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    assert!(
        started.elapsed() > LEASE * 9 / 10,
        "the notification is not much earlier: {:?}",
        started.elapsed()
    );
    assert!(!guard.is_valid(), "after the notification the lock is not valid");
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_notified_when_no_node_answers() {
    let nodes = MemoryNodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    let token = guard.cancellation_token().expect("a runtime");
    for node in 0..5 {
        nodes.silence(node);
    }
    let started = Instant::now();
    token.cancelled().await;
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    let error = guard.extend().await.expect_err("the lock is lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    // The error contains the last answers of the nodes.
    assert!(error.nodes().iter().any(|answer| matches!(answer.vote, Vote::Failed(_))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_holder_is_notified_while_an_extension_hangs() {
    let nodes = MemoryNodes::new(5);
    // The node timeout is longer than the lock.
    let locks = LockManager::builder().memory(&nodes).node_timeout(TTL * 6).build().expect("nodes");
    let mut guard = locks.acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    let token = guard.cancellation_token().expect("a runtime");
    (0..5).for_each(|node| nodes.hang(node));
    let started = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    token.cancelled().await;
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    assert!(!guard.is_valid());
}

#[test]
fn a_token_is_cancelled_when_its_runtime_ends() {
    let nodes = MemoryNodes::new(3);
    let build = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, second) = (build(), build());
    let locks = manager(&nodes);
    let guard = second.block_on(locks.acquire("job", TTL)).expect("free");
    let token = first.block_on(async { guard.cancellation_token() }).expect("a runtime");
    let handle = guard.held();
    assert!(!token.is_cancelled());
    first.shutdown_background();
    assert!(second.block_on(async { tokio::time::timeout(TTL, token.cancelled()).await }).is_ok());
    assert!(guard.is_valid(), "the lock itself is still valid");
    let fresh = second.block_on(async { handle.cancellation_token() }).expect("a runtime");
    assert!(!fresh.is_cancelled(), "a new token watches the lock on the new runtime");
    drop(guard);
    let cancelled = second.block_on(async { tokio::time::timeout(TTL, fresh.cancelled()).await });
    assert!(cancelled.is_ok(), "dropping the guard cancels the token");
}

#[tokio::test(start_paused = true)]
async fn an_extension_takes_effect_after_its_future_is_dropped() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    {
        let extend = std::pin::pin!(guard.extend_to(TTL * 2));
        // The request is sent, and the future dropped before the answer arrives.
        assert!(futures_poll(extend).await.is_none());
    }
    tokio::task::yield_now().await;
    assert!(guard.remaining() > TTL, "{:?}", guard.remaining());
    assert_eq!(guard.ttl(), TTL * 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_broken_by_an_administrator_is_a_loss_at_the_next_extension() {
    let nodes = MemoryNodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    for node in 0..3 {
        assert!(nodes.delete(node, "job"));
    }
    assert_eq!(
        timeout(LEASE / 2, guard.lost()).await.expect("the loss is detected long before the expiry"),
        LostReason::Gone
    );
}

#[tokio::test(start_paused = true)]
async fn keeping_alive_outlives_the_ttl_many_times() {
    let mut guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 20).expect("a runtime");
    let lost = timeout(TTL * 19, guard.lost()).await;
    assert!(lost.is_err(), "lost meanwhile: {lost:?}");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn keeping_alive_ends_at_its_bound() {
    let nodes = MemoryNodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    guard.keep_alive(TTL * 3).expect("a runtime");
    assert_eq!(guard.lost().await, LostReason::Expired);
    let held = started.elapsed();
    assert!(held >= TTL * 3 - Duration::from_secs(1) && held <= TTL * 4, "{held:?}");
    advance(Duration::from_secs(1)).await;
    assert!((0..5).all(|node| !nodes.holds(node, "job")), "the client no longer extends the lock");
}

#[tokio::test(start_paused = true)]
async fn keeping_alive_survives_an_outage_shorter_than_the_lease() {
    let nodes = MemoryNodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 20).expect("a runtime");
    advance(Duration::from_secs(3)).await;
    (0..5).for_each(|node| nodes.silence(node));
    assert!(
        timeout(Duration::from_secs(5), guard.lost()).await.is_err(),
        "the lease outlasts an outage of five seconds"
    );
    (0..5).for_each(|node| nodes.revive(node));
    assert!(
        timeout(TTL * 5, guard.lost()).await.is_err(),
        "after the outage the client extends the lock again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_short_ttl_leaves_a_short_validity() {
    let locks = LockManager::in_memory(3);
    let guard = locks
        .acquire("job", Duration::from_millis(3))
        .await
        .expect("almost a millisecond of validity is left");
    assert!(guard.remaining() < Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn a_lock_without_a_majority_of_leases_is_lost_at_once() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(TTL / 2).await;
    nodes.silence(0);
    guard.extend().await.expect("two nodes are a majority");
    // Node 0 has expired, node 1 does not answer, and node 2 has forgotten the lock: one lease is left.
    advance(TTL * 6 / 10).await;
    nodes.silence(1);
    assert!(nodes.delete(2, "job"));
    let error = guard.extend().await.expect_err("no majority is left");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn an_expired_lock_never_becomes_valid_again() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    // Each extension reaches one node. Together they would be a later majority.
    for reached in 0..2 {
        advance(TTL / 4).await;
        (0..3).for_each(|node| nodes.silence(node));
        nodes.revive(reached);
        assert!(guard.extend().await.is_err());
    }
    (0..3).for_each(|node| nodes.revive(node));
    assert!(guard.is_valid());
    advance(guard.remaining()).await;
    assert!(!guard.is_valid());
    let error = guard.extend().await.expect_err("the lock had expired");
    assert!(matches!(error, Error::Lost { reason: LostReason::Expired, .. }), "{error:?}");
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_to_a_time_beyond_the_limit_does_not_spoil_the_next() {
    let mut guard = LockManager::in_memory(3).acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 20).expect("a runtime");
    assert!(guard.extend_to(Duration::from_secs(10 * 24 * 3600)).await.is_err());
    assert_eq!(guard.ttl(), TTL);
    assert!(timeout(TTL * 5, guard.lost()).await.is_err(), "the client still extends the lock");
}

#[tokio::test(start_paused = true)]
async fn an_extension_to_a_shorter_ttl_shortens_the_notice() {
    let mut guard = LockManager::in_memory(3).acquire("job", Duration::from_secs(30)).await.expect("free");
    advance(Duration::from_secs(29)).await;
    guard.extend_to(Duration::from_millis(300)).await.expect("held");
    guard.keep_alive(TTL).expect("a runtime");
    assert!(
        timeout(TTL / 2, guard.lost()).await.is_err(),
        "the client extends the lock in time and reports no loss"
    );
}
