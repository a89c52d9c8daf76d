//! What one Redlock node does, as pure code.
//!
//! There is no server, no clock and no randomness in this crate: a command, the keys it names and
//! the time come in, a reply and a change to the keyspace go out. The module puts a Redis or Valkey
//! server around it, [`MemoryNode`] a hash map; both run the very same decisions.
//!
//! | to find | look in |
//! |---|---|
//! | what each command decides | [`node`] |
//! | what a command line may look like | [`grammar`], [`catalog`] |
//! | how numbers only ever grow | [`fence`] |
//! | why a wall clock cannot end a lock | [`time`] |
//! | how a held lock is kept in memory | [`table`] over [`slab`] and [`wheel`] |
//! | why a late request leaves no ghost | [`tombstones`] |
//! | why a grant message cannot be forged | [`proof`] |
//! | who a node is, and what survives a crash | [`durable`] |
//! | what is saved and replicated | [`image`] |

#![forbid(unsafe_code)]

pub mod catalog;
pub mod counters;
mod database_swaps;
pub mod durable;
pub mod fault;
pub mod fence;
pub mod grammar;
pub mod image;
pub mod keyspace;
pub mod memory;
pub mod node;
pub mod proof;
pub mod queue;
pub mod reply;
pub mod request;
pub mod slab;
pub mod table;
pub mod time;
pub mod tombstones;
pub mod wheel;

pub use fault::Fault;
pub use keyspace::{Effect, KeyState, Keyspace};
pub use memory::{MemoryNode, NoHost, NodeHost};
pub use node::LockNode;
pub use reply::Reply;
pub use table::LockId;
pub use time::{Millis, NodeClock, SlowClock};
