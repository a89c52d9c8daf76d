//! Drift: the allowance for the difference in rate between the clocks of two machines.
//!
//! Only rates matter, never the time that a clock shows. A client subtracts the allowance from a lease. A
//! node that waits for leases to end adds it.

/// The largest difference in rate between two clocks, in per cent of the time.
pub const PER_CENT: u64 = 1;

/// An allowance for the granularity of clocks, in milliseconds.
pub const CONSTANT_MS: u64 = 2;

/// How long a node waits until a lease of this length has ended on every clock, in milliseconds; 0 for no
/// lease.
#[must_use]
pub fn with_drift(lease_ms: u64) -> u64 {
    if lease_ms == 0 {
        return 0;
    }
    lease_ms.saturating_add(lease_ms / 100 * PER_CENT).saturating_add(CONSTANT_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_allows_for_clocks_of_different_rates() {
        for (lease_ms, wait_ms) in [(0, 0), (1, 3), (100, 103), (60_000, 60_602), (u64::MAX, u64::MAX)] {
            assert_eq!(with_drift(lease_ms), wait_ms, "{lease_ms} ms");
        }
    }
}
