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
#[cfg(target_os = "linux")]
fn system() -> Moment {
    use rustix::time::{ClockId, Timespec, clock_gettime};
    let nanoseconds = |time: Timespec| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
    };
    Moment::new(
        nanoseconds(clock_gettime(ClockId::Boottime)),
        nanoseconds(clock_gettime(ClockId::MonotonicRaw)),
    )
}

/// The nearest that every platform has. On macOS and Windows it does not count all kinds of sleep; the fence
/// is what guards against a holder that slept.
#[cfg(not(target_os = "linux"))]
fn system() -> Moment {
    use std::sync::OnceLock;
    static START: OnceLock<std::time::Instant> = OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    Moment::on_one_clock(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
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
