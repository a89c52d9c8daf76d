//! The locks with long leases, and when the last of them expires.

use crate::durable::SHORT_LEASE_MS;
use crate::time::Millis;

/// The number of classes of leases: as many as half a byte can name.
const CLASSES: usize = LAST_CLASS as usize + 1;
const LAST_CLASS: u8 = 15;

/// Counts of the locks whose leases are longer than [`SHORT_LEASE_MS`], by the length of the lease. Each class is twice
/// as long as the one before. Short leases are class 0 and are not counted, so usual locks cost nothing.
#[derive(Debug, Default)]
pub(super) struct LongLeases {
    held: [u32; CLASSES],
    /// The latest deadline of any lock of the class since the class was last empty.
    latest: [Millis; CLASSES],
}

impl LongLeases {
    #[inline]
    pub(super) fn class_of(lease_ms: u64) -> u8 {
        if lease_ms <= SHORT_LEASE_MS { 0 } else { Self::long_class_of(lease_ms) }
    }

    #[cold]
    fn long_class_of(lease_ms: u64) -> u8 {
        let class = (lease_ms / SHORT_LEASE_MS).max(1).ilog2() + 1;
        u8::try_from(class).unwrap_or(u8::MAX).min(LAST_CLASS)
    }

    #[inline]
    pub(super) fn add(&mut self, class: u8, deadline: Millis) {
        if class > 0 {
            self.held[usize::from(class)] += 1;
            self.note(class, deadline);
        }
    }

    pub(super) fn note(&mut self, class: u8, deadline: Millis) {
        let latest = &mut self.latest[usize::from(class)];
        *latest = deadline.max(*latest);
    }

    #[inline]
    pub(super) fn remove(&mut self, class: u8) {
        if class > 0 {
            let class = usize::from(class);
            self.held[class] = self.held[class].saturating_sub(1);
            if self.held[class] == 0 {
                self.latest[class] = Millis(0);
            }
        }
    }

    /// The latest deadline of all classes; `None` if no lock has a long lease.
    pub(super) fn last_deadline(&self) -> Option<Millis> {
        self.latest.iter().copied().max().filter(|latest| *latest > Millis(0))
    }
}
