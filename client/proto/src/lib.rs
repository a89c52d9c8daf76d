//! What one Redlock client does, as pure code.
//!
//! There are no sockets, no clock and no randomness in this crate: time comes in as an argument, requests
//! and decisions go out as values. The same code runs in the client and under a simulator.
//!
//! | file | subject |
//! |---|---|
//! | [`quorum`] | how many nodes are enough |
//! | [`moment`] | time as one client sees it |
//! | [`validity`] | for how long a lock may be believed |
//! | [`answer`] | what a node can say |
//! | [`ballot`] | who won: one number from a majority |
//! | [`fence_reach`] | how far a node raises a fence |
//! | [`lock_state`] | one lock, from the first request to the last answer |
//! | [`fence_hint`] | what to ask the nodes to count from |
//! | [`identity`] | whether the node at an address is the one of before |
//! | [`keep_alive`] | when a holder extends, and when it must stop |
//! | [`retry`] | whether and when to try again |
//! | [`decimal`] | numbers as text |
//! | [`inspection`] | what the nodes together say about a lock |
//! | [`rendezvous`] | which of several groups of nodes has a resource |
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

pub use answer::{Failure, FailureKind, Reply, Vote};
pub use ballot::{Ballot, Refusal, Verdict};
pub use decimal::Decimal;
pub use lock_state::{
    Ask, Event, Grant, LockState, QueueRequest, ReleaseOutcome, ReleaseProgress, Request, Transmit,
};
pub use moment::Moment;
pub use nodes::{MAX_NODES, NodeSet};
pub use quorum::Quorum;
pub use rendezvous::Rendezvous;
pub use retry::Retry;
pub use validity::Drift;
