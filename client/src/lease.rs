//! The validity of a lock, shared by its holder and the driver.

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
    /// The validity has ended, or ends so soon that the holder must stop.
    Expired,
    /// A majority of the nodes answered that this client does not hold the lock: an administrator released
    /// it, or the nodes forgot it.
    Gone,
    /// The guard was released or dropped.
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

/// The validity of one lock, shared by a guard, its views and the driver. Reading it takes no mutex and sends
/// no message.
#[derive(Debug)]
pub(crate) struct Lease {
    clock: Clock,
    /// How long before the end of validity the holder is notified, in nanoseconds.
    notice_ns: AtomicU64,
    /// The end of validity on both clocks of [`Moment`], in nanoseconds. A reader between two stores sees one
    /// old and one new value. Validity ends when either clock reaches its value, so this reader never gets an
    /// end later than both.
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

    /// Sets how long before the end of validity the holder of a lease of this length is notified.
    pub(crate) fn give_notice_for(&self, lease: Duration) {
        let notice = u64::try_from(keep_alive::notice(lease).as_nanos()).unwrap_or(u64::MAX);
        self.notice_ns.store(notice, Ordering::Relaxed);
    }

    /// How long before the end of validity the holder is notified.
    pub(crate) fn notice(&self) -> Duration {
        Duration::from_nanos(self.notice_ns.load(Ordering::Relaxed))
    }

    /// Moves the end of validity: mostly later, sometimes earlier. Shortens the notice if little validity is
    /// left: a lock that is valid only for the claim window would otherwise be reported as lost at once.
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

    /// Marks the lock as no longer held. The first reason stays.
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

    /// How long the lock stays valid. Once this is zero, it stays zero.
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

    /// Resolves when the lock is no longer held, a little before its validity ends. Needs no network.
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

/// How long to sleep on the runtime's clock when `left` remains on the clock of the lease.
///
/// The runtime's clock can be slewed, and it stops while the machine is suspended. So the task wakes early
/// and reads the clock of the lease again: after 7/8 of the time, and at least four times a second.
fn nap(left: Duration) -> Duration {
    if left <= Duration::from_millis(4) { left } else { (left * 7 / 8).min(Duration::from_millis(250)) }
}
