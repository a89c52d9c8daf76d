//! Tests of the program `redlock` with real servers, processes and signals.
//!
//! | file | subject |
//! |---|---|
//! | `program.rs` | starts the program and collects its output |
//! | `processes.rs` | finds processes and their state |
//! | `tmux.rs` | a real terminal, in tmux |
//! | `run.rs` | a command under a lock: status, signals, waiting |
//! | `lost.rs` | a lost lock, and a killed `redlock` |
//! | `terminal.rs` | Ctrl-C, Ctrl-Z and reading from the terminal |
//! | `scripts.rs` | acquire, extend, release, inspect |
//! | `locks.rs` | ls, break |
//! | `sharing.rs` | shared locks |
//! | `settings.rs` | nodes and settings, and which source overrides which |
//! | `secrets.rs` | passwords and owners are never shown |
//! | `status.rs` | status, Prometheus, exporter |
//! | `top.rs` | top |
//! | `http.rs` | plain HTTP requests |
//! | `browser.rs` | a real browser, headless Chromium |
//! | `ui.rs` | the page in the browser |
//! | `bench.rs` | bench |
//! | `elect.rs` | elect: one leader at a time, and the next term |
//! | `doctor.rs` | doctor finds planted problems |
//! | `admit.rs` | admit |
//! | `procedures.rs` | replacing a node, failing over, restoring a backup, moving the data |
//! | `newcomer.rs` | the first steps in README.md and CLI.md |
//! | `output.rs` | results that cannot be written |
//! | `users.rs` | the users of OPERATIONS.md, with few permissions |
//! | `papers.rs` | help, completions, manual pages, colours |

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a broken expectation ends a test"
)]

mod admit;
mod bench;
mod browser;
mod doctor;
mod elect;
mod http;
mod locks;
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
mod sharing;
mod status;
mod terminal;
mod tmux;
mod top;
mod ui;
mod users;
