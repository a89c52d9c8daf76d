//! Real servers, faults and checks for Redlock.
//!
//! A test starts a [`Server`], talks to it over a [`Wire`], reads [`Answer`]s and waits only with
//! [`eventually`]. Where time itself is under test, a [`Clock`] stands between the server and the kernel.
//!
//! | file | subject |
//! |---|---|
//! | `locate.rs` | where the module, the servers and the target folder are |
//! | `spawn.rs` | child processes that cannot outlive the test |
//! | `server.rs` | one running server: start, stop, restart, log, INFO |
//! | `builder.rs` | what a server is started with |
//! | `flavor.rs` | Redis or Valkey, and which version |
//! | `wire.rs`, `resp.rs`, `answer.rs` | a connection, the bytes on it, what came back |
//! | `inspection.rs` | what a server tells about one lock |
//! | `clock.rs`, `shim/clock.c` | the server's clocks, moved from outside |
//! | `subject.rs` | the core and a real server, to be compared |
//! | `cases.rs` | the contract of one node as a table |
//! | `history.rs` | what clients saw, and whether it can be true |
//! | `wait.rs` | the one way to wait |
//! | `skip.rs` | a test that has nothing to test here says so |

// This crate is test code throughout: a broken expectation ends the test, with a message that says which.
#![allow(clippy::expect_used, clippy::panic)]

mod answer;
mod builder;
pub mod cases;
mod clock;
mod flavor;
pub mod history;
mod inspection;
mod locate;
mod resp;
mod server;
mod skip;
mod spawn;
pub mod subject;
mod wait;
mod wire;

pub use answer::Answer;
pub use builder::Builder;
pub use clock::Clock;
pub use flavor::{Brand, Flavor};
pub use inspection::Inspection;
pub use locate::module_path;
pub use server::{Server, StartFailure};
pub use skip::skip;
pub use wait::{SOON, eventually, within};
pub use wire::Wire;
