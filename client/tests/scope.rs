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
    let sign = Dropped(Arc::clone(&was_dropped));
    let started = Instant::now();
    let cut = nodes.clone();
    let outcome: Result<(), JobError> = locks
        .with_lock("job", TTL, |_held| async move {
            let _sign = sign;
            (0..3).for_each(|node| cut.silence(node));
            std::future::pending().await
        })
        .await;
    assert!(matches!(outcome, Err(JobError::Lock(Error::Lost { .. }))), "{outcome:?}");
    assert!(was_dropped.load(Ordering::SeqCst));
    assert!(started.elapsed() < TTL, "before anybody else could have it: {:?}", started.elapsed());
    assert!(nodes.holds(0, "job"), "indeed nobody could");
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
    let error = late.await.expect_err("its success is not to be believed");
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
        locks.with_lock("job", TTL, async |_held| panic!("nobody may work here")).await;
    assert!(matches!(outcome, Err(Error::Contended(_))), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn dropping_the_call_stops_the_work_and_frees_the_lock() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let was_dropped = Arc::new(AtomicBool::new(false));
    let sign = Dropped(Arc::clone(&was_dropped));
    let call = locks.with_lock("job", TTL, |_held| async move {
        let _sign = sign;
        std::future::pending::<Result<(), Error>>().await
    });
    let timed_out = tokio::time::timeout(TTL * 2, call).await;
    assert!(timed_out.is_err() && was_dropped.load(Ordering::SeqCst));
    locks.flush().await;
    assert!((0..3).all(|node| !nodes.holds(node, "job")));
}
