//! Losing a lock: a guard that is extended in the background, and work that stops when that no longer helps.
//!
//! ```text
//! cargo run --example keep_alive
//! ```

use redlock_client::{Error, LockManager, memory};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Does one small step after the other until it is told to stop.
///
/// It is told a little *before* the lock stops being valid, so that it may finish the step it is at.
async fn index_documents(stop: CancellationToken) -> usize {
    let mut documents = 0;
    loop {
        tokio::select! {
            () = stop.cancelled() => return documents,
            () = sleep(Duration::from_millis(20)) => documents += 1,
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Nodes in memory again, this time with a handle: it can cut them off.
    let nodes = memory::MemoryNodes::new(5);
    let locks = LockManager::builder().memory(&nodes).build()?;

    let mut guard = locks.acquire("index", Duration::from_secs(1)).await?;

    // From here on the lock is extended in time, again and again, but not for ever: work that hangs must not
    // keep the resource from everybody else. An hour is the most that this work can reasonably take.
    guard.keep_alive(Duration::from_secs(3600))?;

    // The work runs in a task of its own and watches the token. Other ways to hear of a loss are
    // `guard.lost().await`, and `guard.is_valid()` before a step that matters.
    let work = tokio::spawn(index_documents(guard.cancellation_token()?));

    sleep(Duration::from_millis(1500)).await;
    println!("more than the time to live has passed, still valid for {:?}", guard.remaining());

    // One node, or two, may fail: three of five are enough.
    nodes.silence(0);
    nodes.silence(1);
    sleep(Duration::from_millis(1500)).await;
    println!("two nodes are gone, still valid for {:?}", guard.remaining());

    // Without a majority the lock cannot be extended. It stays valid for what is left of its time; then it
    // counts as lost. The signal comes from this program's own clock: no node has to answer for it.
    nodes.silence(2);
    println!("three nodes are gone");
    let reason = guard.lost().await;
    println!("lost: {reason}");

    match work.await {
        Ok(documents) => println!("the work has stopped after {documents} documents"),
        Err(error) => println!("the work broke down: {error}"),
    }

    // Nothing revives a lost lock. The way on is a new one, with a larger fence, once the nodes are back.
    assert!(matches!(guard.extend().await, Err(Error::Lost { .. })));
    drop(guard);
    for node in 0..nodes.len() {
        nodes.revive(node);
    }
    let again = locks.acquire("index", Duration::from_secs(1)).await?;
    println!("held again, fence {}", again.fence());
    again.release().await;
    Ok(())
}
