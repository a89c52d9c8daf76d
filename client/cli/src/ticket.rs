//! What `acquire` hands to a script, and how `extend` and `release` get it back.

use crate::args::HolderArgs;
use crate::exit::ExitError;
use redlock_client::Owner;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Who holds a lock, and under which number.
pub(crate) struct Ticket {
    pub(crate) owner: Owner,
    pub(crate) fence: Option<u64>,
}

impl Ticket {
    /// From the option or the file, and only if there is neither from the environment: a script that has exported
    /// the owner of one lock may well name the file of another.
    pub(crate) fn find(holder: &HolderArgs) -> Result<Self, ExitError> {
        let (owner, fence) = match (&holder.owner_file, &holder.owner) {
            (Some(path), _) => read(path)?,
            (None, Some(owner)) => (owner.trim().to_owned(), None),
            (None, None) => (exported()?, None),
        };
        let owner = owner.parse::<Owner>()?;
        // What belongs to the file's owner is in the file; the environment may be about another lock.
        Ok(Self { owner, fence: fence.or(holder.fence) })
    }
}

/// The owner in the environment, where `acquire` tells scripts to put it.
fn exported() -> Result<String, ExitError> {
    let owner = std::env::var_os("REDLOCK_OWNER").unwrap_or_default().to_string_lossy().trim().to_owned();
    if owner.is_empty() {
        return Err(ExitError::usage("no owner: use --owner-file, REDLOCK_OWNER or --owner"));
    }
    Ok(owner)
}

fn read(path: &Path) -> Result<(String, Option<u64>), ExitError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| ExitError::usage(format!("{} cannot be read: {error}", path.display())))?;
    let mut lines = text.lines().map(str::trim);
    let owner = lines.next().unwrap_or_default().to_owned();
    let fence = lines.next().filter(|line| !line.is_empty()).map(str::parse).transpose();
    let fence =
        fence.map_err(|_| ExitError::usage(format!("{}: the second line is no fence", path.display())))?;
    Ok((owner, fence))
}

/// A file for owner and fence, made before the lock is taken: a lock that cannot be handed over is of no use. Unless
/// something is written to it, it is taken away again.
pub(crate) struct OwnerFile<'a> {
    path: &'a Path,
    file: std::fs::File,
    is_written: bool,
}

impl<'a> OwnerFile<'a> {
    /// Makes a new file that only its owner can read. A file that is there already is not touched: it may hold
    /// the owner of another lock.
    pub(crate) fn create(path: &'a Path) -> Result<Self, ExitError> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file =
            file.map_err(|error| ExitError::usage(format!("{} cannot be made: {error}", path.display())))?;
        Ok(Self { path, file, is_written: false })
    }

    pub(crate) fn write(mut self, owner: &Owner, fence: u64) -> Result<(), ExitError> {
        let written = writeln!(self.file, "{}\n{fence}", owner.expose()).and_then(|()| self.file.sync_all());
        self.is_written = written.is_ok();
        written.map_err(|error| {
            ExitError::internal(format!("{} cannot be written: {error}", self.path.display()))
        })
    }
}

impl Drop for OwnerFile<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            let _ = std::fs::remove_file(self.path);
        }
    }
}
