//! Losing a lock: the client extends a lock in the background, and the work stops when the lock is lost.
//!
//! ```text
//! cargo run --example keep_alive
//! ```

use redlock_client::{Error, LockManager, memory};
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Does one small step after the other until `stop` is cancelled.
///
/// The client cancels the token a little *before* the validity of the lock ends, so that the work can finish
/// its current step.
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
    // The nodes are in memory. This handle can make them fail.
    let nodes = memory::MemoryNodes::new(5);
    let locks = LockManager::builder().memory(&nodes).build()?;

    let mut guard = locks.acquire("index", Duration::from_secs(1)).await?;

    // From here on the client extends the lock in the background, for at most an hour. The limit is needed
    // because work that hangs would lock out all other clients. An hour is the most that this work can
    // reasonably take.
    guard.keep_alive(Duration::from_secs(3600))?;

    // The work runs in a task of its own and watches the token. Other ways to detect a loss are
    // `guard.lost().await`, and `guard.is_valid()` before an important step.
    let work = tokio::spawn(index_documents(guard.cancellation_token()?));

    sleep(Duration::from_millis(1500)).await;
    println!("more than the time to live has passed, still valid for {:?}", guard.remaining());

    // Two of five nodes may fail: three are a majority.
    nodes.silence(0);
    nodes.silence(1);
    sleep(Duration::from_millis(1500)).await;
    println!("two nodes are gone, still valid for {:?}", guard.remaining());

    // Without a majority the client cannot extend the lock. The lock stays valid until its validity ends;
    // then it is lost. The client detects that with its own clock: no node has to answer.
    nodes.silence(2);
    println!("three nodes are gone");
    let reason = guard.lost().await;
    println!("lost: {reason}");

    match work.await {
        Ok(documents) => println!("the work has stopped after {documents} documents"),
        Err(error) => println!("the work failed: {error}"),
    }

    // A lost lock stays lost. Once the nodes are back, the program acquires a new lock, with a larger fence.
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
