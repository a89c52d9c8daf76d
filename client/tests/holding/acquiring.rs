//! Acquiring a lock, waiting for it, and failing to acquire it.

use crate::common::{LEASE, TTL, manager};
use crate::futures_poll;
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, FailureKind, LockManager, Retry, Vote, WaitPolicy};
use std::time::Duration;
use tokio::time::{Instant, advance, timeout};

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_by_one_at_a_time() {
    let nodes = MemoryNodes::new(5);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let guard = alice.acquire("orders:42", TTL).await.expect("free");
    assert_eq!((guard.fence(), guard.remaining()), (1, LEASE));
    let refused = bob.try_acquire("orders:42", TTL).await.expect_err("it is held");
    assert!(matches!(refused, Error::Contended(_)) && refused.is_retryable(), "{refused}");
    assert_eq!(refused.resource(), "orders:42");
    assert!(refused.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{refused}");
    let report = guard.release().await;
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
    let guard = bob.try_acquire("orders:42", TTL).await.expect("it is free again");
    assert_eq!(guard.fence(), 2, "the fence grows");
}

#[tokio::test(start_paused = true)]
async fn another_resource_is_another_lock() {
    let locks = LockManager::in_memory(5);
    let _one = locks.acquire("a", TTL).await.expect("free");
    let _other = locks.try_acquire("b", TTL).await.expect("free too");
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_freed_ends_by_itself() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    let detached = guard.detach();
    assert!((0..3).all(|node| nodes.holds(node, "job")));
    assert_eq!((detached.fence, detached.keys), (1, vec![b"job".to_vec()]));
    advance(TTL + Duration::from_millis(2)).await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_nothing_and_a_majority_of_them_one_timeout() {
    let nodes = MemoryNodes::new(5);
    let node_timeout = Duration::from_millis(250);
    let locks = LockManager::builder().memory(&nodes).node_timeout(node_timeout).build().expect("nodes");
    let started = Instant::now();
    (0..2).for_each(|node| nodes.hang(node));
    let guard = locks.try_acquire("job", TTL).await.expect("three of five nodes are a majority");
    guard.extend().await.expect("three of five nodes are a majority");
    assert!(guard.release().await.is_free_on_a_majority());
    assert_eq!(started.elapsed(), Duration::ZERO);
    nodes.hang(2);
    let error = locks.try_acquire("job", TTL).await.expect_err("two of five nodes are not a majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    assert!(error.to_string().contains("; 3 of 5 are needed ("), "{error}");
    let hangs = |vote: &Vote| matches!(vote, Vote::Failed(why) if why.kind == FailureKind::Silent);
    assert!((0..3).all(|node| hangs(&error.nodes()[node].vote)), "{error}");
    assert!((node_timeout..node_timeout * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
    (0..3).for_each(|node| nodes.revive(node));
    let guard = locks.try_acquire("job", TTL).await.expect("all nodes answer again");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn acquire_waits_for_the_lock() {
    let locks = LockManager::in_memory(5);
    let guard = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("job", TTL).await }
    });
    advance(Duration::from_secs(1)).await;
    guard.release().await;
    let guard = waiting.await.expect("no panic").expect("acquired after a wait");
    assert_eq!(guard.fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn acquire_gives_up_as_its_policy_says() {
    // A queued call makes one attempt, which takes as long as all attempts of a polling call.
    for (policy, attempts, took) in
        [(WaitPolicy::Queue, 1, Some(Duration::from_millis(35))), (WaitPolicy::Poll, 4, None)]
    {
        let builder = LockManager::builder().memory(&MemoryNodes::new(3)).wait_policy(policy);
        let locks = builder.retry(Retry::default().max_attempts(4)).build().expect("fine");
        let _guard = locks.acquire("job", TTL).await.expect("free");
        let started = Instant::now();
        let error = locks.acquire("job", TTL).await.expect_err("held");
        let tried = matches!(&error, Error::Contended(report) if report.attempts() == attempts);
        assert!(tried, "{error:?}");
        assert!(took.is_none_or(|took| started.elapsed() >= took), "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_get_the_lock_in_order_and_at_once() {
    let nodes = MemoryNodes::new(5);
    let manager =
        || LockManager::builder().memory(&nodes).wait_policy(WaitPolicy::Queue).build().expect("fine");
    let first = manager().acquire("job", TTL).await.expect("free");
    let served = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..8 {
        // Each waiter has its own manager, as in different processes.
        let (locks, served) = (manager(), std::sync::Arc::clone(&served));
        waiting.push(tokio::spawn(async move {
            let guard = locks.acquire("job", TTL).await.expect("acquired after a wait");
            served.lock().expect("no panic").push((number, guard.fence()));
            assert!(guard.remaining() > Duration::ZERO);
            tokio::task::yield_now().await;
            guard.release().await;
        }));
        advance(Duration::from_millis(1)).await;
    }
    let before = Instant::now();
    first.release().await;
    for task in waiting {
        task.await.expect("no panic");
    }
    let expected: Vec<(u64, u64)> = (0..8).map(|number| (number, number + 2)).collect();
    assert_eq!(*served.lock().expect("no panic"), expected);
    assert!(
        before.elapsed() < Duration::from_millis(10),
        "no waiter slept between two attempts: {:?}",
        before.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_on_stays_valid() {
    let locks = LockManager::builder()
        .memory(&MemoryNodes::new(5))
        .wait_policy(WaitPolicy::Queue)
        .build()
        .expect("fine");
    let first = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("job", TTL).await }
    });
    advance(Duration::from_millis(50)).await;
    first.release().await;
    let guard = waiting.await.expect("no panic").expect("acquired after a wait");
    // The claim is in flight; `lost` must not resolve meanwhile.
    let outlived = tokio::time::timeout(TTL / 2, guard.lost()).await;
    assert!(outlived.is_err(), "{outlived:?}");
    assert!(guard.is_valid() && guard.remaining() > TTL / 4);
}

#[tokio::test(start_paused = true)]
async fn the_error_of_acquire_timeout_has_the_answers_of_the_nodes() {
    let locks = LockManager::in_memory(3);
    let _guard = locks.acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    let wait = Duration::from_secs(2);
    let error = locks.acquire_timeout("job", TTL, wait).await.expect_err("held");
    assert_eq!(started.elapsed(), wait);
    assert!(matches!(&error, Error::Timeout { waited, .. } if *waited == wait), "{error:?}");
    assert!(error.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{error}");
    let timed_out = locks.acquire_timeout("job", TTL, Duration::ZERO).await;
    assert!(matches!(timed_out, Err(Error::Timeout { .. })));
}

#[tokio::test(start_paused = true)]
async fn acquire_timeout_goes_on_when_the_policy_would_give_up() {
    let nodes = MemoryNodes::new(3);
    let impatient = LockManager::builder().memory(&nodes).retry(Retry::none()).build().expect("fine");
    let _detached = impatient.acquire("job", TTL).await.expect("free").detach();
    assert!(matches!(impatient.acquire("job", TTL).await, Err(Error::Contended(_))));
    let guard = impatient.acquire_timeout("job", TTL, TTL * 2).await.expect("free after it has expired");
    assert_eq!(guard.fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn acquire_timeout_ends_in_time_without_a_majority() {
    let wait = Duration::from_millis(1_500);
    for policy in [WaitPolicy::Queue, WaitPolicy::Poll] {
        let nodes = MemoryNodes::new(3);
        let locks = LockManager::builder()
            .wait_policy(policy)
            .retry(Retry::fixed(Duration::from_secs(1)))
            .memory(&nodes)
            .build()
            .expect("fine");
        (0..2).for_each(|node| nodes.silence(node));
        let before = Instant::now();
        let error = locks.acquire_timeout("job", TTL, wait).await.expect_err("no majority");
        assert!(matches!(error, Error::Timeout { .. }), "{error:?}");
        assert_eq!(before.elapsed(), wait);
        assert_eq!(error.nodes().len(), 3, "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn several_resources_are_taken_together_or_not_at_all() {
    let nodes = MemoryNodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let one = alice.acquire("b", TTL).await.expect("free");
    let error = bob.try_acquire_many(["a", "b", "c"], TTL).await.expect_err("b is held");
    assert!(matches!(error, Error::Contended(_)));
    assert_eq!(error.resource(), "a, b, c");
    bob.flush().await;
    assert!(!nodes.holds(0, "a") && !nodes.holds(0, "c"), "the refused call left no lock");
    one.release().await;
    let all = bob.try_acquire_many(["c", "a", "b", "a"], TTL).await.expect("all free");
    assert_eq!(all.resources().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    all.extend().await.expect("held");
    assert!(alice.try_acquire("c", TTL).await.is_err());
    all.release().await;
    assert!((0..3).all(|node| !nodes.holds(node, "a") && !nodes.holds(node, "b")));
}

#[tokio::test]
async fn overlapping_sets_taken_in_any_order_do_not_deadlock() {
    let locks = LockManager::in_memory(5);
    let sets = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"], ["d", "a", "b"]];
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let locks = locks.clone();
            tokio::spawn(async move {
                for round in 0..10 {
                    let set = sets[(task + round) % sets.len()];
                    let guard = locks.acquire_many(set, TTL).await.expect("acquired after a wait");
                    guard.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("every task ends");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_refused_before_anything_is_sent() {
    let locks = LockManager::in_memory(3);
    for ttl in [Duration::ZERO, Duration::from_micros(900), Duration::from_millis(2)] {
        let error = locks.acquire("job", ttl).await.expect_err("too short for a lock");
        assert!(matches!(error, Error::Invalid(_)), "{ttl:?}: {error}");
    }
    assert!(matches!(locks.acquire("", TTL).await, Err(Error::Invalid(_))));
    assert!(matches!(locks.acquire_many(Vec::<String>::new(), TTL).await, Err(Error::Invalid(_))));
    assert!(matches!(locks.acquire("job", Duration::MAX).await, Err(Error::Invalid(_))));
    // Longer than the nodes allow: they reject it, and a retry cannot succeed.
    let error = locks.acquire("job", Duration::from_secs(10 * 24 * 3600)).await.expect_err("too long");
    assert!(matches!(error, Error::Rejected(_)) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("REDLOCKTTL"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_error_without_a_new_request_has_the_last_answers_of_the_nodes() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    nodes.silence(2);
    let granted = |error: &Error| error.nodes().iter().map(|node| node.vote.fence()).collect::<Vec<_>>();
    // The granted lock expired before the call returned.
    let mut acquire = Box::pin(locks.try_acquire("job", TTL));
    assert!(futures_poll(acquire.as_mut()).await.is_none(), "the nodes have not answered yet");
    tokio::task::yield_now().await;
    advance(TTL).await;
    let error = acquire.await.expect_err("the grants came too late");
    assert!(matches!(error, Error::Expired(_)), "{error:?}");
    assert!(error.to_string().contains("ask for a longer time to live"), "{error}");
    assert_eq!(granted(&error), [Some(1), Some(1), None]);
    // The lock expired without an extension.
    let guard = locks.acquire("job", TTL).await.expect("free again");
    advance(TTL).await;
    let error = guard.extend().await.expect_err("the lock has expired");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert_eq!(granted(&error), [Some(2), Some(2), None]);
}

#[tokio::test]
async fn any_number_of_nodes_works_in_memory() {
    for count in [0, 1, 2, 63, 127] {
        let locks = LockManager::in_memory(count);
        let guard = timeout(TTL, locks.try_acquire("job", TTL)).await.expect("the call does not hang");
        assert!(guard.is_ok(), "{count}: {guard:?}");
    }
}
