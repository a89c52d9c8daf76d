//! Connecting to a node, again and again if it must be, and not in haste.

use crate::connect::{ConnectFailure, Ready};
use crate::owner::random;
use redlock_proto::Moment;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The first pause before connecting again; it doubles from failure to failure.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause: a repaired node is used again after at most this.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How long a node may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) node_timeout: Duration,
    pub(super) connect_timeout: Duration,
}

/// How often it went wrong in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// It went wrong once more. Tells when to try again.
    pub(super) fn failed(&mut self, now: Moment) -> Moment {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        // Half of the pause is chance: many clients shall not come back to a node at the same moment.
        let chance = pause.mul_f64(0.5 * (random() as f64 / u64::MAX as f64));
        now.plus(pause / 2 + chance)
    }

    /// It went well.
    pub(super) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// A connection has ended after so long. One that lasted is no sign of trouble, though nothing was asked on it.
    pub(super) fn ended_after(&mut self, lasted: Duration) {
        if lasted > LONGEST_PAUSE {
            self.succeeded();
        }
    }
}

/// A connection that is being made. Dropped, it is given up: what nobody waits for any more must not linger.
pub(super) struct Connecting(JoinHandle<Result<Ready, ConnectFailure>>);

impl Connecting {
    /// Begins to connect, for at most the connect timeout.
    pub(super) fn begin(
        connecting: impl Future<Output = Result<Ready, ConnectFailure>> + Send + 'static,
        timeouts: Timeouts,
    ) -> Self {
        Self(tokio::spawn(async move {
            match tokio::time::timeout(timeouts.connect_timeout, connecting).await {
                Ok(outcome) => outcome,
                Err(_) => Err(ConnectFailure::Unreachable("no connection in time".into())),
            }
        }))
    }

    /// What came of it, once something has.
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
    fn pauses_grow_until_something_goes_well_or_lasts() {
        let now = Moment::default();
        let mut backoff = Backoff::default();
        let pause = |backoff: &mut Backoff| now.until(backoff.failed(now));
        assert!(pause(&mut backoff) <= FIRST_PAUSE);
        for _ in 0..10 {
            backoff.failed(now);
        }
        assert!(pause(&mut backoff) >= LONGEST_PAUSE / 2);
        backoff.ended_after(LONGEST_PAUSE / 2);
        assert!(pause(&mut backoff) >= LONGEST_PAUSE / 2, "it ended as soon as it was there");
        backoff.ended_after(LONGEST_PAUSE * 2);
        assert!(pause(&mut backoff) <= FIRST_PAUSE);
    }
}
