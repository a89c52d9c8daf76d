//! Taking, keeping, losing and freeing locks, on nodes in memory and a clock that a test can move.

#![allow(clippy::expect_used)]

mod common;

use common::{LEASE, TTL, manager};
use redlock_client::memory::Nodes;
use redlock_client::{Error, FailureKind, Freed, LockManager, Loss, Retry, Vote};
use std::time::Duration;
use tokio::time::{Instant, advance, timeout};

#[tokio::test(start_paused = true)]
async fn a_lock_is_held_by_one_at_a_time() {
    let nodes = Nodes::new(5);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let guard = alice.acquire("orders:42", TTL).await.expect("it is free");
    assert_eq!((guard.fence(), guard.remaining()), (1, LEASE));
    let refused = bob.try_acquire("orders:42", TTL).await.expect_err("it is held");
    assert!(matches!(refused, Error::Contended(_)) && refused.is_retryable(), "{refused}");
    assert_eq!(refused.resource(), "orders:42");
    assert!(refused.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{refused}");
    let report = guard.release().await;
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
    let guard = bob.try_acquire("orders:42", TTL).await.expect("it is free again");
    assert_eq!(guard.fence(), 2, "and counts on");
}

#[tokio::test(start_paused = true)]
async fn another_resource_is_another_lock() {
    let locks = LockManager::in_memory(5);
    let _one = locks.acquire("a", TTL).await.expect("free");
    let _other = locks.try_acquire("b", TTL).await.expect("free too");
}

#[tokio::test(start_paused = true)]
async fn dropping_a_guard_frees_the_lock() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    drop(locks.acquire("job", TTL).await.expect("free"));
    locks.close().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_is_not_freed_ends_by_itself() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    let detached = guard.detach();
    assert!((0..3).all(|node| nodes.holds(node, "job")));
    assert_eq!((detached.fence, detached.keys), (1, vec![b"job".to_vec()]));
    advance(TTL + Duration::from_millis(2)).await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_holder_stops_believing_before_the_nodes_let_go() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(LEASE).await;
    assert!(!guard.is_valid());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!((0..3).all(|node| nodes.holds(node, "job")), "nobody else can have it yet");
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
async fn an_extension_never_revives() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(LEASE).await;
    let error = guard.extend().await.expect_err("its time is up");
    assert!(matches!(error, Error::Lost { loss: Loss::Expired, .. }), "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_leaves_the_lock_as_it_was() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(Duration::from_secs(1)).await;
    nodes.silence(0);
    nodes.silence(1);
    let error = guard.extend().await.expect_err("one node is no majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error:?}");
    assert_eq!(guard.remaining(), LEASE - Duration::from_secs(1), "not a moment less");
    nodes.revive(0);
    guard.extend().await.expect("two nodes are a majority");
    assert_eq!(guard.remaining(), LEASE);
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_before_validity_ends() {
    let guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    assert_eq!(guard.lost().await, Loss::Expired);
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    assert!(started.elapsed() > LEASE * 9 / 10, "but not much before: {:?}", started.elapsed());
    assert!(!guard.is_valid(), "what was told stays true");
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_when_nobody_answers_any_more() {
    let nodes = Nodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    let token = guard.cancellation_token().expect("a runtime");
    for node in 0..5 {
        nodes.silence(node);
    }
    let started = Instant::now();
    token.cancelled().await;
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    let error = guard.extend().await.expect_err("it is lost");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    // What the nodes said last is in it.
    assert!(error.nodes().iter().any(|answer| matches!(answer.vote, Vote::Failed(_))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn the_loss_is_told_while_an_extension_hangs() {
    let nodes = Nodes::new(5);
    // An answer is waited for longer than the lock lasts.
    let locks = LockManager::builder().memory(&nodes).node_timeout(TTL * 6).build().expect("nodes");
    let mut guard = locks.acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    let token = guard.cancellation_token().expect("a runtime");
    (0..5).for_each(|node| nodes.hang(node));
    let started = Instant::now();
    assert_eq!(guard.lost().await, Loss::Expired);
    token.cancelled().await;
    assert!(started.elapsed() < LEASE, "{:?}", started.elapsed());
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_hangs_costs_nothing_and_a_majority_of_them_one_timeout() {
    let nodes = Nodes::new(5);
    let patience = Duration::from_millis(250);
    let locks = LockManager::builder().memory(&nodes).node_timeout(patience).build().expect("nodes");
    let started = Instant::now();
    (0..2).for_each(|node| nodes.hang(node));
    let guard = locks.try_acquire("job", TTL).await.expect("three of five");
    guard.extend().await.expect("three of five");
    assert!(guard.release().await.is_free_on_a_majority());
    assert_eq!(started.elapsed(), Duration::ZERO);
    nodes.hang(2);
    let error = locks.try_acquire("job", TTL).await.expect_err("two of five");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    let hangs = |vote: &Vote| matches!(vote, Vote::Failed(why) if why.kind == FailureKind::Silent);
    assert!((0..3).all(|node| hangs(&error.nodes()[node].vote)), "{error}");
    assert!((patience..patience * 2).contains(&started.elapsed()), "{:?}", started.elapsed());
    (0..3).for_each(|node| nodes.revive(node));
    let guard = locks.try_acquire("job", TTL).await.expect("nobody is in the way");
    drop(guard);
}

#[test]
fn a_token_does_not_outlive_whoever_watches_the_clock_for_it() {
    let nodes = Nodes::new(3);
    let build = || tokio::runtime::Runtime::new().expect("a runtime");
    let (first, second) = (build(), build());
    let locks = manager(&nodes);
    let guard = second.block_on(locks.acquire("job", TTL)).expect("free");
    let token = first.block_on(async { guard.cancellation_token() }).expect("a runtime");
    let view = guard.held();
    assert!(!token.is_cancelled());
    first.shutdown_background();
    assert!(second.block_on(async { tokio::time::timeout(TTL, token.cancelled()).await }).is_ok());
    assert!(guard.is_valid(), "only the token has come to its end");
    let fresh = second.block_on(async { view.cancellation_token() }).expect("a runtime");
    assert!(!fresh.is_cancelled(), "somebody watches again");
    drop(guard);
    let told = second.block_on(async { tokio::time::timeout(TTL, fresh.cancelled()).await });
    assert!(told.is_ok(), "the lock is free");
}

#[tokio::test(start_paused = true)]
async fn an_extension_that_nobody_waits_for_counts() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    {
        let extend = std::pin::pin!(guard.extend_to(TTL * 2));
        // Asked, and gone before the answer is read.
        assert!(futures_poll(extend).await.is_none());
    }
    tokio::task::yield_now().await;
    assert!(guard.remaining() > TTL, "{:?}", guard.remaining());
    assert_eq!(guard.ttl(), TTL * 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_broken_by_an_administrator_is_a_loss_at_the_next_extension() {
    let nodes = Nodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(Duration::from_secs(3600)).expect("a runtime");
    for node in 0..3 {
        assert!(nodes.delete(node, "job"));
    }
    assert_eq!(timeout(LEASE / 2, guard.lost()).await.expect("long before its time"), Loss::Gone);
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
    let nodes = Nodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    guard.keep_alive(TTL * 3).expect("a runtime");
    assert_eq!(guard.lost().await, Loss::Expired);
    let held = started.elapsed();
    assert!(held >= TTL * 3 - Duration::from_secs(1) && held <= TTL * 4, "{held:?}");
    advance(Duration::from_secs(1)).await;
    assert!((0..5).all(|node| !nodes.holds(node, "job")), "nobody extends it any more");
}

#[tokio::test(start_paused = true)]
async fn keeping_alive_survives_an_outage_shorter_than_the_lease() {
    let nodes = Nodes::new(5);
    let mut guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 20).expect("a runtime");
    advance(Duration::from_secs(3)).await;
    (0..5).for_each(|node| nodes.silence(node));
    assert!(timeout(Duration::from_secs(5), guard.lost()).await.is_err(), "five seconds are still covered");
    (0..5).for_each(|node| nodes.revive(node));
    assert!(timeout(TTL * 5, guard.lost()).await.is_err(), "and then it goes on");
}

#[tokio::test(start_paused = true)]
async fn a_released_lock_tells_its_views() {
    let guard = LockManager::in_memory(5).acquire("job", TTL).await.expect("free");
    let held = guard.held();
    let token = held.cancellation_token().expect("a runtime");
    assert!(held.is_valid() && !token.is_cancelled());
    guard.release().await;
    assert!(!held.is_valid());
    assert_eq!(held.lost().await, Loss::Released);
    token.cancelled().await;
}

#[tokio::test(start_paused = true)]
async fn the_release_of_an_expired_lock_is_no_error() {
    let guard = LockManager::in_memory(3).acquire("job", TTL).await.expect("free");
    advance(TTL * 2).await;
    let report = guard.release().await;
    assert!(!report.was_held());
    assert_eq!(report.freed(), 0);
    assert!(report.nodes().iter().all(|node| node.freed == Freed::NotHeld), "{report}");
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
    let guard = waiting.await.expect("no panic").expect("had in the end");
    assert_eq!(guard.fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn acquire_gives_up_as_its_policy_says() {
    // In line there is one attempt, and it takes as long as all tries would have.
    for (waits_in_line, attempts, took) in [(true, 1, Some(Duration::from_millis(35))), (false, 4, None)] {
        let builder = LockManager::builder().memory(&Nodes::new(3)).wait_in_line(waits_in_line);
        let locks = builder.retry(Retry::default().max_attempts(4)).build().expect("fine");
        let _guard = locks.acquire("job", TTL).await.expect("free");
        let started = Instant::now();
        let error = locks.acquire("job", TTL).await.expect_err("held");
        let tried = matches!(&error, Error::Contended(evidence) if evidence.attempts() == attempts);
        assert!(tried, "{error:?}");
        assert!(took.is_none_or(|took| started.elapsed() >= took), "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_are_served_in_order_and_at_once() {
    let nodes = Nodes::new(5);
    let manager = || LockManager::builder().memory(&nodes).wait_in_line(true).build().expect("fine");
    let first = manager().acquire("job", TTL).await.expect("free");
    let served = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting = Vec::new();
    for number in 0..8 {
        // As different processes.
        let (locks, served) = (manager(), std::sync::Arc::clone(&served));
        waiting.push(tokio::spawn(async move {
            let guard = locks.acquire("job", TTL).await.expect("had in the end");
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
    assert!(before.elapsed() < Duration::from_millis(10), "nobody slept: {:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_is_cancelled_leaves_nothing_behind() {
    let nodes = Nodes::new(3);
    let manager = || LockManager::builder().memory(&nodes).wait_in_line(true).build().expect("fine");
    let (locks, other) = (manager(), manager());
    let guard = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn(async move { other.acquire("job", TTL).await.map(|guard| guard.fence()) });
    advance(Duration::from_millis(5)).await;
    waiting.abort();
    assert!(waiting.await.expect_err("cancelled").is_cancelled());
    advance(Duration::from_millis(5)).await;
    guard.release().await;
    // Nobody in line has got it.
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
    assert_eq!(locks.try_acquire("job", TTL).await.expect("free").fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_was_handed_on_lasts_as_long_as_any() {
    let locks = LockManager::builder().memory(&Nodes::new(5)).wait_in_line(true).build().expect("fine");
    let first = locks.acquire("job", TTL).await.expect("free");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("job", TTL).await }
    });
    advance(Duration::from_millis(50)).await;
    first.release().await;
    let guard = waiting.await.expect("no panic").expect("had in the end");
    // The claim is on its way; nobody is told that time is up.
    let outlived = tokio::time::timeout(TTL / 2, guard.lost()).await;
    assert!(outlived.is_err(), "{outlived:?}");
    assert!(guard.is_valid() && guard.remaining() > TTL / 4);
}

#[tokio::test(start_paused = true)]
async fn acquire_timeout_says_what_the_nodes_said() {
    let locks = LockManager::in_memory(3);
    let _guard = locks.acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    let wait = Duration::from_secs(2);
    let error = locks.acquire_timeout("job", TTL, wait).await.expect_err("held");
    assert_eq!(started.elapsed(), wait);
    assert!(matches!(&error, Error::Timeout { waited, .. } if *waited == wait), "{error:?}");
    assert!(error.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{error}");
    let in_vain = locks.acquire_timeout("job", TTL, Duration::ZERO).await;
    assert!(matches!(in_vain, Err(Error::Timeout { .. })));
}

#[tokio::test(start_paused = true)]
async fn acquire_timeout_goes_on_when_the_policy_would_give_up() {
    let nodes = Nodes::new(3);
    let impatient = LockManager::builder().memory(&nodes).retry(Retry::none()).build().expect("fine");
    let _detached = impatient.acquire("job", TTL).await.expect("free").detach();
    assert!(matches!(impatient.acquire("job", TTL).await, Err(Error::Contended(_))));
    let guard = impatient.acquire_timeout("job", TTL, TTL * 2).await.expect("free when its time is up");
    assert_eq!(guard.fence(), 2);
}

#[tokio::test(start_paused = true)]
async fn several_resources_are_taken_together_or_not_at_all() {
    let nodes = Nodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let one = alice.acquire("b", TTL).await.expect("free");
    let error = bob.try_acquire_many(["a", "b", "c"], TTL).await.expect_err("b is held");
    assert!(matches!(error, Error::Contended(_)));
    assert_eq!(error.resource(), "a, b, c");
    bob.close().await;
    assert!(!nodes.holds(0, "a") && !nodes.holds(0, "c"), "nothing is left behind");
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
                    let guard = locks.acquire_many(set, TTL).await.expect("had in the end");
                    guard.release().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("every task comes to its end");
    }
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_are_refused_before_anything_is_sent() {
    let locks = LockManager::in_memory(3);
    for ttl in [Duration::ZERO, Duration::from_micros(900), Duration::from_millis(2)] {
        let error = locks.acquire("job", ttl).await.expect_err("too short to be held");
        assert!(matches!(error, Error::Invalid(_)), "{ttl:?}: {error}");
    }
    assert!(matches!(locks.acquire("", TTL).await, Err(Error::Invalid(_))));
    assert!(matches!(locks.acquire_many(Vec::<String>::new(), TTL).await, Err(Error::Invalid(_))));
    assert!(matches!(locks.acquire("job", Duration::MAX).await, Err(Error::Invalid(_))));
    // Longer than the nodes allow: they say so, and asking again is no use.
    let error = locks.acquire("job", Duration::from_secs(10 * 24 * 3600)).await.expect_err("too long");
    assert!(matches!(error, Error::NoQuorum(_)) && !error.is_retryable(), "{error}");
    assert!(error.to_string().contains("REDLOCKTTL"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_short_ttl_leaves_a_short_validity() {
    let locks = LockManager::in_memory(3);
    let guard = locks.acquire("job", Duration::from_millis(3)).await.expect("a millisecond is left, nearly");
    assert!(guard.remaining() < Duration::from_millis(1));
}

#[tokio::test(start_paused = true)]
async fn inspect_tells_who_holds_it() {
    let nodes = Nodes::new(5);
    let locks = LockManager::builder()
        .memory(&nodes)
        .label("nightly export")
        .key_prefix("app:")
        .build()
        .expect("fine");
    assert!(!locks.inspect("job").await.expect("asked").is_held());
    let guard = locks.acquire("job", TTL).await.expect("free");
    assert!(nodes.holds(0, "app:job"), "under its prefix");
    advance(Duration::from_secs(1)).await;
    let inspection = locks.inspect("job").await.expect("asked");
    let lock = inspection.lock().expect("held");
    assert_eq!(
        (lock.fence, lock.label.as_str(), lock.left),
        (1, "nightly export", TTL - Duration::from_secs(1))
    );
    assert_eq!(lock.held, Duration::from_secs(1));
    assert_eq!(inspection.nodes.len(), 5);
    nodes.silence(3);
    let inspection = locks.inspect("job").await.expect("asked");
    assert!(inspection.is_held() && inspection.nodes[3].lock.is_err(), "{inspection:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn health_tells_whether_a_quorum_can_grant() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let health = locks.health().await.expect("asked");
    assert!(health.can_grant() && health.nodes.iter().all(|node| node.can_grant()), "{health:?}");
    nodes.silence(0);
    assert!(locks.health().await.expect("asked").can_grant());
    nodes.silence(1);
    let health = locks.health().await.expect("asked");
    assert!(!health.can_grant() && !health.nodes[1].can_grant() && health.nodes[2].can_grant(), "{health:?}");
    let error = locks.try_acquire("job", TTL).await.expect_err("no majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    // The one node that granted has it back.
    locks.close().await;
    assert!(!nodes.holds(2, "job"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_acquire_leaves_nothing_behind() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    // Polled once and dropped: the nodes may have granted, nobody will ever release.
    {
        let mut acquire = Box::pin(locks.acquire("job", TTL));
        let polled = futures_poll(acquire.as_mut()).await;
        assert!(polled.is_none(), "it cannot be done in one poll: {polled:?}");
    }
    locks.close().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
    drop(locks.try_acquire("job", TTL).await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn an_acquire_cancelled_with_its_answer_unread_leaves_nothing_behind() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let mut acquire = Box::pin(locks.acquire("job", TTL));
    assert!(futures_poll(acquire.as_mut()).await.is_none());
    // The driver has everything: the lock is granted, and nobody has looked.
    while !nodes.holds(2, "job") {
        tokio::task::yield_now().await;
    }
    drop(acquire);
    locks.close().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn a_lock_that_most_nodes_no_longer_have_is_over_at_once() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    advance(TTL / 2).await;
    nodes.silence(0);
    guard.extend().await.expect("two nodes are a majority");
    // Node 0 has run out, node 1 cannot be asked, and node 2 has forgotten: one lease is left.
    advance(TTL * 6 / 10).await;
    nodes.silence(1);
    assert!(nodes.delete(2, "job"));
    let error = guard.extend().await.expect_err("no majority is left");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn what_is_over_stays_over() {
    let nodes = Nodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).await.expect("free");
    // Extensions that reach one node each: together they would make a later majority.
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
    let error = guard.extend().await.expect_err("it was over");
    assert!(matches!(error, Error::Lost { loss: Loss::Expired, .. }), "{error:?}");
    assert!(!guard.is_valid());
}

#[tokio::test(start_paused = true)]
async fn a_failed_extension_to_a_time_beyond_the_limit_does_not_spoil_the_next() {
    let mut guard = LockManager::in_memory(3).acquire("job", TTL).await.expect("free");
    guard.keep_alive(TTL * 20).expect("a runtime");
    assert!(guard.extend_to(Duration::from_secs(10 * 24 * 3600)).await.is_err());
    assert_eq!(guard.ttl(), TTL);
    assert!(timeout(TTL * 5, guard.lost()).await.is_err(), "it is kept alive as before");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_ttl_gives_a_shorter_notice() {
    let mut guard = LockManager::in_memory(3).acquire("job", Duration::from_secs(30)).await.expect("free");
    advance(Duration::from_secs(29)).await;
    guard.extend_to(Duration::from_millis(300)).await.expect("held");
    guard.keep_alive(TTL).expect("a runtime");
    assert!(timeout(TTL / 2, guard.lost()).await.is_err(), "kept alive, not told that it is over");
}

#[tokio::test(start_paused = true)]
async fn several_resources_are_freed_though_one_of_them_is_gone() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire_many(["a", "b"], TTL).await.expect("free");
    (0..3).for_each(|node| assert!(nodes.delete(node, "a")));
    guard.release().await;
    locks.close().await;
    assert!((0..3).all(|node| !nodes.holds(node, "b")));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_cut_off_gets_its_release_when_it_is_back() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire("job", TTL).await.expect("free");
    nodes.silence(0);
    guard.release().await;
    assert!(nodes.holds(0, "job"));
    nodes.revive(0);
    assert!(!nodes.holds(0, "job"));
}

#[tokio::test]
async fn close_returns_while_others_go_on() {
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
    timeout(TTL, locks.close()).await.expect("nobody waits for what began later");
    busy.into_iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn any_number_of_nodes_can_be_had_in_memory() {
    for count in [0, 1, 2, 63, 127] {
        let locks = LockManager::in_memory(count);
        let guard = timeout(TTL, locks.try_acquire("job", TTL)).await.expect("it does not hang");
        assert!(guard.is_ok(), "{count}: {guard:?}");
    }
}

/// Polls a future once.
async fn futures_poll<F: std::future::Future>(mut future: std::pin::Pin<&mut F>) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match future.as_mut().poll(cx) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn acquire_timeout_ends_in_time_though_nobody_answers() {
    let wait = Duration::from_millis(1_500);
    for in_line in [true, false] {
        let nodes = Nodes::new(3);
        let locks = LockManager::builder()
            .wait_in_line(in_line)
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
async fn an_error_says_what_the_nodes_said_even_if_they_were_not_asked_again() {
    let nodes = Nodes::new(3);
    let locks = manager(&nodes);
    nodes.silence(2);
    let granted = |error: &Error| error.nodes().iter().map(|node| node.vote.fence()).collect::<Vec<_>>();
    // Nobody looked in time at the lock that was had.
    let mut acquire = Box::pin(locks.try_acquire("job", TTL));
    assert!(futures_poll(acquire.as_mut()).await.is_none(), "the nodes have not been asked yet");
    tokio::task::yield_now().await;
    advance(TTL).await;
    let error = acquire.await.expect_err("it came too late");
    assert!(matches!(error, Error::Expired(_)), "{error:?}");
    assert_eq!(granted(&error), [Some(1), Some(1), None]);
    // Its time ran out, and nobody had extended it.
    let guard = locks.acquire("job", TTL).await.expect("free again");
    advance(TTL).await;
    let error = guard.extend().await.expect_err("its time is up");
    assert!(matches!(error, Error::Lost { .. }), "{error:?}");
    assert_eq!(granted(&error), [Some(2), Some(2), None]);
}
