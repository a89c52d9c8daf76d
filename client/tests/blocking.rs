//! The blocking API, outside and inside an async runtime.

#![cfg(feature = "blocking")]
#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_client::blocking::{Guard, LockManager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockHandle, LostReason, Retry, Vote};
use std::cell::RefCell;
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any test, so that no lock expires.
const TTL: Duration = Duration::from_secs(600);
/// A deadline that is long enough on a busy machine. No test waits for all of it.
const SOON: Duration = Duration::from_secs(20);

fn manager(nodes: &MemoryNodes) -> LockManager {
    redlock_client::LockManager::builder().memory(nodes).build_blocking().expect("nodes in memory are enough")
}

fn is_free(nodes: &MemoryNodes, key: &str) -> bool {
    (0..nodes.len()).all(|node| !nodes.holds(node, key))
}

/// Polls until the condition holds.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < end, "timed out waiting until {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Deletes a lock on a majority, as an administrator would.
fn break_open(nodes: &MemoryNodes, key: &str) {
    for node in 0..nodes.len() / 2 + 1 {
        assert!(nodes.delete(node, key));
    }
}

#[test]
fn a_lock_is_held_by_one_at_a_time() {
    let nodes = MemoryNodes::new(5);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let guard = alice.acquire("job", TTL).expect("free");
    assert_eq!((guard.fence(), guard.ttl()), (1, TTL));
    assert_eq!(guard.resources().collect::<Vec<_>>(), [b"job"]);
    assert!(guard.is_valid() && guard.held().is_valid() && guard.remaining() <= TTL);
    let refused = bob.try_acquire("job", TTL).expect_err("it is held");
    assert!(matches!(refused, Error::Contended(_)), "{refused}");
    let report = guard.release();
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
    assert_eq!(bob.try_acquire("job", TTL).expect("free again").fence(), 2);
}

#[test]
fn a_lock_is_free_for_the_next_call_after_its_guard_is_dropped() {
    let locks = manager(&MemoryNodes::new(3));
    for _ in 0..100 {
        drop(locks.try_acquire("job", TTL).expect("the previous drop has released the lock"));
    }
}

#[test]
fn acquire_waits_for_another_thread() {
    let locks = manager(&MemoryNodes::new(5));
    let guard = locks.acquire("job", TTL).expect("free");
    let (tried, was_tried) = mpsc::channel();
    thread::scope(|threads| {
        let waiting = threads.spawn(|| {
            tried.send(locks.try_acquire("job", TTL).is_err()).expect("the test waits for this message");
            locks.acquire_timeout("job", TTL, SOON)
        });
        assert!(was_tried.recv_timeout(SOON).expect("the outcome of the attempt"));
        guard.release();
        assert_eq!(waiting.join().expect("no panic").expect("acquired after a wait").fence(), 2);
    });
}

#[test]
fn a_timeout_error_has_the_answers_of_the_nodes() {
    let locks = manager(&MemoryNodes::new(3));
    let _guard = locks.acquire("a", TTL).expect("free");
    let wait = Duration::from_millis(50);
    for error in [
        locks.acquire_timeout("a", TTL, wait).expect_err("held"),
        locks.acquire_many_timeout(["a", "b"], TTL, wait).expect_err("held"),
    ] {
        assert!(matches!(&error, Error::Timeout { waited, .. } if *waited == wait), "{error:?}");
        assert!(error.nodes().iter().any(|answer| answer.vote == Vote::Refused), "{error}");
    }
}

#[test]
fn several_resources_are_taken_together_or_not_at_all() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let one = locks.acquire("b", TTL).expect("free");
    assert!(matches!(locks.try_acquire_many(["c", "b", "a"], TTL), Err(Error::Contended(_))));
    locks.flush();
    assert!(is_free(&nodes, "a") && is_free(&nodes, "c"), "the refused call left no lock");
    one.release();
    let all = locks.acquire_many(["c", "b", "a"], TTL).expect("all free");
    assert_eq!(all.resources().collect::<Vec<_>>(), [b"a", b"b", b"c"]);
    all.extend().expect("held");
    all.release();
    assert!(["a", "b", "c"].iter().all(|key| is_free(&nodes, key)));
}

#[test]
fn bad_arguments_are_refused() {
    let locks = manager(&MemoryNodes::new(3));
    assert!(matches!(locks.acquire("", TTL), Err(Error::Invalid(_))));
    assert!(matches!(locks.acquire("job", Duration::ZERO), Err(Error::Invalid(_))));
    assert!(matches!(locks.inspect(""), Err(Error::Invalid(_))));
    let guard = locks.acquire("job", TTL).expect("free");
    assert!(matches!(guard.extend_to(Duration::ZERO), Err(Error::Invalid(_))));
    assert_eq!(guard.ttl(), TTL, "the refused extension changed nothing");
}

#[test]
fn an_extension_extends_the_lock_or_returns_the_reason() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).expect("free");
    assert!(guard.extend_to(TTL * 2).expect("held") > TTL);
    assert_eq!(guard.ttl(), TTL * 2);
    assert!(guard.extend().expect("held") > TTL);
    (0..2).for_each(|node| nodes.silence(node));
    assert!(matches!(guard.extend(), Err(Error::NoQuorum(_))));
    assert!(guard.is_valid(), "the failed extension leaves the validity as it was");
    (0..2).for_each(|node| nodes.revive(node));
    break_open(&nodes, "job");
    assert!(matches!(guard.extend(), Err(Error::Lost { reason: LostReason::Gone, .. })));
    assert!(!guard.is_valid());
}

#[test]
fn wait_lost_returns_the_loss_or_times_out() {
    let locks = manager(&MemoryNodes::new(3));
    let guard = locks.acquire("long", TTL).expect("free");
    assert_eq!(guard.wait_lost(Duration::from_millis(10)), None);
    assert!(guard.is_valid());
    let guard = locks.acquire("short", Duration::from_millis(50)).expect("free");
    assert_eq!(guard.wait_lost(SOON), Some(LostReason::Expired));
    assert!(!guard.is_valid() && !guard.release().was_held());
}

#[test]
fn a_lock_is_kept_alive_in_the_background() {
    let locks = manager(&MemoryNodes::new(5));
    let mut guard = locks.acquire("job", Duration::from_secs(3)).expect("free");
    guard.keep_alive(TTL).expect("a thread");
    let extensions =
        || locks.inspect("job").expect("answers of the nodes").lock().map(|lock| lock.extensions);
    eventually("the lock has been extended", || extensions().is_some_and(|extensions| extensions > 0));
    assert!(guard.is_valid());
}

#[test]
fn the_variants_of_with_lock_try_once_wait_and_lock_several() {
    let nodes = MemoryNodes::new(3);
    let (locks, others) = (manager(&nodes), manager(&nodes));
    let fence = |held: LockHandle| Ok::<_, Error>(held.fence());
    let no_work = |_: LockHandle| -> Result<(), Error> { panic!("the work must not start") };
    assert_eq!(locks.try_with_lock("job", TTL, fence).expect("free"), Some(1));
    let other = others.acquire("job", TTL).expect("free");
    assert_eq!(locks.try_with_lock("job", TTL, no_work).expect("no error"), None);
    let late = locks.with_lock_timeout("job", TTL, Duration::from_millis(10), no_work);
    assert!(matches!(late, Err(Error::Timeout { .. })), "{late:?}");
    other.release();
    assert_eq!(locks.with_lock_timeout("job", TTL, SOON, fence).expect("free"), 3);
    let both = locks.with_lock_many(["job", "job:2"], TTL, |_| {
        Ok::<_, Error>(["job", "job:2"].iter().all(|key| nodes.holds(0, key)))
    });
    assert!(both.expect("free"));
    assert!(is_free(&nodes, "job") && is_free(&nodes, "job:2"));
}

#[test]
fn with_lock_runs_the_work_and_releases_the_lock() {
    let nodes = MemoryNodes::new(5);
    let locks = manager(&nodes);
    let done = locks.with_lock("job", TTL, |held| {
        assert!(held.is_valid() && nodes.holds(0, "job"));
        Ok::<_, Error>(held.fence() + 41)
    });
    assert_eq!(done.expect("the work succeeds"), 42);
    assert!(is_free(&nodes, "job"));
}

/// The error of the work: from the lock, or its own.
#[derive(Debug)]
enum Outcome {
    Lock(Error),
    Own,
}

impl From<Error> for Outcome {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

#[test]
fn work_that_ends_after_the_loss_of_its_lock_fails() {
    let nodes = MemoryNodes::new(5);
    let locks = manager(&nodes);
    let outlive = |held: &LockHandle| {
        break_open(&nodes, "job");
        eventually("the client detects the loss", || !held.is_valid());
    };
    let ttl = Duration::from_secs(2);
    let late = locks.with_lock("job", ttl, |held| {
        outlive(&held);
        Ok::<_, Outcome>(())
    });
    let is_lost =
        |outcome| matches!(outcome, Err(Outcome::Lock(Error::Lost { reason: LostReason::Gone, .. })));
    assert!(is_lost(late), "work that ends without its lock must fail");
    let failed = locks.with_lock("job", ttl, |held| {
        outlive(&held);
        Err::<(), _>(Outcome::Own)
    });
    assert!(matches!(failed, Err(Outcome::Own)), "the error of the work has priority");
}

#[test]
fn work_that_panics_leaves_no_lock_behind() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let work = || locks.with_lock("job", TTL, |_| -> Result<(), Error> { panic!("on purpose") });
    assert!(catch_unwind(AssertUnwindSafe(work)).is_err());
    locks.flush();
    assert!(is_free(&nodes, "job"));
}

#[test]
fn a_detached_lock_stays_held_until_its_release() {
    let nodes = MemoryNodes::new(3);
    let guard = manager(&nodes).acquire("job", TTL).expect("free");
    let detached = guard.detach();
    assert_eq!((detached.fence, &detached.keys), (1, &vec![b"job".to_vec()]));
    assert!(nodes.holds(0, "job"));
    // Another manager that knows the owner extends and releases the lock.
    let locks = manager(&nodes);
    let lock = locks.detached("job", detached.owner, detached.fence).expect("a name");
    assert!(locks.extend_detached(&lock, 2 * TTL).expect("held") > TTL);
    assert!(locks.release_detached(&lock).expect("a thread").is_free_on_a_majority());
    assert!(is_free(&nodes, "job"));
    assert!(matches!(locks.extend_detached(&lock, TTL), Err(Error::Lost { .. })));
}

#[test]
fn health_and_inspect_return_the_state_of_the_nodes() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let guard = locks.acquire("job", TTL).expect("free");
    let inspection = locks.inspect("job").expect("answers of the nodes");
    assert_eq!(inspection.lock().map(|lock| lock.fence), Some(1));
    assert!(locks.health().expect("answers of the nodes").can_grant());
    (0..2).for_each(|node| nodes.silence(node));
    assert!(!locks.health().expect("answers of the nodes").can_grant());
    drop(guard);
}

#[test]
fn dropping_the_last_manager_waits_for_the_releases() {
    for _ in 0..50 {
        let nodes = MemoryNodes::new(5);
        let locks = manager(&nodes);
        let other = locks.clone();
        drop(locks.acquire("job", TTL).expect("free"));
        drop(locks);
        drop(other);
        assert!(is_free(&nodes, "job"));
    }
}

/// A manager and a witness. The manager's settings own the second reference to the witness.
fn with_witness(nodes: &MemoryNodes) -> (LockManager, Arc<()>) {
    let witness = Arc::new(());
    let inner = Arc::clone(&witness);
    let retry = Retry::custom(move |_| {
        let _inner = &inner;
        None
    });
    let builder = redlock_client::LockManager::builder().memory(nodes).retry(retry);
    (builder.build_blocking().expect("nodes in memory are enough"), witness)
}

#[test]
fn a_guard_works_without_its_manager_and_the_background_thread_ends_with_both() {
    let nodes = MemoryNodes::new(5);
    let (locks, witness) = with_witness(&nodes);
    let mut guard = locks.acquire("job", TTL).expect("free");
    drop(locks);
    guard.keep_alive(TTL).expect("a thread");
    guard.extend().expect("the guard works without its manager");
    assert!(Arc::strong_count(&witness) > 1);
    drop(guard);
    eventually("the lock is free", || is_free(&nodes, "job"));
    eventually("the background thread has ended", || Arc::strong_count(&witness) == 1);
}

/// Calls every blocking method, and drops guards and a manager.
fn use_everything(nodes: &MemoryNodes) {
    let locks = manager(nodes);
    let mut guard = locks.acquire("job", TTL).expect("free");
    guard.keep_alive(TTL).expect("a thread");
    guard.extend().expect("held");
    assert_eq!(guard.wait_lost(Duration::ZERO), None);
    assert!(locks.try_acquire("job", TTL).is_err());
    assert!(locks.acquire_timeout("job", TTL, Duration::from_millis(1)).is_err());
    assert!(locks.inspect("job").expect("answers of the nodes").is_held());
    assert!(locks.health().expect("answers of the nodes").can_grant());
    guard.release();
    locks.with_lock("job", TTL, |_| Ok::<_, Error>(())).expect("free");
    drop(locks.acquire_many(["a", "b"], TTL).expect("free"));
    locks.flush();
    let guard: Guard = locks.acquire("last", TTL).expect("free");
    drop(locks);
    drop(guard);
}

#[test]
fn nothing_panics_inside_a_runtime_of_one_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let nodes = MemoryNodes::new(3);
    runtime.block_on(async { use_everything(&nodes) });
    eventually("the last lock is free", || is_free(&nodes, "last"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nothing_panics_inside_tasks() {
    for _ in 0..3 {
        let nodes = MemoryNodes::new(3);
        let task = tokio::spawn(async move { use_everything(&nodes) });
        task.await.expect("no panic in a task");
        let nodes = MemoryNodes::new(3);
        let task = tokio::task::spawn_blocking(move || use_everything(&nodes));
        task.await.expect("no panic in a blocking task");
    }
}

/// The driver of the async manager cannot run while this test blocks the only thread.
#[tokio::test]
async fn a_blocking_manager_does_not_need_the_driver_of_its_async_manager() {
    let nodes = MemoryNodes::new(3);
    let locks =
        redlock_client::LockManager::builder().memory(&nodes).key_prefix("app:").build().expect("fine");
    let guard = locks.acquire("job", TTL).await.expect("free");
    let blocking = LockManager::new(locks.clone()).expect("a thread");
    assert!(matches!(blocking.try_acquire("job", TTL), Err(Error::Contended(_))));
    let other = blocking.acquire("other", TTL).expect("free");
    assert!(nodes.holds(0, "app:other"), "the blocking manager has the same key prefix");
    other.release();
    guard.release().await;
}

#[test]
fn a_hung_node_does_not_block_the_drop_of_a_manager() {
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = silent.local_addr().expect("bound").port();
    let (done, is_done) = mpsc::channel();
    thread::spawn(move || {
        let locks = redlock_client::LockManager::builder()
            .nodes([format!("redis://127.0.0.1:{port}")])
            .node_timeout(Duration::from_millis(20))
            .connect_timeout(TTL)
            .build_blocking()
            .expect("fine");
        // Connecting may take longer than this test waits, and so may the release of this attempt.
        let error = locks
            .acquire_timeout("job", TTL, Duration::from_millis(20))
            .expect_err("the node does not answer");
        drop(locks);
        done.send(error).expect("the test waits for this message");
    });
    let error = is_done.recv_timeout(SOON).expect("the drop returns while the node hangs");
    assert!(matches!(error, Error::Timeout { .. }), "{error}");
}

thread_local! {
    static KEPT: RefCell<Option<(Guard, LockManager)>> = const { RefCell::new(None) };
}

#[test]
fn a_guard_in_a_thread_local_is_released_when_the_thread_ends() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let keeper = thread::spawn(move || {
        let guard = locks.acquire("job", TTL).expect("free");
        KEPT.with(|kept| kept.replace(Some((guard, locks))));
    });
    keeper.join().expect("no panic");
    eventually("the lock is free", || is_free(&nodes, "job"));
}

#[test]
fn many_threads_share_a_manager() {
    let locks = manager(&MemoryNodes::new(5));
    let count = Mutex::new(0);
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..5 {
                    let guard = locks.acquire_timeout("count", TTL, SOON).expect("acquired after a wait");
                    *count.try_lock().expect("no other thread holds the lock") += 1;
                    guard.release();
                }
            });
        }
    });
    assert_eq!(count.into_inner().expect("no panic"), 40);
}

#[test]
fn no_owner_is_printed() {
    let locks = manager(&MemoryNodes::new(3));
    let guard = locks.acquire("job", TTL).expect("free");
    let printed = format!("{guard:?} {locks:?}");
    let owner = guard.detach().owner;
    assert!(printed.contains("job") && !printed.contains(&owner.expose()), "{printed}");
}
