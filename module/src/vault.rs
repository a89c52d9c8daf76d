//! The ledger on disk: written to a file beside, put in its place at once, or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use redlock_core::Fault;
use redlock_core::ledger::Ledger;

use crate::server::api::{Level, log_line};
use crate::server::claim::claim;
use crate::server::confined::Confined;

/// Where the ledger is kept.
pub(crate) struct Vault {
    path: PathBuf,
    /// Held as long as the server runs: two servers must not share a ledger.
    _claim: File,
    /// The last attempt failed, and the log says so.
    is_broken: bool,
    /// How often the ledger was written.
    writes: u64,
}

static VAULT: Confined<Vault> = Confined::empty();

impl Vault {
    /// Takes the ledger at `path` for this server alone, and reads it if there is one.
    ///
    /// # Errors
    /// What is wrong, with the file's name and what can be done.
    pub(crate) fn open(path: &Path) -> Result<(Self, Option<Ledger>), String> {
        let shown = path.display();
        let claim_path = beside(path, "lock");
        let claim_file = File::create(&claim_path).map_err(|error| {
            format!(
                "{} cannot be written: {error}; the server needs to write to its dir",
                claim_path.display()
            )
        })?;
        if !claim(&claim_file) {
            return Err(format!(
                "{shown} is in use by another server; give each server a dir of its own, or a module argument state-file"
            ));
        }
        let ledger = match fs::read(path) {
            Ok(bytes) => Some(Ledger::decode(&bytes).map_err(|why| {
                format!(
                    "{shown} cannot be used: {why}. Without it this node cannot know which fences it has given out. \
                     Restore it from a copy, or let a new node take its place: remove the file and start the server with \
                     the module argument restart-grace always"
                )
            })?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(format!("{shown} cannot be read: {error}")),
        };
        Ok((Self { path: path.to_path_buf(), _claim: claim_file, is_broken: false, writes: 0 }, ledger))
    }

    /// Stores a ledger for good.
    pub(crate) fn store(&mut self, ledger: &Ledger) -> io::Result<()> {
        self.writes += 1;
        let draft = beside(&self.path, "new");
        let mut file = File::create(&draft)?;
        file.write_all(ledger.encode().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, &self.path)?;
        // The new name is on disk only when the folder is.
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }

    /// The file's name.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Keeps the vault open from now on.
pub(crate) fn keep(vault: Vault) -> bool {
    VAULT.fill(vault)
}

/// How often the ledger was written since the server started.
pub(crate) fn writes() -> u64 {
    VAULT.with(|vault| vault.writes).unwrap_or(0)
}

/// Stores a ledger for good. The first failure of a row is logged, with what can be done.
///
/// # Errors
/// [`Fault::NotStored`]: then nothing may be granted on it.
pub(crate) fn store(ledger: &Ledger) -> Result<(), Fault> {
    let stored = VAULT.with(|vault| {
        let outcome = vault.store(ledger);
        let path = vault.path.display();
        match &outcome {
            Err(error) if !vault.is_broken => log_line(
                Level::Warning,
                &format!("{path} cannot be written: {error}. Nothing is granted until it can: make room, or let the server write to its dir"),
            ),
            Ok(()) if vault.is_broken => log_line(Level::Notice, &format!("{path} can be written again")),
            _ => {}
        }
        vault.is_broken = outcome.is_err();
        outcome.is_ok()
    });
    if stored == Some(true) { Ok(()) } else { Err(Fault::NotStored) }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}
