//! How many nodes are enough.

use std::num::NonZeroUsize;

/// A majority of the nodes that are configured, whether they can be reached or not.
///
/// Any two majorities share a node; that node is what keeps two clients from holding one lock. Counting
/// only the nodes that answer would lose it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quorum {
    nodes: NonZeroUsize,
}

impl Quorum {
    /// One node is its own majority.
    pub const SINGLE: Self = Self { nodes: NonZeroUsize::MIN };

    /// The quorum of so many nodes; `None` for no node at all.
    #[must_use]
    pub fn of(nodes: usize) -> Option<Self> {
        NonZeroUsize::new(nodes).map(|nodes| Self { nodes })
    }

    /// How many nodes are configured.
    #[must_use]
    pub fn nodes(self) -> usize {
        self.nodes.get()
    }

    /// How many grants it takes. Half of an even number is not enough: a tie is a refusal.
    #[must_use]
    pub fn needed(self) -> usize {
        self.nodes.get() / 2 + 1
    }

    /// Whether so many grants are enough.
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
