//! Inspecting locks and the health of nodes.

use crate::common::{TTL, manager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager};
use std::time::Duration;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn inspect_returns_the_lock_and_its_label() {
    let nodes = MemoryNodes::new(5);
    let locks = LockManager::builder()
        .memory(&nodes)
        .label("nightly export")
        .key_prefix("app:")
        .build()
        .expect("fine");
    assert!(!locks.inspect("job").await.expect("answers of the nodes").is_held());
    let guard = locks.acquire("job", TTL).await.expect("free");
    assert!(nodes.holds(0, "app:job"), "the key has the prefix");
    advance(Duration::from_secs(1)).await;
    let inspection = locks.inspect("job").await.expect("answers of the nodes");
    let lock = inspection.lock().expect("held");
    assert_eq!(
        (lock.fence, lock.label.as_str(), lock.left),
        (1, "nightly export", TTL - Duration::from_secs(1))
    );
    assert_eq!(lock.held, Duration::from_secs(1));
    assert_eq!(inspection.nodes.len(), 5);
    nodes.silence(3);
    let inspection = locks.inspect("job").await.expect("answers of the nodes");
    assert!(inspection.is_held() && inspection.nodes[3].lock.is_err(), "{inspection:?}");
    drop(guard);
}

#[tokio::test(start_paused = true)]
async fn health_tells_whether_a_quorum_can_grant() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let health = locks.health().await.expect("answers of the nodes");
    assert!(health.can_grant() && health.nodes.iter().all(|node| node.can_grant()), "{health:?}");
    nodes.silence(0);
    assert!(locks.health().await.expect("answers of the nodes").can_grant());
    nodes.silence(1);
    let health = locks.health().await.expect("answers of the nodes");
    assert!(!health.can_grant() && !health.nodes[1].can_grant() && health.nodes[2].can_grant(), "{health:?}");
    let error = locks.try_acquire("job", TTL).await.expect_err("no majority");
    assert!(matches!(error, Error::NoQuorum(_)), "{error}");
    // The client releases the lock on the one node that granted it.
    locks.flush().await;
    assert!(!nodes.holds(2, "job"));
}

#[tokio::test(start_paused = true)]
async fn reports_are_written_for_people() {
    let nodes = MemoryNodes::new(3);
    let locks = LockManager::builder().memory(&nodes).label("job on web-3").build().expect("nodes");
    let version = locks.health().await.expect("a runtime").nodes[0].state.clone().expect("a state").version;
    let guard = locks.acquire("job", TTL).await.expect("free");
    nodes.silence(2);
    let health = locks.health().await.expect("a runtime");
    let node = |node: usize| {
        format!("memory-{node}: can grant, 1 locks, 0 waiters, largest fence 1, version {version}, 0.0 ms")
    };
    let down = "memory-2: down: the node is unreachable";
    let expected = format!("2 of 3 nodes grant, 2 are needed\n  {}\n  {}\n  {down}", node(0), node(1));
    assert_eq!(health.to_string(), expected);

    tokio::time::advance(TTL / 4).await;
    let left = (TTL - TTL / 4).as_millis();
    let held =
        format!("held: \"job on web-3\", fence 1, {left} ms left, held for {} ms", (TTL / 4).as_millis());
    let inspection = locks.inspect("job").await.expect("a runtime");
    let expected = format!("{held}\n  memory-0: {held}\n  memory-1: {held}\n  {down}");
    assert_eq!(inspection.to_string(), expected);
    assert!(
        locks.inspect("free").await.expect("a runtime").to_string().starts_with("free\n  memory-0: free")
    );

    let refused = locks.try_acquire("job", TTL).await.expect_err("held");
    let by = format!("held by another client, \"job on web-3\", {left} ms left");
    let expected = format!("job: memory-0: {by}; memory-1: {by}; {down}");
    assert_eq!(refused.report().expect("answers").to_string(), expected);
    assert_eq!(
        refused.to_string(),
        format!("job is held by another client (memory-0: {by}; memory-1: {by}; {down})")
    );
    // A release waits for a majority only.
    let report = guard.release().await;
    assert_eq!(
        report.to_string(),
        "released on 2 of 3 nodes: memory-0: freed; memory-1: freed; memory-2: no answer yet"
    );
}
