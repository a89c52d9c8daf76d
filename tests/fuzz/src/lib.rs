//! Fuzz targets for everything that Redlock reads: commands, stored state, replies.
//!
//! Every target derives a test from the bytes of its input, and panics if a rule is broken. The gate runs each target
//! with its inputs in `corpus/` and a fixed number of inputs derived from them (`cargo test --package redlock-fuzz`);
//! `scripts/fuzz` searches for more with libFuzzer.
//!
//! | file | subject |
//! |---|---|
//! | `commands.rs`, `model.rs` | the command grammar and the node, against a small model |
//! | `copies.rs` | the commands that a replica or an AOF replays |
//! | `stored.rs` | stored states, stripes and locks |
//! | `replies.rs` | the client's parser of server replies |
//! | `session.rs` | the client's state machine, with any replies at any time |
//! | `planted.rs` | planted mistakes that the targets must find |
//! | `byte_reader.rs` | derives choices from bytes |
//! | `vocabulary.rs` | valid and almost valid commands |
//! | `allocation.rs` | how much memory a call allocates |
//! | `inputs.rs` | the corpus, and inputs derived from it |

// Linters build every library for its unit tests too. This crate has none; the unit tests in the client's files that
// it includes run in the client.
#![cfg(not(test))]
// This crate is test code throughout: a broken rule ends the run with a message.
#![allow(clippy::expect_used, clippy::panic)]

mod allocation;
mod byte_reader;
pub mod commands;
pub mod copies;
pub mod inputs;
mod model;
pub mod planted;
pub mod replies;
pub mod session;
pub mod stored;
// The client's parser is private, so this crate includes its source files.
#[path = "../../../client/src/wire/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the client uses all of it")]
#[rustfmt::skip]
mod wire;
mod vocabulary;

/// A fuzz target: takes any bytes, and panics if a rule is broken.
pub type FuzzTarget = fn(&[u8]);

/// All targets by name. The name is also that of the folder in `corpus/`.
pub const TARGETS: [(&str, FuzzTarget); 5] = [
    ("commands", commands::run),
    ("copies", copies::run),
    ("stored", stored::run),
    ("replies", replies::run),
    ("session", session::run),
];

/// The target or planted mistake of this name.
#[must_use]
pub fn target(name: &str) -> Option<FuzzTarget> {
    let known = TARGETS.iter().chain(planted::ALL.iter().map(|planted| &planted.target));
    known.copied().find_map(|(known, target)| (known == name).then_some(target))
}
