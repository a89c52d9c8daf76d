//! Finding locks that were renamed or moved.
//!
//! The sweep knows a lock by the key under which it was granted. When it is not there although the
//! server still has it, somebody has renamed or moved it. That is rare, so nothing is paid for it
//! beforehand: only then the keyspace is searched, a little at each turn of the server's cron, over and
//! over until every such lock is found or gone.

use std::collections::HashSet;

use redlock_core::LockId;

use crate::ffi::context::Ctx;
use crate::ffi::scan::KeyspaceScan;
use crate::state::{self, ModuleState};

/// How many steps one turn takes: a millisecond's work or two, ten times a second.
const STEPS_PER_TURN: usize = 4_096;

/// A search through all databases, again and again.
#[derive(Default)]
pub(crate) struct LockSearch {
    /// Locks that are looked for in the present pass.
    missing: HashSet<LockId>,
    /// Locks that are looked for from the next pass on: this one may have gone past them.
    next: HashSet<LockId>,
    /// Where the present pass is, if there is one.
    pass: Option<(u16, KeyspaceScan)>,
}

impl LockSearch {
    /// Looks for a lock, from now on.
    pub(crate) fn look_for(&mut self, lock: LockId) {
        self.next.insert(lock);
    }

    /// Stops looking for a lock: it is no more.
    pub(crate) fn forget(&mut self, lock: LockId) {
        self.missing.remove(&lock);
        self.next.remove(&lock);
    }

    fn found(&mut self, state: &mut ModuleState, database: u16, locks: &[(LockId, Vec<u8>)]) {
        for (lock, key) in locks {
            if self.missing.remove(lock) {
                self.next.remove(lock);
                state.node.found_at(*lock, database, key);
            }
        }
    }

    /// Looks at a few keys. False when there is nothing left to look for.
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
            // The last database is behind us: whatever was missed is looked for again.
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

/// Goes on with the search, if there is something to look for.
pub(crate) fn on_cron(ctx: Ctx<'_>) {
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
