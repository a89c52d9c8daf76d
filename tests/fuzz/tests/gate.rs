//! Runs every target with its corpus and a fixed number of inputs derived from it.
//!
//! The inputs are the same in every run, so that a failure repeats. `scripts/fuzz` searches further.

// A broken rule ends the test with a message.
#![allow(clippy::expect_used, clippy::panic)]

use redlock_fuzz::{TARGETS, inputs};
use std::path::PathBuf;

/// How many times more inputs run with `REDLOCK_LONG=1`.
const LONG: usize = 50;

fn try_out(name: &str, count: usize) {
    let target = redlock_fuzz::target(name).expect("a target of this name");
    let count = if std::env::var_os("REDLOCK_LONG").is_some() { LONG * count } else { count };
    if let Some((input, said)) =
        inputs::first_failure(target, &inputs::kept(name), count, redlock_sim::seed(1))
    {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        std::fs::write(&path, input).expect("the target folder is writable");
        panic!("{said}\n`scripts/fuzz {name} {}` repeats it", path.display());
    }
}

#[test]
fn a_node_keeps_its_rules_for_any_commands() {
    try_out("commands", 20_000);
}

#[test]
fn a_copy_applies_any_replicated_commands() {
    try_out("copies", 20_000);
}

#[test]
fn stored_state_is_loaded_unchanged_or_refused() {
    try_out("stored", 20_000);
}

#[test]
fn the_parser_reads_any_bytes_in_pieces_of_any_size() {
    try_out("replies", 50_000);
}

#[test]
fn a_client_holds_a_lock_only_with_a_majority() {
    try_out("session", 50_000);
}

#[test]
fn the_gate_runs_every_target() {
    let here = include_str!("gate.rs");
    for (name, _) in TARGETS {
        assert!(here.contains(&format!("try_out(\"{name}\"")), "no test runs {name}");
    }
}
