//! The state file: the durable state on disk. A draft replaces the file in one step or not at all.
//!
//! The module finds the file by its content, not by the server's port: any file in the server's dir whose
//! name ends with `.state` and that contains a state. So a server that changes its port stays the same node.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use redlock_core::CommandError;
use redlock_core::durable::{DurableState, FileId};

use crate::ffi::confined::Confined;
use crate::ffi::file_lock::lock_file;
use crate::ffi::log::{Level, log_line};

/// The name of a new state file, and the prefix and ending of all names.
const NAME: &str = "redlock.state";
const STEM: &str = "redlock";
const ENDING: &str = "state";

/// The state file of this server.
pub(crate) struct StateFile {
    path: PathBuf,
    /// Holds a file lock while the server runs: two servers must not share a state file.
    _lock: File,
    /// The last write failed, and the log contains the error.
    is_broken: bool,
    /// The number of writes.
    writes: u64,
}

static STATE_FILE: Confined<StateFile> = Confined::empty();

/// The state files that a server finds when it starts.
pub(crate) enum FoundState {
    /// No state file.
    Nothing(StateFile),
    /// This server's own state file.
    Own(StateFile, DurableState),
    /// A file with a state that was written to another file.
    Copy(StateFile, DurableState),
    /// Several state files; the server cannot tell which is its own.
    Several(Vec<PathBuf>),
}

/// Finds the state file: the named one, or the one in the server's dir.
///
/// # Errors
/// The problem, the name of the file and the remedy.
pub(crate) fn find(dir: &Path, named: Option<&Path>) -> Result<FoundState, String> {
    let mut paths = match named {
        Some(name) => vec![dir.join(name)],
        None => candidates(dir).map_err(|error| format!("{} cannot be read: {error}", dir.display()))?,
    };
    if paths.len() > 1 {
        paths.sort_unstable();
        return Ok(FoundState::Several(paths));
    }
    let path = paths.pop().unwrap_or_else(|| dir.join(NAME));
    if named.is_some() && !path.exists() {
        // A new name must not make a new node of a server whose state file has another name.
        let others = candidates(dir).map_err(|error| format!("{} cannot be read: {error}", dir.display()))?;
        let unused: Vec<PathBuf> = others.into_iter().filter(|path| !is_in_use(path)).collect();
        if !unused.is_empty() {
            return Ok(FoundState::Several([unused, vec![path]].concat()));
        }
    }
    let shown = path.display();
    let lock_path = beside(&path, "lock");
    let lock = File::create(&lock_path).map_err(|error| {
        format!("{} cannot be written: {error}; the server needs to write to its dir", lock_path.display())
    })?;
    if !lock_file(&lock) {
        return Err(format!(
            "{shown} is in use by another server; give each server a dir of its own, or a module argument state-file"
        ));
    }
    let file = StateFile { path: path.clone(), _lock: lock, is_broken: false, writes: 0 };
    let (bytes, id) = match read(&path) {
        Ok(read) => read,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FoundState::Nothing(file)),
        Err(error) => return Err(format!("{shown} cannot be read: {error}")),
    };
    let stored = DurableState::decode(&bytes).map_err(|why| {
        format!(
            "{shown} cannot be used: {why}. Without it, this node cannot know which fences it has granted. Remove the \
             file, start the server with the module argument new-node non-voting, and run `redlock admit`"
        )
    })?;
    let is_copy = stored.file.is_some_and(|written| !written.is_same(id));
    Ok(if is_copy { FoundState::Copy(file, stored.state) } else { FoundState::Own(file, stored.state) })
}

/// Whether a file has the ending of a state file.
pub(crate) fn has_ending(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == ENDING)
}

/// The state files in the server's dir.
fn candidates(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        if !has_ending(&path) {
            continue;
        }
        // A file with our name may be damaged; a file with another name counts if it begins like a state.
        if name.starts_with(STEM) || begins_like_a_state(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

/// Whether a running server uses a state file.
fn is_in_use(path: &Path) -> bool {
    File::options().write(true).open(beside(path, "lock")).is_ok_and(|lock| !lock_file(&lock))
}

fn begins_like_a_state(path: &Path) -> bool {
    let mut beginning = Vec::new();
    let read = File::open(path).and_then(|file| file.take(64).read_to_end(&mut beginning));
    read.is_ok() && DurableState::is_beginning(&beginning)
}

fn read(path: &Path) -> io::Result<(Vec<u8>, FileId)> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, file_id(&file.metadata()?)))
}

/// The id of a file. On a file system that records no creation time, that part is 0 for all files.
fn file_id(metadata: &Metadata) -> FileId {
    let born = metadata.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    FileId { inode: metadata.ino(), born_ns: born.map_or(0, |born| born.as_nanos()) }
}

impl StateFile {
    /// Stores a state. After it returns, a power failure does not lose the state.
    pub(crate) fn store(&mut self, state: &DurableState) -> io::Result<()> {
        self.writes += 1;
        let draft_path = beside(&self.path, "new");
        let mut draft = File::create(&draft_path)?;
        let id = file_id(&draft.metadata()?);
        draft.write_all(state.encode(id).as_bytes())?;
        draft.sync_all()?;
        fs::rename(&draft_path, &self.path)?;
        // The new name is on disk only after the folder is.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps the file open from now on.
pub(crate) fn keep(file: StateFile) -> bool {
    STATE_FILE.fill(file)
}

/// The number of writes since the server started.
pub(crate) fn writes() -> u64 {
    STATE_FILE.with(|file| file.writes).unwrap_or(0)
}

/// Stores a state. The first failure of several in a row is logged, with the remedy.
///
/// # Errors
/// [`CommandError::NotStored`]: the node must not grant anything that relies on the state.
pub(crate) fn store(state: &DurableState) -> Result<(), CommandError> {
    let stored = STATE_FILE.with(|file| {
        let outcome = file.store(state);
        let path = file.path.display();
        match &outcome {
            Err(error) if !file.is_broken => log_line(
                Level::Warning,
                &format!("{path} cannot be written: {error}. Until the server can write the file, this node grants nothing that it must store first: make room on the disk, or let the server write to its dir"),
            ),
            Ok(()) if file.is_broken => log_line(Level::Notice, &format!("{path} can be written again")),
            _ => {}
        }
        file.is_broken = outcome.is_err();
        outcome.is_ok()
    });
    if stored == Some(true) { Ok(()) } else { Err(CommandError::NotStored) }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}
