//! Work of unknown length under a lock: `with_lock` extends the lock while the work runs, stops the work if
//! the lock is lost, and releases the lock at the end.
//!
//! ```text
//! cargo run --example with_lock
//! ```

use redlock_client::{Error, LockHandle, LockManager};
use std::fmt;
use std::time::Duration;
use tokio::time::sleep;

/// The program's error. `with_lock` returns an error of the work unchanged and converts an error of the lock.
#[derive(Debug)]
enum ReportError {
    Lock(Error),
    PrinterOnFire,
}

impl From<Error> for ReportError {
    fn from(error: Error) -> Self {
        Self::Lock(error)
    }
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lock(error) => write!(f, "the lock: {error}"),
            Self::PrinterOnFire => f.write_str("the printer is on fire"),
        }
    }
}

/// Takes more than twice the time to live of the lock.
async fn write_report(held: LockHandle) -> Result<usize, ReportError> {
    let mut pages = 0;
    for _ in 0..5 {
        // If the lock is lost, `with_lock` drops the work at an `await` such as this one. Cleanup for that
        // case belongs in a `Drop`.
        sleep(Duration::from_millis(500)).await;
        pages += 1;
        println!("page {pages}, fence {}, valid for {:?}", held.fence(), held.remaining());
    }
    Ok(pages)
}

async fn print_report(_held: LockHandle) -> Result<(), ReportError> {
    Err(ReportError::PrinterOnFire)
}

#[tokio::main]
async fn main() -> Result<(), ReportError> {
    let locks = LockManager::in_memory(5);
    // A short time to live costs more requests, but unlocks the resource soon after a crash.
    let ttl = Duration::from_secs(1);

    let pages = locks.with_lock("report:november", ttl, write_report).await?;
    println!("{pages} pages under one lock");

    // The work can be a closure. If the work fails, `with_lock` releases the lock and returns the error
    // unchanged.
    let printed = locks.with_lock("report:november", ttl, async |held| print_report(held).await).await;
    assert!(matches!(printed, Err(ReportError::PrinterOnFire)));
    println!("with_lock returned the error of the work");

    let guard = locks.try_acquire("report:november", ttl).await?;
    println!("the lock is free again, fence {}", guard.fence());
    guard.release().await;
    Ok(())
}
