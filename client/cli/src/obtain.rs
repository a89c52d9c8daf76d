//! Acquires a lock; a signal ends the wait.

use crate::args::WaitLimit;
use crate::config::FOREVER;
use crate::exit::{Code, ExitError};
use crate::run::signals::Interrupts;
use redlock_client::{Guard, LockManager};
use std::time::Duration;

/// How long to wait at the end for the nodes that have not answered a release. The requests are sent by then: a node
/// that hangs reads them when it continues, and a node without a connection holds nothing for us.
const SETTLE: Duration = Duration::from_millis(200);

/// Gives slow nodes a little time to answer the releases. A node that hangs must not delay the end.
pub(crate) async fn settle(locks: &LockManager) {
    let _ = tokio::time::timeout(SETTLE, locks.flush()).await;
}

/// The outcome of an acquire.
pub(crate) enum Obtained {
    Lock(Guard),
    /// A signal arrived first. The nodes hold nothing for us.
    Interrupted(Code),
}

/// Acquires a lock of all these resources, and waits for it as long as `wait` allows or until a signal arrives.
pub(crate) async fn obtain(
    locks: &LockManager,
    resources: &[String],
    ttl: Duration,
    wait: WaitLimit,
    interrupts: &mut Interrupts,
) -> Result<Obtained, ExitError> {
    let outcome = tokio::select! {
        acquired = acquire(locks, resources, ttl, wait) => acquired.map(Obtained::Lock),
        signal = interrupts.next() => Ok(Obtained::Interrupted(Code::Given(signal.exit_code()))),
    };
    if !matches!(outcome, Ok(Obtained::Lock(_))) {
        // Releases what the nodes may have granted meanwhile.
        settle(locks).await;
    }
    outcome
}

async fn acquire(
    locks: &LockManager,
    resources: &[String],
    ttl: Duration,
    wait: WaitLimit,
) -> Result<Guard, ExitError> {
    let guard = match wait {
        WaitLimit::Not => locks.try_acquire_many(resources, ttl).await,
        WaitLimit::For(wait) => locks.acquire_many_timeout(resources, ttl, wait).await,
        WaitLimit::Forever => locks.acquire_many_timeout(resources, ttl, FOREVER).await,
    };
    let guard = guard?;
    // A lock that was handed to a waiter is valid for only the claim window until it is confirmed: extend it to the
    // full time to live.
    if guard.remaining().saturating_mul(2) < ttl {
        guard.extend().await?;
    }
    Ok(guard)
}
