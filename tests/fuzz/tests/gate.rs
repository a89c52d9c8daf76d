//! Every target with the inputs that are kept, and with a fixed number of inputs made from them.
//!
//! The same inputs in every run of the gate: what fails here fails again. `scripts/fuzz` looks further.

// A broken promise ends the test, with a message that says which.
#![allow(clippy::expect_used, clippy::panic)]

use redlock_fuzz::{TARGETS, inputs};
use std::path::PathBuf;

/// With `REDLOCK_LONG=1` so many times more.
const LONG: usize = 50;

fn try_out(name: &str, count: usize) {
    let target = redlock_fuzz::target(name).expect("a target of this name");
    let count = if std::env::var_os("REDLOCK_LONG").is_some() { LONG * count } else { count };
    if let Some((input, said)) =
        inputs::first_failure(target, &inputs::kept(name), count, redlock_sim::seed(1))
    {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&path, input).expect("the target folder is writable");
        panic!("{said}\n`scripts/fuzz {name} {}` shows it again", path.display());
    }
}

#[test]
fn a_node_keeps_its_promises_whatever_it_is_told() {
    try_out("commands", 20_000);
}

#[test]
fn a_copy_follows_whatever_it_is_told() {
    try_out("copies", 20_000);
}

#[test]
fn what_was_stored_comes_back_or_is_refused() {
    try_out("stored", 20_000);
}

#[test]
fn replies_are_read_whatever_they_are_and_however_they_come() {
    try_out("replies", 50_000);
}

#[test]
fn a_session_holds_only_what_a_majority_gave_it() {
    try_out("session", 50_000);
}

#[test]
fn no_target_is_left_out() {
    let here = include_str!("gate.rs");
    for (name, _) in TARGETS {
        assert!(here.contains(&format!("try_out(\"{name}\"")), "{name} is not tried");
    }
}
