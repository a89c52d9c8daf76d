//! The one way to wait: ask again until the answer is there, and give up at a deadline.

use std::thread;
use std::time::{Duration, Instant};

/// Time enough for anything a healthy server does on a busy machine; a deadline, never a delay.
pub const SOON: Duration = Duration::from_secs(10);

/// Between two questions: short beside a server's own 100 ms tick, long enough to leave it the core.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `probe` has something to hand over; ends the test when `deadline` passes first.
///
/// `what` completes the sentence "waited in vain until …".
pub fn eventually<T>(what: &str, deadline: Duration, probe: impl FnMut() -> Option<T>) -> T {
    within(deadline, probe).unwrap_or_else(|| panic!("waited in vain for {deadline:?} until {what}"))
}

/// As [`eventually`], for a caller with more to say about the failure than a sentence.
pub fn within<T>(deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + deadline;
    loop {
        // The clock is read before the probe: the last probe starts after the deadline, so that a test
        // process which was itself held up still asks once more.
        let late = Instant::now() >= end;
        let found = probe();
        if found.is_some() || late {
            return found;
        }
        thread::sleep(PAUSE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asks_again_until_there_is_an_answer() {
        let mut asked = 0;
        let seen = eventually("the third question", SOON, || {
            asked += 1;
            (asked == 3).then_some(asked)
        });
        assert_eq!(seen, 3);
    }

    #[test]
    fn gives_up_at_the_deadline() {
        assert_eq!(within(Duration::ZERO, || None::<()>), None);
    }
}
