//! Locks in a program without an async runtime: several threads share one resource.
//!
//! ```text
//! cargo run --example blocking --features blocking
//! ```

use redlock_client::memory::MemoryNodes;
use redlock_client::{FenceGate, LockHandle, LockManager, StaleFence};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

const TTL: Duration = Duration::from_secs(10);

/// The data that the threads write. Its gate rejects the writes of an older holder.
#[derive(Default)]
struct Stock {
    gate: FenceGate,
    sold: AtomicU64,
}

impl Stock {
    /// Sells up to `wanted` items, one at a time. Returns the number of sold items.
    ///
    /// Nothing stops a thread when its lock is lost. So the thread checks the lock before every step. It also
    /// passes the fence with every write, because the lock may be lost right after the check.
    fn sell(&self, wanted: u64, held: &LockHandle) -> Result<u64, StaleFence> {
        let mut sold = 0;
        while sold < wanted && held.is_valid() {
            self.gate.run(held.fence(), || self.sold.fetch_add(1, Ordering::Relaxed))?;
            sold += 1;
        }
        Ok(sold)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // The nodes are in memory, so that the example needs no server. With servers, write:
    //
    //     LockManager::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
    //         .build_blocking()?
    //
    // The manager has one background thread. Clones share the thread and the connections.
    let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;

    // `acquire` blocks until the lock is held or the retry policy gives up. `try_acquire` tries once.
    let guard = locks.acquire("stock", TTL)?;
    println!("held, fence {}, valid for {:?}", guard.fence(), guard.remaining());
    if let Err(refused) = locks.try_acquire("stock", TTL) {
        println!("a second holder is refused: {refused}");
    }
    let report = guard.release();
    println!("freed on {} of {} nodes", report.freed(), report.nodes().len());

    // `with_lock` extends the lock in the background while the work runs, and releases it afterwards. If the
    // work fails, `with_lock` returns that error. If the work ends after the lock was lost, `with_lock`
    // returns the loss as an error.
    let stock = Stock::default();
    let sell = || {
        locks.with_lock("stock", TTL, |held| {
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>(stock.sell(3, &held)?)
        })
    };
    thread::scope(|threads| {
        let sellers: Vec<_> = (0..4).map(|_| threads.spawn(sell)).collect();
        for seller in sellers {
            match seller.join() {
                Ok(Ok(sold)) => println!("one thread has sold {sold}"),
                Ok(Err(error)) => println!("one thread has failed: {error}"),
                Err(_) => println!("one thread has panicked"),
            }
        }
    });
    println!("{} are sold", stock.sold.load(Ordering::Relaxed));

    // Dropping a guard releases its lock in the background. Dropping the manager waits for that release, so
    // this program leaves no lock held.
    let _guard = locks.acquire("stock", TTL)?;
    Ok(())
}
