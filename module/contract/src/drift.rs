//! How much the clocks of two machines may differ in rate.
//!
//! Only rates matter, never what a clock shows. A client that counts on a lease takes the allowance off; a node that
//! waits for leases to end adds it.

/// The share of a time by which two clocks may differ, in per cent.
pub const PER_CENT: u64 = 1;

/// An allowance for the granularity of clocks, in milliseconds.
pub const CONSTANT_MS: u64 = 2;

/// How long a node waits until a lease of this length has ended on every clock, in milliseconds. No lease, no wait.
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
