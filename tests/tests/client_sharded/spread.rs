//! Which shard has a resource, and what a shard without a majority affects.

use crate::client::TTL;
use crate::workers::Workers;
use crate::{Cluster, names, place_of};
use redlock_client::Error;
use redlock_tests::admit;

#[tokio::test]
async fn a_resource_is_locked_in_its_shard_and_nowhere_else() {
    let mut cluster = Cluster::start();
    let shards = cluster.shards(&[0, 1, 2]).await;
    let mut shares = [0; 3];
    let mut guards = Vec::new();
    for key in names().take(60) {
        guards.push(shards.try_acquire(&key, TTL).await.expect("a free lock"));
        let place = place_of(&shards, &key);
        shares[place] += 1;
        for (other, fleet) in cluster.fleets.iter_mut().enumerate() {
            let holders = fleet.locks(&key).iter().flatten().count();
            // An acquire returns after two of three grants, so the third node may not hold the lock yet.
            assert!(
                if other == place { holders >= 2 } else { holders == 0 },
                "{key}: {holders} holders in shard {other}"
            );
        }
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    let health = shards.health().await.expect("a runtime");
    assert!(health.iter().all(|shard| shard.health.can_grant()));
    drop(guards);
    shards.flush().await;
    for key in names().take(60) {
        for fleet in &mut cluster.fleets {
            assert!(fleet.is_free(&key), "{key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_name_the_shards_in_another_order_exclude_each_other() {
    let cluster = Cluster::start();
    let shards = [cluster.shards(&[0, 1, 2]).await, cluster.shards(&[2, 0, 1]).await];
    let keys: Vec<String> = names().take(4).collect();
    let workers = Workers::of(&shards, 8, &keys);
    workers.until_visits(40).await;
    let observer = workers.stop().await;
    assert_eq!(observer.violations(), []);
}

#[tokio::test]
async fn a_shard_without_a_majority_affects_only_its_own_resources() {
    let mut cluster = Cluster::start();
    let shards = cluster.shards(&[0, 1, 2]).await;
    cluster.fleets[1][0].kill();
    cluster.fleets[1][2].kill();
    for key in names().take(30) {
        let outcome = shards.try_acquire(&key, TTL).await;
        if place_of(&shards, &key) == 1 {
            assert!(matches!(outcome, Err(Error::NoQuorum(_))), "{outcome:?}");
        } else {
            drop(outcome.expect("a lock of a healthy shard"));
        }
    }
    let health = shards.health().await.expect("a runtime");
    let healthy: Vec<bool> = health.iter().map(|shard| shard.health.can_grant()).collect();
    assert_eq!(healthy, [true, false, true]);
}

/// The procedure of OPERATIONS.md.
#[tokio::test]
async fn fences_grow_when_a_shard_is_added_while_no_client_runs() {
    let cluster = Cluster::start();
    let old = cluster.shards(&[0, 1]).await;
    let keys: Vec<String> = names().take(30).collect();
    let mut fences = Vec::new();
    for round in 0..3 {
        fences.clear();
        for key in &keys {
            let guard = old.try_acquire(key, TTL).await.expect("a free lock");
            fences.push(guard.fence());
            guard.release().await;
        }
        assert!(fences.iter().all(|fence| *fence > round));
    }
    old.flush().await;
    let high_water = |fleet: &redlock_tests::Fleet| {
        let marks = fleet.iter().map(|node| {
            let reply = node.connect().call_strs("REDLOCK.NODE");
            reply.field("high-water").expect("a high-water mark").int()
        });
        marks.max().expect("a node")
    };
    let floor = cluster.fleets[..2].iter().map(high_water).max().expect("a shard");
    for node in cluster.fleets[2].iter() {
        admit(&mut node.connect(), floor, 0);
    }
    let new = cluster.shards(&[0, 1, 2]).await;
    let mut moved = 0;
    for (key, before) in keys.iter().zip(fences) {
        moved += usize::from(place_of(&new, key) == 2);
        let guard = new.try_acquire(key, TTL).await.expect("a free lock");
        assert!(guard.fence() > before, "{key}: {} after {before}", guard.fence());
        guard.release().await;
    }
    assert!(moved > 0, "some resources move to the new shard");
}
