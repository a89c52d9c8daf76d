//! A fence check for a store inside the process.

use std::error::Error;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A gate that rejects a write if a newer holder of the lock has passed it.
///
/// A lock is a lease. A holder that was paused for longer than the lease still believes that it holds the
/// lock, but another client holds it by then. No lock can prevent that; the store can. Each holder passes the
/// fence of its lock ([`Guard::fence`](crate::Guard::fence)) to the gate. The gate keeps the largest fence
/// that it has admitted, and rejects a write with a smaller one.
///
/// ```
/// use redlock_client::FenceGate;
///
/// let gate = FenceGate::new();
/// let mut balance = 100;
///
/// gate.run(7, || balance -= 10)?; // the holder with fence 7
/// gate.run(7, || balance -= 10)?; // the same holder again
/// gate.run(8, || balance += 50)?; // the next holder
///
/// let late = gate.run(7, || balance = 0); // the first holder, after a long pause
/// assert_eq!(late.unwrap_err().newest, 8);
/// assert_eq!(balance, 130);
/// # Ok::<(), redlock_client::StaleFence>(())
/// ```
///
/// # Checking and writing are one step
///
/// Between a check and a later write, a newer holder can write. [`run`](Self::run) therefore keeps the gate
/// locked until the write is done. [`admit`](Self::admit) only checks: use it under a mutex of your own that
/// also covers the write. For an async store, put the gate into the `tokio::sync::Mutex` that guards the
/// store. The task then holds the mutex over each `await` of the write.
///
/// ```
/// use redlock_client::{FenceGate, StaleFence};
/// use tokio::sync::Mutex;
///
/// #[derive(Default)]
/// struct Journal {
///     gate: FenceGate,
///     lines: Vec<String>,
/// }
///
/// async fn append(journal: &Mutex<Journal>, fence: u64, line: &str) -> Result<(), StaleFence> {
///     let mut journal = journal.lock().await;
///     journal.gate.admit(fence)?;
///     tokio::task::yield_now().await; // a slow write
///     journal.lines.push(line.to_owned());
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let journal = Mutex::new(Journal::default());
/// # append(&journal, 2, "second").await.unwrap();
/// # append(&journal, 1, "first").await.unwrap_err();
/// # assert_eq!(journal.lock().await.lines, ["second"]);
/// # }
/// ```
///
/// If a write depends on an earlier read, pass the read through the gate, too. From then on the gate rejects
/// older holders. Otherwise an older holder can write between the read and the write, and its write is lost.
///
/// # Why an equal fence is accepted
///
/// No two holders of a resource get the same fence. A write with an equal fence comes from the same holder.
/// So the gate does not order the writes of *one* holder: tasks that share a guard need an order of their
/// own.
///
/// # Limits
///
/// - A gate lasts as long as the process. If the store outlives the process, keep the largest fence in the
///   store and compare it there in the same statement or transaction: see the examples `fenced_write_sqlite`
///   and `fenced_write_redis`. [`resume`](Self::resume) is for a store that the process reads as a whole at
///   the start.
/// - A gate belongs to one resource: fences of different resources are not comparable.
#[derive(Default)]
pub struct FenceGate {
    /// The largest fence admitted; 0 before the first. No lock has the fence 0.
    newest: Mutex<u64>,
}

impl FenceGate {
    /// A gate that has admitted no fence yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A gate that continues from the largest fence that a former gate has admitted.
    #[must_use]
    pub fn resume(newest: u64) -> Self {
        Self { newest: Mutex::new(newest) }
    }

    /// Admits a holder. Rejects smaller fences from now on.
    ///
    /// The gate does not protect a write after this call: see
    /// [one step](Self#checking-and-writing-are-one-step).
    ///
    /// # Errors
    /// The gate has admitted a larger fence before, or the fence is 0, which no lock has.
    pub fn admit(&self, fence: u64) -> Result<(), StaleFence> {
        self.enter(fence).map(drop)
    }

    /// Admits a holder and runs its write before the gate admits another holder.
    ///
    /// If the gate rejects the fence, it does not run the write. The fence counts as admitted even if the
    /// write fails or panics. Calling the gate inside `write` deadlocks.
    ///
    /// # Errors
    /// The gate has admitted a larger fence before, or the fence is 0, which no lock has.
    pub fn run<T>(&self, fence: u64, write: impl FnOnce() -> T) -> Result<T, StaleFence> {
        let _shut = self.enter(fence)?;
        Ok(write())
    }

    /// The largest fence admitted so far; `None` before the first.
    ///
    /// The call waits until a running write has ended.
    #[must_use]
    pub fn newest(&self) -> Option<u64> {
        Some(*unpoisoned(&self.newest)).filter(|newest| *newest > 0)
    }

    fn enter(&self, fence: u64) -> Result<MutexGuard<'_, u64>, StaleFence> {
        let mut newest = unpoisoned(&self.newest);
        if fence == 0 || fence < *newest {
            return Err(StaleFence { offered: fence, newest: *newest });
        }
        *newest = fence;
        Ok(newest)
    }
}

/// Does not wait for a running write.
impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("newest", &self.newest).finish()
    }
}

/// A write was rejected: a newer holder has passed the gate.
///
/// A retry with the same fence fails again. Data that the holder has read may be out of date: acquire the
/// lock again and start over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence {
    /// The fence of the rejected write.
    pub offered: u64,
    /// The largest fence admitted before; 0 if there was none.
    pub newest: u64,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered, newest } = self;
        match offered {
            0 => f.write_str("0 is not the fence of any lock"),
            _ => write!(f, "fence {offered} is stale: the gate has already admitted fence {newest}"),
        }
    }
}

impl Error for StaleFence {}

/// Locks the mutex, even if a write has panicked: the fence is complete before the write runs.
fn unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::thread;

    #[test]
    fn admits_the_newest_and_the_same_again() {
        let gate = FenceGate::new();
        assert_eq!(gate.newest(), None);
        for (fence, admitted, newest) in [
            (0, false, None),
            (5, true, Some(5)),
            (5, true, Some(5)),
            (4, false, Some(5)),
            (1, false, Some(5)),
            (0, false, Some(5)),
            (9, true, Some(9)),
            (5, false, Some(9)),
            (u64::MAX, true, Some(u64::MAX)),
            (u64::MAX, true, Some(u64::MAX)),
            (u64::MAX - 1, false, Some(u64::MAX)),
        ] {
            let stale = StaleFence { offered: fence, newest: gate.newest().unwrap_or(0) };
            assert_eq!(gate.admit(fence), if admitted { Ok(()) } else { Err(stale) }, "fence {fence}");
            assert_eq!(gate.newest(), newest, "after fence {fence}");
        }
    }

    #[test]
    fn a_late_write_is_not_run() {
        let gate = FenceGate::resume(10);
        let mut written = Vec::new();
        assert_eq!(gate.run(9, || written.push(9)), Err(StaleFence { offered: 9, newest: 10 }));
        assert_eq!(gate.run(10, || written.push(10)), Ok(()));
        assert_eq!(gate.run(11, || "what the write returns"), Ok("what the write returns"));
        assert_eq!(written, [10]);
    }

    #[test]
    fn a_failed_write_has_been_seen() {
        let gate = FenceGate::new();
        assert_eq!(gate.run(3, || Err::<(), _>("disk full")), Ok(Err("disk full")));
        assert_eq!(gate.admit(2), Err(StaleFence { offered: 2, newest: 3 }));
    }

    #[test]
    fn a_panic_of_one_write_does_not_spread() {
        let gate = FenceGate::new();
        for fence in [1, 2] {
            let write = || panic!("a write that goes wrong");
            assert!(catch_unwind(AssertUnwindSafe(|| gate.run(fence, write))).is_err());
        }
        assert_eq!(gate.newest(), Some(2));
        assert_eq!(gate.admit(1), Err(StaleFence { offered: 1, newest: 2 }));
        assert_eq!(gate.run(2, || "goes on"), Ok("goes on"));
    }

    /// Many holders, each with several writes, in any order: the stored fence never decreases.
    #[test]
    fn no_write_lands_after_a_newer_one() {
        const HOLDERS: u64 = 8;
        const WRITES: u64 = 2_000;
        let gate = FenceGate::new();
        let stored = AtomicU64::new(0);
        let line_up = Barrier::new(usize::try_from(HOLDERS).unwrap());
        let admitted: u64 = thread::scope(|scope| {
            let holders: Vec<_> = (1..=HOLDERS)
                .map(|who| {
                    let (gate, stored, line_up) = (&gate, &stored, &line_up);
                    scope.spawn(move || {
                        line_up.wait();
                        let mut admitted = 0;
                        for write in 0..WRITES {
                            let fence = write * HOLDERS + who;
                            // Load and swap are separate on purpose: only the gate prevents a write between
                            // them.
                            let outcome = gate.run(fence, || {
                                let before = stored.load(Ordering::Relaxed);
                                assert!(before <= fence, "{fence} after {before}");
                                thread::yield_now();
                                assert_eq!(
                                    stored.swap(fence, Ordering::Relaxed),
                                    before,
                                    "another write came in between"
                                );
                            });
                            admitted += u64::from(outcome.is_ok());
                        }
                        admitted
                    })
                })
                .collect();
            holders.into_iter().map(|holder| holder.join().unwrap()).sum()
        });
        assert_eq!(gate.newest(), Some(HOLDERS * WRITES), "the newest of all is always admitted");
        assert_eq!(stored.into_inner(), HOLDERS * WRITES);
        assert!((1..=HOLDERS * WRITES).contains(&admitted), "{admitted}");
    }

    /// A newer write waits until the running write has ended. Printing the gate does not wait.
    #[test]
    fn a_write_waits_for_the_one_before_it() {
        let gate = FenceGate::new();
        let (started, has_started) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel::<()>();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let (gate, order) = (&gate, &order);
            // The closure owns the sender, so that a failed assertion ends the slow write too.
            let finish = finish;
            scope.spawn(move || {
                gate.run(1, || {
                    started.send(()).unwrap();
                    may_finish.recv().unwrap();
                    order.lock().unwrap().push("slow");
                })
            });
            has_started.recv().unwrap();
            assert!(format!("{gate:?}").contains("locked"));
            let newer = scope.spawn(move || gate.run(2, || order.lock().unwrap().push("newer")));
            finish.send(()).unwrap();
            newer.join().unwrap().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), ["slow", "newer"]);
    }

    #[test]
    fn says_why() {
        let stale = StaleFence { offered: 4, newest: 9 };
        assert_eq!(stale.to_string(), "fence 4 is stale: the gate has already admitted fence 9");
        assert_eq!(
            FenceGate::new().admit(0).unwrap_err().to_string(),
            "0 is not the fence of any lock",
            "a zero is a variable that the caller forgot to set"
        );
        assert!(format!("{:?}", FenceGate::resume(3)).contains('3'));
    }

    #[test]
    fn may_be_shared_between_threads() {
        fn shareable<T: Send + Sync + 'static>() {}
        shareable::<FenceGate>();
        shareable::<StaleFence>();
    }
}
