//! What a task does with its locks: works, writes, extends, lets go, forgets, and tells all of it.

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

/// One of sixteen things that a holder may do.
const ABANDON: u8 = 13;

/// One task.
pub(crate) struct Worker {
    pub(crate) locks: Arc<AnyLocks>,
    pub(crate) writer: Writer,
    pub(crate) rng: Rng,
    pub(crate) sessions: Arc<AtomicU64>,
    /// Closed when it is time to go.
    pub(crate) stopped: watch::Receiver<()>,
    pub(crate) at_once: usize,
    /// Whether it never lets go of anything.
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
            // Some lose patience, and leave it to the client to clean up.
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
        // The time is read first: what remains then, remains from that moment at least.
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

    /// Looks whether the lock is still its own, works for a while, and writes. In that while anything may
    /// happen: that is what the fence is for.
    async fn write(&mut self, session: SessionId, keys: &[usize], hold: &AnyGuard, work: Duration) {
        if hold.remaining().is_zero() {
            return;
        }
        tokio::time::sleep(work.mul_f64(self.rng.f64())).await;
        for key in keys {
            self.writer.write(session, *key, hold.fence()).await.expect("the storage is there");
        }
    }
}

/// Does nothing but wait for word that the time is nearly up. The process sleeps in small steps meanwhile: if one
/// of them takes much longer than it should, it stood still, and nobody could have told it anything.
async fn wait_for_loss(session: SessionId, hold: &AnyGuard) {
    let mut told = pin!(hold.lost());
    let (mut until_ns, mut longest_stall_ns) = (0, 0);
    // Whoever comes to wait when there is hardly anything left to wait for may have slept before.
    let is_early = nanoseconds(hold.remaining()) > 10 * STEP_NS;
    let end = loop {
        let before_ns = now_ns();
        // An answer that is still to come may move the end.
        let remaining_ns = nanoseconds(hold.remaining());
        if remaining_ns > 0 {
            until_ns = before_ns + remaining_ns;
        }
        let nap = tokio::time::sleep(Duration::from_nanos(STEP_NS));
        let end = tokio::select! {
            biased;
            end = &mut told => Some(end),
            () = nap => None,
        };
        // A timer of the runtime is late by up to a step in any case.
        longest_stall_ns = longest_stall_ns.max((now_ns() - before_ns).saturating_sub(2 * STEP_NS));
        if let Some(end) = end {
            break end;
        }
    };
    // What the nodes let go of before its time has nothing to do with its end.
    if end == HoldEnd::Expired && is_early {
        emit(session, EventKind::LossNotified { until_ns, longest_stall_ns });
    }
}

/// The runtime's own: it does not sleep for less.
const STEP_NS: u64 = 1_000_000;

/// Tells until when the lock is believed in now, if it is.
fn emit_validity(session: SessionId, hold: &AnyGuard) {
    let at_ns = now_ns();
    let remaining = hold.remaining();
    if !remaining.is_zero() {
        emit_at(at_ns, session, EventKind::StillValid { until_ns: at_ns + nanoseconds(remaining) });
    }
}

/// Tells how it ends, before anything is done about it.
async fn emit_end(session: SessionId, hold: &AnyGuard) {
    let at_ns = now_ns();
    let end = if hold.remaining().is_zero() { hold.end_reason().await } else { HoldEnd::Released };
    emit_at(at_ns, session, EventKind::Ended(end));
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
