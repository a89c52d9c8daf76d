//! Slots that move, and masters that are replaced: a lock is where its key is.

use crate::client::TTL;
use crate::{alone, first_failure, holders, until_nothing_is_held};
use redlock_client::{Error, FailureKind, Node};
use redlock_tests::{Cluster, SOON, in_time};

#[tokio::test]
async fn a_held_lock_is_followed_where_its_slot_goes() {
    let cluster = Cluster::start(3);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let key = cluster.key(0, "lock");
    let guard = manager.try_acquire(&key, TTL).await.expect("a free lock");
    let fence = guard.fence();
    let extensions = async || {
        let inspection = manager.inspect(&key).await.expect("a runtime");
        inspection.lock().map(|lock| lock.extensions)
    };
    cluster.announce_move(&key, 0, 2);
    guard.extend().await.expect("the key is still where it was");
    assert_eq!(extensions().await, Some(1));
    cluster.carry(&key, 0, 2);
    assert_eq!(holders(&cluster, &key), [], "neither serves it to those who do not know of the move");
    guard.extend().await.expect("the master where it was knows where it is");
    assert_eq!(extensions().await, Some(2));
    cluster.finish_move(&key, 2);
    guard.extend().await.expect("the slot has moved");
    assert_eq!(extensions().await, Some(3));
    assert_eq!(holders(&cluster, &key), [2]);
    assert_eq!(guard.fence(), fence);
    let report = guard.release().await;
    assert!(report.was_held() && report.is_free_on_a_majority(), "{report}");
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn a_free_lock_is_taken_where_its_slot_is_going() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let key = cluster.key(1, "lock");
    cluster.announce_move(&key, 1, 0);
    let first = manager.try_acquire(&key, TTL).await.expect("a free lock");
    let error = manager.try_acquire(&key, TTL).await.expect_err("a lock that is held");
    assert!(matches!(error, Error::Contended(_)), "{error}");
    cluster.finish_move(&key, 0);
    assert_eq!(holders(&cluster, &key), [0]);
    first.release().await;
    let second = manager.try_acquire(&key, TTL).await.expect("a free lock");
    assert_eq!(holders(&cluster, &key), [0]);
    second.release().await;
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn several_resources_wait_for_their_slot_to_arrive() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let tag = cluster.key(0, "job");
    let names = ["x", "y"].map(|name| format!("{{{tag}}}:{name}"));
    cluster.announce_move(&tag, 0, 1);
    // Either master would grant one that it cannot see the other half of: both say so, again and again.
    let error = manager.try_acquire_many(&names, TTL).await.expect_err("a slot that is on its way");
    let (kind, detail) = first_failure(&error);
    assert_eq!(kind, FailureKind::Rejected);
    assert!(detail.starts_with("TRYAGAIN"), "{detail}");
    cluster.finish_move(&tag, 1);
    let guard = manager.try_acquire_many(&names, TTL).await.expect("free locks");
    assert_eq!(holders(&cluster, &names[0]), [1]);
    guard.release().await;
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn a_cancelled_acquire_leaves_nothing_behind_while_slots_move() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let keys: Vec<String> = (0..16).map(|number| cluster.key(0, &format!("lock{number}-"))).collect();
    for (number, key) in keys.iter().enumerate() {
        match number % 3 {
            0 => cluster.announce_move(key, 0, 1),
            1 => cluster.finish_move(key, 1),
            _ => {}
        }
        let acquire = tokio::spawn({
            let (manager, key) = (manager.clone(), key.clone());
            async move { manager.acquire(key, TTL).await }
        });
        // Lets it get as far as it comes: to the first command, to the redirection, or to the lock.
        for _ in 0..number {
            tokio::task::yield_now().await;
        }
        acquire.abort();
        drop(acquire.await);
    }
    in_time("everything is freed", SOON, manager.close()).await;
    until_nothing_is_held(&cluster).await;
}
