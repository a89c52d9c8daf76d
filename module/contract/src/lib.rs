//! The contract between a Redlock node and its clients.
//!
//! Node, client, command line and tests depend on this crate, so that each name, limit, code and message
//! format has one copy. It has the rules that both sides apply, such as [`limits::raise_limit`]. All
//! other decisions are in `redlock-core` for a node, and in `redlock-proto` for a client.
//!
//! | to find | look in |
//! |---|---|
//! | command names, arguments and options | [`commands`] |
//! | limits of arguments, defaults of settings, how far one command raises a fence | [`limits`] |
//! | the names of settings | [`settings`] |
//! | error codes: the first word of an error reply | [`code`] |
//! | the error of a node in quarantine | [`quarantine`] |
//! | the push that grants a waiter its lock | [`grant`] |
//! | the upper bounds of the fences that a node has granted | [`high_water`] |
//! | the fields of `REDLOCK.NODE`, `REDLOCK.INSPECT` and `INFO redlock` | [`fields`] |
//! | the role of a node, its origin, and why it does not vote | [`voting`] |
//! | the allowance for clock rates | [`drift`] |

#![forbid(unsafe_code)]

pub mod code;
pub mod commands;
pub mod drift;
pub mod fields;
pub mod grant;
pub mod high_water;
pub mod limits;
pub mod quarantine;
pub mod settings;
pub mod voting;

pub use code::ErrorCode;
pub use high_water::HighWater;
pub use quarantine::Quarantine;
pub use voting::{NonVoting, NonVotingReason, Origin, Role};

/// The name of the data type that holds a lock: `TYPE key`, `SCAN … TYPE`.
pub const TYPE_NAME: &str = "redlock-1";

/// The prefix of every waiter's channel. An ACL rule for clients contains it: `&redlock:grant:*`.
pub const CHANNEL_PREFIX: &[u8] = b"redlock:grant:";
