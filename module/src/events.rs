//! What the server tells the module.

use redlock_core::Occupant;

use crate::server::api::Ctx;
use crate::server::keys::{Intent, NamedKey};
use crate::{state, sweep};

/// The server has become a replica or a master.
pub(crate) fn role_changed(ctx: Ctx<'_>, is_replica: bool) {
    state::with(|state| state.is_replica = is_replica);
    sweep::on_cron(ctx);
}

/// The server begins or ends loading a dataset.
pub(crate) fn loading(ctx: Ctx<'_>, is_loading: bool) {
    state::with(|state| state.is_loading = is_loading);
    sweep::on_cron(ctx);
}

/// About ten times a second, whatever the wall clock does.
pub(crate) fn cron(ctx: Ctx<'_>) {
    state::with(state::State::bury_some);
    sweep::on_cron(ctx);
}

/// Two databases have changed places.
pub(crate) fn databases_swapped(one: i32, other: i32) {
    if let (Ok(one), Ok(other)) = (u16::try_from(one), u16::try_from(other)) {
        state::with(|state| state.node.databases_swapped(one, other));
    }
}

/// A key has come here from another name or database. If it is a lock, the sweep must find it.
pub(crate) fn key_moved(ctx: Ctx<'_>, key: &[u8]) {
    let occupant = NamedKey::open(ctx, key, Intent::Look).occupant();
    if let (Occupant::Lock(lock), Ok(database)) = (occupant, u16::try_from(ctx.database())) {
        state::with(|state| state.node.moved_to(lock, database, key));
    }
}
