//! Who this server is, and whether it may have forgotten locks.
//!
//! - A server that cannot prove which node it is does not vote: a replica, a former replica, a copied state file, a
//!   data set of another node, a data set with locks and no state file. `redlock admit` lets it vote again.
//! - A node that may have forgotten locks grants nothing until they are over (quarantine). A node that starts has
//!   forgotten nothing if the server was shut down in order and the loaded locks are the ones that it had then. A
//!   flush and an eviction throw locks away that a client may rely on.

use redlock_contract::NonVoting;
use redlock_core::durable::{Dataset, DurableState, ID_DIGITS, LocksDigest};

use crate::ffi::context::Ctx;
use crate::ffi::log::Level;
use crate::reclaim;
use crate::state::{self, State};
use crate::state_file;
use crate::sweep;

/// When a node waits after a start: `redlock.restart-grace`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Grace {
    /// Unless it has forgotten no lock for certain.
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
    /// The loaded locks are those of the orderly shutdown.
    Shutdown(LocksDigest),
    /// The loaded locks are those that the server had when it threw them away a moment ago.
    Reload(LocksDigest),
}

/// Decides about waiting when the module is loaded. `before` is the state that the node had stored, if it votes and
/// is not new.
pub(crate) fn begin(state: &mut State, ctx: Ctx<'_>, before: Option<&DurableState>) {
    let wait_ms = match (state.grace, before) {
        (Grace::Off, _) | (Grace::Auto, None) => 0,
        (Grace::Auto, Some(before)) => before.quarantine_ms(),
        (Grace::Always, None) => state.node.max_ttl_ms(),
        (Grace::Always, Some(before)) => before.quarantine_ms().max(1),
    };
    if wait_ms > 0 {
        state.node.quarantine(wait_ms, &mut state.clock);
    }
    if before.is_some() {
        state.node.set_resumed();
    }
    // Whether the locks are all there is known once the data set is loaded.
    state.expected = before
        .and_then(|before| before.locks_at_shutdown.map(Proof::Shutdown))
        .filter(|_| wait_ms > 0 && state.grace == Grace::Auto);
    let DurableState { node_id, incarnation, non_voting, .. } = state.node.state();
    match (non_voting, before) {
        (Some(reason), _) => log_non_voting(ctx, *reason),
        (None, None) => ctx.log(Level::Notice, &format!("new node {node_id}: it has given out no fence")),
        (None, Some(before)) => ctx.log(
            Level::Notice,
            &format!(
                "node {node_id}, incarnation {incarnation}: fences above {}, longest lease {} ms",
                before.high_water, before.longest_lease_ms
            ),
        ),
    }
}

fn log_non_voting(ctx: Ctx<'_>, reason: NonVoting) {
    let line = format!(
        "this server does not vote and grants nothing: {}; {}",
        reason.explanation(),
        reason.remedy()
    );
    ctx.log(Level::Warning, &line);
}

/// When to look whether every lock is here.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// A data set was loaded.
    Loaded,
    /// The server runs; if it had a data set, it was loaded before.
    Running,
}

/// Looks at the data set, once: whether it belongs to this node, and whether every lock is here.
pub(crate) fn settle(ctx: Ctx<'_>, occasion: Occasion) {
    let disowned = state::with(|state| {
        if state.is_loading {
            return None;
        }
        let proof = state.expected.take();
        // From now on the node has a state file, and only the first data set of a start can be older or newer.
        let known = state.highest_at_start.replace(u64::MAX);
        if state.is_replica {
            return None;
        }
        if occasion == Occasion::Loaded || proof.is_some() {
            // Records of locks whose values are gone would count.
            state.reclaim(usize::MAX);
        }
        if occasion == Occasion::Loaded {
            state.dataset.has_locks = state.node.held() > 0;
            if let Some(reason) = state.node.state().disowned_by(state.dataset, known) {
                return Some(reason);
            }
        }
        let is_proven = match (proof, occasion) {
            (Some(Proof::Shutdown(locks)), _) | (Some(Proof::Reload(locks)), Occasion::Loaded) => {
                state.node.locks_digest() == locks
            }
            (Some(Proof::Reload(_)), Occasion::Running) | (None, _) => false,
        };
        if is_proven {
            state.node.end_quarantine();
            ctx.log(Level::Notice, "every lock is here: no quarantine");
        }
        None
    });
    if let Some(reason) = disowned.flatten() {
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
        log_non_voting(ctx, reason);
    });
}

/// The data set of the master, or of the file that is being loaded, says this about itself.
pub(crate) fn learn(state: &mut State, dataset: Dataset) {
    state.dataset.id = dataset.id.or(state.dataset.id);
    state.dataset.highest_fence = state.dataset.highest_fence.max(dataset.highest_fence);
    let follows = state.node.state().non_voting.is_some_and(|reason| reason != NonVoting::SeveralStates);
    if follows && let Some(next) = state.node.state().following(state.dataset.id, state.dataset.highest_fence)
    {
        store_or_keep(state, next);
    }
}

/// Stores a state. If that fails nothing is granted until it is stored.
fn store_or_keep(state: &mut State, next: DurableState) {
    if state_file::store(&next).is_ok() {
        state.node.set_state(next);
    } else {
        state.node.set_unsaved_state(next);
    }
}

/// The server is about to throw away the keys of a database, or all.
pub(crate) fn flushed(ctx: Ctx<'_>, database: Option<u16>) {
    state::with(|state| {
        state.node.all_keys_changed();
        sweep::soon_if_due(state, ctx);
        // A replica follows its master, and a server that loads grants nothing yet.
        if state.is_replica || state.is_loading || state.grace == Grace::Off {
            return;
        }
        // `DEBUG RELOAD` flushes, too, and has every lock back a moment later.
        let all = state.node.locks_digest();
        let was_waiting = state.node.quarantine_left_ms(&mut state.clock) > 0;
        state.node.quarantine_for_locks_of(database, &mut state.clock);
        let left_ms = state.node.quarantine_left_ms(&mut state.clock);
        if left_ms > 0 && !was_waiting {
            state.expected = Some(Proof::Reload(all));
            ctx.log(
                Level::Warning,
                &format!("quarantine: held locks are flushed, nothing is granted for {left_ms} ms"),
            );
        }
    });
}

/// The server has evicted a key to make room. If it was a lock, a client may still rely on it.
pub(crate) fn evicted(ctx: Ctx<'_>, database: u16, key: &[u8]) {
    state::with(|state| {
        // It may have been a plain client's lock, for which a client waits.
        state.node.key_changed(database, key);
        sweep::soon_if_due(state, ctx);
        // The server frees the value just before it says so. A renamed lock is known by its old name, so the name
        // does not tell.
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

/// The server has become a replica or a master.
pub(crate) fn role_changed(ctx: Ctx<'_>, is_replica: bool) {
    if is_replica {
        state::with(|state| state.dataset = Dataset::default());
        lose_vote(ctx, NonVoting::Replica);
    } else if let Some(Some(reason)) = state::with(|state| state.node.state().non_voting) {
        log_non_voting(ctx, reason);
    }
}

/// Stores a state that could not be stored before, and one with a lower longest lease when the leases that made it long
/// are over.
pub(crate) fn store_state() {
    state::with(|state| {
        let Some(next) = state.node.state_to_store(&mut state.clock) else { return };
        match state_file::store(&next) {
            Ok(()) => state.node.set_state(next),
            Err(_) => state.node.not_stored(),
        }
    });
}

/// Says how long nothing is granted, once the data set is there.
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

/// The server shuts down in order: the next start can tell whether it has all locks.
pub(crate) fn shut_down() {
    state::with(|state| {
        // A node in quarantine does not know its locks, and a server that does not vote need not.
        let is_complete = state.node.quarantine_left_ms(&mut state.clock) == 0 && !state.is_loading;
        if !is_complete || state.node.state().non_voting.is_some() {
            return;
        }
        state.reclaim(usize::MAX);
        let running = state.node.state().clone();
        let locks_at_shutdown = Some(state.node.locks_digest());
        let mut last = running.clone();
        last.locks_at_shutdown = locks_at_shutdown;
        if state_file::store(&last).is_ok() {
            // The server may go on if it cannot save its data: before the next grant the digest is taken back.
            state.node.set_unsaved_state(running);
        }
    });
}
