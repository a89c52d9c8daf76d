//! Taking a lock for somebody who may change their mind.

use crate::args::WaitLimit;
use crate::config::FOREVER;
use crate::exit::{Code, ExitError};
use crate::run::signals::Interrupts;
use redlock_client::{Guard, LockManager};
use std::time::Duration;

/// What came of it.
pub(crate) enum Obtained {
    Lock(Guard),
    /// A signal came first; nothing is left behind.
    Interrupted(Code),
}

/// Takes a lock as patiently as was asked for, until a signal says otherwise.
pub(crate) async fn obtain(
    locks: &LockManager,
    resource: &str,
    ttl: Duration,
    wait: WaitLimit,
    interrupts: &mut Interrupts,
) -> Result<Obtained, ExitError> {
    let outcome = tokio::select! {
        acquired = acquire(locks, resource, ttl, wait) => acquired.map(Obtained::Lock),
        signal = interrupts.next() => Ok(Obtained::Interrupted(Code::Given(signal.exit_code()))),
    };
    if !matches!(outcome, Ok(Obtained::Lock(_))) {
        // What the nodes may have granted meanwhile is given back.
        locks.flush().await;
    }
    outcome
}

async fn acquire(
    locks: &LockManager,
    resource: &str,
    ttl: Duration,
    wait: WaitLimit,
) -> Result<Guard, ExitError> {
    let guard = match wait {
        WaitLimit::Not => locks.try_acquire(resource, ttl).await,
        WaitLimit::For(wait) => locks.acquire_timeout(resource, ttl, wait).await,
        WaitLimit::Forever => locks.acquire_timeout(resource, ttl, FOREVER).await,
    };
    let guard = guard?;
    // Whoever was next in line has the lock for a moment at first, until the nodes know that it is wanted.
    if guard.remaining().saturating_mul(2) < ttl {
        guard.extend().await?;
    }
    Ok(guard)
}
