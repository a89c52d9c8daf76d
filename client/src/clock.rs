//! The clocks that measure validity.

use redlock_proto::Moment;
use tokio::time::Instant;

/// The clock of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The clocks of the machine.
    System,
    /// The runtime's clock, which a test can pause and advance: for nodes in memory.
    Runtime(Instant),
}

impl Clock {
    /// Returns the current time. Takes a few dozen nanoseconds.
    pub(crate) fn now(self) -> Moment {
        match self {
            Self::System => system(),
            Self::Runtime(start) => {
                Moment::on_one_clock(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }
}

/// `CLOCK_BOOTTIME` runs while the machine is suspended; time daemons do not slew `CLOCK_MONOTONIC_RAW`.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Moment {
    use rustix::time::ClockId;
    Moment::new(shown_by(ClockId::Boottime), shown_by(ClockId::MonotonicRaw))
}

/// On Apple systems `CLOCK_MONOTONIC` runs while the machine is suspended. The clock of
/// [`std::time::Instant`] does not, but time daemons do not slew it.
#[cfg(target_vendor = "apple")]
fn system() -> Moment {
    Moment::new(shown_by(rustix::time::ClockId::Monotonic), since_start())
}

/// The clock that every platform has. It does not count every kind of suspension; the fence protects against
/// a holder that was suspended.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn system() -> Moment {
    Moment::on_one_clock(since_start())
}

/// Reads a clock, in nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn shown_by(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds since the first call.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn since_start() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn time_passes() {
        let earlier = Clock::System.now();
        let started = std::time::Instant::now();
        while started.elapsed() < Duration::from_millis(2) {
            std::hint::spin_loop();
        }
        assert!(Clock::System.now().since(earlier) >= Duration::from_millis(1));
    }

    #[tokio::test(start_paused = true)]
    async fn the_runtime_clock_can_be_moved() {
        let clock = Clock::Runtime(Instant::now());
        let earlier = clock.now();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(clock.now().since(earlier), Duration::from_secs(60));
    }
}
