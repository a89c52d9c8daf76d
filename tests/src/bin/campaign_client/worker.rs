//! A task of a client process: it acquires locks, writes, extends, releases or abandons them, and reports all of it.

use crate::locks::{AnyGuard, AnyLocks};
use crate::output::{emit, emit_at};
use fastrand::Rng;
use redlock_sim::SessionId;
use redlock_tests::campaign::{EventKind, HoldEnd, Writer, now_ns};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::watch;

/// The action, of sixteen random ones, in which the holder abandons its locks.
const ABANDON: u8 = 13;

/// One task.
pub(crate) struct Worker {
    pub(crate) locks: Arc<AnyLocks>,
    pub(crate) writer: Writer,
    pub(crate) rng: Rng,
    pub(crate) sessions: Arc<AtomicU64>,
    /// Closed when the task must end.
    pub(crate) stopped: watch::Receiver<()>,
    pub(crate) at_once: usize,
    /// Whether the holder abandons all locks.
    pub(crate) abandons_all: bool,
    pub(crate) keys: usize,
    pub(crate) ttl: Duration,
}

impl Worker {
    pub(crate) async fn work(mut self) {
        while self.stopped.has_changed().is_ok() {
            let session = self.sessions.fetch_add(1, Relaxed);
            let keys = self.pick_keys();
            let ttl = self.ttl.mul_f64(self.rng.f64().mul_add(0.5, 0.5));
            emit(session, EventKind::Started { keys: keys.clone() });
            let acquire = self.locks.acquire(&keys, ttl);
            // One of sixteen calls is cancelled early, and the client must clean up.
            let patience = if self.rng.u8(0..16) == 0 { self.ttl / 20 } else { Duration::from_secs(60) };
            match tokio::time::timeout(patience, acquire).await {
                Ok(Ok(hold)) => self.hold(session, &keys, hold).await,
                Ok(Err(why)) => emit(session, EventKind::Failed { why: why.into() }),
                Err(_) => emit(session, EventKind::Failed { why: "cancelled".into() }),
            }
        }
    }

    fn pick_keys(&mut self) -> Vec<usize> {
        let first = self.rng.usize(0..self.keys);
        let is_plain = matches!(*self.locks, AnyLocks::Plain(_));
        if self.at_once < 2 || self.keys < 2 || is_plain || self.rng.u8(0..8) > 0 {
            return vec![first];
        }
        vec![first, (first + 1) % self.keys]
    }

    async fn hold(&mut self, session: SessionId, keys: &[usize], mut hold: AnyGuard) {
        // The clock is read first, so `until_ns` is not after the real end of the validity.
        let at_ns = now_ns();
        let (fence, until_ns) = (hold.fence(), at_ns + nanoseconds(hold.remaining()));
        emit_at(at_ns, session, EventKind::Held { fence, until_ns });
        let action = if self.abandons_all { ABANDON } else { self.rng.u8(0..16) };
        match action {
            0..5 => self.write(session, keys, &hold, self.ttl / 40).await,
            5..8 => {
                for _ in 0..self.rng.u8(1..4) {
                    self.write(session, keys, &hold, self.ttl / 4).await;
                }
            }
            8..11 => {
                for _ in 0..2 {
                    self.write(session, keys, &hold, self.ttl / 8).await;
                    if hold.extend().await {
                        emit(session, EventKind::Extended);
                    }
                    emit_validity(session, &hold);
                }
                self.write(session, keys, &hold, self.ttl / 4).await;
            }
            11 => {
                hold.keep_alive(self.ttl * 2);
                for _ in 0..6 {
                    self.write(session, keys, &hold, self.ttl / 4).await;
                    emit_validity(session, &hold);
                }
            }
            12 => {
                self.write(session, keys, &hold, self.ttl / 40).await;
                wait_for_loss(session, &hold).await;
            }
            ABANDON => {
                self.write(session, keys, &hold, self.ttl / 4).await;
                emit(session, EventKind::Ended(HoldEnd::Abandoned));
                return hold.abandon();
            }
            _ => {}
        }
        emit_end(session, &hold).await;
        if self.rng.u8(0..4) == 0 {
            return hold.drop_in_background();
        }
        hold.release().await;
    }

    /// Checks that the lock is valid, works for a while, and writes. The lock may be lost in between: the fence
    /// protects against that.
    async fn write(&mut self, session: SessionId, keys: &[usize], hold: &AnyGuard, work: Duration) {
        if hold.remaining().is_zero() {
            return;
        }
        tokio::time::sleep(work.mul_f64(self.rng.f64())).await;
        for key in keys {
            self.writer.write(session, *key, hold.fence()).await.expect("the storage is reachable");
        }
    }
}

/// Waits for the notification that the validity is about to end. Meanwhile the task sleeps in small steps: a step that
/// takes much longer shows that the process was stalled, and the client could not notify it. A stall that is over well
/// before the end does not delay the notification, so it does not count.
async fn wait_for_loss(session: SessionId, hold: &AnyGuard) {
    let mut lost = pin!(hold.lost());
    let (mut until_ns, mut longest_stall_ns) = (0, 0);
    // If little time is left at the start, the process may have been stalled before.
    let is_early = nanoseconds(hold.remaining()) > 10 * STEP_NS;
    let end = loop {
        let before_ns = now_ns();
        // The reply to an extension may still move the end.
        let remaining_ns = nanoseconds(hold.remaining());
        if remaining_ns > 0 {
            until_ns = before_ns + remaining_ns;
        }
        let nap = tokio::time::sleep(Duration::from_nanos(STEP_NS));
        let end = tokio::select! {
            biased;
            end = &mut lost => Some(end),
            () = nap => None,
        };
        let after_ns = now_ns();
        if end.is_some() || after_ns + NEAR_END_NS > until_ns {
            // A timer of the runtime is always late by up to a step.
            longest_stall_ns = longest_stall_ns.max((after_ns - before_ns).saturating_sub(2 * STEP_NS));
        }
        if let Some(end) = end {
            break end;
        }
    };
    // A lock that the nodes lost earlier says nothing about the notification of the end.
    if end == HoldEnd::Expired && is_early {
        emit(session, EventKind::LossNotified { until_ns, longest_stall_ns });
    }
}

/// The resolution of the runtime's timers: 1 ms.
const STEP_NS: u64 = 1_000_000;

/// After a stall that ends longer than this before the end of validity, the client still has time to notify the holder.
const NEAR_END_NS: u64 = 50_000_000;

/// Reports until when the lock is valid, if it is valid.
fn emit_validity(session: SessionId, hold: &AnyGuard) {
    let at_ns = now_ns();
    let remaining = hold.remaining();
    if !remaining.is_zero() {
        emit_at(at_ns, session, EventKind::StillValid { until_ns: at_ns + nanoseconds(remaining) });
    }
}

/// Reports how the hold ends, before the holder releases the lock.
async fn emit_end(session: SessionId, hold: &AnyGuard) {
    let at_ns = now_ns();
    let end = if hold.remaining().is_zero() { hold.end_reason().await } else { HoldEnd::Released };
    emit_at(at_ns, session, EventKind::Ended(end));
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
