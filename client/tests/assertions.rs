//! Checks which types are `Send`, `Sync` and `Clone`, what works without a runtime, and that no secret is
//! printed.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_client::memory::MemoryNodes;
use redlock_client::{
    Builder, Detached, Drift, Error, Failure, FailureKind, FenceGate, GroupStanding, Guard, Health,
    Inspection, LockHandle, LockInfo, LockManager, LockStatus, LostReason, Node, NodeAnswer, NodeHealth,
    NodeInspection, NodeRelease, NodeReply, NodeStanding, NodeState, NonVotingReason, Owner, Query, Quorum,
    QuorumReport, ReleaseOutcome, ReleaseReport, Response, Retry, RetryContext, ShardHealth, ShardedLocks,
    StaleFence, Vote,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::fmt::Debug;
use std::future::Future;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(600);

trait Portable: Send + Sync + Unpin + 'static {}
impl<T: Send + Sync + Unpin + 'static> Portable for T {}

assert_impl_all!(LockManager: Portable, Clone, Debug);
assert_impl_all!(Builder: Portable, Clone, Debug);
assert_impl_all!(Node: Portable, Clone, Debug);
assert_impl_all!(Guard: Portable, Debug);
assert_impl_all!(LockHandle: Portable, Clone, Debug);
assert_impl_all!(Detached: Portable, Clone, Debug);
assert_impl_all!(Owner: Portable, Clone, Debug);
assert_impl_all!(Error: Portable, Clone, Debug, std::error::Error);
assert_impl_all!(QuorumReport: Portable, Clone, Debug);
assert_impl_all!(NodeAnswer: Portable, Clone, Debug);
assert_impl_all!(ReleaseReport: Portable, Clone, Debug);
assert_impl_all!(NodeRelease: Portable, Clone, Debug);
assert_impl_all!(Inspection: Portable, Clone, Debug);
assert_impl_all!(NodeInspection: Portable, Clone, Debug);
assert_impl_all!(Health: Portable, Clone, Debug);
assert_impl_all!(NodeHealth: Portable, Clone, Debug);
assert_impl_all!(NodeState: Portable, Clone, Debug);
assert_impl_all!(NodeStanding<'static>: Portable, Copy, Debug);
assert_impl_all!(NonVotingReason: Portable, Clone, Debug);
assert_impl_all!(GroupStanding: Portable, Copy, Debug);
assert_impl_all!(Quorum: Portable, Copy, Debug);
assert_impl_all!(LockStatus: Portable, Clone, Debug);
assert_impl_all!(LockInfo: Portable, Clone, Debug);
assert_impl_all!(LostReason: Portable, Copy, Debug);
assert_impl_all!(Vote: Portable, Clone, Debug);
assert_impl_all!(ReleaseOutcome: Portable, Clone, Debug);
assert_impl_all!(Failure: Portable, Clone, Debug);
assert_impl_all!(FailureKind: Portable, Copy, Debug);
assert_impl_all!(Query: Portable, Clone, Debug);
assert_impl_all!(NodeReply: Portable, Clone, Debug);
assert_impl_all!(Response: Portable, Clone, Debug);
assert_impl_all!(ShardedLocks: Portable, Clone, Debug);
assert_impl_all!(ShardHealth: Portable, Clone, Debug);
assert_impl_all!(RetryContext: Portable, Debug);
assert_impl_all!(MemoryNodes: Portable, Clone, Debug);
assert_impl_all!(Retry: Portable, Clone, Debug);
assert_impl_all!(Drift: Portable, Clone, Debug);
assert_impl_all!(FenceGate: Portable, Debug, UnwindSafe, RefUnwindSafe);
assert_impl_all!(StaleFence: Portable, Debug, std::error::Error);

// One lock has one guard. An owner without `Display` cannot be printed by accident.
assert_not_impl_any!(Guard: Clone, Copy);
assert_not_impl_any!(Owner: std::fmt::Display, AsRef<str>, AsRef<[u8]>);

#[cfg(feature = "blocking")]
mod blocking {
    use super::*;
    use redlock_client::blocking;

    assert_impl_all!(blocking::LockManager: Portable, Clone, Debug);
    assert_impl_all!(blocking::Guard: Portable, Debug);
    assert_not_impl_any!(blocking::Guard: Clone);
}

#[cfg(feature = "tls")]
assert_impl_all!(redlock_client::Tls: Portable, Clone, Debug);

/// Checks at compile time that a future is `Send`.
fn sent<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn every_future_can_go_to_another_thread() {
    let locks = LockManager::in_memory(3);
    let mut guard = sent(locks.acquire("a", TTL)).await.expect("free");
    drop(sent(locks.try_acquire("a", TTL)).await);
    drop(sent(locks.acquire_timeout("b", TTL, TTL)).await);
    drop(sent(locks.acquire_many(["b", "c"], TTL)).await);
    drop(sent(locks.try_acquire_many(vec!["b".to_owned()], TTL)).await);
    drop(sent(locks.acquire_many_timeout(["b"], TTL, TTL)).await);
    sent(guard.extend()).await.expect("held");
    sent(guard.extend_to(TTL)).await.expect("held");
    guard.keep_alive(TTL).expect("a runtime");
    let held = guard.held();
    drop(sent(guard.lost()));
    drop(sent(held.lost()));
    drop(sent(locks.inspect("a")).await);
    drop(sent(locks.health()).await);
    drop(sent(locks.ask(&Query::node())).await);
    drop(sent(locks.ask_node(0, &Query::node())).await);
    sent(guard.release()).await;
    let detached = locks.acquire("a", TTL).await.expect("free").detach();
    sent(locks.extend_detached(&detached, TTL)).await.expect("held");
    sent(locks.release_detached(&detached)).await.expect("a runtime");
    sent(locks.flush()).await;
}

#[tokio::test]
async fn every_future_of_sharded_locks_can_go_to_another_thread() {
    let shard = || LockManager::in_memory(3);
    let shards = ShardedLocks::new([("one", shard()), ("two", shard())]).expect("shards");
    let guard = sent(shards.acquire("a", TTL)).await.expect("free");
    drop(sent(shards.try_acquire("a", TTL)).await);
    drop(sent(shards.acquire_timeout("b", TTL, TTL)).await);
    drop(sent(shards.acquire_many(["b"], TTL)).await);
    let worked =
        sent(shards.with_lock("b", TTL, async |held: LockHandle| Ok::<_, Error>(held.fence()))).await;
    assert!(worked.is_ok(), "{worked:?}");
    let work = async |held: LockHandle| Ok::<_, Error>(held.fence());
    let skipped = sent(shards.try_with_lock("a", TTL, work)).await;
    assert!(matches!(skipped, Ok(None)), "{skipped:?}");
    sent(shards.with_lock_timeout("b", TTL, TTL, work)).await.expect("free");
    sent(shards.with_lock_many(["b"], TTL, work)).await.expect("free");
    drop(sent(shards.inspect("a")).await);
    drop(sent(shards.health()).await);
    sent(guard.release()).await;
    sent(shards.flush()).await;
}

#[tokio::test]
async fn work_under_a_lock_can_go_to_another_thread() {
    let locks = LockManager::in_memory(3);
    let as_closure =
        sent(locks.with_lock("a", TTL, async |held: LockHandle| Ok::<_, Error>(held.fence()))).await;
    assert_eq!(as_closure.expect("free"), 1);
    let as_block = sent(locks.with_lock("a", TTL, |held| async move { Ok::<_, Error>(held.fence()) })).await;
    assert_eq!(as_block.expect("free"), 2);
    let work = async |held: LockHandle| Ok::<_, Error>(held.fence());
    assert_eq!(sent(locks.try_with_lock("a", TTL, work)).await.expect("free"), Some(3));
    assert_eq!(sent(locks.with_lock_timeout("a", TTL, TTL, work)).await.expect("free"), 4);
    assert_eq!(sent(locks.with_lock_many(["a", "b"], TTL, work)).await.expect("free"), 5);
    let spawned = tokio::spawn(async move {
        // The work borrows this value across an `await`.
        let added = String::from("40");
        locks
            .with_lock("a", TTL, async |held: LockHandle| {
                tokio::task::yield_now().await;
                let added: u64 = added.parse().map_err(|_| Error::NoRuntime)?;
                Ok::<_, Error>(held.fence() + added)
            })
            .await
    });
    assert_eq!(spawned.await.expect("no panic").expect("free"), 46);
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

#[test]
fn a_manager_is_built_anywhere_and_used_in_any_runtime() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).build().expect("needs no runtime");
    LockManager::builder().nodes(["redis://localhost"]).build().expect("needs no runtime either");
    for fence in 1..=3 {
        // The driver ended with the last runtime; this call starts a new one.
        runtime().block_on(async {
            let guard = locks.acquire("a", TTL).await.expect("free");
            assert_eq!(guard.fence(), fence);
            guard.release().await;
        });
    }
    let threads = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    threads.expect("a runtime").block_on(async {
        let task = tokio::spawn(async move { locks.acquire("a", TTL).await.map(|guard| guard.fence()) });
        assert_eq!(task.await.expect("no panic").expect("free"), 4);
    });
}

#[test]
fn a_lock_of_an_ended_runtime_is_released_in_another_runtime() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).build().expect("fine");
    let first = runtime();
    let (dropped, released, kept) = first.block_on(async {
        let guards =
            (locks.acquire("a", TTL).await, locks.acquire("b", TTL).await, locks.acquire("c", TTL).await);
        (guards.0.expect("free"), guards.1.expect("free"), guards.2.expect("free"))
    });
    drop(first);
    assert!(dropped.is_valid(), "the lock itself does not need a runtime");
    // There is no runtime. The drop releases the lock itself, and must not panic.
    drop(kept);
    assert!((0..3).all(|node| !nodes.holds(node, "c")));
    runtime().block_on(async {
        let lost = dropped.extend().await;
        assert!(lost.is_err(), "the driver of the lock ended with its runtime: {lost:?}");
        drop(dropped);
        let report = released.release().await;
        assert!(report.was_held(), "{report}");
        locks.flush().await;
    });
    let is_free = |key: &str| (0..3).all(|node| !nodes.holds(node, key));
    assert!(is_free("a") && is_free("b"));
}

/// Polls a future once, outside of any runtime.
fn by_hand<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut cx) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("the future waits for a runtime that does not exist"),
    }
}

#[test]
fn without_a_runtime_there_is_an_error_and_no_panic() {
    let locks = LockManager::in_memory(3);
    let is_no_runtime = |outcome: Result<Guard, Error>| matches!(outcome, Err(Error::NoRuntime));
    assert!(is_no_runtime(by_hand(locks.acquire("a", TTL))));
    assert!(is_no_runtime(by_hand(locks.try_acquire("a", TTL))));
    assert!(is_no_runtime(by_hand(locks.acquire_timeout("a", TTL, TTL))));
    assert!(is_no_runtime(by_hand(locks.acquire_many(["a", "b"], TTL))));
    assert!(is_no_runtime(by_hand(locks.try_acquire_many(["a", "b"], TTL))));
    assert!(is_no_runtime(by_hand(locks.acquire_many_timeout(["a", "b"], TTL, TTL))));
    assert!(matches!(by_hand(locks.inspect("a")), Err(Error::NoRuntime)));
    let error = by_hand(locks.health()).expect_err("no runtime");
    assert!(
        matches!(error, Error::NoRuntime) && error.to_string().contains("call from a tokio runtime"),
        "{error}"
    );
    let work = locks.with_lock("a", TTL, async |_| Ok::<_, Error>(()));
    assert!(matches!(by_hand(work), Err(Error::NoRuntime)));
    by_hand(locks.flush());
}

#[test]
fn a_guard_outside_of_its_runtime_works_or_returns_no_runtime() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).build().expect("fine");
    let background = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let background = background.expect("a runtime");
    let mut guard = background.block_on(locks.acquire("a", TTL)).expect("free");
    assert!(guard.is_valid() && guard.held().is_valid());
    assert!(matches!(guard.keep_alive(TTL), Err(Error::NoRuntime)));
    assert!(matches!(guard.cancellation_token(), Err(Error::NoRuntime)));
    // After a refused attempt the call pauses, and there is no timer here.
    let (refused, is_refused) = std::sync::mpsc::channel();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
            let mut cx = Context::from_waker(&waker);
            let mut acquire = pin!(locks.acquire("a", TTL));
            let outcome = loop {
                match acquire.as_mut().poll(&mut cx) {
                    Poll::Ready(outcome) => break outcome,
                    Poll::Pending => std::thread::park_timeout(Duration::from_secs(20)),
                }
            };
            refused.send(outcome.map(drop)).expect("the test waits for the outcome");
        });
    });
    let refused = is_refused.recv().expect("an answer");
    assert!(matches!(refused, Err(Error::NoRuntime)), "{refused:?}");
    drop(guard);
    background.block_on(locks.flush());
    assert!(
        (0..3).all(|node| !nodes.holds(node, "a")),
        "a drop outside of the runtime releases the lock through the driver"
    );
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: std::sync::Arc<Self>) {
        self.0.unpark();
    }
}

#[tokio::test]
async fn two_managers_are_two_clients() {
    let nodes = MemoryNodes::new(5);
    let manager = || LockManager::builder().memory(&nodes).build().expect("fine");
    let (alice, bob) = (manager(), manager());
    let guard = alice.acquire("a", TTL).await.expect("free");
    assert!(matches!(bob.try_acquire("a", TTL).await, Err(Error::Contended(_))));
    drop(bob.acquire("b", TTL).await.expect("another lock"));
    guard.release().await;
    assert_eq!(bob.try_acquire("a", TTL).await.expect("free").fence(), 2);
}

#[tokio::test]
async fn no_owner_is_printed() {
    let nodes = MemoryNodes::new(3);
    let builder = LockManager::builder().memory(&nodes).label("me");
    let locks = builder.clone().build().expect("fine");
    let guard = locks.acquire("a", TTL).await.expect("free");
    let refused = locks.try_acquire("a", TTL).await.expect_err("held");
    let mut printed = format!("{builder:?} {locks:?} {guard:?} {:?} {refused:?} {refused}", guard.held());
    printed += &format!("{:?} {:?}", locks.inspect("a").await, locks.health().await);
    printed += &format!("{nodes:?}");
    // The error of a lost lock contains more text.
    (0..2).for_each(|node| assert!(nodes.delete(node, "a")));
    let lost = guard.extend().await.expect_err("lost");
    printed += &format!("{lost:?} {lost}");
    let detached = guard.detach();
    printed += &format!("{detached:?} {:?}", detached.owner);
    let report = locks.acquire("b", TTL).await.expect("free").release().await;
    printed += &format!("{report:?} {report}");
    let owner = detached.owner.expose();
    assert_eq!(owner.len(), 32);
    assert!(!printed.contains(&owner), "{printed}");
    // The owner is not printed as a list of numbers either: the bytes of the text, or of the secret itself.
    let spelled: Vec<u8> = (0..owner.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&owner[at..at + 2], 16).expect("hexadecimal"))
        .collect();
    for bytes in [owner.as_bytes(), &spelled] {
        let numbers = format!("{bytes:?}");
        assert!(!printed.contains(numbers.trim_matches(['[', ']'])), "printed as numbers");
    }
}
