//! Bugs that other lock libraries had, each shown not to be here.
//!
//! Where a bug is about connections or servers its test is beside the other tests of that kind:
//!
//! | bug | tests |
//! |---|---|
//! | an expired lock returned as held, the too-late path without a release | `redlock-proto`: `a_lock_granted_too_late_is_not_held` |
//! | an even number of nodes hangs | `redlock-proto`: `half_of_an_even_number_is_a_refusal`, `when_everybody_has_answered_it_is_decided` |
//! | two sets of resources share a key | `keys.rs`: `resources_that_read_alike_when_joined_stay_apart` |
//! | validity underflows | `redlock-proto`: `a_short_lock_does_not_underflow` |
//! | the loss is told late | `holding.rs`: `the_loss_is_told_when_nobody_answers_any_more` |
//! | ghosts, hung nodes, a connection for every operation | the `client_*` tests of `redlock-tests` |

#![allow(clippy::expect_used)]

mod common;

use common::{LEASE, TTL, manager};
use redlock_client::memory::Nodes;
use redlock_client::{Error, LockManager, Vote};
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn validity_counts_from_the_attempt_that_succeeded() {
    let locks = LockManager::in_memory(5);
    let first = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("job", TTL).await }
    });
    sleep(Duration::from_secs(6)).await;
    first.release().await;
    let second = waiting.await.expect("no panic").expect("had in the end");
    assert_eq!(second.remaining(), LEASE, "not less for the six seconds of waiting");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_voted_down_by_its_own_leftovers() {
    let nodes = Nodes::new(5);
    let locks = manager(&nodes);
    (0..3).for_each(|node| nodes.silence(node));
    // Two nodes granted, and are no majority.
    assert!(matches!(locks.try_acquire("job", TTL).await, Err(Error::NoQuorum(_))));
    // Now only they and one more answer: what the first attempt left there would be decisive.
    nodes.revive(0);
    let guard = locks.try_acquire("job", TTL).await.expect("nothing is in the way");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_minority_that_fails_neither_raises_nor_leaks() {
    let nodes = Nodes::new(5);
    let locks = manager(&nodes);
    nodes.silence(0);
    nodes.silence(4);
    let guard = locks.try_acquire("job", TTL).await.expect("three of five are enough");
    guard.extend().await.expect("and for extending");
    let report = guard.release().await;
    assert!(report.is_free_on_a_majority(), "{report}");
    assert!((1..4).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_quorum_is_of_the_configured_nodes() {
    let nodes = Nodes::new(5);
    (0..3).for_each(|node| nodes.silence(node));
    let error =
        manager(&nodes).try_acquire("job", TTL).await.expect_err("two of five, though all that answer");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let failed = error.nodes().iter().filter(|answer| matches!(answer.vote, Vote::Failed(_))).count();
    assert_eq!(failed, 3, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_neither_frees_nor_recreates() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    (0..3).for_each(|node| nodes.silence(node));
    assert!(guard.extend().await.is_err());
    (0..3).for_each(|node| nodes.revive(node));
    assert!((0..3).all(|node| nodes.holds(node, "job")), "still held");
    // An administrator breaks it: the extension must not make it anew.
    (0..3).for_each(|node| assert!(nodes.delete(node, "job")));
    assert!(matches!(guard.extend().await, Err(Error::Lost { .. })));
    assert!((0..3).all(|node| !nodes.holds(node, "job")), "not made anew");
}

#[tokio::test(start_paused = true)]
async fn an_extension_in_flight_does_not_outlive_the_release() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let mut guard = locks.acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 10).expect("a runtime");
    let extend = Box::pin(async { guard.extend().await });
    // Started, not awaited to its end.
    let _ = timeout(Duration::ZERO, extend).await;
    guard.release().await;
    locks.close().await;
    advance(Duration::from_secs(5)).await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_guard_does_not_block() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    (0..3).for_each(|node| nodes.silence(node));
    let before = Instant::now();
    drop(guard);
    assert_eq!(Instant::now(), before, "no time passed, though nobody answers");
}

#[test]
fn a_guard_can_be_dropped_where_there_is_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let guard = runtime.block_on(LockManager::in_memory(3).acquire("job", TTL)).expect("free");
    drop(runtime);
    drop(guard);
}

#[test]
fn a_bad_address_is_an_error_and_no_panic() {
    for address in ["", "nonsense", "http://host", "redis://host:port", "redis://:secret-word@host:99999"] {
        let error = LockManager::builder().nodes([address]).build().expect_err(address);
        assert!(matches!(error, Error::Config(_)), "{address}: {error}");
        assert!(!error.to_string().contains("secret-word"), "{error}");
    }
    assert!(LockManager::builder().build().is_err(), "no node at all");
    assert!(
        LockManager::builder().nodes(["redis://a", "redis://a:6379"]).build().is_err(),
        "one node, twice"
    );
}

#[tokio::test(start_paused = true)]
async fn a_ttl_that_is_too_small_is_not_raised_in_silence() {
    let error = LockManager::in_memory(3)
        .acquire("job", Duration::from_millis(1))
        .await
        .expect_err("nothing is left");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn clean_up_does_not_depend_on_the_caller() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let task = tokio::spawn({
        let locks = locks.clone();
        async move {
            let _guard = locks.acquire("job", TTL).await.expect("free");
            std::future::pending::<()>().await;
        }
    });
    sleep(Duration::from_millis(1)).await;
    assert!(nodes.holds(0, "job"));
    task.abort();
    assert!(task.await.is_err_and(|error| error.is_cancelled()));
    locks.close().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_first_fence_is_not_zero_and_extending_does_not_move_it() {
    let locks = LockManager::in_memory(3);
    let guard = locks.acquire("job", TTL).await.expect("free");
    assert_eq!(guard.fence(), 1);
    guard.extend().await.expect("held");
    assert_eq!(guard.fence(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_lock_neither_throws_nor_hangs_nor_frees_anothers() {
    let nodes = Nodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let old = alice.acquire("job", TTL).await.expect("free");
    advance(TTL * 2).await;
    let new = bob.acquire("job", TTL).await.expect("free again");
    let report = old.release().await;
    assert!(!report.was_held() && report.freed() == 0, "{report}");
    assert!(new.is_valid() && (0..3).all(|node| nodes.holds(node, "job")));
}
