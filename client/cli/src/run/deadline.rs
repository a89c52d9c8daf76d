//! When a command must be told to end, and when it must be ended.
//!
//! The command has to be gone before anybody else can hold the lock, so all is counted back from the end of the
//! lock's validity. Extensions begin when a third of it is gone. As long as they fail the command goes on, until only
//! the time to end it is left:
//!
//! ```text
//! |-- extended again and again, each time for the whole --|-- kill-after --|- margin -|
//! granted                                                SIGTERM        SIGKILL    validity ends
//! ```

use crate::duration::show;
use std::time::Duration;

/// The time between SIGTERM and SIGKILL if nobody names another.
const KILL_AFTER: Duration = Duration::from_secs(5);

/// What is left for the kernel to end a process group that was killed, and for timers that are late.
const MARGINS: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

/// The watchdog kills the command when one part in this many of the margin is left.
const WATCHDOG_PART: u32 = 2;

/// The two times before the end of validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Deadline {
    pub(super) kill_after: Duration,
    pub(super) margin: Duration,
}

/// What has to be done about a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Nothing before so much more time has passed.
    Nothing(Duration),
    /// It must be told to end.
    Term,
    /// It must be ended.
    Kill,
}

impl Deadline {
    pub(super) fn new(ttl: Duration, kill_after: Option<Duration>) -> Result<Self, String> {
        let kill_after = match kill_after {
            None => KILL_AFTER.min(ttl / 4),
            // More would leave less time to the extensions than to the end.
            Some(asked) if asked.saturating_mul(2) > ttl => {
                return Err(format!(
                    "--kill-after {} needs a --ttl of at least {}: the command must be gone before the lock is",
                    show(asked),
                    show(asked.saturating_mul(2))
                ));
            }
            Some(asked) => asked,
        };
        let (least, most) = MARGINS;
        Ok(Self { kill_after, margin: (ttl / 20).clamp(least, most).min(ttl / 8) })
    }

    /// How much longer a command may live at the very most, if nobody has ended it by then who should have.
    pub(super) fn last_moment(&self, remaining: Duration) -> Duration {
        remaining.saturating_sub(self.margin / WATCHDOG_PART)
    }

    /// What has to be done while so much validity is left.
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
    fn the_usual_times_fit_any_time_to_live() {
        let table = [(30_000, 5_000, 1_000), (10_000, 2_500, 500), (1_000, 250, 50), (100, 25, 12)];
        for (ttl, kill_after, margin) in table {
            let deadline = Deadline::new(ms(ttl), None).expect("the usual time");
            assert_eq!((deadline.kill_after.as_millis(), deadline.margin.as_millis()), (kill_after, margin));
        }
    }

    #[test]
    fn ending_may_not_take_longer_than_half_the_time() {
        assert!(Deadline::new(ms(10_000), Some(ms(5_000))).is_ok());
        let error = Deadline::new(ms(10_000), Some(ms(5_001))).expect_err("too long");
        assert!(error.contains("10.0s"), "{error}");
    }

    #[test]
    fn the_end_comes_in_two_steps() {
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
    fn a_command_that_may_not_linger_is_ended_at_once() {
        let deadline = Deadline::new(ms(10_000), Some(Duration::ZERO)).expect("no time at all");
        assert_eq!(deadline.due(ms(501)), NextStep::Nothing(ms(1)));
        assert_eq!(deadline.due(ms(500)), NextStep::Kill);
    }
}
