//! Connecting to a node, and the backoff between two attempts.

use crate::connect::{self, ConnectFailure, Ready, Target};
use crate::owner::random;
use redlock_proto::Moment;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The pause after the first failure; it doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause: the client uses a repaired node again after at most this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a node may take to reply, and to connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) node_timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// Consecutive failures to connect, and the pause that follows from them.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure. Returns when to connect again.
    pub(super) fn failed(&mut self, now: Moment) -> Moment {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        // Half of the pause is random, so that many clients do not reconnect to a node at the same moment.
        let jitter = pause.mul_f64(0.5 * (random() as f64 / u64::MAX as f64));
        now.plus(pause / 2 + jitter)
    }

    /// Resets the pause: the node has replied.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Resets the pause if the connection lasted: then the node was fine, even if no command was sent.
    pub(super) fn ended_after(&mut self, lasted: Duration) {
        if lasted > LONGEST_PAUSE {
            self.succeeded();
        }
    }
}

/// A connection in the making. Dropping it aborts the attempt.
pub(super) struct Connecting(JoinHandle<Result<Ready, ConnectFailure>>);

impl Connecting {
    /// Starts to connect, for at most the connect timeout.
    pub(super) fn begin(target: &Arc<Target>, timeouts: Timeouts) -> Self {
        let target = Arc::clone(target);
        Self(tokio::spawn(async move {
            match tokio::time::timeout(timeouts.connect_timeout, connect::connect(&target)).await {
                Ok(outcome) => outcome,
                Err(_) => {
                    Err(ConnectFailure::Unreachable("connecting took longer than the connect timeout".into()))
                }
            }
        }))
    }

    /// The connection, or why it failed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Ready, ConnectFailure>> {
        Pin::new(&mut self.0).poll(cx).map(|ended| {
            ended.unwrap_or_else(|_| {
                Err(ConnectFailure::Unreachable("the runtime is shutting down".to_owned()))
            })
        })
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_until_a_reply_or_a_connection_that_lasted() {
        let now = Moment::default();
        let mut backoff = Backoff::default();
        let pause = |backoff: &mut Backoff| now.until(backoff.failed(now));
        assert!(pause(&mut backoff) <= FIRST_PAUSE);
        for _ in 0..10 {
            backoff.failed(now);
        }
        assert!(pause(&mut backoff) >= LONGEST_PAUSE / 2);
        backoff.ended_after(LONGEST_PAUSE / 2);
        assert!(pause(&mut backoff) >= LONGEST_PAUSE / 2, "the connection was too short to reset the pause");
        backoff.ended_after(LONGEST_PAUSE * 2);
        assert!(pause(&mut backoff) <= FIRST_PAUSE);
        backoff.failed(now);
        backoff.succeeded();
        assert!(pause(&mut backoff) <= FIRST_PAUSE);
    }
}
