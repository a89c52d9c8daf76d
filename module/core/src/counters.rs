//! The counters of a node, for its operators.

/// Counters since the start of the node. A refused or failed command increments at most one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Grants, one for each command.
    pub grants: u64,
    /// Acquires by the owner that already held the lock.
    pub refreshes: u64,
    /// Acquires of a lock that another owner held.
    pub refusals: u64,
    /// Acquires that a tombstone rejected: they arrived after their own release.
    pub late_refusals: u64,
    /// Acquires that the node refused in quarantine.
    pub quarantine_refusals: u64,
    /// Requests that were queued.
    pub waits: u64,
    /// Locks handed to a waiter.
    pub handoffs: u64,
    /// Locks handed to a waiter that did not claim them.
    pub unclaimed: u64,
    /// Extensions.
    pub extensions: u64,
    /// Extensions by an owner that does not hold the lock.
    pub stale_extensions: u64,
    /// Releases.
    pub releases: u64,
    /// Releases by an owner that does not hold the lock.
    pub stale_releases: u64,
    /// Expired locks, one for each key.
    pub expirations: u64,
    /// Quarantines that the node has begun.
    pub quarantines: u64,
}

impl Counters {
    /// Every counter with the name that `INFO redlock` gives it.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 14] {
        [
            ("grants", self.grants),
            ("refreshes", self.refreshes),
            ("refusals", self.refusals),
            ("late_refusals", self.late_refusals),
            ("quarantine_refusals", self.quarantine_refusals),
            ("waits", self.waits),
            ("handoffs", self.handoffs),
            ("unclaimed", self.unclaimed),
            ("extensions", self.extensions),
            ("stale_extensions", self.stale_extensions),
            ("releases", self.releases),
            ("stale_releases", self.stale_releases),
            ("expirations", self.expirations),
            ("quarantines", self.quarantines),
        ]
    }
}
