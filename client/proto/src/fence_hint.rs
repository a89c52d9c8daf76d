//! The fence that an acquire asks the nodes to start from.
//!
//! In the steady state all nodes have the same fence for a key, and one round agrees on the next one. After
//! restarts and partitions some nodes are ahead. With a hint (the largest fence that this client has ever
//! held, plus one) all nodes answer the same fence, without a second round. A hint costs two words in every
//! request, so the client sends it only for a while after nodes disagreed.

/// The number of acquires after a disagreement that carry the hint. So at most one acquire in 1,024 needs a
/// second round, however many keys have different fences on different nodes.
const HINTED_ACQUIRES: u32 = 1024;

/// The largest fence that the client has held, and for how many more acquires it sends a hint.
#[derive(Clone, Copy, Debug, Default)]
pub struct FenceHints {
    largest: u64,
    acquires_left: u32,
}

impl FenceHints {
    /// Notes the fence of a lock that the client holds. The fence of a single node does not count: that node
    /// may be far ahead of all others.
    pub fn held(&mut self, fence: u64) {
        self.largest = self.largest.max(fence);
    }

    /// Notes that nodes answered different fences.
    pub fn saw_disagreement(&mut self) {
        self.acquires_left = HINTED_ACQUIRES;
    }

    /// The hint for the next acquire; `None` if it carries no hint.
    pub fn for_next_acquire(&mut self) -> Option<u64> {
        self.acquires_left = self.acquires_left.checked_sub(1)?;
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
        for _ in 0..HINTED_ACQUIRES {
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
