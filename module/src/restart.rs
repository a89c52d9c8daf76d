//! When a node may have forgotten locks, and what it does then: it waits until they are over.
//!
//! A node that starts has forgotten nothing if the server was shut down in order and the locks that were
//! loaded are the ones that there were: their seal is in the ledger. Nor if every grant was stored in the
//! AOF before it was answered, and that AOF was loaded. A copy that becomes a master may lack
//! its master's last grants. A flush throws locks away that somebody relies on, and so does eviction.

use std::fs;

use redlock_core::ledger::{Ledger, Seal};

use crate::server::api::{Ctx, Level};
use crate::state::{self, State};
use crate::sweep;
use crate::vault;

/// When to wait after a start: `redlock.restart-grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Unless nothing was forgotten for certain.
    #[default]
    Auto,
    /// In any case, and a new node as long as `redlock.max-ttl`.
    Always,
    /// Never: two clients may then hold a lock that a crash has made the node forget.
    Off,
}

impl Grace {
    /// All of them, in the order of their numbers.
    pub(crate) const NAMES: [&'static str; 3] = ["auto", "always", "off"];

    pub(crate) fn from_number(number: usize) -> Self {
        [Self::Auto, Self::Always, Self::Off].get(number).copied().unwrap_or_default()
    }
}

/// What shows that no lock was forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Proof {
    /// These locks are here, once the dataset is loaded.
    Seal(Seal),
    /// These locks are here again, if the server loads them at once after it has thrown them away.
    Reload(Seal),
    /// An AOF was loaded that had every grant.
    Aof,
}

/// Decides about waiting when the module is loaded. `before` is what the node remembers of its last life.
pub(crate) fn begin(state: &mut State, ctx: Ctx<'_>, before: Option<&Ledger>) {
    let wait_ms = match (state.grace, before) {
        (Grace::Off, _) | (Grace::Auto, None) => 0,
        (Grace::Auto, Some(ledger)) => ledger.quarantine_ms(),
        (Grace::Always, None) => state.node.max_ttl_ms(),
        (Grace::Always, Some(ledger)) => ledger.quarantine_ms().max(1),
    };
    if wait_ms > 0 {
        state.node.quarantine(wait_ms, &mut state.clock);
    }
    if before.is_some() {
        state.node.set_resumed();
    }
    // Whether the locks are all there is known once the dataset is loaded.
    state.expected = before
        .and_then(|ledger| ledger.seal.map(Proof::Seal).or(ledger.grants_are_stored.then_some(Proof::Aof)))
        .filter(|_| wait_ms > 0 && state.grace == Grace::Auto);
    match before {
        None => ctx
            .log(Level::Notice, "this node is new: it has given out no fence and can have forgotten no lock"),
        Some(ledger) => ctx.log(
            Level::Notice,
            &format!(
                "this node goes on: fences above {}, longest time to live {} ms",
                ledger.mark, ledger.longest_ttl_ms
            ),
        ),
    }
}

/// When to look whether every lock is here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A dataset was loaded.
    Loaded,
    /// The server goes about its work; if it had a dataset, it was loaded before.
    Running,
}

/// Ends the wait if the locks that are here now are the ones that must be. Asked once.
pub(crate) fn settle(ctx: Ctx<'_>, occasion: Occasion) {
    let Some(proof) = state::with(|state| state.expected.take()).flatten() else { return };
    // A server that finds the end of its AOF torn cuts it off, and may lose a grant that way.
    let aof_bytes = aof_bytes(ctx);
    state::with(|state| {
        // Records of locks that are gone would count.
        state.bury(usize::MAX);
        let is_proven = match (proof, occasion) {
            (Proof::Seal(seal), _) | (Proof::Reload(seal), Occasion::Loaded) => state.node.seal() == seal,
            (Proof::Reload(_), Occasion::Running) => false,
            (Proof::Aof, _) => state.loaded_aof_bytes.is_some() && state.loaded_aof_bytes == aof_bytes,
        };
        if is_proven {
            state.node.end_quarantine();
            ctx.log(Level::Notice, "every lock is here: no quarantine");
        }
    });
}

/// How large the AOF is, in all its parts; `None` if it cannot be told.
pub(crate) fn aof_bytes(ctx: Ctx<'_>) -> Option<u64> {
    let parts = fs::read_dir(ctx.setting(c"appenddirname")).ok()?;
    parts.map(|part| Some(part.ok()?.metadata().ok()?.len())).sum()
}

/// Notes in the ledger whether a crash from now on can forget a grant. Asked after the start and whenever a
/// setting changes; before it can, the ledger says so.
pub(crate) fn watch_storage(ctx: Ctx<'_>) {
    let stores = ctx.stores_every_command();
    let has_aof = stores || ctx.setting(c"appendonly") == "yes";
    state::with(|state| {
        // An AOF that is turned on later has everything only once it was rewritten: not before a restart.
        state.had_aof_throughout &= has_aof;
        // What was forgotten before is in no AOF.
        let is_whole = state.node.quarantine_left_ms(&mut state.clock) == 0 && !state.is_loading;
        let grants_are_stored = stores && state.had_aof_throughout && is_whole;
        state.is_storage_watched = is_whole;
        note_storage(state, grants_are_stored);
    });
}

fn note_storage(state: &mut State, grants_are_stored: bool) {
    if state.node.ledger().grants_are_stored == grants_are_stored {
        return;
    }
    let ledger = Ledger { grants_are_stored, ..state.node.ledger().clone() };
    if vault::store(&ledger).is_ok() {
        state.node.set_ledger(ledger);
    } else if !grants_are_stored {
        // The ledger on disk promises what is no longer so: nothing is granted on it.
        state.node.owe_ledger(ledger);
    }
}

/// The node has begun to wait: until that is over, no crash is harmless.
fn waits(state: &mut State) {
    state.is_storage_watched = false;
    note_storage(state, false);
}

/// The server is about to throw away the keys of a database, or all.
pub(crate) fn flushed(ctx: Ctx<'_>, database: Option<u16>) {
    state::with(|state| {
        state.node.all_keys_changed();
        sweep::soon_if_due(state, ctx);
        // A copy follows its master, and a server that loads is not yet asked for locks.
        if state.is_replica || state.is_loading || state.grace == Grace::Off {
            return;
        }
        // `DEBUG RELOAD` flushes, too, and has every lock back a moment later.
        let all = state.node.seal();
        let was_waiting = state.node.quarantine_left_ms(&mut state.clock) > 0;
        state.node.quarantine_for_locks_of(database, &mut state.clock);
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if left_ms > 0 {
            waits(state);
        }
        if left_ms > 0 && !was_waiting {
            state.expected = Some(Proof::Reload(all));
            ctx.log(
                Level::Warning,
                &format!("quarantine: held locks are flushed, nothing is granted for {left_ms} ms"),
            );
        }
    });
}

/// The server has evicted a key to make room. If it was a lock, somebody may still rely on it.
pub(crate) fn evicted(ctx: Ctx<'_>, database: u16, key: &[u8]) {
    state::with(|state| {
        // It may have been a plain client's lock, for which somebody waits.
        state.node.key_changed(database, key);
        sweep::soon_if_due(state, ctx);
        let evicted = state::last_freed().filter(|lock| state.node.place(*lock) == (database, key));
        if let (Some(lock), false) = (evicted, state.is_replica || state.grace == Grace::Off) {
            state.node.quarantine_for(lock, &mut state.clock);
            waits(state);
            ctx.log(Level::Warning, "quarantine: the server has evicted a held lock; set maxmemory-policy to noeviction or volatile-*");
        }
    });
}

/// This server was a copy and is a master now.
pub(crate) fn promoted(ctx: Ctx<'_>) {
    state::with(|state| {
        let ledger = state.node.take_over();
        store_or_owe(state, ledger);
        if state.grace == Grace::Off {
            return;
        }
        let wait_ms = state.node.ledger().quarantine_ms();
        if wait_ms > 0 {
            state.node.quarantine(wait_ms, &mut state.clock);
            waits(state);
            ctx.log(Level::Warning, &format!("quarantine: the old master may have granted locks that never arrived, nothing is granted for {wait_ms} ms"));
        }
    });
}

/// Takes over what the ledger of another copy of this dataset says.
pub(crate) fn learn(state: &mut State, mark: u64, longest_ttl_ms: u64) {
    if let Some(ledger) = state.node.joined_with(mark, longest_ttl_ms) {
        store_or_owe(state, ledger);
    }
}

/// Stores a ledger. Where that fails nothing is granted until it is stored.
fn store_or_owe(state: &mut State, ledger: Ledger) {
    if vault::store(&ledger).is_ok() {
        state.node.set_ledger(ledger);
    } else {
        state.node.owe_ledger(ledger);
    }
}

/// Says how long nothing is granted, once the dataset is there.
pub(crate) fn announce(ctx: Ctx<'_>) {
    state::with(|state| {
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if !std::mem::replace(&mut state.is_announced, true) && left_ms > 0 {
            ctx.log(
                Level::Warning,
                &format!("quarantine: locks may have been forgotten, nothing is granted for {left_ms} ms"),
            );
        }
    });
}

/// The server shuts down in order: the next life can tell whether it has all locks.
pub(crate) fn shut_down() {
    state::with(|state| {
        // A node that is waiting does not know its locks.
        if state.node.quarantine_left_ms(&mut state.clock) > 0 {
            return;
        }
        let seal: Seal = state.node.seal();
        let ledger = Ledger { seal: Some(seal), ..state.node.ledger().clone() };
        if vault::store(&ledger).is_ok() {
            state.node.set_ledger(ledger);
        }
    });
}
