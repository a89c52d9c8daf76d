//! Bugs of other lock libraries, and the tests that show that this client does not have them.
//!
//! Tests without a crate or file are in this file. `client_*` are tests of `redlock-tests` on real servers.
//! The tests of `redlock-proto` and `redlock-sim` are beside the code that they run.
//!
//! | | bug | tests |
//! |---|---|---|
//! | 1 | an expired lock returned as held; validity from the first attempt; extensions without a validity check | `peers_1_…`, `redlock-proto`: `a_lock_granted_too_late_is_not_held`, `an_extension_that_arrives_too_late_does_not_revive_the_lock` |
//! | 2 | an even number of nodes hangs; the quorum counts only reachable nodes | `client_sizes`: `peers_2_…`, `the_quorum_is_of_the_configured_nodes` |
//! | 3 | a retry is voted down by its own leftovers | `a_retry_is_not_voted_down_by_its_own_leftovers`, `client_mid_command`: `peers_3_…` |
//! | 4 | errors of a minority raise, and leak the lock | `a_failed_minority_causes_neither_an_error_nor_a_leak`, `client_faults`: `peers_4_…` |
//! | 5 | a failed extension releases the lock, or acquires it again | `a_failed_extension_neither_releases_nor_recreates_the_lock`, `client_ghosts`: `peers_5_…` |
//! | 6 | the too-late path does not release | `client_ghosts`: `peers_6_…` |
//! | 7 | two sets of resources share a key | `client_sizes`: `peers_7_…`, `keys.rs`: `resources_that_read_alike_when_joined_stay_apart` |
//! | 8 | validity underflows | `peers_8_…`, `redlock-proto`: `a_short_lock_does_not_underflow` |
//! | 9 | dropping a guard blocks, or does nothing | `dropping_a_guard_does_not_block`, `client_ghosts`: `peers_9_…` |
//! | 10 | an invalid address panics; a short time to live is raised silently | `peers_10_…` |
//! | 11 | an acquire arrives at a node after its own release | `client_ghosts`: `peers_11_…` |
//! | 12 | clean-up runs in the cancelled context | `clean_up_does_not_depend_on_the_caller`, `client_ghosts`: `peers_12_…` |
//! | 13 | an extension in flight revives a released lock | `an_extension_in_flight_does_not_outlive_the_release`, `client_ghosts`: `peers_13_…` |
//! | 14 | one hung node slows every call; a repaired node is not used | `client_faults`: `peers_14_…` and every test with a fault |
//! | 15 | a loss is noticed late | `holding`: `the_holder_is_notified_when_no_node_answers`, `client_holding`: `peers_15_…` |
//! | 16 | a command outlives its lock, and its children outlive it | `cli`: `the_command_ends_before_the_validity_of_its_lock`, `the_command_dies_when_redlock_is_killed`, `the_command_dies_when_redlock_is_killed_and_its_watchdog_is_stopped` |
//! | 17 | fences that go back, or start at 0, or move with an extension | `the_first_fence_is_not_zero_and_an_extension_keeps_it`, `client_counts`: `peers_17_…` |
//! | 18 | a waiter gets the lock after its lease has died | `peers_18_…`, `redlock-proto`: `a_grant_that_was_not_claimed_in_time_is_dropped`, `a_grant_with_an_expired_lease_is_claimed_first` |
//! | 19 | a connection for every operation | `client_counts`: `peers_19_…` |
//! | 20 | the release of an expired lock throws or hangs | `the_release_of_an_expired_lock_neither_fails_nor_hangs_nor_frees_the_next_holders_lock`, `client_ghosts`: `peers_20_…` |
//! | 21 | a lost wake-up leaves a waiter asleep | `client_waiting`: `a_waiter_whose_grant_pushes_are_lost_gets_the_lock` |
//! | 22 | a model passed, and the code still forked | `redlock-sim`: `no_history_breaks_a_rule` and the model's tests, which run the code itself |

#![allow(clippy::expect_used)]

mod common;

use common::{LEASE, TTL, manager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager, Retry, Vote, WaitPolicy};
use std::time::Duration;
use tokio::time::{advance, sleep, timeout};

#[tokio::test(start_paused = true)]
async fn peers_1_validity_counts_from_the_attempt_that_succeeded() {
    // A queued call makes one attempt; a polling call makes many.
    let nodes = MemoryNodes::new(5);
    let locks = LockManager::builder()
        .wait_policy(WaitPolicy::Poll)
        .retry(Retry::fixed(Duration::from_millis(500)))
        .memory(&nodes)
        .build()
        .expect("fine");
    let first = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("job", TTL).await }
    });
    sleep(Duration::from_secs(6)).await;
    first.release().await;
    let second = waiting.await.expect("no panic").expect("acquired after a wait");
    assert_eq!(second.remaining(), LEASE, "the six seconds of waiting do not reduce the validity");
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_not_voted_down_by_its_own_leftovers() {
    let nodes = MemoryNodes::new(5);
    let locks = manager(&nodes);
    (0..3).for_each(|node| nodes.silence(node));
    // Two nodes granted: no majority.
    assert!(matches!(locks.try_acquire("job", TTL).await, Err(Error::NoQuorum(_))));
    // Now these two and one more node answer. A leftover of the first attempt would prevent a majority.
    nodes.revive(0);
    let guard = locks.try_acquire("job", TTL).await.expect("no leftover of the first attempt");
    assert!(guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_failed_minority_causes_neither_an_error_nor_a_leak() {
    let nodes = MemoryNodes::new(5);
    let locks = manager(&nodes);
    nodes.silence(0);
    nodes.silence(4);
    let guard = locks.try_acquire("job", TTL).await.expect("three of five nodes are enough");
    guard.extend().await.expect("three of five nodes are enough for an extension");
    let report = guard.release().await;
    assert!(report.is_free_on_a_majority(), "{report}");
    assert!((1..4).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_quorum_is_of_the_configured_nodes() {
    let nodes = MemoryNodes::new(5);
    (0..3).for_each(|node| nodes.silence(node));
    let error =
        manager(&nodes).try_acquire("job", TTL).await.expect_err("two of five nodes are not a majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let failed = error.nodes().iter().filter(|answer| matches!(answer.vote, Vote::Failed(_))).count();
    assert_eq!(failed, 3, "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_neither_releases_nor_recreates_the_lock() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    (0..3).for_each(|node| nodes.silence(node));
    assert!(guard.extend().await.is_err());
    (0..3).for_each(|node| nodes.revive(node));
    assert!((0..3).all(|node| nodes.holds(node, "job")), "still held");
    // An administrator deletes the lock: the extension must not acquire it again.
    (0..3).for_each(|node| assert!(nodes.delete(node, "job")));
    assert!(matches!(guard.extend().await, Err(Error::Lost { .. })));
    assert!((0..3).all(|node| !nodes.holds(node, "job")), "the extension does not create the lock again");
}

#[tokio::test(start_paused = true)]
async fn an_extension_in_flight_does_not_outlive_the_release() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let mut guard = locks.acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 10).expect("a runtime");
    let extend = Box::pin(async { guard.extend().await });
    // The extension is sent, but not awaited.
    let _ = timeout(Duration::ZERO, extend).await;
    guard.release().await;
    locks.flush().await;
    advance(Duration::from_secs(5)).await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn dropping_a_guard_does_not_block() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire("job", TTL).await.expect("free");
    // This thread is the only one: a drop that waited for anything would hang.
    drop(guard);
    assert!((0..3).all(|node| nodes.holds(node, "job")), "the drop itself sends nothing");
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")), "the client releases the lock in the background");
}

#[test]
fn a_guard_can_be_dropped_where_there_is_no_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let guard = runtime.block_on(LockManager::in_memory(3).acquire("job", TTL)).expect("free");
    drop(runtime);
    drop(guard);
}

#[test]
fn peers_10_a_bad_address_is_an_error_and_no_panic() {
    for address in ["", "nonsense", "http://host", "redis://host:port", "redis://:secret-word@host:99999"] {
        let error = LockManager::builder().nodes([address]).build().expect_err(address);
        assert!(matches!(error, Error::Config(_)), "{address}: {error}");
        assert!(!error.to_string().contains("secret-word"), "{error}");
    }
    assert!(LockManager::builder().build().is_err(), "a manager without nodes");
    assert!(
        LockManager::builder().nodes(["redis://a", "redis://a:6379"]).build().is_err(),
        "one node with two addresses"
    );
}

#[tokio::test(start_paused = true)]
async fn peers_10_a_ttl_that_is_too_small_is_not_raised_silently() {
    let error = LockManager::in_memory(3)
        .acquire("job", Duration::from_millis(1))
        .await
        .expect_err("no validity would be left");
    assert!(matches!(error, Error::Invalid(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn clean_up_does_not_depend_on_the_caller() {
    let nodes = MemoryNodes::new(3);
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
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_first_fence_is_not_zero_and_an_extension_keeps_it() {
    let locks = LockManager::in_memory(3);
    let guard = locks.acquire("job", TTL).await.expect("free");
    assert_eq!(guard.fence(), 1);
    guard.extend().await.expect("held");
    assert_eq!(guard.fence(), 1);
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_lock_neither_fails_nor_hangs_nor_frees_the_next_holders_lock() {
    let nodes = MemoryNodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let old = alice.acquire("job", TTL).await.expect("free");
    advance(TTL * 2).await;
    let new = bob.acquire("job", TTL).await.expect("free again");
    let report = old.release().await;
    assert!(!report.was_held() && report.freed() == 0, "{report}");
    assert!(new.is_valid() && (0..3).all(|node| nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn peers_8_the_shortest_locks_do_not_underflow() {
    let locks = LockManager::in_memory(3);
    let mut acquired = 0;
    for ms in 0..600 {
        let ttl = Duration::from_millis(ms);
        match locks.try_acquire("job", ttl).await {
            Ok(guard) => {
                acquired += 1;
                assert!(guard.remaining() < ttl, "{ms} ms leave {:?}", guard.remaining());
                guard.release().await;
            }
            Err(error) => assert!(matches!(error, Error::Invalid(_)) && ms < 10, "{ms} ms: {error}"),
        }
    }
    assert!(acquired > 500, "{acquired}");
}

#[tokio::test(start_paused = true)]
async fn peers_18_a_waiter_gets_no_expired_lock() {
    let nodes = MemoryNodes::new(3);
    let (holder, other) = (manager(&nodes), manager(&nodes));
    let first = holder.acquire("job", TTL * 6).await.expect("free");
    let waiting = tokio::spawn(async move { other.acquire_timeout("job", TTL, TTL * 5).await });
    // The call waits for longer than the time to live of the lock.
    sleep(TTL * 3 / 2).await;
    first.release().await;
    let second = waiting.await.expect("no panic").expect("handed on");
    sleep(Duration::from_millis(50)).await;
    assert!(second.is_valid() && second.remaining() > LEASE - Duration::from_secs(1), "{second:?}");
    assert!((0..3).all(|node| nodes.holds(node, "job")));
}
