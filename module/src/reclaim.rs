//! The end of a lock's value in the keyspace, and of its record in the node.
//!
//! A lock is two things: a *value* under a key of the server, which is nothing but the number of a *record* in the
//! node's table. The server owns the value and may free it at any time. The node owns the record and removes it only
//! when the value is gone: the number of a record that a value still names must not go to another lock.
//!
//! ```text
//!   ACQUIRE, hand-off, APPLY            rdb_load (start, new master, RESTORE, MIGRATE)
//!            |  put                              |
//!            v                                   v
//!   +--------------------------------------------------------+
//!   |  record in the table  <-----number----  value in a key |<--+ RENAME, MOVE, SWAPDB: another key,
//!   +--------------------------------------------------------+---+ the same value
//!            |                                   |
//!      the module removes it               the server removes it
//!      RELEASE, sweep of an expired        DEL, UNLINK, SET, expiry of the key, eviction,
//!      lock, put over an expired one       FLUSH, a load that fails half-way
//!            |                                   |
//!      remove_value: REMOVING = lock             |
//!            |                                   |
//!            +-----> free (called by the server) <--+
//!                        |  main thread, or a background thread after an asynchronous flush
//!                        v
//!                   note_freed
//!             lock == REMOVING?  ---- no ---->  FREED (a list behind a mutex)
//!                        | yes                       |
//!                 REMOVING = 0                  ModuleState::reclaim: after each command, in the sweep,
//!                        |                      after a load, at shutdown; a limited number at a time
//!         remove_value returns the lock              |
//!                        |                           |
//!                        +------> the node removes the record <------+
//! ```
//!
//! `free` never touches the state: it may run on another thread, or while the state is open further up the stack.
//! For the same reason a change of a key that happens while the state is open goes to `CHANGED` first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlock_core::LockId;

use crate::state::ModuleState;

/// How many freed locks are forgotten after a command. A flush frees them by the million, and no
/// single caller should pay for that.
pub(crate) const RECLAIMED_PER_COMMAND: usize = 64;

/// How many the sweep forgets at a time: about half a millisecond's work.
pub(crate) const RECLAIMED_PER_SWEEP: usize = 4_096;

/// Locks whose values the server has freed by itself, perhaps on a background thread, and whose records
/// are still there.
static FREED: Mutex<Vec<LockId>> = Mutex::new(Vec::new());
/// Keys to which something has happened while the state was open.
static CHANGED: Mutex<Vec<(u16, Vec<u8>)>> = Mutex::new(Vec::new());

/// Whether there is anything in one of the two.
static ANY_FREED: AtomicBool = AtomicBool::new(false);

/// The lock whose value the module is about to remove; 0 for none, and again when the value is gone.
static REMOVING: AtomicU32 = AtomicU32::new(0);

/// Removes the value of a lock by `remove`. Tells the lock if the server has freed the value meanwhile:
/// then the record can go as well. Otherwise it follows later.
pub(crate) fn remove_value(lock: LockId, remove: impl FnOnce()) -> Option<LockId> {
    REMOVING.store(lock.to_bits(), Ordering::Relaxed);
    remove();
    // A background thread that frees a value meanwhile has another lock in hand and leaves `REMOVING` as it is.
    let is_gone = REMOVING.load(Ordering::Relaxed) == 0;
    REMOVING.store(0, Ordering::Relaxed);
    is_gone.then_some(lock)
}

/// Notes that the server has freed a lock's value.
pub(crate) fn note_freed(lock: LockId) {
    if REMOVING.load(Ordering::Relaxed) == lock.to_bits() {
        REMOVING.store(0, Ordering::Relaxed);
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
pub(crate) fn unreclaimed() -> u64 {
    if ANY_FREED.load(Ordering::Acquire) { freed().len() as u64 } else { 0 }
}

impl ModuleState {
    /// Forgets locks whose values are gone, so many of them at most. True when none is left.
    #[inline]
    pub(crate) fn reclaim(&mut self, at_most: usize) -> bool {
        !ANY_FREED.load(Ordering::Acquire) || self.reclaim_freed(at_most)
    }

    #[cold]
    fn reclaim_freed(&mut self, at_most: usize) -> bool {
        for (database, key) in changed().drain(..) {
            self.node.key_changed(database, &key);
        }
        let mut freed = freed();
        let kept = freed.len().saturating_sub(at_most);
        for lock in freed.drain(kept..) {
            self.search.forget(lock);
            self.node.reclaim(lock);
        }
        ANY_FREED.store(kept > 0, Ordering::Release);
        self.last_evicted = None;
        kept == 0
    }
}
