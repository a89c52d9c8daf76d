//! Finding locks that were renamed or moved.
//!
//! The sweep knows a lock by the key under which it was granted. When it is not there although the
//! server still has it, somebody has renamed or moved it. That is rare, so nothing is paid for it
//! beforehand: only then the keyspace is searched, a little at each turn of the server's cron.

use redlock_core::LockId;

use crate::server::api::Ctx;
use crate::server::scan::Scan;
use crate::state::{self, State};

/// How many steps one turn takes: a fraction of a millisecond's work.
const STEPS_PER_TURN: usize = 256;

/// A search through all databases.
pub(crate) struct Search {
    astray: Vec<LockId>,
    database: u16,
    scan: Scan,
}

/// Looks for a lock, from now on.
pub(crate) fn look_for(state: &mut State, lock: LockId) {
    match &mut state.search {
        // One that is under way may have passed the lock: begin again.
        Some(search) => {
            search.astray.push(lock);
            (search.database, search.scan) = (0, Scan::begin());
        }
        None => state.search = Some(Search { astray: vec![lock], database: 0, scan: Scan::begin() }),
    }
}

/// Goes on with a search, if there is one.
pub(crate) fn on_cron(ctx: Ctx<'_>) {
    // The state is closed while the server scans: it calls back.
    let Some(mut search) = state::with(|state| state.search.take()).flatten() else { return };
    let here = ctx.database();
    let mut found = Vec::new();
    let mut more = true;
    for _ in 0..STEPS_PER_TURN {
        if !ctx.select(search.database) {
            more = false;
            break;
        }
        let before = found.len();
        let at_end = !search.scan.step(ctx, &mut found);
        let database = search.database;
        state::with(|state| search.settle(state, database, &found[before..]));
        if search.astray.is_empty() {
            more = false;
            break;
        }
        if at_end {
            search.scan = Scan::begin();
            match search.database.checked_add(1) {
                Some(next) => search.database = next,
                None => more = false,
            }
        }
    }
    if let Ok(here) = u16::try_from(here) {
        ctx.select(here);
    }
    if more {
        state::with(|state| state.search = Some(search));
    }
}

impl Search {
    fn settle(&mut self, state: &mut State, database: u16, found: &[(LockId, Vec<u8>)]) {
        for (lock, key) in found {
            if let Some(place) = self.astray.iter().position(|astray| astray == lock) {
                self.astray.swap_remove(place);
                state.node.found_at(*lock, database, key);
            }
        }
    }
}
