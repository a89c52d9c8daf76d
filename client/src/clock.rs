//! The clocks that validity is measured on.

use redlock_proto::Moment;
use tokio::time::Instant;

/// Where a client takes its time from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Clock {
    /// The machine's own clocks.
    System,
    /// The runtime's clock, which a test may pause and move: for nodes in memory.
    Runtime(Instant),
}

impl Clock {
    /// Now. A few dozen nanoseconds.
    pub(crate) fn now(self) -> Moment {
        match self {
            Self::System => system(),
            Self::Runtime(start) => {
                Moment::on_one_clock(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }
}

/// `CLOCK_BOOTTIME` goes on while the machine sleeps, `CLOCK_MONOTONIC_RAW` is not slewed by time daemons.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn system() -> Moment {
    use rustix::time::ClockId;
    Moment::new(shown_by(ClockId::Boottime), shown_by(ClockId::MonotonicRaw))
}

/// There `CLOCK_MONOTONIC` goes on while the machine sleeps; the clock of [`std::time::Instant`] does not, and is not
/// slewed.
#[cfg(target_vendor = "apple")]
fn system() -> Moment {
    Moment::new(shown_by(rustix::time::ClockId::Monotonic), since_start())
}

/// The nearest that every platform has. It does not count all kinds of sleep; the fence is what guards against a
/// holder that slept.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn system() -> Moment {
    Moment::on_one_clock(since_start())
}

/// What a clock shows, in nanoseconds.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn shown_by(clock: rustix::time::ClockId) -> u64 {
    let time = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Nanoseconds since this was first asked.
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
