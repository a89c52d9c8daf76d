//! The test harness of Redlock: real servers, fault injection and checks.
//!
//! A test starts a [`Server`], sends commands over a [`Wire`], reads [`Answer`]s and waits only with
//! [`eventually`]. A [`FakeClock`] controls the clocks of a server; a [`Proxy`] in front of a server injects network
//! faults.
//!
//! | file | subject |
//! |---|---|
//! | `locate.rs` | the paths of the module, the server and the target folder |
//! | `spawn.rs` | child processes that cannot outlive the test |
//! | `server.rs` | one running server: start, stop, restart, log, INFO |
//! | `builder.rs` | the configuration of a server |
//! | `fleet.rs` | several independent servers |
//! | `sentinel.rs` | a sentinel that promotes replicas |
//! | `proxy.rs`, `proxy/` | a TCP proxy that injects network faults |
//! | `port.rs` | reserved loopback ports |
//! | `certs.rs` | certificates for TLS |
//! | `flavor.rs` | Redis or Valkey, and which version |
//! | `wire.rs`, `resp.rs`, `answer.rs` | a connection, the protocol, a reply |
//! | `helpers.rs` | set-up that many tests share |
//! | `inspection.rs` | the reply to `REDLOCK.INSPECT` |
//! | `clock.rs`, `shim/clock.c` | a fake clock for a server |
//! | `strace.rs` | system calls of a server that fail or are slow |
//! | `node_under_test.rs` | the core and a real server behind one trait, to compare them |
//! | `cases.rs` | the contract of one node as a table |
//! | `history.rs` | the history of one node's clients, and its checks |
//! | `campaign/` | several client processes under one kind of fault, checked with the simulator's checks |
//! | `wait.rs` | waiting for a condition, with a deadline |
//! | `skip.rs` | reporting a skipped test |

// This crate is test code: a panic fails the test with a message.
#![allow(clippy::expect_used, clippy::panic)]

mod answer;
mod builder;
pub mod campaign;
pub mod cases;
mod certs;
mod clock;
mod flavor;
mod fleet;
mod helpers;
pub mod history;
mod inspection;
mod locate;
pub mod node_under_test;
mod port;
mod proxy;
mod resp;
mod sentinel;
mod server;
mod skip;
mod spawn;
mod strace;
mod wait;
mod wire;

pub use answer::Answer;
pub use builder::{ClientCertificate, ServerBuilder};
pub use certs::Certs;
pub use clock::FakeClock;
pub use flavor::{Brand, Flavor};
pub use fleet::Fleet;
pub use helpers::{admit, granted, start_frozen, without_proof};
pub use inspection::InspectReply;
pub use locate::{OLDER_VERSION, module_path, older_module};
pub use proxy::{CommandFault, Direction, Proxy};
pub use redlock_sim::seed;
pub use sentinel::Sentinel;
pub use server::{Server, StartFailure};
pub use skip::skip;
pub use spawn::{signal, spawn};
pub use strace::{SyscallFault, SyscallTrace};
pub use wait::{SOON, eventually, eventually_async, in_time, within};
pub use wire::Wire;

/// Compiles the code of the project's README with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct ProjectReadme;
