//! The targets under libFuzzer, which looks for inputs that reach new code. `scripts/fuzz` builds and runs it.
//!
//! The target is named by `REDLOCK_FUZZ_TARGET`; all other arguments are libFuzzer's own.

#![no_main]

use libfuzzer_sys::fuzz_target;
use redlock_fuzz::FuzzTarget;
use std::sync::LazyLock;

static TARGET: LazyLock<FuzzTarget> = LazyLock::new(|| {
    let name = std::env::var("REDLOCK_FUZZ_TARGET").unwrap_or_default();
    redlock_fuzz::target(&name).unwrap_or_else(|| {
        eprintln!("REDLOCK_FUZZ_TARGET names no target: {name:?}");
        std::process::exit(2)
    })
});

fuzz_target!(|bytes: &[u8]| TARGET(bytes));
