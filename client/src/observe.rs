//! What happens, told to `tracing` and `metrics`, if these features are on.
//!
#![doc = include_str!("../OBSERVING.md")]
#![cfg_attr(not(all(feature = "tracing", feature = "metrics")), allow(unused_variables))]

use crate::Error;
use crate::keys::Keys;
use crate::lease::LostReason;
use crate::queue_support::NoQueue;
use std::future::Future;
use std::time::Duration;

/// Runs an acquire in a span of its own, so that what is told meanwhile belongs to it.
#[cfg(feature = "tracing")]
pub(crate) fn in_acquire_span<F: Future>(
    keys: &Keys,
    acquire: F,
) -> impl Future<Output = F::Output> + use<F> {
    use tracing::Instrument;
    use tracing::field::Empty;
    acquire.instrument(tracing::debug_span!(
        "redlock.acquire",
        resource = %keys,
        attempts = Empty,
        fence = Empty,
        outcome = Empty
    ))
}

/// Runs an acquire as it is.
#[cfg(not(feature = "tracing"))]
pub(crate) fn in_acquire_span<F: Future>(keys: &Keys, acquire: F) -> F {
    acquire
}

/// Lets what a future tells on another thread belong to the caller's span, and go where the caller's events go.
#[cfg(all(feature = "tracing", feature = "blocking"))]
pub(crate) fn as_its_caller<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    use tracing::Instrument;
    use tracing::instrument::WithSubscriber;
    future.in_current_span().with_current_subscriber()
}

/// Runs a future as it is.
#[cfg(all(not(feature = "tracing"), feature = "blocking"))]
pub(crate) fn as_its_caller<F: Future>(future: F) -> F {
    future
}

/// The span of the acquire that is under way. Where it is filtered out, the current one is somebody else's,
/// and not to be written to.
#[cfg(feature = "tracing")]
fn acquire_span() -> tracing::Span {
    let current = tracing::Span::current();
    let is_ours = current.metadata().is_some_and(|metadata| metadata.name() == "redlock.acquire");
    if is_ours { current } else { tracing::Span::none() }
}

/// An attempt begins.
pub(crate) fn attempt(keys: &Keys) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_attempts_total").increment(1);
    #[cfg(feature = "tracing")]
    tracing::trace!(resource = %keys, "asking the nodes for a lock");
}

/// A lock is held.
pub(crate) fn acquired(keys: &Keys, fence: u64, took: Duration, attempts: u32) {
    #[cfg(feature = "metrics")]
    {
        metrics::counter!("redlock_acquired_total").increment(1);
        metrics::histogram!("redlock_acquire_seconds").record(took.as_secs_f64());
    }
    #[cfg(feature = "tracing")]
    {
        acquire_span().record("attempts", attempts).record("fence", fence).record("outcome", "acquired");
        tracing::debug!(resource = %keys, fence, attempts, ?took, "acquired a lock");
    }
}

/// An acquire was given up.
pub(crate) fn failed(keys: &Keys, error: &Error) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_failed_total", "reason" => error.reason()).increment(1);
    #[cfg(feature = "tracing")]
    {
        let span = acquire_span();
        span.record("outcome", error.reason());
        if let Some(report) = error.report() {
            span.record("attempts", report.attempts());
        }
        match error {
            Error::Contended(_) | Error::Timeout { .. } => {
                tracing::debug!(resource = %keys, %error, "did not acquire a lock");
            }
            _ => tracing::warn!(resource = %keys, %error, "did not acquire a lock"),
        }
    }
}

/// A lock that was held was waited for, in line or by asking again.
pub(crate) fn waited(waited: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_wait_seconds").record(waited.as_secs_f64());
}

/// Another node is accepted in the place of the one that answered at this address before.
#[cold]
pub(crate) fn node_replaced(node: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        node,
        "another node answers at this address now, and is accepted in the place of the one before"
    );
}

/// The client polls for held locks, because it cannot queue on this node.
#[cold]
pub(crate) fn polls_because_of(node: &str, reason: NoQueue) {
    #[cfg(feature = "tracing")]
    tracing::warn!(node, %reason, "this client polls for held locks, because it cannot queue on a node");
}

/// An extension has come to its end.
pub(crate) fn extended(keys: &Keys, succeeded: bool) {
    #[cfg(feature = "metrics")]
    {
        let outcome = if succeeded { "extended" } else { "failed" };
        metrics::counter!("redlock_extensions_total", "outcome" => outcome).increment(1);
    }
    #[cfg(feature = "tracing")]
    if succeeded {
        tracing::trace!(resource = %keys, "extended a lock");
    } else {
        tracing::warn!(resource = %keys, "could not extend a lock");
    }
}

/// A lock was found to be over before it was released.
#[cold]
pub(crate) fn lost(keys: &Keys, fence: u64, reason: LostReason) {
    #[cfg(feature = "metrics")]
    {
        let how = if reason == LostReason::Gone { "gone" } else { "expired" };
        metrics::counter!("redlock_lost_total", "reason" => how).increment(1);
    }
    #[cfg(feature = "tracing")]
    tracing::warn!(resource = %keys, fence, %reason, "lost a lock");
}

/// A guard has given its lock out of hand.
pub(crate) fn detached(keys: &Keys, held: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(held.as_secs_f64());
    #[cfg(feature = "tracing")]
    tracing::debug!(resource = %keys, ?held, "detached a lock");
}

/// A guard has come to its end.
pub(crate) fn ended(keys: &Keys, held: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(held.as_secs_f64());
    #[cfg(feature = "tracing")]
    tracing::debug!(resource = %keys, ?held, "releasing a lock");
}
