//! A slab allocator: slots of bytes, packed tightly and named by a number.
//!
//! Records of locks vary in size (key, owner and label), live for a short time, and there may be millions of them. One
//! allocation for each would cost more than the record. Here slots of similar size share pages, a slot costs its bytes
//! and nothing else, and an empty page is freed.
//!
//! A slot is named by a number rather than an address, so a mistake can show a wrong record but never touch freed
//! memory.

/// Sizes are rounded up to this many bytes: few size classes, little waste.
const GRAIN: usize = 4;

/// The largest number of slots in a page; a page of small slots has a few kilobytes.
const MAX_SLOTS: usize = 64;

/// The largest size of a page with several slots, in bytes.
const PAGE_BYTES: usize = 16 * 1024;

/// Marks the end of a page's list of free slots.
const NO_SLOT: u16 = u16::MAX;

/// The largest number of pages: ids of slots stay below 2^31.
const MAX_PAGES: usize = (1 << 31) / MAX_SLOTS - 1;

/// The id of a slot. The slab reuses the id of a removed slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SlotId(u32);

impl SlotId {
    /// The id as a number; never 0.
    #[must_use]
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The id with this number.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    fn new(page: usize, slot: usize) -> Option<Self> {
        let name = page * MAX_SLOTS + slot + 1;
        if page < MAX_PAGES { u32::try_from(name).ok().map(Self) } else { None }
    }

    fn page(self) -> usize {
        (self.0 as usize).wrapping_sub(1) / MAX_SLOTS
    }

    fn slot(self) -> usize {
        (self.0 as usize).wrapping_sub(1) % MAX_SLOTS
    }
}

/// A page: slots of one size.
#[derive(Debug)]
struct SlabPage {
    /// Empty if the page is freed.
    bytes: Box<[u8]>,
    slot_bytes: usize,
    slots: usize,
    used: usize,
    first_free: u16,
    /// The index of the page in the `roomy` list of its class, if it has room.
    roomy_index: Option<usize>,
}

/// The slab.
#[derive(Debug, Default)]
pub struct Slab {
    pages: Vec<SlabPage>,
    /// The numbers of freed pages.
    vacant: Vec<usize>,
    /// For each size class the pages that have room. The last one is used next.
    roomy: Vec<Vec<usize>>,
    len: usize,
    page_bytes: usize,
}

impl Slab {
    /// The number of slots in use.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no slot is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory of the slots in use, in bytes. It takes time in proportion to the number of pages.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.pages.iter().map(|page| page.used * page.slot_bytes).sum()
    }

    /// The memory of the slab, in bytes, used or not.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        let lists: usize = self.roomy.iter().map(|pages| pages.capacity() * size_of::<usize>()).sum();
        let numbers = self.vacant.capacity() * size_of::<usize>();
        self.page_bytes + self.pages.capacity() * size_of::<SlabPage>() + numbers + lists
    }

    /// Whether `slots` more slots can be inserted, whatever their sizes.
    #[must_use]
    pub fn has_room_for(&self, slots: usize) -> bool {
        self.pages.len() + slots < MAX_PAGES
    }

    /// Inserts a slot of at least `bytes` bytes. Returns its id and its content, which is undefined; `None` if all ids
    /// are in use.
    #[inline]
    pub fn insert(&mut self, bytes: usize) -> Option<(SlotId, &mut [u8])> {
        let class = class_of(bytes);
        let number = match self.roomy.get(class).and_then(|pages| pages.last()) {
            Some(number) => *number,
            None => self.add_page(bytes.max(1), class),
        };
        let page = self.pages.get_mut(number)?;
        let slot = usize::from(page.first_free);
        let id = SlotId::new(number, slot)?;
        let start = slot * page.slot_bytes;
        let content = page.bytes.get_mut(start..start + page.slot_bytes)?;
        page.first_free = u16::from_le_bytes(*content.first_chunk()?);
        page.used += 1;
        if page.first_free == NO_SLOT {
            page.roomy_index = None;
            self.roomy[class].pop();
        }
        self.len += 1;
        Some((id, content))
    }

    /// Removes a slot. It must be in use: a slot that is removed twice would be inserted twice. An id that was never in
    /// use is ignored.
    #[inline]
    pub fn remove(&mut self, id: SlotId) {
        let (number, slot) = (id.page(), id.slot());
        let Some(page) = self.pages.get_mut(number).filter(|page| slot < page.slots && page.used > 0) else {
            return;
        };
        let start = slot * page.slot_bytes;
        let Some(content) = page.bytes.get_mut(start..).and_then(|rest| rest.first_chunk_mut()) else {
            return;
        };
        *content = page.first_free.to_le_bytes();
        page.first_free = u16::try_from(slot).unwrap_or(NO_SLOT);
        page.used -= 1;
        self.len -= 1;
        if page.used == 0 || page.roomy_index.is_none() {
            self.make_roomy(number);
        }
    }

    /// Records that a page has room, or frees it if it is empty and not needed.
    fn make_roomy(&mut self, number: usize) {
        let page = &mut self.pages[number];
        let class = class_of(page.slot_bytes);
        let roomy_index = match page.roomy_index {
            Some(roomy_index) => roomy_index,
            None => {
                let roomy_index = self.roomy[class].len();
                page.roomy_index = Some(roomy_index);
                self.roomy[class].push(number);
                roomy_index
            }
        };
        // One page with room stays, so a lock that is acquired and released repeatedly allocates no page. A page of a
        // single slot has the exact size of its record and fits no other.
        if page.used == 0 && (page.slots == 1 || self.roomy[class].len() > 1) {
            self.free_page(number, class, roomy_index);
        }
    }

    /// The bytes of a slot; empty for an id that was never in use.
    #[must_use]
    #[inline]
    pub fn get(&self, id: SlotId) -> &[u8] {
        self.pages.get(id.page()).map_or(&[], |page| {
            let start = id.slot() * page.slot_bytes;
            page.bytes.get(start..start + page.slot_bytes).unwrap_or(&[])
        })
    }

    /// The bytes of a slot, for the caller to write.
    #[inline]
    pub fn get_mut(&mut self, id: SlotId) -> &mut [u8] {
        self.pages.get_mut(id.page()).map_or(&mut [], |page| {
            let start = id.slot() * page.slot_bytes;
            page.bytes.get_mut(start..start + page.slot_bytes).unwrap_or(&mut [])
        })
    }

    #[cold]
    fn add_page(&mut self, bytes: usize, class: usize) -> usize {
        if self.roomy.len() <= class {
            self.roomy.resize_with(class + 1, Vec::new);
        }
        // A slot that is too big to share a page has the exact length of its content.
        let shared = PAGE_BYTES / (class * GRAIN).max(1);
        let (slot_bytes, slots) =
            if shared < 2 { (bytes, 1) } else { (class * GRAIN, shared.min(MAX_SLOTS)) };
        let mut content = vec![0; slot_bytes * slots].into_boxed_slice();
        for slot in 0..slots {
            let next = if slot + 1 < slots { u16::try_from(slot + 1).unwrap_or(NO_SLOT) } else { NO_SLOT };
            content[slot * slot_bytes..slot * slot_bytes + 2].copy_from_slice(&next.to_le_bytes());
        }
        self.page_bytes += content.len();
        let roomy_index = Some(self.roomy[class].len());
        let page = SlabPage { bytes: content, slot_bytes, slots, used: 0, first_free: 0, roomy_index };
        let number = match self.vacant.pop() {
            Some(number) => {
                self.pages[number] = page;
                number
            }
            None => {
                self.pages.push(page);
                self.pages.len() - 1
            }
        };
        self.roomy[class].push(number);
        number
    }

    fn free_page(&mut self, number: usize, class: usize, roomy_index: usize) {
        self.roomy[class].swap_remove(roomy_index);
        if let Some(moved) = self.roomy[class].get(roomy_index) {
            self.pages[*moved].roomy_index = Some(roomy_index);
        }
        let page = &mut self.pages[number];
        self.page_bytes -= page.bytes.len();
        *page = SlabPage {
            bytes: Box::default(),
            slot_bytes: 0,
            slots: 0,
            used: 0,
            first_free: NO_SLOT,
            roomy_index: None,
        };
        self.vacant.push(number);
    }
}

/// The size class of a slot. All slots that are too big to share a page are of one class.
fn class_of(bytes: usize) -> usize {
    bytes.max(2).div_ceil(GRAIN).min(PAGE_BYTES / GRAIN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_slots_cost_what_they_hold() {
        let mut slab = Slab::default();
        for _ in 0..6_400 {
            slab.insert(72).unwrap();
        }
        assert_eq!(slab.used_bytes(), 6_400 * 72);
        assert_eq!(slab.page_bytes, 6_400 * 72);
    }

    #[test]
    fn empty_pages_are_freed() {
        let mut slab = Slab::default();
        let ids: Vec<_> = (0..10_000).map(|_| slab.insert(100).unwrap().0).collect();
        ids.iter().for_each(|id| slab.remove(*id));
        assert!(slab.is_empty());
        assert_eq!(slab.used_bytes(), 0);
        assert!(slab.page_bytes <= 100 * MAX_SLOTS, "one page may stay: {}", slab.page_bytes);
        assert!(slab.allocated_bytes() > slab.page_bytes);
    }

    #[test]
    fn a_big_slot_has_exactly_its_bytes() {
        let mut slab = Slab::default();
        for bytes in [9_000, 20_001, 3_000_000] {
            let (id, _) = slab.insert(bytes).unwrap();
            assert_eq!(slab.get(id).len(), bytes);
        }
    }

    #[test]
    fn unknown_ids_are_harmless() {
        let mut slab = Slab::default();
        let (id, _) = slab.insert(8).unwrap();
        for bits in [0, 2, 65, u32::MAX] {
            let stranger = SlotId::from_bits(bits);
            assert!(slab.get(stranger).is_empty() || bits == 2);
            slab.get_mut(stranger);
        }
        slab.remove(SlotId::from_bits(u32::MAX));
        assert_eq!(slab.len(), 1);
        slab.remove(id);
        assert_eq!(slab.len(), 0);
    }

    proptest! {
        #[test]
        fn slots_never_overlap(steps in proptest::collection::vec((any::<bool>(), 1usize..40_000, any::<u8>()), 1..300)) {
            let mut slab = Slab::default();
            let mut live: Vec<(SlotId, usize, u8)> = Vec::new();
            for (insert, bytes, mark) in steps {
                // Sizes lean towards small ones, as records do.
                let bytes = if mark < 230 { bytes % 300 + 1 } else { bytes };
                if insert || live.is_empty() {
                    let (id, content) = slab.insert(bytes).unwrap();
                    content.fill(mark);
                    live.push((id, bytes, mark));
                } else {
                    let (id, _, _) = live.swap_remove(bytes % live.len());
                    slab.remove(id);
                }
                prop_assert_eq!(slab.len(), live.len());
                for (id, bytes, mark) in &live {
                    prop_assert!(slab.get(*id).len() >= *bytes);
                    prop_assert!(slab.get(*id).iter().all(|byte| byte == mark));
                }
            }
        }
    }
}
