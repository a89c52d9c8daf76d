//! The async client of Redlock, to be: locks with fences over a majority of independent masters.
//!
//! This crate is at its beginning and takes no locks yet. What it has is the pure part that will decide
//! ([`redlock_proto`]); the connections and the `LockManager` around it are the next step. Until then the
//! module's commands can be used from any Redis client; see `module/COMMANDS.md`.

#![forbid(unsafe_code)]

pub use redlock_proto::{Drift, Quorum};
