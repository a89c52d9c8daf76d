//! What the server tells the module.

use crate::restart::{self, Occasion};
use crate::server::api::Ctx;
use crate::server::keys::Audience;
use crate::state::{self, State};
use crate::{handoff, search, sweep};

/// The server has become a replica or a master.
pub(crate) fn role_changed(ctx: Ctx<'_>, is_replica: bool) {
    let was_replica = state::with(|state| {
        state.audience = Audience::Somebody;
        // A copy writes its AOF anew, and has not all in it until that is done.
        state.had_aof_throughout &= !is_replica;
        if is_replica {
            state.node.dismiss_waiters();
        }
        std::mem::replace(&mut state.is_replica, is_replica)
    });
    if was_replica == Some(true) && !is_replica {
        restart::promoted(ctx);
    }
    sweep::on_cron(ctx);
}

/// The server begins or ends loading a dataset.
pub(crate) fn loading(ctx: Ctx<'_>, is_loading: bool) {
    state::with(|state| state.is_loading = is_loading);
    if !is_loading {
        restart::settle(ctx, Occasion::Loaded);
    }
    sweep::on_cron(ctx);
}

/// The server could not load its data set. It ends now, or is a replica that asks its master for another copy: there
/// is nothing to recover.
pub(crate) fn loading_failed() {
    state::with(|state| state.is_loading = false);
}

/// The server begins to load an AOF.
pub(crate) fn loading_aof(ctx: Ctx<'_>) {
    let bytes = restart::aof_bytes(ctx);
    state::with(|state| state.loaded_aof_bytes = bytes);
    loading(ctx, true);
}

/// About ten times a second, whatever the wall clock does.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let nobody = !ctx.circumstances().keeps_effects() && !ctx.has_replicas();
    state::with(|state| state.audience = if nobody { Audience::Nobody } else { Audience::Somebody });
    // A server without a dataset loads none: then this is the first occasion.
    restart::settle(ctx, Occasion::Running);
    restart::announce(ctx);
    let is_due =
        |state: &mut State| !state.is_storage_watched && state.node.quarantine_left_ms(&mut state.clock) == 0;
    if state::with(is_due) == Some(true) {
        restart::watch_storage(ctx);
    }
    handoff::forget_images();
    sweep::on_cron(ctx);
    search::on_cron(ctx);
}

/// The server has forked to save its dataset. If that is for a new replica or an AOF, everything from
/// this moment on must follow it; the cron finds out later whether somebody is there.
pub(crate) fn forked() {
    state::with(|state| state.audience = Audience::Somebody);
}

/// Two databases have changed places.
pub(crate) fn databases_swapped(one: i32, other: i32) {
    if let (Ok(one), Ok(other)) = (u16::try_from(one), u16::try_from(other)) {
        state::with(|state| state.node.databases_swapped(one, other));
    }
}
