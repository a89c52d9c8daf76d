//! Runs a target under libFuzzer, which searches for inputs that reach new code. `scripts/fuzz` builds and runs it.
//!
//! The environment variable `REDLOCK_FUZZ_TARGET` names the target; all arguments are libFuzzer's.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redlock_fuzz::FuzzTarget;
use std::sync::LazyLock;

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("REDLOCK_FUZZ_TARGET").unwrap_or_default();
    redlock_fuzz::target(&name).unwrap_or_else(|| {
        eprintln!("REDLOCK_FUZZ_TARGET is not the name of a target: {name:?}");
        std::process::exit(2)
    })
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
