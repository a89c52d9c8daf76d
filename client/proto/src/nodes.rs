//! A set of nodes.

/// Some of the nodes of a client, by their place in its list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeSet(u64);

/// More nodes than anybody needs: a majority of 63 is 32 round trips to wait for.
pub const MAX_NODES: usize = 63;

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);

    /// The first `count` nodes.
    #[must_use]
    pub fn first(count: usize) -> Self {
        Self((1 << count.min(MAX_NODES)) - 1)
    }

    /// One node.
    #[must_use]
    pub fn one(node: usize) -> Self {
        Self(1 << node.min(MAX_NODES))
    }

    /// Adds a node.
    pub fn insert(&mut self, node: usize) {
        self.0 |= 1 << node.min(MAX_NODES);
    }

    /// Takes a node out.
    pub fn remove(&mut self, node: usize) {
        self.0 &= !(1 << node.min(MAX_NODES));
    }

    /// Whether a node is in it.
    #[must_use]
    pub fn contains(self, node: usize) -> bool {
        self.0 >> node.min(MAX_NODES) & 1 == 1
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// How many there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The nodes, in order.
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
