//! What a node counts for its operators.

/// Counts since the node started. A refused or failed command moves at most one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Locks granted, one for each command.
    pub grants: u64,
    /// Acquires by the owner that held the lock already.
    pub refreshes: u64,
    /// Acquires that found the lock held.
    pub refusals: u64,
    /// Acquires that came after their own release.
    pub late_refusals: u64,
    /// Acquires refused in quarantine.
    pub quarantine_refusals: u64,
    /// Waiters that were queued.
    pub waits: u64,
    /// Locks that were handed to a waiter.
    pub handoffs: u64,
    /// Locks that were handed to a waiter and not claimed.
    pub unclaimed: u64,
    /// Extensions.
    pub extensions: u64,
    /// Extensions by someone who does not hold the lock.
    pub stale_extensions: u64,
    /// Releases.
    pub releases: u64,
    /// Releases by someone who does not hold the lock.
    pub stale_releases: u64,
    /// Locks that ran out, one for each key.
    pub expirations: u64,
    /// How often the node began to wait because it may have forgotten locks.
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
