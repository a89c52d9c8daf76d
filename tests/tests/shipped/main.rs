//! What is shipped beside the code, held against what the code does: pages, snippets in other languages, images,
//! dashboards, alerts, licences.
//!
//! | file | subject |
//! |---|---|
//! | `page.rs` | a Markdown page: its headings, links and blocks of code |
//! | `program.rs` | programs that may or may not be installed here, run with a deadline |
//! | `links.rs` | every link of every page leads somewhere |
//! | `containers.rs` | `docker/`: image and compose file |
//! | `dashboards.rs` | `docker/grafana`, `docker/prometheus`: every metric that is named exists |
//! | `languages.rs` | `client/LANGUAGES.md`: every snippet is run |
//! | `migration.rs` | `client/MIGRATION.md`: old and new locks on one key |
//! | `operations.rs` | `module/OPERATIONS.md`: rules and commands do what the page says |
//! | `names.rs` | no two types of the production crates have one name |
//! | `licences.rs` | `deny.toml`: what may be built upon |

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod containers;
mod dashboards;
mod languages;
mod licences;
mod links;
mod migration;
mod names;
mod operations;
mod page;
mod program;
