//! The paths of the module under test, of the server and of the target folder.

use crate::skip;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The module under test: `REDLOCK_MODULE`, or the one that `cargo build --release` put into the target folder.
///
/// # Panics
/// When there is no such file.
#[must_use]
pub fn module_path() -> PathBuf {
    let path = expected_module();
    assert!(
        path.is_file(),
        "no module at {}: run `cargo build --release -p redlock-module`, or set REDLOCK_MODULE",
        path.display()
    );
    path
}

/// An older version of the module: `REDLOCK_OLD_MODULE`, or the one that `scripts/old-module` built. Without
/// either, reports that the test is skipped and returns `None`.
///
/// # Panics
/// When `REDLOCK_OLD_MODULE` names no file.
#[must_use]
pub fn older_module() -> Option<PathBuf> {
    if let Some(given) = env::var_os("REDLOCK_OLD_MODULE") {
        let path = absolute(Path::new(&given));
        assert!(path.is_file(), "REDLOCK_OLD_MODULE names no file: {}", path.display());
        return Some(path);
    }
    let path = target_dir().join("old-module").join("libredlock.so");
    if !path.is_file() {
        skip("there is no older module (`scripts/old-module` builds it from the project's history)");
        return None;
    }
    Some(path)
}

/// The version of the older module that `scripts/old-module` builds.
pub const OLDER_VERSION: &str = "0.0.9";

/// The file name of the module. The file need not exist.
pub(crate) fn module_name() -> Option<OsString> {
    expected_module().file_name().map(OsString::from)
}

fn expected_module() -> PathBuf {
    match env::var_os("REDLOCK_MODULE") {
        Some(given) => absolute(Path::new(&given)),
        None => target_dir().join("release").join("libredlock.so"),
    }
}

/// The server program: `REDLOCK_SERVER`, or `redis-server` on the PATH.
pub(crate) fn server_binary() -> PathBuf {
    env::var_os("REDLOCK_SERVER").map_or_else(|| PathBuf::from("redis-server"), PathBuf::from)
}

/// Cargo's target folder of this workspace.
pub(crate) fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match env::var_os("CARGO_TARGET_DIR") {
        // A relative path is relative to the folder in which cargo was called. A test does not know that folder and
        // assumes the workspace root.
        Some(given) => absolute(&workspace.join(given)),
        None => absolute(&workspace.join("target")),
    }
}

/// Makes a path absolute: a server changes its working folder.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}
