//! Where the module under test, the servers and the build's own folders are.

use crate::skip;
use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The module under test: `REDLOCK_MODULE`, or what `cargo build --release` left in the target folder.
///
/// # Panics
/// When there is no such file: a test run without the module would prove nothing.
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

/// A module as it once was: `REDLOCK_OLD_MODULE`, or what `scripts/old-module` left in the target folder. `None` where
/// there is none, after saying that the test is skipped for it.
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
        skip(
            "there is no older module here (`scripts/old-module` builds it, where the project's history is)",
        );
        return None;
    }
    Some(path)
}

/// The version under which `scripts/old-module` builds it.
pub const OLDER_VERSION: &str = "0.0.9";

/// The file name of the module, whether or not it is there.
pub(crate) fn module_name() -> Option<OsString> {
    expected_module().file_name().map(OsString::from)
}

fn expected_module() -> PathBuf {
    match env::var_os("REDLOCK_MODULE") {
        Some(given) => absolute(Path::new(&given)),
        None => target_dir().join("release").join("libredlock.so"),
    }
}

/// The server to start: `REDLOCK_SERVER`, or `redis-server` on the PATH.
pub(crate) fn server_binary() -> PathBuf {
    env::var_os("REDLOCK_SERVER").map_or_else(|| PathBuf::from("redis-server"), PathBuf::from)
}

/// Cargo's target folder of this workspace.
pub(crate) fn target_dir() -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    match env::var_os("CARGO_TARGET_DIR") {
        // A relative one is relative to where cargo was called, which a test cannot know; the workspace
        // root is where people call it.
        Some(given) => absolute(&workspace.join(given)),
        None => absolute(&workspace.join("target")),
    }
}

/// A server changes its working folder, so every path it is given has to stand on its own.
fn absolute(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_path_buf())
}
