//! The names of fields in replies.

/// Fields of `REDLOCK.NODE`.
pub mod node {
    /// The id of the node: 40 hexadecimal digits.
    pub const ID: &str = "node-id";
    /// The number of starts of the node.
    pub const INCARNATION: &str = "incarnation";
    /// How the node began: see [`Origin`](crate::Origin).
    pub const ORIGIN: &str = "origin";
    /// 1 if the node votes, otherwise 0.
    pub const VOTING: &str = "voting";
    /// Why the node does not vote: see [`NonVoting`](crate::NonVoting). Empty if it votes.
    pub const NON_VOTING_REASON: &str = "non-voting-reason";
    /// The largest fence that the node has given out.
    pub const FENCE: &str = "fence";
    /// The largest fence that the node may give out before it stores a larger high-water mark.
    pub const HIGH_WATER: &str = "high-water";
    /// Time until the node grants again, in milliseconds; 0 outside quarantine.
    pub const QUARANTINE_MS: &str = "quarantine-ms";
    /// The number of held locks.
    pub const LOCKS: &str = "locks";
    /// The number of waiters.
    pub const WAITERS: &str = "waiters";
    /// Upper bound of every lease that may still run, in ms.
    pub const LONGEST_LEASE_MS: &str = "longest-lease-ms";
    /// The setting `redlock.max-ttl`, in ms.
    pub const MAX_TTL_MS: &str = "max-ttl-ms";
    /// The setting `redlock.claim-window`, in ms. A module without this field has no wait queues.
    pub const CLAIM_WINDOW_MS: &str = "claim-window-ms";
    /// How the node started: `new` or `resumed`.
    pub const STARTED: &str = "started";
    /// Master or replica: see [`Role`](crate::Role).
    pub const ROLE: &str = "role";
    /// The version of the module.
    pub const VERSION: &str = "version";
}

/// Fields of `REDLOCK.INSPECT`.
pub mod lock {
    /// The fence of the lock.
    pub const FENCE: &str = "fence";
    /// The label that the holder gave the lock.
    pub const LABEL: &str = "label";
    /// Time until the lock expires, in milliseconds.
    pub const TIME_LEFT_MS: &str = "pttl";
    /// Time since the lock was granted, in milliseconds.
    pub const HELD_MS: &str = "held-ms";
    /// How often the lock was extended.
    pub const EXTENSIONS: &str = "extensions";
    /// The number of waiters for the key.
    pub const WAITERS: &str = "waiters";
}
