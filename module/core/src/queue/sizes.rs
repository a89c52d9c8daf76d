//! The size of the largest of many groups.

/// How many groups of each size there are. A change costs as many steps as the size changes by.
#[derive(Debug, Default)]
pub(super) struct Sizes {
    /// The number of groups of size `index + 1`. The last one is not 0.
    groups: Vec<u32>,
}

impl Sizes {
    /// The size of the largest group; 0 without groups.
    pub(super) fn largest(&self) -> usize {
        self.groups.len()
    }

    /// Records that a group has another size. A group of size 0 does not exist.
    pub(super) fn change(&mut self, from: usize, to: usize) {
        if to > self.groups.len() {
            self.groups.resize(to, 0);
        }
        if let Some(count) = self.of(to) {
            *count = count.saturating_add(1);
        }
        if let Some(count) = self.of(from) {
            *count = count.saturating_sub(1);
        }
        while self.groups.last() == Some(&0) {
            self.groups.pop();
        }
    }

    fn of(&mut self, size: usize) -> Option<&mut u32> {
        self.groups.get_mut(size.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_group_is_known_after_every_change() {
        let (mut sizes, mut groups) = (Sizes::default(), [0_usize; 5]);
        // A fixed sequence in which every group grows and shrinks, by one and by many.
        for step in 0..500_usize {
            let (group, to) = (step * 3 % groups.len(), step * 7 % 11);
            sizes.change(groups[group], to);
            groups[group] = to;
            assert_eq!(Some(sizes.largest()), groups.iter().copied().max(), "{groups:?}");
        }
        for size in groups {
            sizes.change(size, 0);
        }
        assert_eq!((sizes.largest(), sizes.groups.len()), (0, 0));
    }
}
