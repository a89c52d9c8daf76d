//! The program `redlock`: real servers, real processes, real signals.
//!
//! | file | subject |
//! |---|---|
//! | `program.rs` | starting the program, and what came of it |
//! | `processes.rs` | whether processes are there, and what they do |
//! | `tmux.rs` | a real terminal |
//! | `run.rs` | a command under a lock: status, signals, waiting |
//! | `lost.rs` | a lock that is lost, and a `redlock` that is killed |
//! | `terminal.rs` | Ctrl-C, Ctrl-Z and reading from the terminal |
//! | `scripts.rs` | acquire, extend, release, inspect |
//! | `settings.rs` | nodes and settings, and who has the last word |
//! | `secrets.rs` | what is never shown |
//! | `status.rs` | status, Prometheus, exporter |
//! | `top.rs` | the locks that are held |
//! | `bench.rs` | bench |
//! | `doctor.rs` | planted ills |
//! | `admit.rs` | letting a node vote |
//! | `procedures.rs` | replacing a node, failing over, restoring a backup, moving the data |
//! | `newcomer.rs` | from nothing to a held lock |
//! | `output.rs` | results that cannot be written |
//! | `users.rs` | what users with few rights can do |
//! | `papers.rs` | help, completions, manual pages, colours |

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a broken expectation ends a test"
)]

mod admit;
mod bench;
mod doctor;
mod lost;
mod newcomer;
mod output;
mod papers;
mod procedures;
mod processes;
mod program;
mod run;
mod scripts;
mod secrets;
mod settings;
mod status;
mod terminal;
mod tmux;
mod top;
mod users;
