//! A test that has nothing to test here says so.

use std::fs::OpenOptions;
use std::io::Write;

/// Prints why a test does nothing, past the test runner, which swallows what a passing test prints; and into the file
/// that `REDLOCK_SKIPPED` names, for whoever counts.
///
/// # Panics
/// When that file cannot be written to.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let line = format!("skipped {test}: {why}\n");
    // A closed terminal is no reason to fail.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("REDLOCK_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let outcome = file.and_then(|mut file| file.write_all(line.as_bytes()));
        outcome.expect("REDLOCK_SKIPPED names a file that can be written to");
    }
}
