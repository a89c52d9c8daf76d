//! What the module knows between two calls.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use redlock_core::{LockId, Millis, Node};

use crate::search::Search;
use crate::server::api::Timer;
use crate::server::clock::MachineClock;
use crate::server::confined::{Confined, on_main_thread};
use crate::server::keys::Audience;

/// How many freed locks are forgotten after a command. A flush frees them by the million, and no
/// single caller should pay for that.
const BURIALS_PER_CALL: usize = 256;

/// The node and what surrounds it.
pub(crate) struct State {
    pub(crate) node: Node,
    pub(crate) clock: MachineClock,
    /// A replica, or a server that loads its dataset, grants and sweeps nothing.
    pub(crate) is_replica: bool,
    pub(crate) is_loading: bool,
    /// Whether effects have to be spelled out.
    pub(crate) audience: Audience,
    /// Locks that are not where they were granted.
    pub(crate) search: Option<Search>,
    /// The timer of the sweep, and when it should fire.
    pub(crate) timer: Option<(Timer, Millis)>,
}

static STATE: Confined<State> = Confined::empty();

/// Locks whose values the main thread has freed while the state was open.
static FREED_HERE: Confined<Vec<LockId>> = Confined::empty();

/// Locks whose values a background thread of the server has freed.
static FREED_ELSEWHERE: Mutex<Vec<LockId>> = Mutex::new(Vec::new());
static ANY_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// Fills in the state when the module is loaded.
pub(crate) fn begin(state: State) -> bool {
    STATE.fill(state) && FREED_HERE.fill(Vec::new())
}

/// Works on the state; `None` if it is open further up the stack.
pub(crate) fn with<R>(run: impl FnOnce(&mut State) -> R) -> Option<R> {
    STATE.with(run)
}

/// Notes that the server has freed a lock's value. The record follows soon: the server may be in the
/// middle of a command of ours, or on another thread.
pub(crate) fn note_freed(lock: LockId) {
    if on_main_thread() {
        FREED_HERE.with(|freed| freed.push(lock));
    } else {
        FREED_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).push(lock);
        ANY_ELSEWHERE.store(true, Ordering::Release);
    }
}

impl State {
    /// Forgets locks whose values are gone, a bounded number of them.
    pub(crate) fn bury_some(&mut self) {
        if ANY_ELSEWHERE.load(Ordering::Relaxed) && ANY_ELSEWHERE.swap(false, Ordering::Acquire) {
            let moved = std::mem::take(&mut *FREED_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner));
            FREED_HERE.with(|freed| freed.extend(moved));
        }
        FREED_HERE.with(|freed| {
            let kept = freed.len().saturating_sub(BURIALS_PER_CALL);
            freed.drain(kept..).for_each(|lock| self.node.bury(lock));
        });
    }

    /// Whether a lock's value is gone and its record is not yet.
    pub(crate) fn is_freed(lock: LockId) -> bool {
        let elsewhere = || FREED_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).contains(&lock);
        FREED_HERE.with(|freed| freed.contains(&lock)) == Some(true) || elsewhere()
    }

    /// How many locks are so.
    pub(crate) fn unburied() -> u64 {
        let here = FREED_HERE.with(|freed| freed.len()).unwrap_or(0);
        let elsewhere = FREED_ELSEWHERE.lock().unwrap_or_else(PoisonError::into_inner).len();
        (here + elsewhere) as u64
    }
}
