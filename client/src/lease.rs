//! Until when a lock may be believed, as its holder and the driver both see it.

use crate::clock::Clock;
use redlock_proto::{Moment, keep_alive};
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// Its time is up, or so nearly that a holder must stop.
    Expired,
    /// A majority of the nodes says that it is not ours: freed by an administrator, or forgotten.
    Gone,
    /// It was released.
    Released,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time is up",
            Self::Gone => "a majority of the nodes no longer has it",
            Self::Released => "it was released",
        })
    }
}

const HELD: u8 = 0;

/// Shared between a guard, its views and the driver. Reading it costs no lock and no message.
#[derive(Debug)]
pub(crate) struct Lease {
    clock: Clock,
    /// How long before the end the holder is told, in nanoseconds.
    notice_ns: AtomicU64,
    /// The two clocks of the moment when validity ends. A reader between two writes sees one old value; of
    /// the two the earlier end counts, so it never sees a later end than there was.
    until: [AtomicU64; 2],
    end: AtomicU8,
    changed: Notify,
}

impl Lease {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            notice_ns: AtomicU64::new(0),
            until: [AtomicU64::new(0), AtomicU64::new(0)],
            end: AtomicU8::new(HELD),
            changed: Notify::new(),
        }
    }

    /// A lock of this length is told of its end so long before.
    pub(crate) fn give_notice_for(&self, lease: Duration) {
        let notice = u64::try_from(keep_alive::notice(lease).as_nanos()).unwrap_or(u64::MAX);
        self.notice_ns.store(notice, Ordering::Relaxed);
    }

    /// How long before the end the holder is told.
    pub(crate) fn notice(&self) -> Duration {
        Duration::from_nanos(self.notice_ns.load(Ordering::Relaxed))
    }

    /// Validity ends at another moment than before: mostly later, sometimes sooner. The holder of a lock that
    /// is held for a short while only, until its claim is confirmed, is not told of its end at once.
    pub(crate) fn set_until(&self, until: Moment, lease: Duration) {
        if until == self.until() {
            return;
        }
        self.give_notice_for(lease.min(self.clock.now().until(until)));
        let (first, second) = until.nanoseconds();
        self.until[0].store(first, Ordering::Release);
        self.until[1].store(second, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn until(&self) -> Moment {
        Moment::new(self.until[0].load(Ordering::Acquire), self.until[1].load(Ordering::Acquire))
    }

    /// The lock is no longer held. The first reason stays.
    pub(crate) fn end(&self, reason: LostReason) {
        let code = match reason {
            LostReason::Expired => 1,
            LostReason::Gone => 2,
            LostReason::Released => 3,
        };
        if self.end.compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.changed.notify_waiters();
        }
    }

    pub(crate) fn ended(&self) -> Option<LostReason> {
        match self.end.load(Ordering::Acquire) {
            HELD => None,
            1 => Some(LostReason::Expired),
            2 => Some(LostReason::Gone),
            _ => Some(LostReason::Released),
        }
    }

    /// How long the lock may still be believed. Once it was not, it never is again.
    pub(crate) fn remaining(&self) -> Duration {
        if self.ended().is_some() {
            return Duration::ZERO;
        }
        let left = self.clock.now().until(self.until());
        if left.is_zero() {
            self.end(LostReason::Expired);
        }
        left
    }

    /// Resolves when the lock is no longer held, a little before its time is up. Needs no network.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.ended() {
                return reason;
            }
            let left = self.remaining().saturating_sub(self.notice());
            if left.is_zero() {
                self.end(LostReason::Expired);
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(nap(left)) => {}
                () = changed => {}
            }
        }
    }
}

/// How long to sleep on the runtime's clock when so much is left on ours.
///
/// The runtime's clock may be slewed and stands still while the machine sleeps, so we look again before
/// the time comes, ever closer, and at least four times a second.
fn nap(left: Duration) -> Duration {
    if left <= Duration::from_millis(4) { left } else { (left * 7 / 8).min(Duration::from_millis(250)) }
}
