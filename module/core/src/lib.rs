//! What one Redlock node does, as pure code.
//!
//! There is no server, no clock and no randomness in this crate: a command, the keys it names and
//! the time come in, a reply and a change to the keyspace go out. The module puts a Redis or Valkey
//! server around it, [`MemoryNode`] a hash map; both run the very same decisions.
//!
//! | to find | look in |
//! |---|---|
//! | what each command decides | [`node`] |
//! | how the words of a command are read | [`grammar`] |
//! | command names, limits, error codes, messages | the crate `redlock-contract` |
//! | how numbers only ever grow | [`fence`] |
//! | why a wall clock cannot end a lock | [`time`] |
//! | how a held lock is kept in memory | [`table`] over [`slab`] and [`wheel`] |
//! | why a late request leaves no ghost | [`late`] |
//! | who a node is, and what survives a crash | [`durable`] |
//! | what is saved and replicated | [`image`] |

#![forbid(unsafe_code)]

pub mod counters;
pub mod durable;
pub mod fault;
pub mod fence;
pub mod grammar;
pub mod image;
pub mod keyspace;
pub mod late;
pub mod memory;
pub mod node;
pub mod queue;
pub mod reply;
pub mod request;
pub mod slab;
mod swaps;
pub mod table;
pub mod time;
pub mod wheel;

pub use fault::Fault;
pub use keyspace::{Effect, Keyspace, Occupant};
pub use memory::{Host, MemoryNode, NoHost};
pub use node::Node;
pub use reply::Reply;
pub use table::LockId;
pub use time::{Millis, NodeClock, SlowClock};
