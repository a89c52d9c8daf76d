//! The module's handlers of server events.

use redlock_core::durable::Dataset;

use crate::ffi::context::Ctx;
use crate::ffi::replication::ReplicationTarget;
use crate::restart::{self, CheckOccasion};
use crate::state;
use crate::{handoff, search, sweep};

/// Handles a change of the server's role to replica or master.
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

/// Handles the begin and the end of the load of a data set.
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

/// Handles a failed load. The server exits now, or is a replica that asks its master for another copy, so there is
/// nothing to recover.
pub(crate) fn loading_failed() {
    state::with(|state| state.is_loading = false);
}

/// Handles the server's cron, about ten times a second, whatever the wall clock does. The calls are in this order:
/// first whether the node may grant at all, then the durable state, then the sweep, and the search for locks that the
/// sweep has missed.
pub(crate) fn cron(ctx: Ctx<'_>) {
    let is_absent = !ctx.flags().has_aof() && !ctx.has_replicas();
    state::with(|state| {
        state.replication_target =
            if is_absent { ReplicationTarget::Absent } else { ReplicationTarget::Present }
    });
    // A server without a data set has no load event: this is its first occasion.
    restart::check_dataset(ctx, CheckOccasion::Running);
    restart::log_quarantine(ctx);
    restart::store_state();
    handoff::forget_images();
    sweep::on_cron(ctx);
    search::on_cron(ctx);
}

/// Handles a fork of the server to save its data set. If the fork is for a new replica or an AOF, every effect from now
/// on must be replicated. The cron checks later whether anything receives effects.
pub(crate) fn forked() {
    state::with(|state| state.replication_target = ReplicationTarget::Present);
}

/// Handles `SWAPDB`.
pub(crate) fn databases_swapped(one: i32, other: i32) {
    if let (Ok(one), Ok(other)) = (u16::try_from(one), u16::try_from(other)) {
        state::with(|state| state.node.databases_swapped(one, other));
    }
}
