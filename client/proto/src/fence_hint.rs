//! What to ask the nodes to count from.
//!
//! In the steady state every node counts each key alike and a number agreed in one round needs no help.
//! After restarts and partitions some nodes are ahead. A hint (one more than the largest number this
//! client has ever held a lock under) makes all of them answer the same, without a second round. It costs two words in
//! every request, so it is sent only for a while after nodes were seen to differ.

/// For how many acquires after a disagreement the hint is sent: at most one acquire in so many needs a
/// second round, however many keys have fallen apart.
const LASTS_FOR: u32 = 1024;

/// The largest number held, and whether it is worth saying.
#[derive(Clone, Copy, Debug, Default)]
pub struct FenceHints {
    largest: u64,
    to_give: u32,
}

impl FenceHints {
    /// Takes note of a number that a lock was held under. What a single node says does not count: it may be far
    /// ahead of all others.
    pub fn held(&mut self, fence: u64) {
        self.largest = self.largest.max(fence);
    }

    /// Takes note that nodes answered different numbers.
    pub fn saw_disagreement(&mut self) {
        self.to_give = LASTS_FOR;
    }

    /// The hint for the next acquire, if it should carry one.
    pub fn for_next_acquire(&mut self) -> Option<u64> {
        self.to_give = self.to_give.checked_sub(1)?;
        self.largest.checked_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_sent_only_after_a_disagreement() {
        let mut hints = FenceHints::default();
        hints.held(41);
        assert_eq!(hints.for_next_acquire(), None);
        hints.saw_disagreement();
        hints.held(7);
        for _ in 0..LASTS_FOR {
            assert_eq!(hints.for_next_acquire(), Some(42));
        }
        assert_eq!(hints.for_next_acquire(), None);
    }

    #[test]
    fn the_largest_fence_has_no_hint() {
        let mut hints = FenceHints::default();
        hints.held(u64::MAX);
        hints.saw_disagreement();
        assert_eq!(hints.for_next_acquire(), None);
    }
}
