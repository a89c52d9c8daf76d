//! The high-water marks of a node: upper bounds of the fences that it has granted.
//!
//! A node has one common mark. A stripe of keys that a client has raised far above the others has a mark of its
//! own, so that one raised key does not move all other keys. The text form of these *far* marks is the same in
//! the state file, in the reply to `REDLOCK.NODE` and in `REDLOCK.ADMIT`: `stripe:mark,stripe:mark`, in the order
//! of the stripes, or `none`.

use crate::limits::{MAX_FAR_STRIPES, MAX_FENCE};
use std::collections::BTreeMap;

/// The text form of no far marks.
const NONE: &str = "none";

/// The high-water marks of a node: no fence that the node has granted is larger than the mark of the fence's stripe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HighWater {
    common: u64,
    /// The marks above `common`, by stripe. At most [`MAX_FAR_STRIPES`].
    far: BTreeMap<u16, u64>,
}

impl HighWater {
    /// The same mark for all stripes.
    #[must_use]
    pub fn new(common: u64) -> Self {
        Self { common: common.min(MAX_FENCE), far: BTreeMap::new() }
    }

    /// The mark of every stripe that has no mark of its own.
    #[must_use]
    #[inline]
    pub fn common(&self) -> u64 {
        self.common
    }

    /// The stripes with marks of their own, all above [`common`](Self::common).
    pub fn far(&self) -> impl ExactSizeIterator<Item = (u16, u64)> {
        self.far.iter().map(|(stripe, mark)| (*stripe, *mark))
    }

    /// The mark of a stripe.
    #[must_use]
    pub fn of(&self, stripe: u16) -> u64 {
        self.far.get(&stripe).copied().unwrap_or(self.common)
    }

    /// The largest mark of all stripes.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.far.values().copied().fold(self.common, u64::max)
    }

    /// Raises the marks of all stripes to at least `mark`.
    pub fn raise_common(&mut self, mark: u64) {
        self.common = self.common.max(mark.min(MAX_FENCE));
        let common = self.common;
        self.far.retain(|_, far| *far > common);
    }

    /// Raises the mark of one stripe. When too many stripes have marks of their own, the lower half of them joins
    /// the common mark.
    pub fn raise(&mut self, stripe: u16, mark: u64) {
        let mark = mark.min(MAX_FENCE);
        if mark <= self.of(stripe) {
            return;
        }
        self.far.insert(stripe, mark);
        if self.far.len() > MAX_FAR_STRIPES {
            let mut marks: Vec<u64> = self.far.values().copied().collect();
            marks.sort_unstable();
            self.raise_common(marks[marks.len() / 2]);
        }
    }

    /// Raises every mark to at least the mark of the same stripe in `other`.
    pub fn include(&mut self, other: &Self) {
        self.raise_common(other.common);
        for (stripe, mark) in other.far() {
            self.raise(stripe, mark);
        }
    }

    /// The marks with `step` added to each.
    #[must_use]
    pub fn plus(&self, step: u64) -> Self {
        let mut sum = Self::new(self.common.saturating_add(step));
        for (stripe, mark) in self.far() {
            sum.raise(stripe, mark.saturating_add(step));
        }
        sum
    }

    /// The text form of the far marks.
    #[must_use]
    pub fn far_text(&self) -> String {
        if self.far.is_empty() {
            return NONE.to_owned();
        }
        let marks: Vec<String> = self.far().map(|(stripe, mark)| format!("{stripe}:{mark}")).collect();
        marks.join(",")
    }

    /// The marks with this common mark and this text form of the far ones. `None` for any text that
    /// [`far_text`](Self::far_text) does not write, and for marks out of range.
    #[must_use]
    pub fn parse(common: u64, far_text: &str) -> Option<Self> {
        let mut marks = Self::new(common);
        if far_text != NONE {
            for (count, entry) in far_text.split(',').enumerate() {
                let (stripe, mark) = entry.split_once(':')?;
                let (stripe, mark): (u16, u64) = (stripe.parse().ok()?, mark.parse().ok()?);
                if count >= MAX_FAR_STRIPES || mark <= common || mark > MAX_FENCE {
                    return None;
                }
                marks.far.insert(stripe, mark);
            }
        }
        (common <= MAX_FENCE && marks.far_text() == far_text).then_some(marks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marks(common: u64, far: &str) -> HighWater {
        HighWater::parse(common, far).unwrap()
    }

    #[test]
    fn each_stripe_has_the_larger_of_two_marks() {
        let mut sum = marks(10, "1:40,2:20");
        sum.include(&marks(15, "2:30,3:50"));
        assert_eq!(sum, marks(15, "1:40,2:30,3:50"));
        sum.include(&HighWater::new(40));
        assert_eq!(sum, marks(40, "3:50"), "a mark that is not above the common one is not kept");
        assert_eq!((sum.of(3), sum.of(1), sum.highest()), (50, 40, 50));
        assert_eq!(sum.plus(5), marks(45, "3:55"));
        assert_eq!(marks(7, "3:9").plus(u64::MAX), HighWater::new(MAX_FENCE));
    }

    #[test]
    fn only_the_one_text_form_is_read() {
        for far in ["", "none,", "1:40,", "2:40,1:40", "1:40,1:50", "1:10", "65536:40", "01:40", "1:+40", "1"]
        {
            assert_eq!(HighWater::parse(10, far), None, "{far}");
        }
        assert_eq!(HighWater::parse(10, &format!("1:{}", MAX_FENCE + 1)), None);
        assert_eq!(HighWater::parse(MAX_FENCE + 1, "none"), None);
        let text =
            |count: usize| (0..count).map(|stripe| format!("{stripe}:40")).collect::<Vec<_>>().join(",");
        assert!(HighWater::parse(10, &text(MAX_FAR_STRIPES)).is_some());
        assert_eq!(HighWater::parse(10, &text(MAX_FAR_STRIPES + 1)), None, "more than a node keeps");
    }

    proptest! {
        /// Whatever is raised and merged, no stripe loses a mark, and the text is read back.
        #[test]
        fn marks_never_go_back(
            common in 0_u64..1 << 40,
            raises in proptest::collection::vec((any::<u16>(), 0_u64..=MAX_FENCE), 0..3_000),
        ) {
            let (first, second) = raises.split_at(raises.len() / 2);
            let raised = |raises: &[(u16, u64)]| {
                let mut marks = HighWater::new(common);
                raises.iter().for_each(|(stripe, mark)| marks.raise(*stripe, *mark));
                marks
            };
            let (mut all, other) = (raised(first), raised(second));
            all.include(&other);
            for (stripe, mark) in &raises {
                prop_assert!(all.of(*stripe) >= *mark);
            }
            prop_assert!(all.far().len() <= MAX_FAR_STRIPES);
            prop_assert_eq!(HighWater::parse(all.common(), &all.far_text()), Some(all));
        }
    }
}
