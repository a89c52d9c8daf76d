//! When the command gets SIGTERM, and when SIGKILL.
//!
//! The command must have ended before another client can hold the lock, so all times count back from the end of the
//! lock's validity. Extensions begin when a third of the validity has passed. While they fail, the command runs until
//! only `--kill-after` and the margin are left:
//!
//! ```text
//! |-- command runs, lock is extended in time -------------|-- kill-after --|- margin -|
//! granted                                                SIGTERM        SIGKILL    validity ends
//! ```

use crate::duration::show;
use std::time::Duration;

/// The default time between SIGTERM and SIGKILL.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// The smallest and the largest margin: time for late timers, and for the kernel to end a killed process group.
const MARGINS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The watchdog kills the command when the margin divided by this is left.
const WATCHDOG_PART: u32 = 2;

/// The two periods at the end of the validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(super) kill_after: Duration,
    pub(super) margin: Duration,
}

/// What to do with the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Nothing for this long.
    Nothing(Duration),
    /// Send SIGTERM.
    Term,
    /// Send SIGKILL.
    Kill,
}

impl Deadline {
    pub(crate) fn new(ttl: Duration, kill_after: Option<Duration>) -> Result<Self, String> {
        let kill_after = match kill_after {
            None => KILL_AFTER.min(ttl / 4),
            // A longer time would leave less time for extensions than for ending the command.
            Some(asked) if asked.saturating_mul(2) > ttl => {
                return Err(format!(
                    "--kill-after {} is more than half of the ttl {}: use a --ttl of at least {}",
                    show(asked),
                    show(ttl),
                    show(asked.saturating_mul(2))
                ));
            }
            Some(asked) => asked,
        };
        let (least, most) = MARGINS;
        Ok(Self { kill_after, margin: (ttl / 20).clamp(least, most).min(ttl / 8) })
    }

    /// How long the command may still run before the watchdog kills it.
    pub(super) fn last_moment(&self, remaining: Duration) -> Duration {
        remaining.saturating_sub(self.margin / WATCHDOG_PART)
    }

    /// What to do when this much validity is left.
    pub(super) fn due(&self, remaining: Duration) -> NextStep {
        if remaining <= self.margin {
            return NextStep::Kill;
        }
        match remaining.checked_sub(self.kill_after + self.margin) {
            Some(time) if !time.is_zero() => NextStep::Nothing(time),
            _ => NextStep::Term,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn the_default_times_depend_on_the_time_to_live() {
        let table = [(30_000, 5_000, 1_000), (10_000, 2_500, 500), (1_000, 250, 50), (100, 25, 12)];
        for (ttl, kill_after, margin) in table {
            let deadline = Deadline::new(ms(ttl), None).expect("the default time");
            assert_eq!((deadline.kill_after.as_millis(), deadline.margin.as_millis()), (kill_after, margin));
        }
    }

    #[test]
    fn kill_after_is_at_most_half_of_the_time_to_live() {
        assert!(Deadline::new(ms(10_000), Some(ms(5_000))).is_ok());
        let error = Deadline::new(ms(10_000), Some(ms(5_001))).expect_err("too long");
        assert!(error.contains("at least 10.0s"), "{error}");
    }

    #[test]
    fn sigterm_comes_first_and_sigkill_at_the_margin() {
        let deadline = Deadline { kill_after: ms(5_000), margin: ms(1_000) };
        let table = [
            (29_000, NextStep::Nothing(ms(23_000))),
            (6_001, NextStep::Nothing(ms(1))),
            (6_000, NextStep::Term),
            (1_001, NextStep::Term),
            (1_000, NextStep::Kill),
            (0, NextStep::Kill),
        ];
        for (remaining, due) in table {
            assert_eq!(deadline.due(ms(remaining)), due, "{remaining} ms left");
        }
    }

    #[test]
    fn without_kill_after_sigkill_comes_at_once() {
        let deadline = Deadline::new(ms(10_000), Some(Duration::ZERO)).expect("a kill-after of 0");
        assert_eq!(deadline.due(ms(501)), NextStep::Nothing(ms(1)));
        assert_eq!(deadline.due(ms(500)), NextStep::Kill);
    }
}
