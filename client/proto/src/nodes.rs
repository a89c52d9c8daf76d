//! A set of nodes.

/// A set of nodes, each by its index in the client's list of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u64);

/// The most nodes that a client may have. A majority of 63 nodes takes 32 replies; no deployment needs more.
pub const MAX_NODES: usize = 63;

impl NodeSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// The first `count` nodes.
    #[must_use]
    pub fn first(count: usize) -> Self {
        Self((1 << count.min(MAX_NODES)) - 1)
    }

    /// The set of one node.
    #[must_use]
    pub fn one(node: usize) -> Self {
        Self(1 << node.min(MAX_NODES))
    }

    /// Adds a node.
    pub fn insert(&mut self, node: usize) {
        self.0 |= 1 << node.min(MAX_NODES);
    }

    /// Removes a node.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node.min(MAX_NODES));
    }

    /// Whether the set contains a node.
    #[must_use]
    pub fn contains(self, node: usize) -> bool {
        self.0 >> node.min(MAX_NODES) & 1 == 1
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The number of nodes in the set.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes, in ascending order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let node = left.trailing_zeros() as usize;
            left &= left.checked_sub(1)?;
            Some(node)
        })
    }
}

impl FromIterator<usize> for NodeSet {
    fn from_iter<T: IntoIterator<Item = usize>>(nodes: T) -> Self {
        let mut set = Self::EMPTY;
        for node in nodes {
            set.insert(node);
        }
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_its_nodes() {
        let mut set: NodeSet = [4, 0, 2].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 2, 4]);
        set.remove(2);
        assert!(set.contains(4) && !set.contains(2) && set.len() == 2);
        assert_eq!(NodeSet::first(3).iter().collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(NodeSet::first(MAX_NODES).len(), MAX_NODES);
        assert!(NodeSet::first(0).is_empty());
    }
}
