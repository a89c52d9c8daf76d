//! Owner and fence, which `acquire` hands to a script and `extend` and `release` read back.

use crate::args::HolderArgs;
use crate::exit::ExitError;
use redlock_client::{Detached, Owner};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The word for a shared lock, in the owner file and in `REDLOCK_MODE`.
pub(crate) const SHARED: &str = "shared";
/// The word for an exclusive lock.
pub(crate) const EXCLUSIVE: &str = "exclusive";

/// The owner of a lock, its fence if it is known, and whether it shares the lock.
pub(crate) struct HolderSecret {
    pub(crate) owner: Owner,
    pub(crate) fence: Option<u64>,
    pub(crate) is_shared: bool,
}

impl HolderSecret {
    /// Reads the owner from an option or the file, and from the environment only if neither is given: a script may have
    /// exported the owner of one lock and name the file of another.
    pub(crate) fn find(holder: &HolderArgs) -> Result<Self, ExitError> {
        let (owner, fence, is_shared) = match (&holder.owner_file, &holder.owner) {
            (Some(path), _) => read(path)?,
            (None, Some(owner)) => (owner.trim().to_owned(), None, false),
            (None, None) => {
                (exported()?, None, std::env::var_os("REDLOCK_MODE").is_some_and(|mode| mode == SHARED))
            }
        };
        let owner = owner.parse::<Owner>()?;
        // The fence in the file belongs to the owner in the file; the environment may be about another lock.
        Ok(Self { owner, fence: fence.or(holder.fence), is_shared })
    }
}

/// The owner in the variable `REDLOCK_OWNER`.
fn exported() -> Result<String, ExitError> {
    let owner = std::env::var_os("REDLOCK_OWNER").unwrap_or_default().to_string_lossy().trim().to_owned();
    if owner.is_empty() {
        return Err(ExitError::usage("no owner given: use --owner-file, REDLOCK_OWNER or --owner"));
    }
    Ok(owner)
}

fn read(path: &Path) -> Result<(String, Option<u64>, bool), ExitError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ExitError::internal(format!("cannot read {}: {error}", path.display())))?;
    let mut lines = text.lines().map(str::trim);
    let owner = lines.next().unwrap_or_default().to_owned();
    let fence = lines.next().filter(|line| !line.is_empty()).map(str::parse).transpose();
    let fence = fence.map_err(|_| {
        let path = path.display();
        ExitError::usage(format!(
            "{path}: the second line must be a fence, as acquire --owner-file writes it"
        ))
    })?;
    Ok((owner, fence, lines.next() == Some(SHARED)))
}

/// The file for owner and fence. It is created before the lock is acquired, because a lock that cannot be handed over
/// is useless. If nothing is written to it, it is removed.
pub(crate) struct OwnerFile<'a> {
    path: &'a Path,
    file: std::fs::File,
    is_written: bool,
}

impl<'a> OwnerFile<'a> {
    /// Creates a new file that only its owner can read. Never overwrites a file: it may hold the owner of another lock.
    pub(crate) fn create(path: &'a Path) -> Result<Self, ExitError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => ExitError::usage(format!(
                "{} exists already and may hold the owner of another lock: release that lock, which removes the file, \
                 or name a new file",
                path.display()
            )),
            _ => ExitError::internal(format!("cannot create {}: {error}", path.display())),
        })?;
        Ok(Self { path, file, is_written: false })
    }

    pub(crate) fn write(mut self, lock: &Detached) -> Result<(), ExitError> {
        let mode = if lock.is_shared { format!("\n{SHARED}") } else { String::new() };
        let written = writeln!(self.file, "{}\n{}{mode}", lock.owner.expose(), lock.fence)
            .and_then(|()| self.file.sync_all());
        self.is_written = written.is_ok();
        written.map_err(|error| ExitError::internal(format!("cannot write {}: {error}", self.path.display())))
    }
}

impl Drop for OwnerFile<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            let _ = std::fs::remove_file(self.path);
        }
    }
}
