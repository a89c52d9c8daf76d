//! What Redlock reads from others, tried with any bytes at all.
//!
//! Every target takes bytes, makes of them whatever it needs, and panics if a promise is broken. The gate
//! runs each with the inputs that are kept in `corpus/` and a fixed number of inputs made from them
//! (`cargo test --package redlock-fuzz`); `scripts/fuzz` lets libFuzzer look for more.
//!
//! | file | subject |
//! |---|---|
//! | `commands.rs`, `model.rs` | the command grammar and what a node does, against a model of few lines |
//! | `copies.rs` | what a master or an AOF tells a copy |
//! | `stored.rs` | states, stripes and locks that were saved |
//! | `replies.rs` | what the client reads from a server |
//! | `session.rs` | the client's decisions, whatever the nodes answer and when |
//! | `planted.rs` | mistakes that must be found |
//! | `byte_reader.rs` | bytes as a source of choices |
//! | `words.rs` | commands, well formed and almost |
//! | `allocation.rs` | how much memory a call asks for |
//! | `inputs.rs` | kept inputs, and new ones made from them |

// Linters build every library for its unit tests too. This one has none, and those of the client's files that it
// takes in run at home.
#![cfg(not(test))]
// This crate is test code throughout: a broken promise ends the run, with a message that says which.
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
// The client keeps its parser to itself; here are the very same files, not copies of them.
#[path = "../../../client/src/wire/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the client uses all of it")]
#[rustfmt::skip]
mod wire;
mod vocabulary;

/// Something to be tried with any bytes; panics when a promise is broken.
pub type FuzzTarget = fn(&[u8]);

/// All targets under their names, which are also the names of their folders in `corpus/`.
pub const TARGETS: [(&str, FuzzTarget); 5] = [
    ("commands", commands::run),
    ("copies", copies::run),
    ("stored", stored::run),
    ("replies", replies::run),
    ("session", session::run),
];

/// The target, or the planted mistake, of this name.
#[must_use]
pub fn target(name: &str) -> Option<FuzzTarget> {
    let known = TARGETS.iter().chain(planted::ALL.iter().map(|planted| &planted.target));
    known.copied().find_map(|(known, target)| (known == name).then_some(target))
}
