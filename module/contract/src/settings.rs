//! The names of the settings of a node, and of the other arguments of the module.

/// What `CONFIG GET` and `CONFIG SET` put before the name of a setting.
pub const PREFIX: &str = "redlock.";

/// The longest time to live that a command may ask for.
pub const MAX_TTL: &str = "max-ttl";
/// How long a tombstone rejects a late acquire.
pub const LATE_WINDOW: &str = "late-window";
/// How long a waiter has to claim a lock.
pub const CLAIM_WINDOW: &str = "claim-window";
/// The most waiters on the node.
pub const MAX_WAITERS: &str = "max-waiters";
/// The most waiters for one key.
pub const MAX_WAITERS_PER_KEY: &str = "max-waiters-per-key";
/// The most waiters on one connection.
pub const MAX_WAITERS_PER_CONNECTION: &str = "max-waiters-per-connection";
/// The most memory for waiters.
pub const MAX_WAITERS_MEMORY: &str = "max-waiters-memory";
/// Whether the node grants nothing after a start.
pub const RESTART_GRACE: &str = "restart-grace";
/// All settings.
pub const ALL: [&str; 8] = [
    MAX_TTL,
    LATE_WINDOW,
    CLAIM_WINDOW,
    MAX_WAITERS,
    MAX_WAITERS_PER_KEY,
    MAX_WAITERS_PER_CONNECTION,
    MAX_WAITERS_MEMORY,
    RESTART_GRACE,
];

/// The argument that names the state file. It is no setting.
pub const STATE_FILE: &str = "state-file";
/// The argument that says whether a node without a state file and without data votes. It is no setting.
pub const NEW_NODE: &str = "new-node";
