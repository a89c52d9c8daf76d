//! What the server tells the module.

use redlock_core::durable::Dataset;

use crate::ffi::context::Ctx;
use crate::ffi::replication::ReplicationTarget;
use crate::restart::{self, CheckOccasion};
use crate::state;
use crate::{handoff, search, sweep};

/// The server has become a replica or a master.
pub(crate) fn role_changed(ctx: Ctx<'_>, is_replica: bool) {
    let was_replica = state::with(|state| {
        state.replication_target = ReplicationTarget::Present;
        std::mem::replace(&mut state.is_replica, is_replica)
    });
    if was_replica.is_some_and(|was_replica| was_replica != is_replica) {
        restart::role_changed(ctx, is_replica);
    }
    sweep::on_cron(ctx);
}

/// The server begins or ends loading a dataset.
pub(crate) fn loading(ctx: Ctx<'_>, is_loading: bool) {
    state::with(|state| {
        state.is_loading = is_loading;
        if is_loading {
            state.dataset = Dataset::default();
        }
    });
    if !is_loading {
        restart::check_dataset(ctx, CheckOccasion::Loaded);
    }
    sweep::on_cron(ctx);
}

/// The server could not load its data set. It ends now, or is a replica that asks its master for another copy: there
/// is nothing to recover.
pub(crate) fn loading_failed() {
    state::with(|state| state.is_loading = false);
}

/// About ten times a second, whatever the wall clock does.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let is_absent = !ctx.flags().has_aof() && !ctx.has_replicas();
    state::with(|state| {
        state.replication_target =
            if is_absent { ReplicationTarget::Absent } else { ReplicationTarget::Present }
    });
    // A server without a dataset loads none: then this is the first occasion.
    restart::check_dataset(ctx, CheckOccasion::Running);
    restart::log_quarantine(ctx);
    restart::store_state();
    handoff::forget_images();
    sweep::on_cron(ctx);
    search::on_cron(ctx);
}

/// The server has forked to save its dataset. If that is for a new replica or an AOF, everything from
/// this moment on must follow it; the cron finds out later whether somebody is there.
pub(crate) fn forked() {
    state::with(|state| state.replication_target = ReplicationTarget::Present);
}

/// Two databases have changed places.
pub(crate) fn databases_swapped(one: i32, other: i32) {
    if let (Ok(one), Ok(other)) = (u16::try_from(one), u16::try_from(other)) {
        state::with(|state| state.node.databases_swapped(one, other));
    }
}
