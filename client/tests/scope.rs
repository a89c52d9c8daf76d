//! Work under a lock: `with_lock`.

#![allow(clippy::expect_used)]

mod common;

use common::{TTL, manager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager, LostReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

#[derive(Debug)]
enum JobError {
    OutOfPaper,
    Lock(Error),
}

impl From<Error> for JobError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

/// Records its drop.
struct Dropped(Arc<AtomicBool>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn the_lock_is_kept_while_the_work_goes_on_and_freed_after_it() {
    let nodes = MemoryNodes::new(5);
    let locks = manager(&nodes);
    let fence = locks
        .with_lock("job", TTL, async |held| {
            sleep(TTL * 7).await;
            assert!(held.is_valid() && nodes.holds(0, "job"));
            Ok::<_, Error>(held.fence())
        })
        .await
        .expect("the work succeeds");
    assert_eq!(fence, 1);
    assert!((0..5).all(|node| !nodes.holds(node, "job")));
}

#[tokio::test(start_paused = true)]
async fn the_error_of_the_work_comes_first() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    // The release fails too: the error of the work must still be returned.
    let outcome = locks
        .with_lock("job", TTL, async |_held| {
            (0..3).for_each(|node| nodes.silence(node));
            Err::<(), _>(JobError::OutOfPaper)
        })
        .await;
    assert!(matches!(outcome, Err(JobError::OutOfPaper)), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn work_is_dropped_in_time_when_the_lock_is_lost() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let was_dropped = Arc::new(AtomicBool::new(false));
    let on_drop = Dropped(Arc::clone(&was_dropped));
    let started = Instant::now();
    let cut = nodes.clone();
    let outcome: Result<(), JobError> = locks
        .with_lock("job", TTL, |_held| async move {
            let _on_drop = on_drop;
            (0..3).for_each(|node| cut.silence(node));
            std::future::pending().await
        })
        .await;
    assert!(matches!(outcome, Err(JobError::Lock(Error::Lost { .. }))), "{outcome:?}");
    assert!(was_dropped.load(Ordering::SeqCst));
    assert!(
        started.elapsed() < TTL,
        "the work stops before another client can acquire the lock: {:?}",
        started.elapsed()
    );
    assert!(nodes.holds(0, "job"), "the nodes still hold the lock");
}

#[tokio::test(flavor = "multi_thread")]
async fn work_that_blocks_its_thread_learns_why_its_lock_was_lost() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    // The first extension, after a third of the lease, finds the loss.
    let ttl = Duration::from_secs(2);
    let late = locks.with_lock("job", ttl, async |held| {
        (0..3).for_each(|node| assert!(nodes.delete(node, "job")));
        // The client cannot drop the work while it blocks the thread.
        while held.is_valid() {
            std::thread::yield_now();
        }
        Ok::<_, Error>(())
    });
    let error = late.await.expect_err("work that ends without its lock must fail");
    assert!(matches!(error, Error::Lost { reason: LostReason::Gone, .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn work_that_never_ends_is_stopped_at_the_bound() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).max_hold(TTL * 3).build().expect("fine");
    let started = Instant::now();
    let outcome: Result<(), Error> =
        locks.with_lock("job", TTL, async |_held| std::future::pending().await).await;
    assert!(matches!(outcome, Err(Error::Lost { .. })), "{outcome:?}");
    assert!(started.elapsed() <= TTL * 4, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn without_the_lock_the_work_does_not_begin() {
    let locks = LockManager::in_memory(3);
    let _held = locks.acquire("job", TTL).await.expect("free");
    let outcome: Result<(), Error> =
        locks.with_lock("job", TTL, async |_held| panic!("the work must not start")).await;
    assert!(matches!(outcome, Err(Error::Contended(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_is_skipped_while_another_client_does_it() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let ran = locks.try_with_lock("job", TTL, async |held| {
        // The client extends this lock too.
        sleep(TTL * 7).await;
        assert!(held.is_valid() && nodes.holds(0, "job"));
        Ok::<_, JobError>(held.fence())
    });
    assert!(matches!(ran.await, Ok(Some(1))));
    assert!(!nodes.holds(0, "job"));
    let failed = locks.try_with_lock("job", TTL, async |_held| Err::<(), _>(JobError::OutOfPaper));
    assert!(matches!(failed.await, Err(JobError::OutOfPaper)));

    let other = manager(&nodes).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    let skipped: Result<Option<()>, JobError> =
        locks.try_with_lock("job", TTL, async |_held| panic!("the work must not start")).await;
    assert!(matches!(skipped, Ok(None)), "{skipped:?}");
    assert_eq!(started.elapsed(), Duration::ZERO, "the call does not wait");
    other.release().await;

    // Only a held lock is a reason to skip.
    (0..2).for_each(|node| nodes.silence(node));
    let outage: Result<Option<()>, JobError> =
        locks.try_with_lock("job", TTL, async |_held| panic!("the work must not start")).await;
    assert!(matches!(outage, Err(JobError::Lock(Error::NoQuorum(_)))), "{outage:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_for_the_lock_only_as_long_as_it_may() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let other = manager(&nodes).acquire("job", TTL).await.expect("free");
    let started = Instant::now();
    let wait = TTL / 4;
    let late: Result<(), Error> =
        locks.with_lock_timeout("job", TTL, wait, async |_held| panic!("the work must not start")).await;
    assert!(matches!(late, Err(Error::Timeout { waited, .. }) if waited == wait), "{late:?}");
    assert_eq!(started.elapsed(), wait);
    other.release().await;
    let done = locks.with_lock_timeout("job", TTL, wait, async |held| {
        // The time of the work does not count.
        sleep(wait * 9).await;
        Ok::<_, Error>(held.is_valid())
    });
    assert!(done.await.expect("free"));
}

#[tokio::test(start_paused = true)]
async fn several_locks_are_held_during_the_work() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let keys = ["job:1", "job:2"];
    let holds = |key: &str| (0..3).all(|node| nodes.holds(node, key));
    locks
        .with_lock_many(keys, TTL, async |held| {
            sleep(TTL * 3).await;
            assert!(held.is_valid() && keys.into_iter().all(holds));
            Ok::<_, Error>(())
        })
        .await
        .expect("free");
    assert!(!keys.into_iter().any(holds));
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_stops_the_work_and_frees_the_lock() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let was_dropped = Arc::new(AtomicBool::new(false));
    let on_drop = Dropped(Arc::clone(&was_dropped));
    let call = locks.with_lock("job", TTL, |_held| async move {
        let _on_drop = on_drop;
        std::future::pending::<Result<(), Error>>().await
    });
    let timed_out = tokio::time::timeout(TTL * 2, call).await;
    assert!(timed_out.is_err() && was_dropped.load(Ordering::SeqCst));
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}
