//! Acquires a lock; a signal ends the wait.

use crate::args::WaitLimit;
use crate::config::FOREVER;
use crate::exit::{Code, ExitError};
use crate::run::signals::Interrupts;
use redlock_client::{Error, Guard, LockManager};
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

/// The lock to acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Wanted<'a> {
    /// The exclusive lock of all these resources.
    Exclusive(&'a [String]),
    /// The shared lock of this resource.
    Shared(&'a str),
}

impl<'a> Wanted<'a> {
    /// The lock that the options ask for.
    pub(crate) fn new(resources: &'a [String], is_shared: bool) -> Result<Self, ExitError> {
        match resources {
            [resource] if is_shared => Ok(Self::Shared(resource)),
            _ if is_shared => Err(ExitError::usage(format!(
                "--shared takes one resource, and {} are given: run one command under each lock",
                resources.len()
            ))),
            _ => Ok(Self::Exclusive(resources)),
        }
    }
}

/// Acquires a lock, and waits for it as long as `wait` allows or until a signal arrives.
pub(crate) async fn obtain(
    locks: &LockManager,
    wanted: Wanted<'_>,
    ttl: Duration,
    wait: WaitLimit,
    interrupts: &mut Interrupts,
) -> Result<Obtained, ExitError> {
    let outcome = tokio::select! {
        acquired = acquire(locks, wanted, ttl, wait) => acquired.map(Obtained::Lock),
        signal = interrupts.next_ending() => Ok(Obtained::Interrupted(Code::Given(signal.exit_code()))),
    };
    if !matches!(outcome, Ok(Obtained::Lock(_))) {
        // Releases what the nodes may have granted meanwhile.
        settle(locks).await;
    }
    outcome
}

async fn acquire(
    locks: &LockManager,
    wanted: Wanted<'_>,
    ttl: Duration,
    wait: WaitLimit,
) -> Result<Guard, ExitError> {
    let limit = match wait {
        WaitLimit::Not => None,
        WaitLimit::For(wait) => Some(wait),
        WaitLimit::Forever => Some(FOREVER),
    };
    loop {
        let guard = match (wanted, limit) {
            (Wanted::Exclusive(resources), None) => locks.try_acquire_many(resources, ttl).await,
            (Wanted::Exclusive(resources), Some(wait)) => {
                locks.acquire_many_timeout(resources, ttl, wait).await
            }
            (Wanted::Shared(resource), None) => locks.try_acquire_shared(resource, ttl).await,
            (Wanted::Shared(resource), Some(wait)) => locks.acquire_shared_timeout(resource, ttl, wait).await,
        };
        let guard = guard?;
        // A lock that was handed to a waiter is valid for only the claim window until it is confirmed: extend it to the
        // full time to live.
        if guard.remaining().saturating_mul(2) >= ttl {
            return Ok(guard);
        }
        match guard.extend().await {
            Ok(_) => return Ok(guard),
            // The nodes failed just then: a caller that waits for ever waits for the next hand-off.
            Err(Error::Lost { .. } | Error::NoQuorum(_)) if wait == WaitLimit::Forever => {}
            Err(error) => return Err(error.into()),
        }
    }
}
