//! Where random tests get their seeds.

use std::env;
use std::io::Write;
use std::sync::OnceLock;

/// The seed of a random test: `fixed` in the gate, so that every run of the gate tries the same; in the long form
/// (`REDLOCK_LONG`) a new one for each test program, which is printed. `REDLOCK_SEED` replaces both: a run with the
/// printed number tries the same again.
///
/// # Panics
/// When `REDLOCK_SEED` is not an integer from 0 to 2⁶⁴ − 1.
#[must_use]
pub fn seed(fixed: u64) -> u64 {
    if let Ok(given) = env::var("REDLOCK_SEED") {
        return given.parse().unwrap_or_else(|_| panic!("REDLOCK_SEED must be an integer, and is {given:?}"));
    }
    if env::var_os("REDLOCK_LONG").is_some() { drawn() } else { fixed }
}

fn drawn() -> u64 {
    static DRAWN: OnceLock<u64> = OnceLock::new();
    *DRAWN.get_or_init(|| {
        let seed = u64::from(fastrand::u32(..));
        // Past the test runner, which shows nothing that a passing test prints. A closed terminal is no failure.
        let _ = writeln!(std::io::stderr(), "random tests: REDLOCK_SEED={seed}");
        seed
    })
}
