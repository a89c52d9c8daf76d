//! Locks and fences on their way to disk, to replicas, and back.

use std::ffi::c_int;

use redlock_contract::limits::MAX_FENCE;
use redlock_core::LockId;
use redlock_core::image::{LockImage, encode_stripes, restore_stripes};

use crate::ffi::data_type::ENCODING;
use crate::ffi::io::Io;
use crate::state::{self, State};
use crate::{handoff, restart, state_file};

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
        let key = io.key();
        // A replica follows its master, and a start its data set. What comes by `RESTORE` and `MIGRATE` may be forged.
        let follows = state.is_replica || state.is_loading;
        if !follows && !state.node.could_have_granted(key, &image) {
            return None;
        }
        reserve(state, key, &image, follows)?;
        state.dataset.highest_fence = state.dataset.highest_fence.max(image.fence);
        state.node.load(io.database(), io.key(), &image, &mut state.clock).ok()
    })
    .flatten()
}

/// Stores what a crash must not forget of a lock that is loaded. `None` if it cannot be stored: then a master does not
/// take the lock. A server that follows takes it all the same, and grants nothing until its state is stored.
fn reserve(state: &mut State, key: &[u8], image: &LockImage, follows: bool) -> Option<()> {
    let own = state.node.state();
    // A data set that is being loaded and goes beyond the state does not belong to it: the state must still show that
    // when the load ends.
    if follows && own.non_voting.is_none() && image.fence > own.highest() {
        return Some(());
    }
    let Some(next) = state.node.state_to_load(key, image) else { return Some(()) };
    if state_file::store(&next).is_ok() {
        state.node.set_state(next);
        return Some(());
    }
    follows.then(|| state.node.set_unsaved_state(next))
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
    state::with(|state| state.node.state().longest_lease_ms > 0).unwrap_or(true)
}

/// Saves the fences given out.
pub(crate) fn save_fences(io: Io<'_>) {
    if let Some(stripes) = state::with(|state| encode_stripes(state.node.stripes(), state.node.state())) {
        io.save_bytes(&stripes);
    }
}

/// Loads fences; none is lowered. False stops the load.
pub(crate) fn load_fences(io: Io<'_>, version: c_int) -> bool {
    let Some(bytes) = io.load_bytes().filter(|_| version == ENCODING) else { return false };
    let saved = state::with(|state| {
        let dataset = restore_stripes(state.node.stripes_mut(), &bytes)?;
        restart::learn(state, dataset);
        Some(())
    });
    saved.flatten().is_some()
}
