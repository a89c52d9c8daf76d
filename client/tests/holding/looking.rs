//! Inspecting locks and the health of nodes.

use crate::common::{TTL, manager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager};
use std::time::Duration;
use tokio::time::advance;

#[tokio::test(start_paused = true)]
async fn inspect_tells_who_holds_it() {
    let nodes = MemoryNodes::new(5);
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
    let nodes = MemoryNodes::new(3);
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
    // The client releases the lock on the one node that granted it.
    locks.flush().await;
    assert!(!nodes.holds(2, "job"));
}
