//! Tickets: the position of a call in the wait queues of the nodes.

use crate::owner::random;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The low bits of a ticket are random, so that two processes get different tickets in the same microsecond.
const RANDOM_BITS: u32 = 11;

static LAST: AtomicU64 = AtomicU64::new(0);

/// Returns the next ticket: larger than every earlier ticket of this process, and ordered by wall clock
/// across processes. A wrong clock costs fairness and nothing else.
pub(crate) fn next() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let micros = u64::try_from(since.as_micros()).unwrap_or(0) & ((1 << (63 - RANDOM_BITS)) - 1);
    let fresh = (micros << RANDOM_BITS | random() >> (64 - RANDOM_BITS)).max(1);
    let later = |last: u64| Some(fresh.max(last.saturating_add(1)));
    LAST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later)
        .map_or(fresh, |last| fresh.max(last.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_only_grow() {
        let mut last = 0;
        for _ in 0..10_000 {
            let ticket = next();
            assert!(ticket > last && i64::try_from(ticket).is_ok(), "{ticket} after {last}");
            last = ticket;
        }
    }
}
