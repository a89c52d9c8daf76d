//! Handing locks on to those who wait for them.
//!
//! After a command that freed something this happens before its answer. What the server does to keys by
//! itself (`DEL`, expiry of a plain client's lock) and connections that close are noted when they happen and
//! looked at a moment later: inside of the server's own work nothing may be written.

use redlock_core::node::GrantPush;

use crate::ffi::context::Ctx;
use crate::ffi::events;
use crate::ffi::keys::NamedKeys;
use crate::reclaim::{self, RECLAIMED_PER_COMMAND};
use crate::state::{self, ModuleState};
use crate::sweep;

/// For how many keys waiters are served at a time: about a tenth of a millisecond's work.
const KEYS_PER_CALL: usize = 64;

/// Serves those whose turn it is. What is left over is for the sweep.
#[inline]
pub(crate) fn serve(state: &mut ModuleState, ctx: Ctx<'_>) {
    if state.node.has_ready() {
        serve_ready(state, ctx);
    }
}

#[inline(never)]
fn serve_ready(state: &mut ModuleState, ctx: Ctx<'_>) {
    if state.is_replica || state.is_loading || ctx.is_paused() {
        return;
    }
    let selected = ctx.database();
    let mut keys_left = KEYS_PER_CALL;
    while let Some((waiter, database, names)) = state.node.next_ready(&mut keys_left) {
        keys_left = keys_left.saturating_sub(names.len());
        if !ctx.select(database) {
            continue;
        }
        let mut keys = NamedKeys::open(ctx, database, names);
        let push = state.node.serve(&mut keys, waiter, &mut state.clock);
        drop(keys);
        if let Some(GrantPush { channel, message }) = push {
            ctx.publish(&channel, &message);
            let claim_window_ms = state.node.claim_window_ms();
            sweep::wake_by(state, ctx, claim_window_ms);
        }
    }
    ctx.select(u16::try_from(selected).unwrap_or(0));
    // Keys that had run out were found to have when they were opened, and others may wait for them.
    state.reclaim(RECLAIMED_PER_COMMAND);
    if state.node.has_ready() {
        sweep::soon(state, ctx);
    }
}

/// Somebody waits. The first one makes the module look at what else happens to keys and connections: no
/// server pays for that before.
pub(crate) fn watch(state: &mut ModuleState, ctx: Ctx<'_>) {
    if !std::mem::replace(&mut state.watches_keys, true) {
        events::subscriptions_for_waiters(ctx);
    }
}

/// A connection has closed.
pub(crate) fn connection_closed(ctx: Ctx<'_>, connection: u64) {
    state::with(|state| {
        state.node.connection_closed(connection);
        if state.node.has_ready() || state.node.has_closing() {
            sweep::soon(state, ctx);
        }
    });
}

/// Something has happened to a key; `event` is the server's word for it.
pub(crate) fn key_changed(ctx: Ctx<'_>, event: &[u8], database: u16, key: &[u8]) {
    let noted = state::with(|state| {
        let may_have_moved = event == b"del" && !state.images.is_empty();
        if may_have_moved && state.images.remove(&(database, key.to_vec())) {
            state.node.key_moved_away(database, key);
        }
        state.node.key_changed(database, key);
        sweep::soon_if_ready(state, ctx);
    });
    if noted.is_none() {
        // A command of the module has met with a key that had run out: it looks at this when it is done.
        reclaim::note_changed(database, key);
    }
}

/// An image of a lock was made. If its key is deleted right after that, it was `MIGRATE`: the lock goes on at another
/// server, and whoever waits for it here must not get it, too. The server says no more of that than that the key was
/// deleted.
pub(crate) fn image_made(database: u16, key: &[u8]) {
    state::with(|state| {
        if state.node.has_waiters(database, key) {
            state.images.insert((database, key.to_vec()));
        }
    });
}

/// Whatever images were made, they were not for `MIGRATE`: the dataset was saved, or it was long ago.
pub(crate) fn forget_images() {
    state::with(|state| state.images.clear());
}
