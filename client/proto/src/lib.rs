//! What one Redlock client does, as pure code.
//!
//! There are no sockets, no clock and no randomness in this crate: time comes in as an argument,
//! decisions go out as values. So far it has the two rules on which everything else stands: how many
//! nodes are enough ([`quorum`]) and for how long a lock may be believed ([`validity`]).

#![forbid(unsafe_code)]

pub mod quorum;
pub mod validity;

pub use quorum::Quorum;
pub use validity::Drift;
