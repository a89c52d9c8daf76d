//! The node's clock, from the two monotonic clocks of the machine.

use redlock_core::{Millis, NodeClock, SlowClock};

/// The node's clock on this machine.
pub(crate) struct MachineClock {
    slow: SlowClock,
    seen: Millis,
    /// The largest lag of the coarse clock, in microseconds.
    coarse_error_us: u64,
}

impl MachineClock {
    /// A clock that starts now.
    pub(crate) fn start() -> Self {
        let slow = SlowClock::starting_at(monotonic_us(), raw_us());
        Self { slow, seen: Millis::START, coarse_error_us: coarse_error_us() }
    }

    /// The last result of [`latest`](NodeClock::latest), without another reading.
    pub(crate) fn seen(&self) -> Millis {
        self.seen
    }
}

impl NodeClock for MachineClock {
    fn latest(&mut self) -> Millis {
        self.seen = self.slow.at_most(monotonic_us());
        self.seen
    }

    fn proven(&mut self) -> Millis {
        self.slow.sample(monotonic_us(), raw_us())
    }

    fn has_passed(&mut self, deadline: Millis) -> bool {
        // The coarse clock costs a third of an exact one, and nearly every deadline is far away.
        let at_most = self.slow.at_most(coarse_us() + self.coarse_error_us);
        deadline <= at_most && deadline <= self.proven()
    }
}

fn monotonic_us() -> u64 {
    read_us(libc::CLOCK_MONOTONIC)
}

/// The clock of the crystal, which no time daemon slews. Systems other than Linux have one monotonic clock.
fn raw_us() -> u64 {
    #[cfg(target_os = "linux")]
    let id = libc::CLOCK_MONOTONIC_RAW;
    #[cfg(not(target_os = "linux"))]
    let id = libc::CLOCK_MONOTONIC;
    read_us(id)
}

/// The monotonic clock as of the kernel's last tick.
fn coarse_us() -> u64 {
    read_us(COARSE)
}

/// The time between two ticks, in microseconds. If a tick is late, a deadline seems further away than it is, and a lock
/// is held longer.
fn coarse_error_us() -> u64 {
    let mut tick = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `tick` is a valid timespec that outlives the call.
    unsafe { libc::clock_getres(COARSE, &raw mut tick) };
    micros(tick)
}

#[cfg(target_os = "linux")]
const COARSE: libc::clockid_t = libc::CLOCK_MONOTONIC_COARSE;
#[cfg(not(target_os = "linux"))]
const COARSE: libc::clockid_t = libc::CLOCK_MONOTONIC;

fn read_us(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec that outlives the call. A failure leaves it at zero, and time
    // that stands still ends no lock.
    unsafe { libc::clock_gettime(id, &raw mut time) };
    micros(time)
}

fn micros(time: libc::timespec) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec / 1_000).unwrap_or(0)
}
