//! Locks in a program without an async runtime: threads that take turns.
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

/// What the threads write to: it turns away a holder that has been overtaken.
#[derive(Default)]
struct Stock {
    gate: FenceGate,
    sold: AtomicU64,
}

impl Stock {
    /// Sells some, one step at a time.
    ///
    /// Nothing stops a thread when its lock is lost. So it asks before every step, and the fence goes with
    /// every write, for the case that the lock is lost right after the question.
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
    // Nodes in memory, so that the example needs no server. With servers it reads:
    //
    //     LockManager::builder().nodes(["redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"])
    //         .build_blocking()?
    //
    // The manager has one thread in the background. Clones share it and its connections.
    let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;

    // `acquire` blocks until the lock is held or the retry policy gives up, `try_acquire` asks once.
    let guard = locks.acquire("stock", TTL)?;
    println!("held, fence {}, valid for {:?}", guard.fence(), guard.remaining());
    if let Err(refused) = locks.try_acquire("stock", TTL) {
        println!("a second holder is refused: {refused}");
    }
    let report = guard.release();
    println!("freed on {} of {} nodes", report.freed(), report.nodes().len());

    // `with_lock` extends the lock in the background while the work goes on, and frees it afterwards. The
    // work's own error comes first; if it finished without a lock, the error says that the lock was lost.
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

    // A guard that is dropped frees its lock in the background. The manager, dropped after it, waits for that:
    // a program that ends here leaves no lock behind.
    let _guard = locks.acquire("stock", TTL)?;
    Ok(())
}
