//! What is shipped beside the code, held against what the code does: pages, snippets in other languages, images,
//! dashboards, alerts, licences.
//!
//! | file | subject |
//! |---|---|
//! | `page.rs` | a Markdown page: its headings, links and blocks of code |
//! | `program.rs` | programs that may or may not be installed here, run with a deadline |
//! | `containers.rs` | `docker/`: image and compose file |
//! | `operations.rs` | `module/OPERATIONS.md`: rules and commands do what the page says |
//! | `licences.rs` | `deny.toml`: what may be built upon |

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod containers;
mod licences;
mod operations;
mod page;
mod program;
