//! Tasks that want the same locks all the time, and who watches them.

use redlock_client::{Guard, LockHandle, ShardedLocks};
use redlock_sim::{Checks, SessionId, Violation};
use redlock_tests::{SOON, eventually_async, in_time};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;

/// Short enough that some can be left to run out, and that nodes grant again soon after a crash; long enough for a
/// busy machine.
pub(crate) const TTL: Duration = Duration::from_millis(500);

/// Sees everybody who asks for a lock and everybody who holds one, and lets the simulator's checks judge.
pub(crate) struct Watch {
    seen: Mutex<Seen>,
}

struct Seen {
    checks: Checks,
    sessions: SessionId,
    /// Who may still believe to hold a lock.
    inside: Vec<(SessionId, usize, LockHandle)>,
    visits: Vec<usize>,
}

impl Watch {
    pub(crate) fn over(keys: usize) -> Arc<Self> {
        let seen = Seen { checks: Checks::new(true), sessions: 0, inside: Vec::new(), visits: vec![0; keys] };
        Arc::new(Self { seen: Mutex::new(seen) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody is about to ask for a key.
    pub(crate) fn began(&self, key: usize) -> SessionId {
        let mut seen = self.seen();
        seen.sessions += 1;
        let session = seen.sessions;
        seen.checks.began(session, &[key]);
        session
    }

    /// It holds the key, unless it was held up on the way here and knows that it comes too late.
    pub(crate) fn entered(&self, session: SessionId, key: usize, guard: &Guard) {
        let seen = &mut *self.seen();
        if !guard.is_valid() {
            return;
        }
        // One who is valid now was valid a moment ago, too: together with this one.
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

    /// How often each key was held.
    pub(crate) fn visits(&self) -> Vec<usize> {
        self.seen().visits.clone()
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.seen().checks.violations.clone()
    }
}

/// Tasks that contend for the same locks.
pub(crate) struct Crowd {
    watch: Arc<Watch>,
    stop: Arc<AtomicBool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Crowd {
    /// So many tasks that take turns in holding these keys.
    pub(crate) fn of(shards: &[ShardedLocks], tasks: usize, keys: &[String]) -> Self {
        let (watch, stop) = (Watch::over(keys.len()), Arc::<AtomicBool>::default());
        let task = |number: usize| {
            let (watch, stop) = (Arc::clone(&watch), Arc::clone(&stop));
            let (shards, keys) = (shards[number % shards.len()].clone(), keys.to_vec());
            tokio::spawn(async move {
                let mut round = number;
                while !stop.load(SeqCst) {
                    round += 1;
                    let key = round % keys.len();
                    let session = watch.began(key);
                    match shards.acquire(&keys[key], TTL).await {
                        Ok(guard) => {
                            watch.entered(session, key, &guard);
                            leave(guard, round).await;
                        }
                        Err(error) => assert!(error.is_retryable(), "{error}"),
                    }
                }
            })
        };
        let tasks = (0..tasks).map(task).collect();
        Self { watch, stop, tasks }
    }

    /// Waits until every key was held so many times more.
    pub(crate) async fn until_visits(&self, more: usize) {
        let before = self.watch.visits();
        eventually_async("every key was held some times more", SOON * 6, async || {
            let visits = self.watch.visits();
            visits.iter().zip(&before).all(|(now, before)| *now >= before + more).then_some(())
        })
        .await;
    }

    pub(crate) async fn disperse(self) -> Arc<Watch> {
        self.stop.store(true, SeqCst);
        for task in self.tasks {
            in_time("a task ends", SOON * 6, task).await.expect("no panic");
        }
        self.watch
    }
}

/// What a holder does in the end: most release, some extend before, some just drop the lock, some let it run out.
async fn leave(guard: Guard, round: usize) {
    match round % 16 {
        3 => drop(guard),
        7 => {
            // A lock may be lost while nodes crash; that is for its holder to know.
            let _ = guard.extend().await;
            guard.release().await;
        }
        12 => {
            guard.lost().await;
            // Not released either: as if the holder had died.
            drop(guard.detach());
        }
        _ => {
            guard.release().await;
        }
    }
}
