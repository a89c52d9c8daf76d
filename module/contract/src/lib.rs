//! What a Redlock node and its clients agree on.
//!
//! Node, client, command line and tests depend on this crate, so that each name, limit, code and message format
//! has one copy. There is no decision in it: what a node does is in `redlock-core`, what a client does in
//! `redlock-proto`.
//!
//! | to find | look in |
//! |---|---|
//! | command names, arguments and options | [`commands`] |
//! | limits of arguments, defaults of settings, how far a raise reaches | [`limits`] |
//! | error codes, and what a server's error starts with | [`code`] |
//! | the error of a node in quarantine | [`quarantine`] |
//! | the message that tells a waiter of its grant | [`grant`] |
//! | the fields of `REDLOCK.NODE` and `REDLOCK.INSPECT` | [`fields`] |
//! | why a node does not vote, what its fences start from | [`voting`] |
//! | how much the clocks of two machines may differ in rate | [`drift`] |

#![forbid(unsafe_code)]

pub mod code;
pub mod commands;
pub mod drift;
pub mod fields;
pub mod grant;
pub mod limits;
pub mod quarantine;
pub mod voting;

pub use code::ErrorCode;
pub use quarantine::Quarantine;
pub use voting::{NonVoting, Origin, Role};

/// The name of the data type that holds a lock: `TYPE key`, `SCAN … TYPE`.
pub const TYPE_NAME: &str = "redlock-1";

/// What precedes the channel of a waiter. An ACL rule for clients names it: `&redlock:grant:*`.
pub const CHANNEL_PREFIX: &[u8] = b"redlock:grant:";
