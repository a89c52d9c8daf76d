//! Real servers, faults and checks for Redlock.
//!
//! A test starts a [`Server`], talks to it over a [`Wire`], reads [`Answer`]s and waits only with
//! [`eventually`]. Where time itself is under test, a [`FakeClock`] stands between the server and the kernel;
//! where the network is, a [`Proxy`] stands before each server of a [`Fleet`].
//!
//! | file | subject |
//! |---|---|
//! | `locate.rs` | where the module, the servers and the target folder are |
//! | `spawn.rs` | child processes that cannot outlive the test |
//! | `server.rs` | one running server: start, stop, restart, log, INFO |
//! | `builder.rs` | what a server is started with |
//! | `fleet.rs` | several independent servers |
//! | `sentinel.rs` | who watches masters and puts replicas in their place |
//! | `proxy.rs`, `proxy/` | a bad network in front of a server, on command |
//! | `port.rs` | loopback ports that stay with whoever got them |
//! | `certs.rs` | certificates for TLS |
//! | `flavor.rs` | Redis or Valkey, and which version |
//! | `wire.rs`, `resp.rs`, `answer.rs` | a connection, the bytes on it, what came back |
//! | `helpers.rs` | what many tests do first |
//! | `inspection.rs` | what a server tells about one lock |
//! | `clock.rs`, `shim/clock.c` | the server's clocks, moved from outside |
//! | `strace.rs` | a disk that fails or dawdles |
//! | `node_under_test.rs` | the core and a real server, to be compared |
//! | `cases.rs` | the contract of one node as a table |
//! | `history.rs` | what clients saw, and whether it can be true |
//! | `campaign/` | several client processes under one kind of fault, judged by the simulator's checks |
//! | `wait.rs` | the one way to wait |
//! | `skip.rs` | a test that has nothing to test here says so |

// This crate is test code throughout: a broken expectation ends the test, with a message that says which.
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
