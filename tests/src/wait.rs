//! The one way to wait: ask again until the answer is there, and give up at a deadline.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// Time enough for anything a healthy server does on a busy machine; a deadline, never a delay.
pub const SOON: Duration = Duration::from_secs(10);

/// How many times longer than usual everything may take: `REDLOCK_PATIENCE`, for servers under a checker that
/// makes them slow. Deadlines move, nothing else does.
fn patient(deadline: Duration) -> Duration {
    static PATIENCE: LazyLock<u32> = LazyLock::new(|| {
        let wish = std::env::var("REDLOCK_PATIENCE").ok();
        wish.map_or(1, |times| times.parse().expect("REDLOCK_PATIENCE is a whole number"))
    });
    deadline * *PATIENCE
}

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
    let end = Instant::now() + patient(deadline);
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

/// As [`eventually`], without keeping the thread from the tasks that the answer depends on.
///
/// # Panics
/// When `deadline` passes first.
pub async fn eventually_async<T>(
    what: &str,
    deadline: Duration,
    mut probe: impl AsyncFnMut() -> Option<T>,
) -> T {
    let end = Instant::now() + patient(deadline);
    loop {
        let late = Instant::now() >= end;
        if let Some(found) = probe().await {
            return found;
        }
        assert!(!late, "waited in vain for {deadline:?} until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits for something that ends by itself; ends the test when `deadline` passes first.
///
/// `what` completes the sentence "waited in vain until …".
///
/// # Panics
/// When `deadline` passes first.
pub async fn in_time<T>(what: &str, deadline: Duration, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(patient(deadline), future).await;
    outcome.unwrap_or_else(|_| panic!("waited in vain for {deadline:?} until {what}"))
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

    #[tokio::test]
    async fn lets_other_tasks_bring_the_answer() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move { sender.send(7).await });
        let found = eventually_async("another task has sent", SOON, async || receiver.try_recv().ok()).await;
        assert_eq!(found, 7);
        assert_eq!(in_time("a future ends", SOON, async { 7 }).await, 7);
    }

    #[tokio::test]
    #[should_panic(expected = "until pigs fly")]
    async fn gives_up_at_the_deadline_without_blocking() {
        eventually_async("pigs fly", Duration::ZERO, async || None::<()>).await;
    }
}
