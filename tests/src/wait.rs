//! Waiting for a condition: probe until it holds, and fail at a deadline.

use std::sync::LazyLock;
use std::thread;
use std::time::{Duration, Instant};

/// A deadline for anything that a healthy server does on a busy machine. Never a delay.
pub const SOON: Duration = Duration::from_secs(10);

/// Multiplies a deadline by `REDLOCK_PATIENCE`, for servers under a checker that makes them slow.
fn patient(deadline: Duration) -> Duration {
    static PATIENCE: LazyLock<u32> = LazyLock::new(|| {
        let factor = std::env::var("REDLOCK_PATIENCE").ok();
        factor.map_or(1, |times| times.parse().expect("REDLOCK_PATIENCE is a whole number"))
    });
    deadline * *PATIENCE
}

/// The pause between two probes: much shorter than a server's tick of 100 ms, and long enough to let the server run.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `probe` returns a value. Fails the test at the deadline.
///
/// `what` completes the sentence "timed out waiting until …".
pub fn eventually<T>(what: &str, deadline: Duration, probe: impl FnMut() -> Option<T>) -> T {
    within(deadline, probe).unwrap_or_else(|| panic!("timed out after {deadline:?}, waiting until {what}"))
}

/// As [`eventually`], but returns `None` at the deadline.
pub fn within<T>(deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + patient(deadline);
    loop {
        // The clock is read before the probe, so the last probe starts after the deadline: a test process that was
        // itself delayed still probes once more.
        let late = Instant::now() >= end;
        let found = probe();
        if found.is_some() || late {
            return found;
        }
        thread::sleep(PAUSE);
    }
}

/// As [`eventually`], without blocking the thread of the other tasks.
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
        assert!(!late, "timed out after {deadline:?}, waiting until {what}");
        tokio::time::sleep(PAUSE).await;
    }
}

/// Waits for a future. Fails the test at the deadline.
///
/// `what` completes the sentence "timed out waiting until …".
///
/// # Panics
/// When `deadline` passes first.
pub async fn in_time<T>(what: &str, deadline: Duration, future: impl Future<Output = T>) -> T {
    let outcome = tokio::time::timeout(patient(deadline), future).await;
    outcome.unwrap_or_else(|_| panic!("timed out after {deadline:?}, waiting until {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eventually_probes_until_it_gets_a_value() {
        let mut probes = 0;
        let seen = eventually("the third probe", SOON, || {
            probes += 1;
            (probes == 3).then_some(probes)
        });
        assert_eq!(seen, 3);
    }

    #[test]
    fn within_gives_up_at_the_deadline() {
        assert_eq!(within(Duration::ZERO, || None::<()>), None);
    }

    #[tokio::test]
    async fn eventually_async_lets_other_tasks_run() {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move { sender.send(7).await });
        let found = eventually_async("another task has sent", SOON, async || receiver.try_recv().ok()).await;
        assert_eq!(found, 7);
        assert_eq!(in_time("a future ends", SOON, async { 7 }).await, 7);
    }

    #[tokio::test]
    #[should_panic(expected = "until pigs fly")]
    async fn eventually_async_panics_at_the_deadline() {
        eventually_async("pigs fly", Duration::ZERO, async || None::<()>).await;
    }
}
