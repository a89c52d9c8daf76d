//! The hand-off of locks to waiters.
//!
//! After a command that freed a key, the hand-off happens before the reply. Changes of keys by the server
//! (`DEL`, expiry of a plain client's lock) and closed connections are recorded when they happen and handled
//! by the next sweep: the module must not write inside of a server event.

use redlock_core::node::GrantPush;

use crate::ffi::context::Ctx;
use crate::ffi::events;
use crate::ffi::keys::NamedKeys;
use crate::reclaim::{self, RECLAIMED_PER_COMMAND};
use crate::state::{self, ModuleState};
use crate::sweep;

/// The number of keys that one call serves or visits: about 0.1 ms of work.
const KEYS_PER_CALL: usize = 64;

/// Serves the first waiters of ready keys. The sweep does the rest.
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
    // Opening a key may have expired it, and other waiters may wait for it.
    state.reclaim(RECLAIMED_PER_COMMAND);
    if state.node.has_ready() {
        sweep::soon(state, ctx);
    }
}

/// Subscribes to events of keys and connections with the first waiter. Until then no server pays for them.
pub(crate) fn watch(state: &mut ModuleState, ctx: Ctx<'_>) {
    if !std::mem::replace(&mut state.watches_keys, true) {
        events::subscriptions_for_waiters(ctx);
    }
}

/// Handles a closed connection.
pub(crate) fn connection_closed(ctx: Ctx<'_>, connection: u64) {
    state::with(|state| {
        state.node.connection_closed(connection);
        if state.node.has_ready() || state.node.has_closing() {
            sweep::soon(state, ctx);
        }
    });
}

/// Handles a change of a key; `event` is the server's name for the change.
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
        // A command of the module has opened an expired key. The command handles the change at its end.
        reclaim::note_changed(database, key);
    }
}

/// Records that the server has saved an image of a lock. If the server deletes the key right after that, the
/// command was `MIGRATE`: the lock moves to another server, and no waiter here may get it too. The server
/// reports only that the key was deleted.
pub(crate) fn image_made(database: u16, key: &[u8]) {
    state::with(|state| {
        if state.node.has_waiters(database, key) {
            state.images.insert((database, key.to_vec()));
        }
    });
}

/// Forgets the saved images. They were not for `MIGRATE`: the server saved its data set, or saved them long ago.
pub(crate) fn forget_images() {
    state::with(|state| state.images.clear());
}
