//! Shared locks: readers together, writers alone, in the order of the queue.

use crate::common::{LEASE, TTL, manager};
use crate::futures_poll;
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, Guard, LockManager, LockStatus, LostReason, blocking};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::advance;

/// Starts an acquire, and waits until its requests have reached the nodes.
async fn queue(locks: &LockManager, is_shared: bool) -> JoinHandle<Result<Guard, Error>> {
    let locks = locks.clone();
    let waiting = tokio::spawn(async move {
        if is_shared { locks.acquire_shared("job", TTL).await } else { locks.acquire("job", TTL).await }
    });
    advance(Duration::from_millis(1)).await;
    waiting
}

async fn granted(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    waiting.await.expect("no panic").expect("the lock is handed over")
}

#[tokio::test(start_paused = true)]
async fn readers_hold_a_lock_together_and_exclude_writers() {
    let nodes = MemoryNodes::new(5);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let one = alice.acquire_shared("job", TTL).await.expect("free");
    let two = bob.try_acquire_shared("job", TTL).await.expect("shared");
    assert!(one.is_shared() && two.is_shared() && one.is_valid());
    assert_eq!((one.fence(), two.fence(), two.remaining()), (1, 1, LEASE));
    let refused = bob.try_acquire("job", TTL).await.expect_err("two readers hold it");
    assert!(matches!(refused, Error::Contended(_)), "{refused}");

    let LockStatus::Held(info) = alice.inspect("job").await.expect("a name").status else { panic!("held") };
    assert!(info.is_shared && info.holders.len() == 2, "{info:?}");

    assert!(one.release().await.is_free_on_a_majority());
    assert!(alice.try_acquire("job", TTL).await.is_err(), "one reader is left");
    two.release().await;
    let writer = alice.try_acquire("job", TTL).await.expect("all readers have left");
    assert_eq!((writer.fence(), writer.is_shared()), (2, false));
    assert!(bob.try_acquire_shared("job", TTL).await.is_err(), "a writer holds it");
    writer.release().await;
    assert_eq!(bob.acquire_shared("job", TTL).await.expect("free again").fence(), 3);
}

#[tokio::test(start_paused = true)]
async fn readers_do_not_overtake_a_writer_and_follow_it_together() {
    let locks = LockManager::in_memory(5);
    let first = locks.acquire_shared("job", TTL).await.expect("free");
    let writer = queue(&locks, false).await;
    let late: Vec<_> = [queue(&locks, true).await, queue(&locks, true).await].into();
    let last = queue(&locks, false).await;
    assert!(locks.try_acquire_shared("job", TTL).await.is_err(), "a writer waits");
    assert!(!writer.is_finished() && late.iter().all(|reader| !reader.is_finished()));

    first.release().await;
    let writer = granted(writer).await;
    assert!(late.iter().all(|reader| !reader.is_finished()), "the writer is alone");
    let before = writer.fence();
    writer.release().await;
    let mut readers = Vec::new();
    for reader in late {
        readers.push(granted(reader).await);
    }
    assert!(readers.iter().all(|reader| reader.is_valid() && reader.fence() > before), "{readers:?}");
    assert!(!last.is_finished(), "the second writer waits for both readers");
    let largest = readers.iter().map(Guard::fence).max().unwrap_or(0);
    for reader in readers {
        reader.release().await;
    }
    assert!(granted(last).await.fence() > largest);
}

/// The nodes count on their own: reader and writer get fences from majorities that share one node only.
#[tokio::test(start_paused = true)]
async fn fences_of_writers_and_readers_increase_although_nodes_differ() {
    let nodes = MemoryNodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let mut largest = 0;
    for round in 0..12 {
        let down = round % 3;
        nodes.silence(down);
        let (one, two) = if round % 2 == 0 {
            let first = alice.acquire_shared("job", TTL).await.expect("two of three");
            nodes.revive(down);
            nodes.silence((down + 1) % 3);
            (first, Some(bob.acquire_shared("job", TTL).await.expect("two of three")))
        } else {
            (bob.acquire("job", TTL).await.expect("two of three"), None)
        };
        assert!(one.fence() > largest, "{one:?} after {largest}");
        assert!(two.iter().all(|two| two.fence() > largest), "{two:?} after {largest}");
        largest = two.as_ref().map_or(0, Guard::fence).max(one.fence());
        (0..3).for_each(|node| nodes.revive(node));
        one.release().await;
        if let Some(two) = two {
            two.release().await;
        }
        alice.flush().await;
        bob.flush().await;
        advance(TTL * 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_shared_lock_is_extended_lost_and_left_behind_like_an_exclusive_one() {
    let nodes = MemoryNodes::new(3);
    let (alice, bob) = (manager(&nodes), manager(&nodes));
    let mut kept = alice.acquire_shared("job", TTL).await.expect("free");
    let left = bob.acquire_shared("job", TTL).await.expect("shared");
    kept.keep_alive(TTL * 4).expect("a runtime");
    assert_eq!(left.lost().await, LostReason::Expired, "no task extends it");
    assert!(kept.is_valid(), "the lease of one reader does not end with that of another");
    drop(left);
    (0..3).for_each(|node| assert!(nodes.delete(node, "job")));
    assert_eq!(kept.lost().await, LostReason::Gone);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_reader_leaves_nothing_behind() {
    let locks = LockManager::in_memory(5);
    let writer = locks.acquire("job", TTL).await.expect("free");
    {
        let mut waiting = std::pin::pin!(locks.acquire_shared("job", TTL));
        assert!(futures_poll(waiting.as_mut()).await.is_none(), "a writer holds it");
        advance(Duration::from_millis(1)).await;
    }
    locks.flush().await;
    writer.release().await;
    assert!(locks.try_acquire("job", TTL).await.is_ok(), "no reader is queued");
    let late = locks.acquire_shared_timeout("job", TTL, Duration::from_millis(50)).await;
    drop(late.expect("free again"));
    let _writer = locks.acquire("job", TTL).await.expect("free again");
    let late = locks.acquire_shared_timeout("job", TTL, Duration::from_millis(50)).await;
    assert!(matches!(&late, Err(Error::Timeout { .. })), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn another_process_extends_and_releases_a_shared_lock() {
    let nodes = MemoryNodes::new(3);
    let (here, there) = (manager(&nodes), manager(&nodes));
    // Attempts without a majority leave larger fences on the last node.
    (0..2).for_each(|node| nodes.silence(node));
    for _ in 0..3 {
        there.try_acquire("job", TTL).await.expect_err("one of three nodes");
    }
    there.flush().await;
    (0..2).for_each(|node| nodes.revive(node));
    nodes.silence(2);
    let given = here.acquire_shared("job", TTL).await.expect("free").detach();
    assert!(given.is_shared);
    // Another reader needs that node, and raises the fence of all readers.
    nodes.revive(2);
    nodes.silence(0);
    let raiser = there.acquire_shared("job", TTL).await.expect("shared");
    assert!(raiser.fence() > given.fence, "{raiser:?}");
    nodes.revive(0);
    let lock = there.detached_shared("job", given.owner, given.fence).expect("a name");
    advance(TTL / 2).await;
    there.extend_detached(&lock, TTL).await.expect("still held");
    raiser.release().await;
    advance(TTL - Duration::from_secs(1)).await;
    assert!(here.try_acquire("job", TTL).await.is_err(), "the extension holds");
    assert!(there.release_detached(&lock).await.expect("a runtime").was_held());
    assert!(here.try_acquire("job", TTL).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_a_shared_lock() {
    let locks = LockManager::in_memory(5);
    let nested = locks
        .with_shared_lock("job", TTL, async |outer| {
            let wait = Duration::from_millis(50);
            let inner = locks
                .with_shared_lock_timeout("job", TTL, wait, async |inner| Ok::<_, Error>(inner.fence()))
                .await?;
            Ok::<_, Error>((outer.fence(), inner))
        })
        .await;
    assert_eq!(nested.expect("readers share it"), (1, 1));
    let writer = locks.acquire("job", TTL).await.expect("free");
    let skipped = locks.try_with_shared_lock("job", TTL, async |_| Ok::<_, Error>(())).await;
    assert_eq!(skipped.expect("not an error"), None);
    writer.release().await;
    let ran = locks.try_with_shared_lock("job", TTL, async |_| Ok::<_, Error>(())).await;
    assert_eq!(ran.expect("free"), Some(()));
}

#[test]
fn threads_share_a_lock_without_a_runtime() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).build_blocking().expect("nodes in memory are enough");
    let readers: Vec<blocking::Guard> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..4).map(|_| scope.spawn(|| locks.acquire_shared("job", TTL).expect("shared"))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert!(readers.iter().all(|reader| reader.is_valid() && reader.is_shared()));
    assert!(locks.try_acquire("job", TTL).is_err());
    drop(readers);
    let wait = Duration::from_secs(5);
    let writer = locks.acquire_timeout("job", TTL, wait).expect("all readers have left");
    assert!(locks.try_acquire_shared("job", TTL).is_err());
    let skipped = locks.try_with_shared_lock("job", TTL, |_| Ok::<_, Error>(()));
    assert_eq!(skipped.expect("not an error"), None);
    writer.release();
    let given = locks.acquire_shared_timeout("job", TTL, wait).expect("free").detach();
    let lock = locks.detached_shared("job", given.owner, given.fence).expect("a name");
    locks.extend_detached(&lock, TTL).expect("still held");
    assert!(locks.release_detached(&lock).expect("a runtime").was_held());
    let worked = locks.with_shared_lock("job", TTL, |held| Ok::<_, Error>(held.is_valid()));
    assert!(worked.expect("free"));
    let worked = locks.with_shared_lock_timeout("job", TTL, wait, |held| Ok::<_, Error>(held.is_valid()));
    assert!(worked.expect("free"));
}
