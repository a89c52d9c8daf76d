//! The counters of a node, for its operators.

use redlock_contract::fields::counter;

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
    /// Locks that an administrator broke.
    pub broken: u64,
    /// Expired locks, one for each key.
    pub expirations: u64,
    /// Quarantines that the node has begun.
    pub quarantines: u64,
}

impl Counters {
    /// Every counter with the name that `INFO redlock` gives it.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 15] {
        [
            (counter::GRANTS, self.grants),
            (counter::REFRESHES, self.refreshes),
            (counter::REFUSALS, self.refusals),
            (counter::LATE_REFUSALS, self.late_refusals),
            (counter::QUARANTINE_REFUSALS, self.quarantine_refusals),
            (counter::WAITS, self.waits),
            (counter::HANDOFFS, self.handoffs),
            (counter::UNCLAIMED, self.unclaimed),
            (counter::EXTENSIONS, self.extensions),
            (counter::STALE_EXTENSIONS, self.stale_extensions),
            (counter::RELEASES, self.releases),
            (counter::STALE_RELEASES, self.stale_releases),
            (counter::BROKEN, self.broken),
            (counter::EXPIRATIONS, self.expirations),
            (counter::QUARANTINES, self.quarantines),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_a_sentence_in_the_contract() {
        let core = Counters::default().named().map(|(name, _)| name);
        // The module counts these writes itself.
        let counted =
            counter::ALL.iter().map(|(name, _)| *name).filter(|name| *name != counter::STATE_WRITES);
        assert_eq!(counted.collect::<Vec<_>>(), core);
        assert!(counter::ALL.iter().all(|(_, says)| says.ends_with('.')));
    }
}
