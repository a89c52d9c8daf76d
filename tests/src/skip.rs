//! Reporting a skipped test.

use std::fs::OpenOptions;
use std::io::Write;

/// Prints why a test is skipped. Writes to standard error directly, because the test runner captures the output of
/// passing tests, and appends the line to the file that `REDLOCK_SKIPPED` names, for scripts that count.
///
/// # Panics
/// When that file cannot be written to.
pub fn skip(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let line = format!("skipped {test}: {why}\n");
    // A failed write, for example to a closed terminal, does not fail the test.
    let _ = std::io::stderr().write_all(line.as_bytes());
    if let Some(file) = std::env::var_os("REDLOCK_SKIPPED") {
        let file = OpenOptions::new().create(true).append(true).open(file);
        let outcome = file.and_then(|mut file| file.write_all(line.as_bytes()));
        outcome.expect("REDLOCK_SKIPPED names a file that can be written to");
    }
}
