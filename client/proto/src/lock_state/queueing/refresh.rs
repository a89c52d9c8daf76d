//! When the client sends the request to queue again.
//!
//! A push can get lost, and a node that restarts forgets its waiters. The client therefore repeats its
//! request: the reply tells whether the node has granted meanwhile, and puts the client back into the queue.

use crate::Moment;
use std::time::Duration;

/// How often a client that every node has queued repeats its request, for grants whose push was lost.
pub(super) const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// The mean time between repeated requests while at least one node has not queued the client. Each time is up to
/// half of it shorter or longer.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How soon a client repeats its request after a connection broke, or after a connection that may have missed
/// pushes is back.
const REFRESH_AFTER_DISCONNECT: Duration = Duration::from_millis(20);

/// The moment at which the client repeats its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct RefreshTimer {
    at: Moment,
}

impl RefreshTimer {
    pub(super) fn new(now: Moment) -> Self {
        Self { at: now.plus(REFRESH_INTERVAL) }
    }

    pub(super) fn at(self) -> Moment {
        self.at
    }

    pub(super) fn is_due(self, now: Moment) -> bool {
        now.has_reached(self.at)
    }

    pub(super) fn restart(&mut self, interval: Duration, now: Moment) {
        self.at = now.plus(interval);
    }

    pub(super) fn make_due(&mut self, now: Moment) {
        self.at = now;
    }

    /// Brings the timer forward, if it is later.
    pub(super) fn no_later_than(&mut self, at: Moment) {
        self.at = self.at.earlier_of(at);
    }

    /// Brings the timer forward, because pushes may have been missed.
    pub(super) fn after_disconnect(&mut self, now: Moment) {
        self.no_later_than(now.plus(REFRESH_AFTER_DISCONNECT));
    }
}

/// The interval for a client that some node has not queued, from half to one and a half times 250 ms.
///
/// Where wait queues are full, many clients repeat their requests. They must not all do so at the same
/// moment, and no client always after the same other ones. The ticket and the stamp are as good as a random
/// number for that.
pub(super) fn retry_interval(ticket: u64, stamp: u64) -> Duration {
    let mixed = (ticket ^ stamp.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let share = u32::try_from(mixed >> 48).unwrap_or_default();
    RETRY_INTERVAL / 2 + RETRY_INTERVAL * share / (1 << 16)
}
