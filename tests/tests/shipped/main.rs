//! Tests of what is shipped beside the code: pages, snippets in other languages, images, dashboards, alerts and
//! licences must agree with the code.
//!
//! | file | subject |
//! |---|---|
//! | `page.rs` | a parser for Markdown pages: headings, links and code blocks |
//! | `program.rs` | finds installed programs and runs them with a deadline |
//! | `links.rs` | every link of every page has a target |
//! | `containers.rs` | `docker/`: image and compose file |
//! | `contributing.rs` | `CONTRIBUTING.md` and the public CI: every command and folder that they name exists |
//! | `deployments.rs` | `docker/kubernetes`, `docker/systemd`: they keep the rules of the guide |
//! | `dashboards.rs` | `docker/grafana`, `docker/prometheus`: every metric that they name exists |
//! | `language.rs` | no retired phrase in pages, comments, strings and scripts; no long line of prose |
//! | `languages.rs` | `client/LANGUAGES.md`: every snippet runs and prints what the page says |
//! | `migration.rs` | `client/MIGRATION.md`: old and new locks on one key |
//! | `mutants.rs` | `tests/MUTANTS.md`: every planted bug has a row |
//! | `operations.rs` | `module/OPERATIONS.md`: access rules, configurations and commands do what the page says |
//! | `names.rs` | no two types of the production crates have one name |
//! | `named_tests.rs` | the pages about tests name tests, files and planted bugs that exist |
//! | `servers.rs` | `scripts/servers`: the table of tested servers, and servers that cannot be fetched |
//! | `licences.rs` | `deny.toml`: the licences and sources of all dependencies; the licence in each crate, and what its manifest says |

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod containers;
mod contributing;
mod dashboards;
mod deployments;
mod language;
mod languages;
mod licences;
mod links;
mod migration;
mod mutants;
mod named_tests;
mod names;
mod operations;
mod page;
mod program;
mod servers;
