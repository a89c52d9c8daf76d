//! The sweep: deletes expired locks, so that `SCAN` and plain `SET NX` clients no longer see them, and hands locks on.
//! `redlock_core::node` lists its duties and their order in `sweep.rs`.
//!
//! No lock relies on the sweep: every command compares the deadline itself. One timer of the server serves all locks.
//! Timers follow the wall clock, so the timer may fire early, when there is nothing to do yet, or late. Then the
//! server's cron, which does not follow the wall clock, does the work.

use std::time::{Duration, Instant};

use redlock_core::node::Sweep;
use redlock_core::{KeyState, LockId, Millis, NodeClock};

use crate::ffi::context::Ctx;
use crate::ffi::keys::{Intent, NamedKey};
use crate::handoff;
use crate::reclaim::{self, RECLAIMED_PER_SWEEP};
use crate::state::{self, ModuleState};

/// The number of steps of one call: about 0.1 ms of work if all of them expire locks.
const STEPS_PER_CALL: usize = 256;

/// The longest time of one call. Hand-offs take longer than expiries, above all for many keys at once, and the server
/// does nothing else meanwhile.
const TIME_PER_CALL: Duration = Duration::from_millis(1);

/// The time until the next call if there is more to do, in milliseconds.
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

/// Schedules the next call, so that the server can serve clients meanwhile.
fn pause(ctx: Ctx<'_>) {
    state::with(|state| soon(state, ctx));
}

/// What the sweep does after one step.
enum Next {
    Delete(LockId, u16, Vec<u8>),
    Again,
    Rest,
}

/// Deletes the key of an expired lock. If the lock is not under its key, a client has renamed or moved it, or a
/// background thread of the server is about to free its value.
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
