//! What the module knows between two calls.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlock_core::durable::Dataset;
use redlock_core::{LockId, Millis, Node};

use crate::restart::{Grace, Proof};
use crate::search::Search;
use crate::server::api::{Ctx, Timer};
use crate::server::clock::MachineClock;
use crate::server::confined::Confined;
use crate::server::keys::Audience;

/// How many freed locks are forgotten after a command. A flush frees them by the million, and no
/// single caller should pay for that.
pub(crate) const BURIALS_PER_COMMAND: usize = 64;

/// How many the sweep forgets at a time: about half a millisecond's work.
pub(crate) const BURIALS_PER_SWEEP: usize = 4_096;

/// The node and what surrounds it.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) clock: MachineClock,
    /// A replica, or a server that loads its dataset, grants and sweeps nothing.
    pub(crate) is_replica: bool,
    pub(crate) is_loading: bool,
    /// The server is a member of a cluster: from its start to its end, or never.
    pub(crate) is_cluster: bool,
    /// When to wait after a start, for the next one.
    pub(crate) grace: Grace,
    /// What ends the wait after a start at once.
    pub(crate) expected: Option<Proof>,
    /// What the data set says about itself.
    pub(crate) dataset: Dataset,
    /// The highest fence that the state file knew of when the server started; `None` if there was no state file. No
    /// limit once the server runs.
    pub(crate) highest_at_start: Option<u64>,
    /// The evicted lock that the node already waits for.
    pub(crate) last_evicted: Option<LockId>,
    /// The log knows about the wait.
    pub(crate) is_announced: bool,
    /// Whether effects have to be spelled out.
    pub(crate) audience: Audience,
    /// Locks that are not where they were granted.
    pub(crate) search: Search,
    /// The keys of locks, with somebody waiting, of which an image was just made.
    pub(crate) images: HashSet<(u16, Vec<u8>)>,
    /// Whether the server tells what happens to keys and connections.
    pub(crate) watches_keys: bool,
    /// The timer of the sweep, and when it should fire.
    pub(crate) timer: Option<(Timer, Millis)>,
}

static STATE: Confined<State> = Confined::empty();

/// Locks whose values the server has freed by itself, perhaps on a background thread, and whose records
/// are still there.
static FREED: Mutex<Vec<LockId>> = Mutex::new(Vec::new());
/// Keys to which something has happened while the state was open.
static CHANGED: Mutex<Vec<(u16, Vec<u8>)>> = Mutex::new(Vec::new());

/// Whether there is anything in one of the two.
static ANY_FREED: AtomicBool = AtomicBool::new(false);

/// The lock whose value the module is about to remove; 0 for none, and again when the value is gone.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// Fills in the state when the module is loaded.
pub(crate) fn begin(state: State) -> bool {
    STATE.fill(state)
}

/// Works on the state; `None` if it is open further up the stack.
pub(crate) fn with<R>(run: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.with(run)
}

/// Works on the state in a call of the server; `None` as above.
#[inline]
pub(crate) fn during<R>(ctx: Ctx<'_>, run: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.during(ctx, run)
}

/// Removes the value of a lock by `remove`. Tells the lock if the server has freed the value meanwhile:
/// then the record can go as well. Otherwise it follows later.
pub(crate) fn see_off(lock: LockId, remove: impl FnOnce()) -> Option<LockId> {
    LEAVING.store(lock.to_bits(), Ordering::Relaxed);
    remove();
    // Whoever else looks at it meanwhile has another lock in hand and leaves it as it is.
    let is_gone = LEAVING.load(Ordering::Relaxed) == 0;
    LEAVING.store(0, Ordering::Relaxed);
    is_gone.then_some(lock)
}

/// Notes that the server has freed a lock's value.
pub(crate) fn note_freed(lock: LockId) {
    if LEAVING.load(Ordering::Relaxed) == lock.to_bits() {
        LEAVING.store(0, Ordering::Relaxed);
    } else {
        freed().push(lock);
        ANY_FREED.store(true, Ordering::Release);
    }
}

/// Notes that something has happened to a key while the state is open.
pub(crate) fn note_changed(database: u16, key: &[u8]) {
    changed().push((database, key.to_vec()));
    ANY_FREED.store(true, Ordering::Release);
}

fn changed() -> MutexGuard<'static, Vec<(u16, Vec<u8>)>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn freed() -> MutexGuard<'static, Vec<LockId>> {
    FREED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lock whose value the server has freed last, if its record is still there.
pub(crate) fn last_freed() -> Option<LockId> {
    freed().last().copied()
}

/// How many locks have left the keyspace and are not forgotten yet.
pub(crate) fn unburied() -> u64 {
    if ANY_FREED.load(Ordering::Acquire) { freed().len() as u64 } else { 0 }
}

impl State {
    /// Forgets locks whose values are gone, so many of them at most. True when none is left.
    #[inline]
    pub(crate) fn bury(&mut self, at_most: usize) -> bool {
        !ANY_FREED.load(Ordering::Acquire) || self.bury_freed(at_most)
    }

    #[cold]
    fn bury_freed(&mut self, at_most: usize) -> bool {
        for (database, key) in changed().drain(..) {
            self.node.key_changed(database, &key);
        }
        let mut freed = freed();
        let kept = freed.len().saturating_sub(at_most);
        for lock in freed.drain(kept..) {
            self.search.forget(lock);
            self.node.bury(lock);
        }
        ANY_FREED.store(kept > 0, Ordering::Release);
        self.last_evicted = None;
        kept == 0
    }
}
