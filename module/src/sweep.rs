//! The sweep: deletes expired locks, so that `SCAN` and plain `SET NX` clients no longer see them, and hands locks on.
//! `redlock_core::node` lists its duties and their order in `sweep.rs`.
//!
//! No lock relies on the sweep: every command compares the deadline itself. One timer of the server serves all locks.
//! Timers follow the wall clock, so the timer may fire early, when there is nothing to do yet, or late. Then the
//! server's cron, which does not follow the wall clock, does the work.

use std::time::{Duration, Instant};

use redlock_core::node::Sweep;
use redlock_core::{LockId, Millis, NodeClock};

use crate::ffi::context::Ctx;
use crate::ffi::keys::NamedKeys;
use crate::handoff;
use crate::reclaim::{self, RECLAIMED_PER_COMMAND, RECLAIMED_PER_SWEEP};
use crate::state::{self, ModuleState};

/// The longest time of one call. With [`PAUSE_MS`], the sweep takes at most half of the server's time, and it delays a
/// command of a client by at most this time and one step. A hand-off of many keys is the longest step.
const TIME_PER_CALL: Duration = Duration::from_millis(1);

/// The time until the next call if there is more to do, in milliseconds: the shortest time of a server's timer.
const PAUSE_MS: u64 = 1;

/// A timer that is overdue by this time will not fire soon: the wall clock was set back. In milliseconds.
const LOST_AFTER_MS: u64 = 50;

/// Makes sure that the sweep runs when a lock that was just granted for `ttl_ms` expires.
pub(crate) fn wake_by(state: &mut ModuleState, ctx: Ctx<'_>, ttl_ms: u64) {
    let now = state.clock.seen();
    arm(state, ctx, now, now.deadline_after(ttl_ms));
}

/// Makes sure that the sweep runs after [`PAUSE_MS`].
pub(crate) fn soon(state: &mut ModuleState, ctx: Ctx<'_>) {
    let now = state.clock.latest();
    arm(state, ctx, now, Millis(now.0 + PAUSE_MS));
}

/// Makes sure that the sweep runs after [`PAUSE_MS`] if a key is ready for its first waiter.
pub(crate) fn soon_if_ready(state: &mut ModuleState, ctx: Ctx<'_>) {
    if state.node.has_ready() {
        soon(state, ctx);
    }
}

/// Handles the timer of the sweep.
pub(crate) fn on_timer(ctx: Ctx<'_>) {
    state::with(|state| state.timer = None);
    sweep(ctx);
}

/// Handles the server's cron: replaces a timer that is overdue or missing.
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
    // Freed values come first: the sweep must not search for their locks.
    if state::with(|state| state.reclaim(RECLAIMED_PER_SWEEP)) != Some(true) {
        return pause(ctx);
    }
    // A replica leaves the sweep to its master, and a server that pauses writes must not be given any. The cron tries
    // again.
    if state::with(|state| state.is_replica || state.is_loading) != Some(false) || ctx.is_paused() {
        return;
    }
    let Some(steps) = state::with(|state| state.sweep_budget.steps()) else { return };
    let began = Instant::now();
    for _ in 0..steps {
        let is_done = state::with(|state| match state.node.sweep(&mut state.clock) {
            Sweep::Expired(lock) => {
                expire(state, ctx, lock);
                false
            }
            Sweep::Busy => false,
            Sweep::Until(_) | Sweep::Idle if state.node.has_ready() => {
                handoff::serve(state, ctx);
                false
            }
            Sweep::Until(due) => {
                let now = state.clock.latest();
                arm(state, ctx, now, due);
                true
            }
            Sweep::Idle => true,
        });
        if is_done != Some(false) {
            state::with(|state| state.sweep_budget.done());
            return;
        }
        if began.elapsed() > TIME_PER_CALL {
            break;
        }
    }
    state::with(|state| state.sweep_budget.work_is_left());
    pause(ctx);
}

/// Schedules the next call, so that the server can serve clients meanwhile.
fn pause(ctx: Ctx<'_>) {
    state::with(|state| soon(state, ctx));
}

/// Deletes the key of an expired lock. If the lock is not under its key, a client has renamed or moved it, or a
/// background thread of the server is about to free its value.
fn expire(state: &mut ModuleState, ctx: Ctx<'_>, lock: LockId) {
    let (database, key) = state.node.location(lock);
    let mut is_deleted = false;
    if ctx.select(database) {
        let mut keys = NamedKeys::open(ctx, database, vec![key.to_vec()]);
        is_deleted = state.node.expire(&mut keys, lock);
    }
    if !is_deleted {
        state.forget_removed();
        state.node.set_missing(lock);
        state.search.look_for(lock);
    }
    // Opening the key may have expired a plain client's lock, and others may wait for it.
    state.reclaim(RECLAIMED_PER_COMMAND);
}

/// Sets the timer, unless it is set to fire as early.
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
