//! What a cluster does beside other nodes, and alone.

use crate::client::TTL;
use crate::{alone, beside, first_failure, holders, until_nothing_is_held};
use redlock_client::{Error, FailureKind, Node};
use redlock_tests::{Answer, Cluster, Fleet, SOON, eventually_async};
use std::time::Duration;
use tokio::task::JoinSet;

#[tokio::test]
async fn a_cluster_votes_beside_two_servers() {
    let (cluster, mut fleet) = (Cluster::start(3), Fleet::start(2));
    let manager = beside(&cluster, &fleet).await;
    for master in 0..3 {
        let key = cluster.key(master, "lock");
        let guard = manager.try_acquire(&key, TTL).await.expect("a free lock");
        eventually_async("all three nodes hold the lock", SOON, async || {
            let inspection = manager.inspect(&key).await.expect("a runtime");
            let fences = inspection.nodes.iter().map(|node| match &node.lock {
                Ok(Some(lock)) => Some(lock.fence),
                _ => None,
            });
            fences
                .collect::<Option<Vec<_>>>()
                .filter(|fences| fences.iter().all(|fence| *fence == guard.fence()))
        })
        .await;
        assert_eq!(holders(&cluster, &key), [master]);
        guard.extend().await.expect("a lock that is held");
        let contended = manager.try_acquire(&key, TTL).await.expect_err("a lock that is held");
        assert!(matches!(contended, Error::Contended(_)), "{contended}");
        assert!(guard.release().await.is_free_on_a_majority());
        eventually_async("the lock is free everywhere", SOON, async || {
            (holders(&cluster, &key).is_empty() && fleet.is_free(&key)).then_some(())
        })
        .await;
    }
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn a_cluster_decides_when_a_server_is_gone() {
    let (cluster, mut fleet) = (Cluster::start(2), Fleet::start(2));
    let manager = beside(&cluster, &fleet).await;
    fleet[0].kill();
    for master in 0..2 {
        let key = cluster.key(master, "lock");
        let guard = manager.acquire(&key, TTL).await.expect("two of three nodes");
        assert_eq!(holders(&cluster, &key), [master]);
        guard.release().await;
    }
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn health_is_that_of_all_masters() {
    let cluster = Cluster::start(3);
    let ids = cluster.iter().map(|member| {
        let node = member.connect().call_strs("REDLOCK.NODE");
        node.field("node-id").expect("an id").string()
    });
    let mut ids: Vec<String> = ids.collect();
    ids.sort();
    for node in [Node::cluster(cluster.urls()), Node::cluster(cluster.urls()).resp3()] {
        let manager = alone(node).await;
        let mut guards = Vec::new();
        for master in [0, 1, 2, 2] {
            let key = cluster.key(master, &format!("lock{}-", guards.len()));
            guards.push(manager.try_acquire(key, Duration::from_secs(60)).await.expect("a free lock"));
        }
        let health = manager.health().await.expect("a runtime");
        let state = health.nodes[0].state.as_ref().expect("every master answers");
        assert_eq!(state.id, ids.join(","));
        assert_eq!((state.locks, state.waiters), (4, 0));
        assert_eq!(state.version, env!("CARGO_PKG_VERSION"));
        assert!(state.longest_lease >= Duration::from_secs(60), "{:?}", state.longest_lease);
        let largest = guards.iter().map(redlock_client::Guard::fence).max();
        assert_eq!(Some(state.fence), largest);
        assert!(state.quarantine.is_zero() && health.can_grant());
        for guard in guards {
            guard.release().await;
        }
    }
}

#[tokio::test]
async fn the_longest_quarantine_of_a_master_is_that_of_the_node() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let (quiet, held) = (cluster.key(0, "lock"), cluster.key(1, "lock"));
    let guard = manager.try_acquire(&held, TTL).await.expect("a free lock");
    // A flush forgets locks: the master says so, and grants nothing until they would have run out.
    assert_eq!(cluster[1].connect().call_strs("FLUSHALL"), Answer::ok());
    let health = manager.health().await.expect("a runtime");
    let state = health.nodes[0].state.as_ref().expect("every master answers");
    assert!(state.quarantine > TTL / 2, "{:?}", state.quarantine);
    assert!(!health.can_grant());
    let error = manager.try_acquire(&held, TTL).await.expect_err("it may have been forgotten");
    assert!(matches!(error, Error::Quarantined { .. }), "{error}");
    // The other master has forgotten nothing.
    manager.try_acquire(&quiet, TTL).await.expect("a free lock").release().await;
    drop(guard);
}

#[tokio::test]
async fn several_resources_share_a_hash_tag() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    for master in 0..2 {
        let tag = cluster.key(master, "job");
        let names = ["x", "y", "z"].map(|name| format!("{{{tag}}}:{name}"));
        let guard = manager.try_acquire_many(&names, TTL).await.expect("free locks");
        for name in &names {
            assert_eq!(holders(&cluster, name), [master], "{name}");
        }
        guard.extend().await.expect("locks that are held");
        let contended = manager.try_acquire(&names[1], TTL).await.expect_err("a lock that is held");
        assert!(matches!(contended, Error::Contended(_)), "{contended}");
        assert!(guard.release().await.is_free_on_a_majority());
    }
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn resources_of_different_slots_are_refused_and_the_error_says_why() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let names = [cluster.key(0, "a"), cluster.key(1, "b")];
    let error = manager.acquire_many(&names, TTL).await.expect_err("two masters cannot grant as one");
    let (kind, detail) = first_failure(&error);
    assert_eq!(kind, FailureKind::Rejected);
    assert!(detail.starts_with("CROSSSLOT"), "{detail}");
    assert!(error.to_string().contains("CROSSSLOT"), "{error}");
    assert!(!error.is_retryable(), "trying again is no use");
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn many_tasks_use_all_masters_at_once() {
    let cluster = Cluster::start(3);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let mut tasks = JoinSet::new();
    for task in 0..64 {
        let (manager, key) = (manager.clone(), cluster.key(task % 3, &format!("lock{}-", task / 2)));
        tasks.spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..20 {
                let guard = manager.acquire(&key, TTL).await.expect("a lock in time");
                fences.push(guard.fence());
                guard.release().await;
            }
            fences
        });
    }
    while let Some(fences) = tasks.join_next().await {
        let fences = fences.expect("a task that ends well");
        assert!(fences.is_sorted_by(|one, next| one < next), "{fences:?}");
    }
    until_nothing_is_held(&cluster).await;
    assert!(cluster.iter().all(|member| member.calls("redlock.acquire") >= 400));
}
