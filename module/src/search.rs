//! The search for locks that were renamed or moved.
//!
//! The sweep knows a lock by the key under which it was granted. If the lock is not there although the server
//! still has its value, a client has renamed or moved it. That is rare, so it costs nothing beforehand: only
//! then the module scans the keyspace, some keys at each call of the server's cron, until every such lock is
//! found or freed.

use std::collections::HashSet;

use redlock_core::LockId;

use crate::ffi::context::Ctx;
use crate::ffi::scan::KeyspaceScan;
use crate::state::{self, ModuleState};

/// The number of scan steps of one call of the cron: one or two milliseconds of work, ten times a second.
const STEPS_PER_TURN: usize = 4_096;

/// A repeated scan of all databases for missing locks.
#[derive(Default)]
pub(crate) struct LockSearch {
    /// Locks that the present pass searches for.
    missing: HashSet<LockId>,
    /// Locks that the next pass searches for: the present one may have passed their keys.
    next: HashSet<LockId>,
    /// The database and the cursor of the present pass, if there is one.
    pass: Option<(u16, KeyspaceScan)>,
}

impl LockSearch {
    /// Adds a lock to the search.
    pub(crate) fn look_for(&mut self, lock: LockId) {
        self.next.insert(lock);
    }

    /// Removes a lock from the search: its value is freed.
    pub(crate) fn forget(&mut self, lock: LockId) {
        self.missing.remove(&lock);
        self.next.remove(&lock);
    }

    fn found(&mut self, state: &mut ModuleState, database: u16, locks: &[(LockId, Vec<u8>)]) {
        for (value, key) in locks {
            let records: Vec<LockId> = state.node.records_of(*value).collect();
            for lock in records {
                if self.missing.remove(&lock) {
                    self.next.remove(&lock);
                    state.node.found_at(lock, database, key);
                }
            }
        }
    }

    /// Scans a few keys. Returns false if no lock is missing.
    fn step(&mut self, ctx: Ctx<'_>) -> bool {
        if self.missing.is_empty() {
            self.pass = None;
            std::mem::swap(&mut self.missing, &mut self.next);
            if self.missing.is_empty() {
                return false;
            }
        }
        let (database, mut scan) = self.pass.take().unwrap_or_else(|| (0, KeyspaceScan::begin()));
        if !ctx.select(database) {
            // The pass has ended. The next pass searches for the locks that are still missing.
            self.next.extend(self.missing.drain());
            return true;
        }
        let mut locks = Vec::new();
        let more = scan.step(ctx, &mut locks);
        state::with(|state| self.found(state, database, &locks));
        self.pass = if more {
            Some((database, scan))
        } else {
            database.checked_add(1).map(|next| (next, KeyspaceScan::begin()))
        };
        true
    }
}

impl ModuleState {
    /// Removes the locks from the search whose records the node has removed. Another lock may get the number of such a
    /// record.
    pub(crate) fn forget_removed(&mut self) {
        for lock in self.node.take_no_longer_missing() {
            self.search.forget(lock);
        }
    }
}

/// Continues the search, if a lock is missing.
pub(crate) fn on_cron(ctx: Ctx<'_>) {
    state::with(ModuleState::forget_removed);
    // The state is closed while the server scans: it calls back.
    let Some(mut search) = state::with(|state| std::mem::take(&mut state.search)) else { return };
    let here = ctx.database();
    let mut steps = 0;
    while steps < STEPS_PER_TURN && search.step(ctx) {
        steps += 1;
    }
    if let Ok(here) = u16::try_from(here) {
        ctx.select(here);
    }
    state::with(|state| state.search = search);
}
