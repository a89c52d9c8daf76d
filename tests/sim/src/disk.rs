//! The disk of a node: what a crash leaves of its state file.
//!
//! A node stores a state as the module does: it writes and syncs a draft, renames the draft to the file, and
//! syncs the folder. A process that is killed loses nothing that it has written. A power failure keeps
//! everything that was synced; of the renames since the last sync of the folder it keeps any number of the
//! first ones; and of a file that was not synced it keeps any number of the first bytes. The disk does not
//! order renames and contents.

use super::Weakness;
use fastrand::Rng;
use redlock_core::durable::{DurableState, FileId};
use redlock_core::{CommandError, Effect, NodeHost};

/// The steps of one store, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The draft is created, or emptied if an earlier store has left it.
    Create,
    /// The state is written to the draft.
    Write,
    /// The draft is synced.
    SyncFile,
    /// The draft is renamed to the state file.
    Rename,
    /// The folder is synced.
    SyncFolder,
}

/// All steps of a store.
pub(super) const STEPS: [Step; 5] =
    [Step::Create, Step::Write, Step::SyncFile, Step::Rename, Step::SyncFolder];

#[derive(Clone, Debug)]
struct File {
    bytes: Vec<u8>,
    is_synced: bool,
}

/// Which file each name refers to.
#[derive(Clone, Copy, Debug, Default)]
struct Names {
    state: Option<usize>,
    draft: Option<usize>,
}

/// The folder of a server.
#[derive(Debug, Default)]
pub(super) struct Disk {
    files: Vec<File>,
    names: Names,
    synced: Names,
    /// The names after each rename since the folder was synced.
    changes: Vec<Names>,
    /// The server dies before this step of its next store.
    breaks_before: Option<Step>,
    is_interrupted: bool,
    /// A step that a test disables on purpose.
    skipped: Option<Step>,
}

impl Disk {
    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        for step in STEPS {
            if self.breaks_before == Some(step) {
                (self.breaks_before, self.is_interrupted) = (None, true);
                return Err(CommandError::NotStored);
            }
            if self.skipped == Some(step) {
                continue;
            }
            match step {
                Step::Create => {
                    let draft = self.names.draft.unwrap_or(self.files.len());
                    let empty = File { bytes: Vec::new(), is_synced: false };
                    match self.files.get_mut(draft) {
                        Some(left) => *left = empty,
                        None => self.files.push(empty),
                    }
                    self.rename(Names { draft: Some(draft), ..self.names });
                }
                Step::Write => {
                    if let Some(draft) = self.names.draft {
                        self.files[draft].bytes = state.encode(file_id(draft)).into_bytes();
                    }
                }
                Step::SyncFile => {
                    if let Some(draft) = self.names.draft {
                        self.files[draft].is_synced = true;
                    }
                }
                Step::Rename => self.rename(Names { state: self.names.draft, draft: None }),
                Step::SyncFolder => self.sync_folder(),
            }
        }
        Ok(())
    }

    fn rename(&mut self, names: Names) {
        self.names = names;
        self.changes.push(names);
    }

    fn sync_folder(&mut self) {
        self.synced = self.names;
        self.changes.clear();
    }

    /// The machine loses power: what was not synced is there in part or not at all.
    pub(super) fn lose_power(&mut self, chance: &mut Rng) {
        let kept = chance.usize(0..=self.changes.len());
        self.names = kept.checked_sub(1).map_or(self.synced, |last| self.changes[last]);
        self.sync_folder();
        for file in self.files.iter_mut().filter(|file| !file.is_synced) {
            let kept = chance.usize(0..=file.bytes.len());
            file.bytes.truncate(kept);
            file.is_synced = true;
        }
    }

    /// The state file that a starting server finds.
    pub(super) fn read(&self) -> Option<(&[u8], FileId)> {
        let file = self.names.state?;
        Some((&self.files[file].bytes, file_id(file)))
    }

    /// Replaces the state file by a copy of another file.
    pub(super) fn put_copy(&mut self, bytes: &[u8]) {
        self.files.push(File { bytes: bytes.to_vec(), is_synced: true });
        self.names.state = Some(self.files.len() - 1);
        self.sync_folder();
    }

    /// Restores the state file of a machine that was set back as a whole: the file system shows no
    /// difference.
    pub(super) fn put_back(&mut self, bytes: &[u8], id: FileId) {
        let file = usize::try_from(id.inode).unwrap_or(0);
        self.files[file] = File { bytes: bytes.to_vec(), is_synced: true };
        self.names.state = Some(file);
        self.sync_folder();
    }

    /// Removes the state file.
    pub(super) fn remove(&mut self) {
        self.names = Names::default();
        self.sync_folder();
    }

    /// Makes the server die before this step of its next store, or in no store.
    pub(super) fn break_before(&mut self, step: Option<Step>) {
        self.breaks_before = step;
    }

    /// Whether the server has died in a store since the last call.
    pub(super) fn was_interrupted(&mut self) -> bool {
        std::mem::take(&mut self.is_interrupted)
    }
}

/// The id of a file; no two files of a history have the same id.
fn file_id(file: usize) -> FileId {
    FileId { inode: file as u64, born_ns: file as u128 }
}

/// The host of a node in a history: its disk and its replication stream.
#[derive(Debug, Default)]
pub(super) struct Machine {
    pub(super) disk: Disk,
    /// The effects that the node replicates; `None` without a replica.
    pub(super) effects: Option<Vec<Vec<Vec<u8>>>>,
    /// With `Weakness::StoredAfterGrant`: the state that is not stored yet.
    unstored: Option<DurableState>,
    stores_late: bool,
}

impl Machine {
    pub(super) fn new(weakness: Weakness) -> Self {
        let skipped = match weakness {
            Weakness::FileNotSynced => Some(Step::SyncFile),
            Weakness::FolderNotSynced => Some(Step::SyncFolder),
            _ => None,
        };
        let stores_late = weakness == Weakness::StoredAfterGrant;
        Self { disk: Disk { skipped, ..Disk::default() }, stores_late, ..Self::default() }
    }
}

impl NodeHost for Machine {
    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        if self.stores_late {
            let earlier = self.unstored.replace(state.clone());
            return earlier.map_or(Ok(()), |earlier| self.disk.store(&earlier));
        }
        self.disk.store(state)
    }

    fn replicate(&mut self, argv: &[&[u8]], key: &[u8], effect: Effect<'_>) {
        let Some(effects) = &mut self.effects else { return };
        let number = |number: u64| number.to_string().into_bytes();
        let word = |word: &str| word.as_bytes().to_vec();
        let shared = |is_shared| if is_shared { vec![word("SHARED")] } else { vec![] };
        effects.push(match effect {
            // The replica keeps an expired lock, as if this effect were late: the worse case for safety.
            Effect::Expired { .. } => return,
            Effect::Granted { owner, fence, left_ms, label, is_shared, .. } => {
                let lock =
                    vec![word("REDLOCK.APPLY"), key.to_vec(), owner.to_vec(), number(fence), number(left_ms)];
                let label = if label.is_empty() { vec![] } else { vec![word("LABEL"), label.to_vec()] };
                [lock, label, shared(is_shared)].concat()
            }
            Effect::Extended { owner, fence, left_ms, held_ms, extensions, is_shared, .. } => {
                let lock =
                    vec![word("REDLOCK.APPLY"), key.to_vec(), owner.to_vec(), number(fence), number(left_ms)];
                let count = number(u64::from(extensions));
                [lock, vec![word("HELD"), number(held_ms), word("EXT"), count], shared(is_shared)].concat()
            }
            Effect::Dataset { id, high_water } => {
                vec![word("REDLOCK.DATASET"), number(id), number(high_water)]
            }
            Effect::Released => argv.iter().map(|word| word.to_vec()).collect(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn state(incarnation: u64) -> DurableState {
        let mut state = DurableState::new("a".repeat(40), 7);
        state.incarnation = incarnation;
        state
    }

    /// What a server finds: the incarnation, or `None` if the file is damaged; 0 without a file.
    fn found(disk: &Disk) -> Option<u64> {
        let Some((bytes, id)) = disk.read() else { return Some(0) };
        let stored = DurableState::decode(bytes).ok()?;
        assert_eq!(stored.file, Some(id));
        Some(stored.state.incarnation)
    }

    /// Stores twice, interrupts the second store before `step`, and cuts the power. Returns every incarnation
    /// that the server may then read.
    fn after_a_failure(weakness: Weakness, step: Option<Step>) -> BTreeSet<Option<u64>> {
        let after = |seed| {
            let mut machine = Machine::new(weakness);
            assert_eq!(machine.store(&state(1)), Ok(()));
            machine.disk.break_before(step);
            assert_eq!(machine.store(&state(2)).is_err(), step.is_some());
            assert_eq!(machine.disk.was_interrupted(), step.is_some());
            machine.disk.lose_power(&mut Rng::with_seed(seed));
            found(&machine.disk)
        };
        (0..2_000).map(after).collect()
    }

    #[test]
    fn a_store_is_whole_or_did_not_happen() {
        assert_eq!(after_a_failure(Weakness::None, None), [Some(2)].into());
        for step in [Step::Create, Step::Write, Step::SyncFile, Step::Rename] {
            assert_eq!(after_a_failure(Weakness::None, Some(step)), [Some(1)].into(), "{step:?}");
        }
        let either = [Some(1), Some(2)].into();
        assert_eq!(after_a_failure(Weakness::None, Some(Step::SyncFolder)), either);
    }

    #[test]
    fn without_one_of_its_steps_a_store_can_be_lost() {
        assert_eq!(after_a_failure(Weakness::FileNotSynced, None), [None, Some(2)].into());
        assert_eq!(after_a_failure(Weakness::FolderNotSynced, None), [Some(0), Some(1), Some(2)].into());
        assert_eq!(after_a_failure(Weakness::StoredAfterGrant, None), [Some(1)].into());
    }

    #[test]
    fn a_copy_is_another_file() {
        let mut machine = Machine::new(Weakness::None);
        assert_eq!(machine.store(&state(1)), Ok(()));
        let (bytes, id) =
            machine.disk.read().map(|(bytes, id)| (bytes.to_vec(), id)).expect("the state file was stored");
        machine.disk.put_copy(&bytes);
        assert_ne!(machine.disk.read().map(|(_, id)| id), Some(id));
        machine.disk.put_back(&bytes, id);
        assert_eq!(machine.disk.read().map(|(_, id)| id), Some(id));
        machine.disk.remove();
        assert_eq!(machine.disk.read(), None);
    }
}
