//! Acquires a lock, works under it and releases it.
//!
//! ```text
//! cargo run --example quickstart
//! ```

use redlock_client::{Error, LockManager};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // The five nodes are in memory, so that the example needs no server. With servers, write:
    //
    //     LockManager::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).build()?
    //
    // One manager is enough for a program. Clone it into every task: the clones share the connections.
    let locks = LockManager::in_memory(5);

    // The time to live limits how long the resource stays locked if this program dies. For work that may take
    // longer, see the examples `with_lock` and `keep_alive`.
    let guard = locks.acquire("invoice:17", Duration::from_secs(10)).await?;
    println!("held, valid for {:?}", guard.remaining());

    // Pass the fence with every write under the lock. The storage rejects smaller fences than it has seen.
    // See the examples `fenced_write_sqlite` and `fenced_write_redis`.
    println!("fence {}", guard.fence());

    // No other client can acquire the lock now. `acquire` would wait; `try_acquire` tries once. The error
    // contains the reason and the answer of every node.
    if let Err(refused) = locks.try_acquire("invoice:17", Duration::from_secs(10)).await {
        println!("a second holder is refused: {refused}");
        println!("worth trying again later: {}", refused.is_retryable());
    }

    // `release` waits for the nodes and returns their answers. Dropping the guard releases the lock in the
    // background.
    let report = guard.release().await;
    println!("freed on {} of {} nodes", report.freed(), report.nodes().len());

    let next = locks.acquire("invoice:17", Duration::from_secs(10)).await?;
    println!("held again, fence {}", next.fence());
    drop(next);

    // The end of the runtime sends the releases that are left, but waits only a moment for the nodes. To be
    // sure, end with `release`, or with a drop and `flush`, which waits until the nodes have answered.
    locks.flush().await;
    Ok(())
}
