//! Takes a lock, works under it and gives it back.
//!
//! ```text
//! cargo run --example quickstart
//! ```

use redlock_client::{Error, LockManager};
use std::time::Duration;

#[tokio::main]
async fn main() -> Result<(), Error> {
    // Five nodes inside this program, so that the example needs no server. With servers it reads:
    //
    //     LockManager::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"]).build()?
    //
    // One manager is enough for a program: clone it into every task, the connections are shared.
    let locks = LockManager::in_memory(5);

    // The time to live bounds how long the resource stays locked if this program dies. It is no promise to be
    // done by then: see the examples `with_lock` and `keep_alive` for work of unknown length.
    let guard = locks.acquire("invoice:17", Duration::from_secs(10)).await?;
    println!("held, valid for {:?}", guard.remaining());

    // The fence goes with everything that is written under the lock; the storage turns smaller ones away.
    // See the examples `fenced_write_sqlite` and `fenced_write_redis`.
    println!("fence {}", guard.fence());

    // Meanwhile nobody else gets it. `acquire` would wait and try again, `try_acquire` asks once.
    // An error says why, with what every node answered.
    if let Err(refused) = locks.try_acquire("invoice:17", Duration::from_secs(10)).await {
        println!("a second holder is refused: {refused}");
        println!("worth trying again later: {}", refused.is_retryable());
    }

    // Dropping the guard frees the lock too, in the background. `release` waits and tells what became of it.
    let report = guard.release().await;
    println!("freed on {} of {} nodes", report.freed(), report.nodes().len());

    let next = locks.acquire("invoice:17", Duration::from_secs(10)).await?;
    println!("held again, fence {}", next.fence());
    drop(next);

    // A program that ends right after a drop may be gone before the nodes are told: then the lock lasts until
    // its time is over. `close` waits until they have been told.
    locks.flush().await;
    Ok(())
}
