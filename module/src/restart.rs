//! The identity of this server, and whether it may have forgotten locks.
//!
//! - A server that cannot prove which node it is does not vote: a replica, a former replica, a copied state file, a
//!   data set of another node, a data set with locks and no state file. `redlock admit` lets it vote again.
//! - A node that may have forgotten locks grants nothing until they have expired (quarantine). A node that starts has
//!   forgotten nothing if the server was shut down in order and the loaded locks are the ones that it had then. A flush
//!   and an eviction remove locks on which a client may rely.

use redlock_contract::{HighWater, NonVoting};
use redlock_core::durable::{Dataset, DurableState, ID_DIGITS};
use redlock_core::start::{ExpectedLocks, Grace, Start};

use crate::ffi::context::Ctx;
use crate::ffi::log::Level;
use crate::reclaim;
use crate::state::{self, ModuleState};
use crate::state_file;
use crate::sweep;

/// Begins the quarantine of a start, if one is needed.
pub(crate) fn begin(state: &mut ModuleState, ctx: Ctx<'_>, start: &Start) {
    let wait_ms = start.quarantine_ms(state.grace, state.node.max_ttl_ms());
    if wait_ms > 0 {
        state.node.quarantine(wait_ms, &mut state.clock);
    }
    if start.continues {
        state.node.set_resumed();
    }
    // `check_dataset` compares the locks once the data set is loaded.
    state.expected = start.expected_locks(state.grace);
    let DurableState { node_id, incarnation, non_voting, .. } = state.node.state();
    match (non_voting, start.continues) {
        (Some(reason), _) => ctx.log(Level::Warning, &reason.to_string()),
        (None, false) => ctx.log(Level::Notice, &format!("new node {node_id}: it has granted no fence yet")),
        (None, true) => ctx.log(
            Level::Notice,
            &format!(
                "node {node_id}, incarnation {incarnation}: fences above {}, longest lease {} ms",
                start.state.high_water.common(),
                start.state.longest_lease_ms
            ),
        ),
    }
}

/// The occasion of a check of the data set.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckOccasion {
    /// The server has loaded a data set.
    Loaded,
    /// The server runs; if it had a data set, it has loaded it before.
    Running,
}

/// Checks the data set once: whether it belongs to this node, and whether it contains every lock.
pub(crate) fn check_dataset(ctx: Ctx<'_>, occasion: CheckOccasion) {
    let reason = state::with(|state| {
        if state.is_loading {
            return None;
        }
        let expected = state.expected.take();
        // From now on the node has a state file, and only the first data set of a start can be older or newer than it.
        let known = state.marks_at_start.replace(HighWater::new(u64::MAX));
        if state.is_replica {
            return None;
        }
        if occasion == CheckOccasion::Loaded || expected.is_some() {
            // Records of freed values would count as locks.
            state.reclaim(usize::MAX);
        }
        if occasion == CheckOccasion::Loaded {
            state.dataset.has_locks = state.node.held() > 0;
            if let Some(reason) = state.node.state().reason_not_to_vote(state.dataset, known.as_ref()) {
                return Some(reason);
            }
        }
        let has_loaded = occasion == CheckOccasion::Loaded;
        if expected.is_some_and(|expected| expected.are_here(state.node.locks_digest(), has_loaded)) {
            state.node.cancel_quarantine();
            ctx.log(Level::Notice, "the server has loaded every lock: no quarantine");
        } else {
            state.node.outlast_loaded_locks();
        }
        None
    });
    if let Some(reason) = reason.flatten() {
        lose_vote(ctx, reason);
    }
}

/// Makes this server a non-voting node with an id of its own.
pub(crate) fn lose_vote(ctx: Ctx<'_>, reason: NonVoting) {
    let node_id = ctx.random_hex::<ID_DIGITS>();
    state::with(|state| {
        if state.node.state().non_voting.is_some() {
            return;
        }
        let non_voting = state.node.without_vote(reason, node_id, state.dataset);
        store_or_keep(state, non_voting);
        ctx.log(Level::Warning, &reason.to_string());
    });
}

/// Records what the data set of the master, or of the file that is being loaded, says about itself.
pub(crate) fn note_dataset(state: &mut ModuleState, dataset: Dataset) {
    state.dataset.id = dataset.id.or(state.dataset.id);
    state.dataset.high_water = state.dataset.high_water.max(dataset.high_water);
    state.dataset.highest_fence = state.dataset.highest_fence.max(dataset.highest_fence);
    let follows = state.node.state().non_voting.is_some_and(|reason| reason != NonVoting::SeveralStates);
    if follows && let Some(next) = state.node.state().following(state.dataset.id, state.dataset.high_water) {
        store_or_keep(state, next);
    }
}

/// Stores a state. If that fails, the node grants nothing until it is stored.
fn store_or_keep(state: &mut ModuleState, next: DurableState) {
    if state_file::store(&next).is_ok() {
        state.node.set_state(next);
    } else {
        state.node.set_unsaved_state(next);
    }
}

/// Handles a flush of a database, or of all databases for `None`, before the server deletes the keys.
pub(crate) fn flushed(ctx: Ctx<'_>, database: Option<u16>) {
    state::with(|state| {
        state.node.all_keys_changed();
        sweep::soon_if_ready(state, ctx);
        // A replica follows its master, and a server that loads grants nothing yet.
        if state.is_replica || state.is_loading || state.grace == Grace::Off {
            return;
        }
        // `DEBUG RELOAD` flushes too, and then loads every lock again.
        let all = state.node.locks_digest();
        let was_waiting = state.node.quarantine_left_ms(&mut state.clock) > 0;
        state.node.quarantine_for_locks_of(database, &mut state.clock);
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if left_ms > 0 && !was_waiting {
            state.expected = Some(ExpectedLocks::BeforeFlush(all));
            ctx.log(
                Level::Warning,
                &format!("quarantine: held locks were flushed; this node grants nothing for {left_ms} ms"),
            );
        }
    });
}

/// Handles the eviction of a key. If it was a lock, a client may still rely on it.
pub(crate) fn evicted(ctx: Ctx<'_>, database: u16, key: &[u8]) {
    state::with(|state| {
        // It may have been a plain client's lock that has waiters.
        state.node.key_changed(database, key);
        sweep::soon_if_ready(state, ctx);
        // The server frees the value just before the event. The table may know a renamed lock by its old name, so the
        // key does not identify the lock.
        let Some(lock) = reclaim::last_freed().filter(|lock| state.last_evicted != Some(*lock)) else {
            return;
        };
        state.last_evicted = Some(lock);
        if !state.is_replica && state.grace != Grace::Off {
            state.node.quarantine_for(lock, key, &mut state.clock);
            ctx.log(Level::Warning, "quarantine: the server has evicted a held lock; set maxmemory-policy to noeviction or volatile-*");
        }
    });
}

/// Handles a change of the server's role.
pub(crate) fn role_changed(ctx: Ctx<'_>, is_replica: bool) {
    if is_replica {
        state::with(|state| state.dataset = Dataset::default());
        lose_vote(ctx, NonVoting::Replica);
    } else if let Some(Some(reason)) = state::with(|state| state.node.state().non_voting) {
        ctx.log(Level::Warning, &reason.to_string());
    }
}

/// Stores a state that could not be stored before, or one with a lower longest lease when the long leases have expired.
pub(crate) fn store_state() {
    state::with(|state| {
        let Some(next) = state.node.state_to_store(&mut state.clock) else { return };
        match state_file::store(&next) {
            Ok(()) => state.node.set_state(next),
            Err(_) => state.node.not_stored(),
        }
    });
}

/// Logs once, after the load of the data set, how long the node grants nothing.
pub(crate) fn log_quarantine(ctx: Ctx<'_>) {
    state::with(|state| {
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if !std::mem::replace(&mut state.is_quarantine_logged, true) && left_ms > 0 {
            ctx.log(
                Level::Warning,
                &format!(
                    "quarantine: this node may have forgotten locks and grants nothing for {left_ms} ms"
                ),
            );
        }
    });
}

/// Handles an orderly shutdown: stores the digest of the locks, so that the next start can check whether it has all of
/// them.
pub(crate) fn shut_down() {
    state::with(|state| {
        // A node in quarantine does not know all its locks, and a non-voting server does not need to.
        let is_complete = state.node.quarantine_left_ms(&mut state.clock) == 0 && !state.is_loading;
        if !is_complete || state.node.state().non_voting.is_some() {
            return;
        }
        state.reclaim(usize::MAX);
        let running = state.node.state().clone();
        let locks_at_shutdown = Some(state.node.locks_digest());
        let mut last = running.clone();
        last.locks_at_shutdown = locks_at_shutdown;
        // The server saves its data before this event, and always ends after it. If a server ever continues, the node
        // removes the digest from the file before the next grant. A store that failed may have replaced the file too.
        let _ = state_file::store(&last);
        state.node.set_unsaved_state(running);
    });
}
