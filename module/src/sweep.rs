//! Deleting locks that have run out, so that `SCAN` and plain `SET NX` clients see them gone.
//!
//! No lock depends on it: every command looks at the deadline itself. One timer of the server serves
//! all locks. Timers follow the wall clock, so the timer may come early, and then there is nothing to
//! do yet, or late, and then the server's cron, which does not follow it, does the work.

use std::time::{Duration, Instant};

use redlock_core::node::Sweep;
use redlock_core::{KeyState, LockId, Millis, NodeClock};

use crate::ffi::context::Ctx;
use crate::ffi::keys::{Intent, NamedKey};
use crate::handoff;
use crate::reclaim::{self, RECLAIMED_PER_SWEEP};
use crate::state::{self, ModuleState};

/// How much one call does: about a tenth of a millisecond's work, if it is locks that have run out.
const STEPS_PER_CALL: usize = 256;

/// Those who wait take longer, above all for many keys at once: after this time others get their turn. The server
/// does nothing else meanwhile.
const TIME_PER_CALL: Duration = Duration::from_millis(1);

/// When there is more to do, the next call comes after this time.
const PAUSE_MS: u64 = 1;

/// A timer that is so much too late will not come: the wall clock was set back.
const LOST_AFTER_MS: u64 = 50;

/// Makes sure that the sweep wakes up when a lock that was just granted for `ttl_ms` is over.
pub(crate) fn wake_by(state: &mut ModuleState, ctx: Ctx<'_>, ttl_ms: u64) {
    let now = state.clock.seen();
    arm(state, ctx, now, now.deadline_after(ttl_ms));
}

/// Makes sure that the sweep comes in a moment.
pub(crate) fn soon(state: &mut ModuleState, ctx: Ctx<'_>) {
    let now = state.clock.latest();
    arm(state, ctx, now, Millis(now.0 + PAUSE_MS));
}

/// Makes sure that the sweep comes in a moment if somebody waits for it.
pub(crate) fn soon_if_ready(state: &mut ModuleState, ctx: Ctx<'_>) {
    if state.node.has_ready() {
        soon(state, ctx);
    }
}

/// The timer has fired.
pub(crate) fn on_timer(ctx: Ctx<'_>) {
    state::with(|state| state.timer = None);
    sweep(ctx);
}

/// The server's cron: makes up for a timer that does not come, and for none at all.
pub(crate) fn on_cron(ctx: Ctx<'_>) {
    let overdue = state::with(|state| {
        let now = state.clock.proven();
        if let Some((timer, due)) = state.timer
            && due.0 + LOST_AFTER_MS < now.0
        {
            ctx.stop_timer(timer);
            state.timer = None;
        }
        if reclaim::unreclaimed() > 0 {
            return true;
        }
        match state.node.next_sweep() {
            Some(due) if due > now => {
                arm(state, ctx, now, due);
                false
            }
            due => due.is_some(),
        }
    });
    if overdue == Some(true) {
        sweep(ctx);
    }
}

fn sweep(ctx: Ctx<'_>) {
    // What the server has freed by itself goes first: those locks are not to be looked for.
    if state::with(|state| state.reclaim(RECLAIMED_PER_SWEEP)) != Some(true) {
        return pause(ctx);
    }
    // A copy leaves it to its master, and a server that holds writes back must not be given any. The cron
    // comes back to it.
    if state::with(|state| state.is_replica || state.is_loading) != Some(false) || ctx.is_paused() {
        return;
    }
    let began = Instant::now();
    for _ in 0..STEPS_PER_CALL {
        // The state is closed while a key is deleted: the server calls back.
        let step = state::with(|state| match state.node.sweep(&mut state.clock) {
            Sweep::Expired(lock) => {
                let (database, key) = state.node.location(lock);
                Next::Delete(lock, database, key.to_vec())
            }
            Sweep::Busy => Next::Again,
            Sweep::Until(_) | Sweep::Idle if state.node.has_ready() => {
                handoff::serve(state, ctx);
                Next::Again
            }
            Sweep::Until(due) => {
                let now = state.clock.latest();
                arm(state, ctx, now, due);
                Next::Rest
            }
            Sweep::Idle => Next::Rest,
        });
        match step {
            Some(Next::Delete(lock, database, key)) => delete(ctx, lock, database, &key),
            Some(Next::Again) => {}
            Some(Next::Rest) | None => return,
        }
        if began.elapsed() > TIME_PER_CALL {
            break;
        }
    }
    pause(ctx);
}

/// Goes on in a moment: others get their turn.
fn pause(ctx: Ctx<'_>) {
    state::with(|state| soon(state, ctx));
}

enum Next {
    Delete(LockId, u16, Vec<u8>),
    Again,
    Rest,
}

/// Deletes the key of a lock that has run out. If the lock is not there it was renamed or moved, or its
/// value is about to be freed by a background thread of the server.
fn delete(ctx: Ctx<'_>, lock: LockId, database: u16, key: &[u8]) {
    if ctx.select(database) {
        let mut key = NamedKey::open(ctx, key, Intent::Change);
        if key.key_state() == KeyState::Lock(lock) {
            let gone = key.delete();
            state::with(|state| state.node.lock_expired(lock, gone));
            return;
        }
    }
    state::with(|state| state.search.look_for(lock));
}

/// Sets the timer, unless it is set to come as early.
#[inline]
fn arm(state: &mut ModuleState, ctx: Ctx<'_>, now: Millis, due: Millis) {
    if state.timer.is_none_or(|(_, set)| set > due) {
        set_timer(state, ctx, now, due);
    }
}

#[inline(never)]
fn set_timer(state: &mut ModuleState, ctx: Ctx<'_>, now: Millis, due: Millis) {
    if let Some((timer, _)) = state.timer {
        ctx.stop_timer(timer);
    }
    state.timer = Some((ctx.start_sweep_timer(due.since(now).max(1)), due));
}
