//! The quorum: how many nodes must grant a lock.

use std::num::NonZeroUsize;

/// A majority of the configured nodes, reachable or not.
///
/// Any two majorities share a node. That node prevents two clients from holding one lock. A majority of only
/// the nodes that answer would not have this property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    nodes: NonZeroUsize,
}

impl Quorum {
    /// The quorum of one node.
    pub const SINGLE: Self = Self { nodes: NonZeroUsize::MIN };

    /// The quorum of `nodes` nodes; `None` for 0.
    #[must_use]
    pub fn of(nodes: usize) -> Option<Self> {
        NonZeroUsize::new(nodes).map(|nodes| Self { nodes })
    }

    /// The number of configured nodes.
    #[must_use]
    pub fn nodes(self) -> usize {
        self.nodes.get()
    }

    /// The number of grants needed. Half of an even number is not enough: a tie is a refusal.
    #[must_use]
    pub fn needed(self) -> usize {
        self.nodes.get() / 2 + 1
    }

    /// Whether `grants` is a majority.
    #[must_use]
    pub fn is_reached_by(self, grants: usize) -> bool {
        grants >= self.needed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_majority_of_the_configured_nodes() {
        for (nodes, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4), (9, 5)] {
            let quorum = Quorum::of(nodes).unwrap();
            assert_eq!(quorum.needed(), needed, "{nodes} nodes");
            assert!(2 * quorum.needed() > nodes, "two majorities of {nodes} share a node");
        }
        assert_eq!(Quorum::of(0), None);
    }
}
