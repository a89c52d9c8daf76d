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
    /// The largest fence that the node has granted.
    pub const FENCE: &str = "fence";
    /// The largest fence that the node may give out before it stores a larger high-water mark.
    pub const HIGH_WATER: &str = "high-water";
    /// The high-water mark of all stripes without a mark of their own: see [`HighWater`](crate::HighWater).
    pub const COMMON_HIGH_WATER: &str = "common-high-water";
    /// The high-water marks of far stripes, as text: see [`HighWater`](crate::HighWater).
    pub const FAR_HIGH_WATER: &str = "far-high-water";
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
    /// All fields, in the order of the reply.
    pub const ALL: [&str; 18] = [
        ID,
        INCARNATION,
        ORIGIN,
        VOTING,
        NON_VOTING_REASON,
        FENCE,
        HIGH_WATER,
        COMMON_HIGH_WATER,
        FAR_HIGH_WATER,
        QUARANTINE_MS,
        LOCKS,
        WAITERS,
        LONGEST_LEASE_MS,
        MAX_TTL_MS,
        CLAIM_WINDOW_MS,
        STARTED,
        ROLE,
        VERSION,
    ];
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
    /// How the lock is held: [`EXCLUSIVE`] or [`SHARED`].
    pub const MODE: &str = "mode";
    /// The holders of a shared lock: a list of maps with the fields [`HOLDER`]. Empty for an exclusive lock.
    pub const HOLDERS: &str = "holders";
    /// All fields, in the order of the reply.
    pub const ALL: [&str; 8] = [FENCE, LABEL, TIME_LEFT_MS, HELD_MS, EXTENSIONS, WAITERS, MODE, HOLDERS];
    /// The fields of one holder of a shared lock, in the order of the reply.
    pub const HOLDER: [&str; 4] = [LABEL, TIME_LEFT_MS, HELD_MS, EXTENSIONS];
    /// The mode of a lock with one holder.
    pub const EXCLUSIVE: &str = "exclusive";
    /// The mode of a lock that any number of owners hold together.
    pub const SHARED: &str = "shared";
}

/// Fields of `INFO redlock` that are not counters.
pub mod info {
    /// The prefix that the server adds to the name of each field and of each counter.
    pub const PREFIX: &str = "redlock_";
    /// The version of the module.
    pub const VERSION: &str = "version";
    /// The id of the node: 40 hexadecimal digits.
    pub const NODE_ID: &str = "node_id";
    /// How the node began: see [`Origin`](crate::Origin).
    pub const ORIGIN: &str = "origin";
    /// Why the node does not vote: see [`NonVoting`](crate::NonVoting). Empty if it votes.
    pub const NON_VOTING_REASON: &str = "non_voting_reason";
    /// The number of starts of the node.
    pub const INCARNATION: &str = "incarnation";
    /// 1 if the node votes, otherwise 0.
    pub const VOTING: &str = "voting";
    /// The high-water mark: no fence that the node has granted is larger.
    pub const HIGH_WATER: &str = "high_water";
    /// The number of stripes that have a high-water mark of their own.
    pub const FAR_STRIPES: &str = "far_stripes";
    /// Upper bound of every lease that may still run, in ms.
    pub const LONGEST_LEASE_MS: &str = "longest_lease_ms";
    /// The number of held locks.
    pub const LOCKS: &str = "locks";
    /// The number of waiters.
    pub const WAITERS: &str = "waiters";
    /// The waiters, each counted once for each of its keys: what [`MAX_WAITERS`] limits.
    pub const WAITER_KEYS: &str = "waiter_keys";
    /// The setting `redlock.max-waiters`.
    pub const MAX_WAITERS: &str = "max_waiters";
    /// The number of waiters for the key with the longest queue.
    pub const LONGEST_QUEUE: &str = "longest_queue";
    /// The setting `redlock.max-waiters-per-key`.
    pub const MAX_WAITERS_PER_KEY: &str = "max_waiters_per_key";
    /// The waiters on the connection with the most, each counted once for each of its keys.
    pub const MOST_WAITERS_ON_CONNECTION: &str = "most_waiters_on_connection";
    /// The setting `redlock.max-waiters-per-connection`.
    pub const MAX_WAITERS_PER_CONNECTION: &str = "max_waiters_per_connection";
    /// The memory of all waiters, in bytes, approximate.
    pub const WAITERS_BYTES: &str = "waiters_bytes";
    /// The setting `redlock.max-waiters-memory`, in bytes.
    pub const MAX_WAITERS_BYTES: &str = "max_waiters_bytes";
    /// The largest fence that the node has granted.
    pub const LARGEST_FENCE: &str = "largest_fence";
    /// The setting `redlock.max-ttl`, in ms.
    pub const MAX_TTL_MS: &str = "max_ttl_ms";
    /// Time until the node grants again, in milliseconds; 0 outside quarantine.
    pub const QUARANTINE_MS: &str = "quarantine_ms";
    /// The memory of held locks and, approximately, of waiters, in bytes.
    pub const MEMORY_BYTES: &str = "memory_bytes";
    /// All memory that the module has allocated, in bytes.
    pub const ALLOCATED_BYTES: &str = "allocated_bytes";
    /// All fields that are numbers.
    pub const NUMBERS: [&str; 20] = [
        INCARNATION,
        VOTING,
        HIGH_WATER,
        FAR_STRIPES,
        LONGEST_LEASE_MS,
        LOCKS,
        WAITERS,
        WAITER_KEYS,
        MAX_WAITERS,
        LONGEST_QUEUE,
        MAX_WAITERS_PER_KEY,
        MOST_WAITERS_ON_CONNECTION,
        MAX_WAITERS_PER_CONNECTION,
        WAITERS_BYTES,
        MAX_WAITERS_BYTES,
        LARGEST_FENCE,
        MAX_TTL_MS,
        QUARANTINE_MS,
        MEMORY_BYTES,
        ALLOCATED_BYTES,
    ];
}

/// Counters of `INFO redlock`. They start at 0 with the server.
pub mod counter {
    /// How many times the node has written its state file.
    pub const STATE_WRITES: &str = "state_writes";
    /// Locks granted.
    pub const GRANTS: &str = "grants";
    /// Acquires by the owner that already held the lock.
    pub const REFRESHES: &str = "refreshes";
    /// Acquires that found the lock held.
    pub const REFUSALS: &str = "refusals";
    /// Acquires that arrived after the release of the same owner.
    pub const LATE_REFUSALS: &str = "late_refusals";
    /// Acquires refused because of the quarantine.
    pub const QUARANTINE_REFUSALS: &str = "quarantine_refusals";
    /// Acquires that were queued.
    pub const WAITS: &str = "waits";
    /// Locks handed to the next waiter.
    pub const HANDOFFS: &str = "handoffs";
    /// Locks handed to a waiter that did not claim them in the claim window.
    pub const UNCLAIMED: &str = "unclaimed";
    /// Extensions.
    pub const EXTENSIONS: &str = "extensions";
    /// Extensions by an owner that does not hold the lock.
    pub const STALE_EXTENSIONS: &str = "stale_extensions";
    /// Releases.
    pub const RELEASES: &str = "releases";
    /// Releases by an owner that does not hold the lock.
    pub const STALE_RELEASES: &str = "stale_releases";
    /// Locks that an administrator broke.
    pub const BROKEN: &str = "broken";
    /// Locks that expired without a release.
    pub const EXPIRATIONS: &str = "expirations";
    /// How many times the node went into quarantine because it may have forgotten locks.
    pub const QUARANTINES: &str = "quarantines";
    /// All counters, each with a sentence that says what it counts, in the order of `INFO redlock`.
    pub const ALL: [(&str, &str); 16] = [
        (STATE_WRITES, "How many times the node has written its state file."),
        (GRANTS, "Locks granted."),
        (REFRESHES, "Acquires by the owner that already held the lock."),
        (REFUSALS, "Acquires that found the lock held."),
        (LATE_REFUSALS, "Acquires that arrived after the release of the same owner."),
        (QUARANTINE_REFUSALS, "Acquires refused because of the quarantine."),
        (WAITS, "Acquires that were queued."),
        (HANDOFFS, "Locks handed to the next waiter."),
        (UNCLAIMED, "Locks handed to a waiter that did not claim them in the claim window."),
        (EXTENSIONS, "Extensions."),
        (STALE_EXTENSIONS, "Extensions by an owner that does not hold the lock."),
        (RELEASES, "Releases."),
        (STALE_RELEASES, "Releases by an owner that does not hold the lock."),
        (BROKEN, "Locks that an administrator broke."),
        (EXPIRATIONS, "Locks that expired without a release."),
        (QUARANTINES, "How many times the node went into quarantine because it may have forgotten locks."),
    ];
}
