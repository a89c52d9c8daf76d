//! The protocol of one Redlock client, as pure code.
//!
//! This crate has no sockets, no clock and no randomness. Time is an argument; requests and decisions are
//! return values. The same code runs in the client and in a simulator.
//!
//! | file | subject |
//! |---|---|
//! | [`quorum`] | how many nodes are a majority |
//! | [`moment`] | a moment on the clocks of one client |
//! | [`validity`] | how long a client may rely on a lock; clock drift |
//! | [`answer`] | what a node replies, and its vote |
//! | [`ballot`] | the votes of one attempt: one fence from a majority |
//! | [`fence_reach`] | how far one command raises a fence |
//! | [`lock_state`] | one lock, from the first request to the last reply |
//! | [`fence_hint`] | the fence that an acquire asks the nodes to start from |
//! | [`identity`] | whether the node at an address is the same as before |
//! | [`keep_alive`] | when a holder extends the lock, and when it stops |
//! | [`retry`] | whether and when an acquire is tried again |
//! | [`decimal`] | numbers as decimal text |
//! | [`inspection`] | the state of a lock, from what the nodes report |
//! | [`rendezvous`] | which shard has a resource |
//! | [`nodes`] | a set of nodes |
//! | [`admission`] | the terms on which a node is admitted |

#![forbid(unsafe_code)]

pub mod admission;
pub mod answer;
pub mod ballot;
pub mod decimal;
pub mod fence_hint;
pub mod fence_reach;
pub mod identity;
pub mod inspection;
pub mod keep_alive;
pub mod lock_state;
pub mod moment;
pub mod nodes;
pub mod quorum;
pub mod rendezvous;
pub mod retry;
pub mod validity;

pub use answer::{Failure, FailureKind, LockReply, Vote};
pub use ballot::{Ballot, Refusal, Verdict};
pub use decimal::Decimal;
pub use lock_state::{
    AcquireOptions, Ask, Event, Grant, LockMode, LockState, QueueRequest, ReleaseOutcome, ReleaseProgress,
    Request, Transmit,
};
pub use moment::Moment;
pub use nodes::{MAX_NODES, NodeSet};
pub use quorum::Quorum;
pub use rendezvous::Rendezvous;
pub use retry::Retry;
pub use validity::Drift;
