//! Reports events to `tracing` and `metrics`, if these features are on.
//!
#![doc = include_str!("../OBSERVING.md")]
#![cfg_attr(not(all(feature = "tracing", feature = "metrics")), allow(unused_variables))]

use crate::Error;
use crate::keys::Keys;
use crate::lock_shared::LostReason;
use crate::queue_support::NoQueue;
use std::future::Future;
use std::time::Duration;

/// A metric: its kind and what it means. Times are in seconds.
#[cfg(feature = "metrics")]
enum Kind {
    Counter,
    Gauge,
    Seconds,
}

/// Every metric, for [`describe`].
#[cfg(feature = "metrics")]
const METRICS: [(&str, Kind, &str); 13] = {
    use Kind::{Counter, Gauge, Seconds};
    [
        ("redlock_attempts_total", Counter, "Attempts to acquire a lock."),
        ("redlock_acquired_total", Counter, "Locks acquired."),
        ("redlock_failed_total", Counter, "Acquires that failed, by reason."),
        ("redlock_acquire_seconds", Seconds, "Time from the call until the client holds the lock."),
        (
            "redlock_wait_seconds",
            Seconds,
            "Time from the call until the client holds a lock that another client held.",
        ),
        ("redlock_hold_seconds", Seconds, "Time from the acquire until the end of the guard."),
        ("redlock_extensions_total", Counter, "Extensions, by outcome."),
        ("redlock_extension_failures_total", Counter, "Extensions that failed, by reason."),
        ("redlock_lost_total", Counter, "Locks that ended before their release, by reason."),
        ("redlock_client_node_up", Gauge, "1 if the node is connected and answers, else 0."),
        ("redlock_client_node_reconnects_total", Counter, "Connections to the node after the first."),
        ("redlock_client_node_failures_total", Counter, "How often the node became unusable, by reason."),
        ("redlock_client_node_round_trip_seconds", Seconds, "Time from a request to the reply of the node."),
    ]
};

/// Describes the metrics to the recorder, which must be installed before the first call.
pub(crate) fn describe() {
    #[cfg(feature = "metrics")]
    for (name, kind, text) in METRICS {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, metrics::Unit::Count, text),
            Kind::Gauge => metrics::describe_gauge!(name, text),
            Kind::Seconds => metrics::describe_histogram!(name, metrics::Unit::Seconds, text),
        }
    }
}

/// Runs an acquire in its own span, so that the events of the acquire belong to that span.
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

/// Runs an acquire without a span: the feature `tracing` is off.
#[cfg(not(feature = "tracing"))]
pub(crate) fn in_acquire_span<F: Future>(keys: &Keys, acquire: F) -> F {
    acquire
}

/// Runs a future on another thread in the caller's span and with the caller's subscriber.
#[cfg(all(feature = "tracing", feature = "blocking"))]
pub(crate) fn as_its_caller<F: Future>(future: F) -> impl Future<Output = F::Output> + use<F> {
    use tracing::Instrument;
    use tracing::instrument::WithSubscriber;
    future.in_current_span().with_current_subscriber()
}

/// Returns the future unchanged: the feature `tracing` is off.
#[cfg(all(not(feature = "tracing"), feature = "blocking"))]
pub(crate) fn as_its_caller<F: Future>(future: F) -> F {
    future
}

/// Returns the span of the current acquire. If a filter has disabled that span, the current span belongs to
/// the caller, and nothing must be recorded on it.
#[cfg(feature = "tracing")]
fn acquire_span() -> tracing::Span {
    let current = tracing::Span::current();
    let is_ours = current.metadata().is_some_and(|metadata| metadata.name() == "redlock.acquire");
    if is_ours { current } else { tracing::Span::none() }
}

/// Reports that an attempt begins.
pub(crate) fn attempt(keys: &Keys) {
    #[cfg(feature = "metrics")]
    metrics::counter!("redlock_attempts_total").increment(1);
    #[cfg(feature = "tracing")]
    tracing::trace!(resource = %keys, "asking the nodes for a lock");
}

/// Reports that the client has acquired a lock.
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

/// Reports that an acquire failed.
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

/// Reports how long the client waited for a lock that another client held, by queueing or by polling.
pub(crate) fn waited(waited: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_wait_seconds").record(waited.as_secs_f64());
}

/// Reports that the client accepts another node at the address of the node that answered before.
#[cold]
pub(crate) fn node_replaced(node: &str) {
    #[cfg(feature = "tracing")]
    tracing::warn!(
        node,
        "another node answers at this address now; it was admitted, and replaces the node before it"
    );
}

/// Reports that two addresses of the configuration lead to one node.
#[cold]
pub(crate) fn node_named_twice(node: &str, other: &str) {
    #[cfg(feature = "tracing")]
    tracing::error!(node, other, "two addresses lead to one node, which has one vote: acquires fail");
}

/// Reports that the client polls for held locks, because it cannot queue on this node.
#[cold]
pub(crate) fn polls_because_of(node: &str, reason: NoQueue) {
    #[cfg(feature = "tracing")]
    tracing::warn!(node, %reason, "this client polls for held locks, because it cannot queue on a node");
}

/// Reports the outcome of an extension.
pub(crate) fn extended(keys: &Keys, outcome: Result<(), &Error>) {
    #[cfg(feature = "metrics")]
    {
        let label = if outcome.is_ok() { "extended" } else { "failed" };
        metrics::counter!("redlock_extensions_total", "outcome" => label).increment(1);
        if let Err(error) = outcome {
            metrics::counter!("redlock_extension_failures_total", "reason" => error.reason()).increment(1);
        }
    }
    #[cfg(feature = "tracing")]
    match outcome {
        Ok(()) => tracing::trace!(resource = %keys, "extended a lock"),
        Err(error) => {
            let reason = error.reason();
            tracing::warn!(resource = %keys, reason, %error, "could not extend a lock");
        }
    }
}

/// Reports that a lock ended before its release.
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

/// Reports that a guard detached its lock.
pub(crate) fn detached(keys: &Keys, held: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(held.as_secs_f64());
    #[cfg(feature = "tracing")]
    tracing::debug!(resource = %keys, ?held, "detached a lock");
}

/// Reports that a guard releases its lock.
pub(crate) fn ended(keys: &Keys, held: Duration) {
    #[cfg(feature = "metrics")]
    metrics::histogram!("redlock_hold_seconds").record(held.as_secs_f64());
    #[cfg(feature = "tracing")]
    tracing::debug!(resource = %keys, ?held, "releasing a lock");
}
