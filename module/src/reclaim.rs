//! The life cycle of a lock's value in the keyspace and of its record in the node.
//!
//! A lock has two parts: a *record* in the node's table, and a *value* under a key of the server, which is
//! the number of the record. The server owns the value and may free it at any time. The node owns the record
//! and removes it only after the server has freed the value: no other lock may get the number of a record
//! that a value still names.
//!
//! ```text
//!    ACQUIRE, hand-off, APPLY: put              start, new master, RESTORE, MIGRATE: rdb_load
//!                  |                                          |
//!                  +--------------------+---------------------+
//!                                       v
//!             record in the table <---number--- value under a key <--+  RENAME, MOVE, SWAPDB:
//!                                       |                            |  the same value, another key
//!                                       |----------------------------+
//!                                       |
//!                  +--------------------+---------------------+
//!                  |                                          |
//!        the module removes the value               the server removes the value
//!        RELEASE, sweep of an expired lock,         DEL, UNLINK, SET, expiry of the key, eviction,
//!        put over an expired or an own lock         FLUSH, a load that fails half-way
//!                  |                                          |
//!        remove_value: REMOVING = lock                        |
//!                  |                                          |
//!                  +--------------------+---------------------+
//!                                       v
//!             free -> note_freed: called by the server, on its main thread or on a background thread
//!                                       |
//!                  +--------------------+---------------------+
//!                  | lock == REMOVING                         | lock != REMOVING
//!                  v                                          v
//!            REMOVING = 0                            FREED (a list behind a mutex)
//!            remove_value returns the lock                    |
//!                  |                                 ModuleState::reclaim, a limited number at a time:
//!                  |                                 after each command and hand-off, in the sweep;
//!                  |                                 all of them after a load and at shutdown
//!                  |                                          |
//!                  +--------------------+---------------------+
//!                                       v
//!                          the node removes the record
//! ```
//!
//! `free` never opens the state: it may run on another thread, or while the state is open further up the stack. For the
//! same reason a change of a key while the state is open goes to `CHANGED` first.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redlock_core::LockId;

use crate::state::ModuleState;

/// The number of records that the module removes after a command. A flush frees millions of values, and no single
/// caller should wait for that.
pub(crate) const RECLAIMED_PER_COMMAND: usize = 64;

/// The number of records that one sweep removes: about half a millisecond of work.
pub(crate) const RECLAIMED_PER_SWEEP: usize = 4_096;

/// Locks whose values the server has freed on its own, perhaps on a background thread, and whose records are still in
/// the table.
static FREED: Mutex<Vec<LockId>> = Mutex::new(Vec::new());
/// Keys that changed while the state was open.
static CHANGED: Mutex<Vec<(u16, Vec<u8>)>> = Mutex::new(Vec::new());

/// Whether `FREED` or `CHANGED` has an entry.
static ANY_FREED: AtomicBool = AtomicBool::new(false);

/// The lock whose value the module is removing; 0 for none, and after the server has freed the value.
static REMOVING: AtomicU32 = AtomicU32::new(0);

/// Removes the value of a lock by `remove`. Returns the lock if the server has freed the value meanwhile: the caller
/// removes the record then. Otherwise the record is removed later, through `FREED`.
pub(crate) fn remove_value(lock: LockId, remove: impl FnOnce()) -> Option<LockId> {
    REMOVING.store(lock.to_bits(), Ordering::Relaxed);
    remove();
    // A background thread that frees a value meanwhile frees another lock's and leaves `REMOVING` as it is.
    let is_freed = REMOVING.load(Ordering::Relaxed) == 0;
    REMOVING.store(0, Ordering::Relaxed);
    is_freed.then_some(lock)
}

/// Records that the server has freed a lock's value.
pub(crate) fn note_freed(lock: LockId) {
    if REMOVING.load(Ordering::Relaxed) == lock.to_bits() {
        REMOVING.store(0, Ordering::Relaxed);
    } else {
        freed().push(lock);
        ANY_FREED.store(true, Ordering::Release);
    }
}

/// Records that a key has changed while the state is open.
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

/// The lock whose value the server has freed last, if its record is still in the table.
pub(crate) fn last_freed() -> Option<LockId> {
    freed().last().copied()
}

/// The number of records whose values the server has freed.
pub(crate) fn unreclaimed() -> u64 {
    if ANY_FREED.load(Ordering::Acquire) { freed().len() as u64 } else { 0 }
}

impl ModuleState {
    /// Removes at most `at_most` records whose values the server has freed. Returns true if none is left.
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
