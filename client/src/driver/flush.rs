//! The end of a driver, and the callers that wait for the releases begun before they called.

use super::Driver;
use super::timers::sooner;
use redlock_proto::Moment;
use tokio::sync::oneshot;

/// A caller of flush.
pub(super) struct FlushWaiter {
    asked: Moment,
    /// The serial of the newest lock or broadcast at the time of the call. The caller does not wait for later
    /// ones.
    serial: u64,
    /// `None` once the caller is answered.
    answer: Option<oneshot::Sender<()>>,
}

impl Driver {
    pub(super) fn flush(&mut self, answer: oneshot::Sender<()>, now: Moment) {
        self.flush_waiters.push(FlushWaiter { asked: now, serial: self.serial, answer: Some(answer) });
    }

    /// When the next caller of flush has waited long enough for nodes that are down.
    pub(super) fn flush_deadline(&self, now: Moment) -> Option<Moment> {
        let timeout = self.settings.node_timeout;
        let deadlines = self.flush_waiters.iter().map(|waiter| waiter.asked.plus(timeout));
        deadlines.filter(|deadline| !now.has_reached(*deadline)).map(Some).fold(None, sooner)
    }

    /// Answers the callers of flush that have nothing left to wait for; true if the driver itself can end.
    pub(super) fn is_done(&mut self, now: Moment) -> bool {
        if self.flush_waiters.is_empty() && self.has_callers {
            return false;
        }
        let releasing = self.locks.iter().filter(|(_, entry)| entry.is_releasing());
        let releasing = releasing.map(|(_, entry)| entry.serial);
        // A broadcast may be the release of a detached lock.
        let broadcasts = self.broadcasts.iter().map(|(_, broadcast)| broadcast.serial);
        let oldest = releasing.chain(broadcasts).min().unwrap_or(u64::MAX);
        let pool = &self.pool;
        self.flush_waiters.retain_mut(|waiter| {
            let must_wait = oldest <= waiter.serial || pool.awaits_release(waiter.asked, now);
            if !must_wait && let Some(answer) = waiter.answer.take() {
                let _ = answer.send(());
            }
            must_wait
        });
        !self.has_callers && oldest == u64::MAX && !self.pool.awaits_release(now, now)
    }
}
