//! Tasks that contend for the same locks, and an observer that checks the holders.

use redlock_client::{Guard, LockHandle, ShardedLocks};
use redlock_sim::{Checks, SessionId, Violation};
use redlock_tests::{SOON, eventually_async, in_time};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Short enough that tasks can let locks expire, and that nodes grant again soon after a crash. Long enough for a busy
/// machine.
pub(crate) const TTL: Duration = Duration::from_millis(500);

/// Records every session that begins to acquire a lock or holds one, and passes it to the simulator's checks.
pub(crate) struct Observer {
    seen: Mutex<Seen>,
}

struct Seen {
    checks: Checks,
    sessions: SessionId,
    /// The holders whose lock may still be valid.
    inside: Vec<(SessionId, usize, LockHandle)>,
    visits: Vec<usize>,
}

impl Observer {
    pub(crate) fn over(keys: usize) -> Arc<Self> {
        let seen = Seen { checks: Checks::new(true), sessions: 0, inside: Vec::new(), visits: vec![0; keys] };
        Arc::new(Self { seen: Mutex::new(seen) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A session begins to acquire a key.
    pub(crate) fn began(&self, key: usize) -> SessionId {
        let mut seen = self.seen();
        seen.sessions += 1;
        let session = seen.sessions;
        seen.checks.began(session, &[key]);
        session
    }

    /// A session holds the key. The observer ignores a lock that is no longer valid: a holder that was delayed on its
    /// way here knows that it is too late.
    pub(crate) fn entered(&self, session: SessionId, key: usize, guard: &Guard) {
        let seen = &mut *self.seen();
        if !guard.is_valid() {
            return;
        }
        // A lock that is valid now was also valid a moment ago, at the same time as this one.
        seen.inside.retain(|(_, _, held)| held.is_valid());
        let believers: Vec<(SessionId, usize)> = seen
            .inside
            .iter()
            .filter(|(_, other, _)| *other == key)
            .map(|(session, key, _)| (*session, *key))
            .collect();
        seen.checks.held(session, &[key], guard.fence(), &believers);
        seen.inside.push((session, key, guard.held()));
        seen.visits[key] += 1;
    }

    /// How many times each key was held.
    pub(crate) fn visits(&self) -> Vec<usize> {
        self.seen().visits.clone()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.seen().checks.violations.clone()
    }
}

/// Tasks that contend for the same locks.
pub(crate) struct Workers {
    observer: Arc<Observer>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts tasks that acquire these keys in turn.
    pub(crate) fn of(shards: &[ShardedLocks], tasks: usize, keys: &[String]) -> Self {
        let (observer, stop) = (Observer::over(keys.len()), Arc::<AtomicBool>::default());
        let task = |number: usize| {
            let (observer, stop) = (Arc::clone(&observer), Arc::clone(&stop));
            let (shards, keys) = (shards[number % shards.len()].clone(), keys.to_vec());
            tokio::spawn(async move {
                let mut round = number;
                while !stop.load(SeqCst) {
                    round += 1;
                    let key = round % keys.len();
                    let session = observer.began(key);
                    match shards.acquire(&keys[key], TTL).await {
                        Ok(guard) => {
                            observer.entered(session, key, &guard);
                            leave(guard, round).await;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { observer, stop, tasks }
    }

    /// Waits until every key was held `more` more times.
    pub(crate) async fn until_visits(&self, more: usize) {
        let before = self.observer.visits();
        eventually_async("every key was held some more times", SOON * 6, async || {
            let visits = self.observer.visits();
            visits.iter().zip(&before).all(|(now, before)| *now >= before + more).then_some(())
        })
        .await;
    }

    pub(crate) async fn stop(self) -> Arc<Observer> {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            in_time("a task ends", SOON * 6, task).await.expect("no panic");
        }
        self.observer
    }
}

/// Ends a hold: most rounds release the lock, some extend it before, some drop the guard, and some let the lock expire.
async fn leave(guard: Guard, round: usize) {
    match round % 16 {
        3 => drop(guard),
        7 => {
            // The extension may find that the lock is lost.
            let _ = guard.extend().await;
            guard.release().await;
        }
        12 => {
            guard.lost().await;
            // Detached and not released, as if the holder had died.
            drop(guard.detach());
        }
        _ => {
            guard.release().await;
        }
    }
}
