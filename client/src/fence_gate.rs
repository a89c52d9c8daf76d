//! Turning away holders that have been overtaken, at a store inside the process.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Lets a write pass only if no newer holder of the lock has been seen.
///
/// A lock is a lease: a holder that was paused for too long believes that it still holds a lock that has
/// long gone to somebody else. No client can rule that out; the place that is written to can. Every holder
/// brings the fence of its lock ([`Guard::fence`](crate::Guard::fence)), the gate keeps the largest fence
/// that it has seen, and what comes with a smaller one is too late.
///
/// ```
/// use redlock_client::FenceGate;
///
/// let gate = FenceGate::new();
/// let mut balance = 100;
///
/// gate.run(7, || balance -= 10)?; // the holder with fence 7
/// gate.run(7, || balance -= 10)?; // the same holder, once more
/// gate.run(8, || balance += 50)?; // the next holder
///
/// let late = gate.run(7, || balance = 0); // the first one wakes up from a long pause
/// assert_eq!(late.unwrap_err().newest, 8);
/// assert_eq!(balance, 130);
/// # Ok::<(), redlock_client::StaleFence>(())
/// ```
///
/// # Checking and writing are one step
///
/// Between a check and a write that follows it, a newer holder may come and write. [`run`](Self::run) keeps
/// the gate shut for everybody else until the write is done. [`admit`](Self::admit) only checks: it is for
/// those who hold a mutex of their own around the check and the write. An async store is one of them: the
/// gate goes into the `tokio::sync::Mutex` that guards the store anyway, so that the lock lasts over each
/// `await` of the write.
///
/// ```
/// use redlock_client::{FenceGate, StaleFence};
/// use tokio::sync::Mutex;
///
/// #[derive(Default)]
/// struct Ledger {
///     gate: FenceGate,
///     lines: Vec<String>,
/// }
///
/// async fn append(ledger: &Mutex<Ledger>, fence: u64, line: &str) -> Result<(), StaleFence> {
///     let mut ledger = ledger.lock().await;
///     ledger.gate.admit(fence)?;
///     tokio::task::yield_now().await; // a write that takes its time
///     ledger.lines.push(line.to_owned());
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let ledger = Mutex::new(Ledger::default());
/// # append(&ledger, 2, "second").await.unwrap();
/// # append(&ledger, 1, "first").await.unwrap_err();
/// # assert_eq!(ledger.lock().await.lines, ["second"]);
/// # }
/// ```
///
/// A read that a later write builds on belongs behind the gate as well. It shuts out older holders from then
/// on; otherwise one of them may still write between the read and the write, and its write is lost.
///
/// # Why an equal fence may pass
///
/// No fence is ever given to two holders of a resource. Who comes with the newest fence again is the same
/// holder with its next write, and a gate that asked for a larger one would allow one write for each acquire.
/// In return the gate does not order the writes of *one* holder: tasks that share a guard, or a write of that
/// holder that is sent twice, must be told apart by other means.
///
/// # Where it does not help
///
/// A gate lasts as long as the process. If the store outlives it, the newest fence has to be kept in the
/// store and compared there in the same statement or transaction; the crate's examples `fenced_write_sqlite`
/// and `fenced_write_redis` do so. [`resume`](Self::resume) is for a store that is read back as a whole at
/// the start. Fences of different resources have nothing to do with each other: a gate belongs to one
/// resource, and [`FenceGates`] keeps one for each of many.
#[derive(Default)]
pub struct FenceGate {
    /// 0 before the first: no fence is 0.
    newest: Mutex<u64>,
}

impl FenceGate {
    /// A gate that has seen nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A gate that goes on from the newest fence that a former one has seen.
    #[must_use]
    pub fn resume(newest: u64) -> Self {
        Self { newest: Mutex::new(newest) }
    }

    /// Admits a holder, and from now on nobody with a smaller fence.
    ///
    /// What follows is not protected: read about [one step](Self#checking-and-writing-are-one-step) first.
    ///
    /// # Errors
    /// A larger fence has been admitted before. A fence of 0, which no lock ever has, is turned away too.
    pub fn admit(&self, fence: u64) -> Result<(), StaleFence> {
        self.enter(fence).map(drop)
    }

    /// Admits a holder and runs its write before anybody else is admitted.
    ///
    /// The write is not run if the holder is turned away. The fence counts as seen even if the write fails or
    /// panics. A write that calls the same gate again waits for itself for ever.
    ///
    /// # Errors
    /// A larger fence has been admitted before. A fence of 0, which no lock ever has, is turned away too.
    pub fn run<T>(&self, fence: u64, write: impl FnOnce() -> T) -> Result<T, StaleFence> {
        let _shut = self.enter(fence)?;
        Ok(write())
    }

    /// The largest fence admitted so far; `None` before the first.
    ///
    /// It waits for a write that is under way.
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

/// Does not wait for a write that is under way.
impl fmt::Debug for FenceGate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGate").field("newest", &self.newest).finish()
    }
}

/// A [`FenceGate`] for each of many resources.
///
/// The write of one resource does not hold up that of another. There is one entry for each resource ever
/// seen, because a gate that is forgotten lets everybody in again: see [`forget`](Self::forget).
///
/// ```
/// use redlock_client::FenceGates;
///
/// let gates = FenceGates::<String>::new();
/// gates.admit("account:1", 40)?;
/// gates.admit("account:2", 12)?; // another resource has numbers of its own
/// assert!(gates.admit("account:1", 39).is_err());
/// # Ok::<(), redlock_client::StaleFence>(())
/// ```
pub struct FenceGates<K> {
    gates: Mutex<HashMap<K, Arc<FenceGate>>>,
}

impl<K: Eq + Hash> FenceGates<K> {
    /// Gates that have seen nobody yet.
    #[must_use]
    pub fn new() -> Self {
        Self { gates: Mutex::new(HashMap::new()) }
    }

    /// As [`FenceGate::admit`], at the gate of this resource.
    ///
    /// # Errors
    /// A larger fence has been admitted for this resource before. A fence of 0 is turned away too.
    pub fn admit<Q>(&self, resource: &Q, fence: u64) -> Result<(), StaleFence>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.gate(resource).admit(fence)
    }

    /// As [`FenceGate::run`], at the gate of this resource.
    ///
    /// # Errors
    /// A larger fence has been admitted for this resource before. A fence of 0 is turned away too.
    pub fn run<Q, T>(&self, resource: &Q, fence: u64, write: impl FnOnce() -> T) -> Result<T, StaleFence>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        self.gate(resource).run(fence, write)
    }

    /// The gate of this resource, a fresh one if there is none yet.
    ///
    /// Who keeps it and writes through it often saves the search each time.
    #[must_use]
    pub fn gate<Q>(&self, resource: &Q) -> Arc<FenceGate>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut gates = unpoisoned(&self.gates);
        if let Some(gate) = gates.get(resource) {
            return Arc::clone(gate);
        }
        let gate = Arc::new(FenceGate::new());
        gates.insert(resource.to_owned(), Arc::clone(&gate));
        gate
    }

    /// Forgets what was seen of a resource, to give its memory back, and returns the newest fence.
    ///
    /// This is only right for a resource that is gone and whose name will not be used again: whoever comes
    /// next is let in, however late.
    pub fn forget<Q>(&self, resource: &Q) -> Option<u64>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let gate = unpoisoned(&self.gates).remove(resource);
        gate.and_then(|gate| gate.newest())
    }

    /// How many resources are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        unpoisoned(&self.gates).len()
    }

    /// Whether no resource is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<K: Eq + Hash> Default for FenceGates<K> {
    fn default() -> Self {
        Self::new()
    }
}

/// Does not wait for a write that is under way.
impl<K: fmt::Debug> fmt::Debug for FenceGates<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceGates").field("gates", &self.gates).finish()
    }
}

/// A holder came too late: the resource has been written by a newer one.
///
/// Trying again with the same fence is in vain. What the holder read while it believed in its lock may be out
/// of date; it has to acquire the lock again and begin anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleFence {
    /// The fence that the holder came with.
    pub offered: u64,
    /// The largest fence admitted before; 0 if there was none.
    pub newest: u64,
}

impl fmt::Display for StaleFence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { offered, newest } = self;
        match offered {
            0 => f.write_str("0 is not the fence of any lock"),
            _ => write!(f, "fence {offered} is stale: a holder with fence {newest} has been here"),
        }
    }
}

impl Error for StaleFence {}

/// Locks, also after a panic of somebody's write: it leaves neither a number nor a map half changed.
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
        let gates = FenceGates::<u32>::new();
        for fence in [1, 2] {
            let write = || panic!("a write that goes wrong");
            assert!(catch_unwind(AssertUnwindSafe(|| gate.run(fence, write))).is_err());
            assert!(catch_unwind(AssertUnwindSafe(|| gates.run(&7, fence, write))).is_err());
        }
        assert_eq!(gate.newest(), Some(2));
        assert_eq!(gate.admit(1), Err(StaleFence { offered: 1, newest: 2 }));
        assert_eq!(gate.run(2, || "goes on"), Ok("goes on"));
        assert_eq!(gates.run(&7, 3, || "goes on"), Ok("goes on"));
    }

    /// Many holders, each with several writes, in any order: what was written last never goes back.
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
                            // Two steps on purpose: only the gate keeps others from coming between them.
                            let outcome = gate.run(fence, || {
                                let before = stored.load(Ordering::Relaxed);
                                assert!(before <= fence, "{fence} after {before}");
                                thread::yield_now();
                                assert_eq!(
                                    stored.swap(fence, Ordering::Relaxed),
                                    before,
                                    "somebody came between"
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

    #[test]
    fn resources_have_numbers_of_their_own() {
        let gates = FenceGates::<String>::default();
        assert!(gates.is_empty());
        assert_eq!(gates.admit("a", 10), Ok(()));
        assert_eq!(gates.admit("b", 3), Ok(()));
        assert_eq!(gates.admit("a", 9), Err(StaleFence { offered: 9, newest: 10 }));
        assert_eq!(gates.run("b", 2, || ()), Err(StaleFence { offered: 2, newest: 3 }));
        assert_eq!(gates.gate("a").newest(), Some(10));
        assert_eq!(gates.len(), 2);
        assert_eq!(gates.forget("a"), Some(10));
        assert_eq!(gates.forget("a"), None);
        assert_eq!(gates.len(), 1);
        assert_eq!(gates.admit("a", 1), Ok(()), "what is forgotten keeps nobody out");

        let raw = FenceGates::<Vec<u8>>::new();
        assert_eq!(raw.admit(b"ab".as_slice(), 1), Ok(()));
        let numbered = FenceGates::<u64>::new();
        assert_eq!(numbered.admit(&5, 1), Ok(()));
    }

    /// A write that lasts shuts its own gate, and no other.
    #[test]
    fn a_slow_write_holds_up_its_own_resource_only() {
        let gates = FenceGates::<u32>::new();
        let (started, has_started) = mpsc::channel();
        let (finish, may_finish) = mpsc::channel::<()>();
        let order = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let (gates, order) = (&gates, &order);
            // Dropped with this closure, so that a failed expectation ends the slow write too.
            let finish = finish;
            scope.spawn(move || {
                gates.run(&1, 1, || {
                    started.send(()).unwrap();
                    may_finish.recv().unwrap();
                    order.lock().unwrap().push("the slow write");
                })
            });
            has_started.recv().unwrap();
            gates.run(&2, 1, || order.lock().unwrap().push("another resource")).unwrap();
            assert!(format!("{gates:?}").contains("locked"), "printing does not wait either");
            let newer =
                scope.spawn(move || gates.run(&1, 2, || order.lock().unwrap().push("the newer write")));
            finish.send(()).unwrap();
            newer.join().unwrap().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), ["another resource", "the slow write", "the newer write"]);
    }

    #[test]
    fn says_why() {
        let stale = StaleFence { offered: 4, newest: 9 };
        assert_eq!(stale.to_string(), "fence 4 is stale: a holder with fence 9 has been here");
        assert_eq!(
            FenceGate::new().admit(0).unwrap_err().to_string(),
            "0 is not the fence of any lock",
            "a zero is somebody's forgotten variable"
        );
        assert!(format!("{:?}", FenceGate::resume(3)).contains('3'));
    }

    #[test]
    fn may_be_shared_between_threads() {
        fn shareable<T: Send + Sync + 'static>() {}
        shareable::<FenceGate>();
        shareable::<FenceGates<Vec<u8>>>();
        shareable::<StaleFence>();
    }
}
