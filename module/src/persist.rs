//! Saving and loading locks and fences: RDB files, AOF rewrites, replicas, `RESTORE` and `MIGRATE`.

use std::ffi::c_int;

use redlock_contract::limits::{MAX_FENCE, MAX_HOLDERS};
use redlock_core::LockId;
use redlock_core::image::{LockImage, SavedLock, encode_stripes, restore_stripes};

use crate::ffi::data_type::{ENCODING, ENCODING_1};
use crate::ffi::io::Io;
use crate::state::{self, ModuleState};
use crate::{handoff, restart, state_file};

/// Saved in place of the number of holders: the lock is exclusive.
const EXCLUSIVE: u64 = 0;

/// Saves a lock.
pub(crate) fn save_lock(io: Io<'_>, lock: LockId) {
    // `load_lock` reads the fields in the same order.
    let Some(saved) = saved_form(lock) else { return };
    handoff::image_made(io.database(), io.key());
    let Some(fence) = saved.holders.first().map(|image| image.fence) else { return };
    io.save_number(if saved.is_shared { saved.holders.len() as u64 } else { EXCLUSIVE });
    io.save_number(fence);
    for image in &saved.holders {
        io.save_number(image.left_ms);
        io.save_number(image.held_ms);
        io.save_number(u64::from(image.extensions));
        io.save_bytes(&image.owner);
        io.save_bytes(&image.label);
    }
}

/// Loads a lock; its time left starts again in full. `None` stops the load: the data set is broken, or of a later
/// version.
pub(crate) fn load_lock(io: Io<'_>, version: c_int) -> Option<LockId> {
    let count = match version {
        // Version 1 had exclusive locks only.
        ENCODING_1 => EXCLUSIVE,
        ENCODING => io.load_number().filter(|count| *count <= MAX_HOLDERS as u64)?,
        _ => return None,
    };
    let fence = io.load_number().filter(|fence| (1..=MAX_FENCE).contains(fence))?;
    let mut saved = SavedLock { is_shared: count != EXCLUSIVE, holders: Vec::new() };
    for _ in 0..count.max(1) {
        saved.holders.push(load_image(io, fence)?);
    }
    state::with(|state| {
        let key = io.key();
        for image in saved.holders.iter_mut().filter(|_| state.is_loading) {
            (image.left_ms, image.held_ms) = state.node.times_of_own(image.left_ms, image.held_ms);
        }
        // A replica follows its master, and a starting server its data set. An image of `RESTORE` or `MIGRATE` may be
        // forged.
        let follows = state.is_replica || state.is_loading;
        if !follows && !saved.holders.iter().all(|image| state.node.could_have_granted(key, image)) {
            return None;
        }
        let longest = saved.holders.iter().max_by_key(|image| image.left_ms)?;
        reserve(state, key, longest, follows)?;
        state.dataset.highest_fence = state.dataset.highest_fence.max(fence);
        let lock = state.node.load_saved(io.database(), io.key(), &saved, &mut state.clock).ok()?;
        if !follows {
            state.node.note_arrival_of(lock);
        }
        Some(lock)
    })
    .flatten()
}

/// Loads one holder of a lock with this fence.
fn load_image(io: Io<'_>, fence: u64) -> Option<LockImage> {
    let left_ms = io.load_number()?;
    let held_ms = io.load_number()?;
    let extensions = u32::try_from(io.load_number()?).ok()?;
    let owner = io.load_bytes()?;
    let label = io.load_bytes()?;
    Some(LockImage { owner, label, fence, left_ms, held_ms, extensions })
}

/// Stores the durable state that a loaded lock needs. If it cannot be stored, a master does not load the lock and gets
/// `None`. A server that follows loads it all the same, and grants nothing until its state is stored.
fn reserve(state: &mut ModuleState, key: &[u8], image: &LockImage, follows: bool) -> Option<()> {
    let own = state.node.state();
    // A data set with fences beyond the state belongs to another node. The state must still show that when the load
    // ends.
    if follows && own.non_voting.is_none() && image.fence > own.high_water.highest() {
        return Some(());
    }
    let Some(next) = state.node.state_to_load(key, image) else { return Some(()) };
    if state_file::store(&next).is_ok() {
        state.node.set_state(next);
        return Some(());
    }
    follows.then(|| state.node.set_unsaved_state(next))
}

/// The saved form of a lock.
pub(crate) fn saved_form(lock: LockId) -> Option<SavedLock> {
    state::with(|state| state.node.saved(lock, &mut state.clock))
}

/// The memory of a lock, in bytes, beside what the server needs for any key.
pub(crate) fn bytes_of(lock: LockId) -> usize {
    state::with(|state| state.node.bytes_of(lock)).unwrap_or(0)
}

/// Whether the node has granted any lock.
pub(crate) fn has_fences() -> bool {
    state::with(|state| state.node.state().longest_lease_ms > 0).unwrap_or(true)
}

/// Saves the fences.
pub(crate) fn save_fences(io: Io<'_>) {
    if let Some(stripes) = state::with(|state| encode_stripes(state.node.stripes(), state.node.state())) {
        io.save_bytes(&stripes);
    }
}

/// Loads fences; it never lowers one. False stops the load.
pub(crate) fn load_fences(io: Io<'_>, version: c_int) -> bool {
    let Some(bytes) = io.load_bytes().filter(|_| [ENCODING_1, ENCODING].contains(&version)) else {
        return false;
    };
    let saved = state::with(|state| {
        let dataset = restore_stripes(state.node.stripes_mut(), &bytes)?;
        restart::note_dataset(state, dataset);
        Some(())
    });
    saved.flatten().is_some()
}
