//! The decisions of one Redlock node, as pure code.
//!
//! This crate has no server, no clock and no randomness. Input is a command, the keys that it names and the time;
//! output is a reply and a change of the keyspace. The module runs it inside a Redis or Valkey server, [`MemoryNode`]
//! runs it over a hash map; both run the same decisions.
//!
//! | to find | look in |
//! |---|---|
//! | what each command decides, and the sweep | [`node`] |
//! | the syntax of the commands | [`grammar`] |
//! | command names, limits, error codes, messages | the crate `redlock-contract` |
//! | why fences only grow | [`fence`] |
//! | why a wall clock cannot end a lock | [`time`] |
//! | how locks are kept in memory | [`table`] over [`slab`] and [`wheel`] |
//! | why a late request leaves no ghost | [`tombstones`] |
//! | the identity of a node, and what survives a crash | [`durable`] |
//! | which node a server is when it starts, and its quarantine | [`start`] |
//! | how clients wait for a lock | [`queue`] |
//! | how much the sweep does at a time | [`sweep_budget`] |
//! | the saved form of locks and fences | [`image`] |

#![forbid(unsafe_code)]

pub mod command_error;
pub mod counters;
mod database_swaps;
pub mod durable;
pub mod fence;
pub mod grammar;
pub mod image;
pub mod keyspace;
pub mod memory;
pub mod node;
pub mod queue;
pub mod reply;
pub mod request;
pub mod slab;
pub mod start;
pub mod sweep_budget;
pub mod table;
pub mod time;
pub mod tombstones;
pub mod wheel;

pub use command_error::CommandError;
pub use keyspace::{Effect, KeyState, Keyspace, LockEvent};
pub use memory::{MemoryNode, NoHost, NodeHost};
pub use node::LockNode;
pub use reply::Reply;
pub use table::LockId;
pub use time::{Millis, NodeClock, SlowClock};
