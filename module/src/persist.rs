//! Locks and fences on their way to disk, to replicas, and back.

use std::ffi::c_int;

use redlock_core::LockId;
use redlock_core::fence::MAX_FENCE;
use redlock_core::image::{LockImage, encode_stripes, restore_stripes};

use crate::server::io::Io;
use crate::server::register::ENCODING;
use crate::state::{self, State};
use crate::{handoff, restart, vault};

/// Saves a lock.
pub(crate) fn save_lock(io: Io<'_>, lock: LockId) {
    // Numbers are saved in the order in which `load_lock` reads them.
    let Some(image) = image_of(lock) else { return };
    handoff::image_made(io.database(), io.key());
    io.save_number(image.fence);
    io.save_number(image.left_ms);
    io.save_number(image.held_ms);
    io.save_number(u64::from(image.extensions));
    io.save_bytes(&image.owner);
    io.save_bytes(&image.label);
}

/// Loads a lock; its time left starts anew in full. `None` stops the load: the dataset is broken, or of
/// a later version.
pub(crate) fn load_lock(io: Io<'_>, version: c_int) -> Option<LockId> {
    if version != ENCODING {
        return None;
    }
    let fence = io.load_number().filter(|fence| (1..=MAX_FENCE).contains(fence))?;
    let left_ms = io.load_number()?;
    let held_ms = io.load_number()?;
    let extensions = u32::try_from(io.load_number()?).ok()?;
    let owner = io.load_bytes()?;
    let label = io.load_bytes()?;
    let image = LockImage { owner, label, fence, left_ms, held_ms, extensions };
    state::with(|state| {
        remember(state, &image)?;
        state.node.load(io.database(), io.key(), &image, &mut state.clock).ok()
    })
    .flatten()
}

/// Makes sure that a crash forgets neither the fence nor the time of a lock that comes from elsewhere, by
/// `RESTORE` or `MIGRATE`. `None` if that cannot be stored: then a master does not take the lock.
fn remember(state: &mut State, image: &LockImage) -> Option<()> {
    let Some(ledger) = state.node.ledger_for(image) else { return Some(()) };
    if vault::store(&ledger).is_ok() {
        state.node.keep_ledger(ledger);
        return Some(());
    }
    // A copy follows its master, and a start its dataset. They say so when they are to grant.
    let follows = state.is_replica || state.is_loading;
    follows.then(|| state.node.owe_ledger(ledger))
}

/// A lock as it is to be saved.
pub(crate) fn image_of(lock: LockId) -> Option<LockImage> {
    state::with(|state| state.node.image(lock, &mut state.clock))
}

/// Memory of a lock, beside what the server needs for any key.
pub(crate) fn bytes_of(lock: LockId) -> usize {
    state::with(|state| state.node.bytes_of(lock)).unwrap_or(0)
}

/// Whether any fence was given out.
pub(crate) fn has_fences() -> bool {
    state::with(|state| state.node.longest_ttl_ms() > 0).unwrap_or(true)
}

/// Saves the fences given out.
pub(crate) fn save_fences(io: Io<'_>) {
    if let Some(stripes) = state::with(|state| encode_stripes(state.node.stripes(), state.node.ledger())) {
        io.save_bytes(&stripes);
    }
}

/// Loads fences; none is lowered. False stops the load.
pub(crate) fn load_fences(io: Io<'_>, version: c_int) -> bool {
    let Some(bytes) = io.load_bytes().filter(|_| version == ENCODING) else { return false };
    let saved = state::with(|state| {
        let (mark, longest_ttl_ms) = restore_stripes(state.node.stripes_mut(), &bytes)?;
        restart::learn(state, mark, longest_ttl_ms);
        Some(())
    });
    saved.flatten().is_some()
}
