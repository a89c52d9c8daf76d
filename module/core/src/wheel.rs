//! A hierarchical timing wheel: finds the lock that expires next in constant time.
//!
//! The wheel has six levels of 64 slots; a slot of level `n` spans `64^n` milliseconds. An entry is at the level where
//! its deadline first differs from the wheel's time, and moves down when the wheel reaches its slot. The lists are
//! linked through the entries themselves, so an entry costs the wheel no memory.
//!
//! One step moves or expires one entry: the caller decides how much work it can afford at a time.

use crate::time::Millis;

const LEVELS: usize = 6;
const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;

/// The furthest deadline that the wheel can hold, in milliseconds from its time: all slots of the top level but the
/// present one. An entry with a later deadline stays in the last slot and is inserted again when the wheel reaches it.
pub const HORIZON_MS: u64 = (SLOTS as u64 - 1) << (SLOT_BITS as u64 * (LEVELS as u64 - 1));

/// No entry.
pub const NONE: u32 = 0;

/// Marks a link to a slot. The link before an entry names another entry, or the slot that begins with it.
const SLOT_FLAG: u32 = 1 << 31;

/// The memory of the entries, in which the wheel keeps its links. An entry is a number from 1 to 2^31 - 1.
pub trait WheelLinks {
    /// When the entry expires.
    fn deadline(&self, entry: u32) -> Millis;
    /// The links of an entry: the one before it and the one after it.
    fn links(&self, entry: u32) -> (u32, u32);
    /// Sets both links of an entry.
    fn set_links(&mut self, entry: u32, before: u32, after: u32);
}

/// The result of one step of the wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WheelStep {
    /// This entry has expired; the wheel has removed it.
    Expired(u32),
    /// The wheel has moved an entry: the caller calls it again.
    Moved,
    /// There is nothing to do before this time.
    Later(Millis),
    /// The wheel is empty.
    Idle,
}

/// The timing wheel.
#[derive(Debug)]
pub struct Wheel {
    /// The wheel's time: every entry with an earlier deadline has expired.
    elapsed: u64,
    heads: [[u32; SLOTS]; LEVELS],
    /// One bit for each slot that has entries.
    occupied: [u64; LEVELS],
}

impl Default for Wheel {
    fn default() -> Self {
        Self { elapsed: 0, heads: [[NONE; SLOTS]; LEVELS], occupied: [0; LEVELS] }
    }
}

impl Wheel {
    /// Inserts an entry by its deadline.
    pub fn insert(&mut self, links: &mut impl WheelLinks, entry: u32) {
        let (before, after) = self.links_at(links.deadline(entry));
        links.set_links(entry, before, after);
        self.link(links, entry, (before, after));
    }

    /// The links of a new entry with this deadline. A caller that is about to write the memory of the entry writes them
    /// too, and then calls [`link`](Self::link).
    #[inline]
    #[must_use]
    pub fn links_at(&self, deadline: Millis) -> (u32, u32) {
        let deadline = deadline.0.clamp(self.elapsed + 1, self.elapsed + HORIZON_MS);
        let level = level_of(self.elapsed, deadline);
        let slot = slot_of(level, deadline);
        (slot_name(level, slot), self.heads[level][slot])
    }

    /// Inserts an entry whose memory has the links of [`links_at`](Self::links_at).
    #[inline]
    pub fn link(&mut self, links: &mut impl WheelLinks, entry: u32, (before, head): (u32, u32)) {
        let (level, slot) = slot_named(before);
        self.heads[level][slot] = entry;
        self.occupied[level] |= 1 << slot;
        if head != NONE {
            let (_, after) = links.links(head);
            links.set_links(head, entry, after);
        }
    }

    /// Removes an entry. An entry that is not in the wheel stays as it is.
    pub fn remove(&mut self, links: &mut impl WheelLinks, entry: u32) {
        let (before, after) = links.links(entry);
        self.unlink(links, (before, after));
        links.set_links(entry, NONE, NONE);
    }

    /// Removes an entry that has these links, and leaves the links as they are: for an entry whose memory the caller is
    /// about to free.
    #[inline]
    pub fn unlink(&mut self, links: &mut impl WheelLinks, (before, after): (u32, u32)) {
        if before == NONE {
            return;
        }
        if before & SLOT_FLAG == 0 {
            let (outer, _) = links.links(before);
            links.set_links(before, outer, after);
        } else {
            let (level, slot) = slot_named(before);
            self.heads[level][slot] = after;
            if after == NONE {
                self.occupied[level] &= !(1 << slot);
            }
        }
        if after != NONE {
            let (_, outer) = links.links(after);
            links.set_links(after, before, outer);
        }
    }

    /// Does one step towards `now`: expires or moves one entry.
    pub fn step(&mut self, links: &mut impl WheelLinks, now: Millis) -> WheelStep {
        let Some((level, slot, start)) = self.next_slot() else {
            self.elapsed = self.elapsed.max(now.0);
            return WheelStep::Idle;
        };
        if start > now.0 {
            self.elapsed = self.elapsed.max(now.0);
            return WheelStep::Later(Millis(start));
        }
        self.elapsed = self.elapsed.max(start);
        let entry = self.heads[level][slot];
        self.remove(links, entry);
        // An entry whose deadline has moved since its insertion is inserted again.
        if links.deadline(entry).0 <= self.elapsed {
            return WheelStep::Expired(entry);
        }
        self.insert(links, entry);
        WheelStep::Moved
    }

    /// Visits every entry, in no particular order.
    pub fn for_each(&self, links: &impl WheelLinks, mut visit: impl FnMut(u32)) {
        for head in self.heads.iter().flatten() {
            let mut entry = *head;
            while entry != NONE {
                visit(entry);
                (_, entry) = links.links(entry);
            }
        }
    }

    /// The time of the first slot that has entries: no entry expires before it.
    #[must_use]
    pub fn next(&self) -> Option<Millis> {
        self.next_slot().map(|(_, _, start)| Millis(start))
    }

    /// The first occupied slot: its level, its number, and when it begins.
    fn next_slot(&self) -> Option<(usize, usize, u64)> {
        // A slot of a higher level that is being emptied begins in the past, so it comes before any slot of a lower
        // level to which its entries moved.
        (0..LEVELS).filter_map(|level| self.first_of(level)).min_by_key(|(_, _, start)| *start)
    }

    fn first_of(&self, level: usize) -> Option<(usize, usize, u64)> {
        let occupied = self.occupied[level];
        if occupied == 0 {
            return None;
        }
        let here = slot_of(level, self.elapsed);
        let ahead = occupied.rotate_right(u32::try_from(here).unwrap_or(0)).trailing_zeros() as usize;
        let slot = (here + ahead) % SLOTS;
        let span = 1_u64 << (SLOT_BITS as usize * level);
        let rotation = span << SLOT_BITS;
        let start = (self.elapsed & !(rotation - 1)) + slot as u64 * span;
        // Only the top level can wrap around: its last slot is past the end of its own rotation.
        Some((level, slot, if slot < here { start + rotation } else { start }))
    }
}

fn level_of(elapsed: u64, deadline: u64) -> usize {
    let differing = (elapsed ^ deadline) | 1;
    ((differing.ilog2() / SLOT_BITS) as usize).min(LEVELS - 1)
}

fn slot_of(level: usize, time: u64) -> usize {
    usize::try_from((time >> (SLOT_BITS as usize * level)) % SLOTS as u64).unwrap_or(0)
}

fn slot_name(level: usize, slot: usize) -> u32 {
    SLOT_FLAG | u32::try_from(level * SLOTS + slot).unwrap_or(0)
}

fn slot_named(name: u32) -> (usize, usize) {
    let number = (name & !SLOT_FLAG) as usize;
    ((number / SLOTS).min(LEVELS - 1), number % SLOTS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Default)]
    struct WheelEntries(BTreeMap<u32, (u64, u32, u32)>);

    impl WheelLinks for WheelEntries {
        fn deadline(&self, entry: u32) -> Millis {
            Millis(self.0[&entry].0)
        }
        fn links(&self, entry: u32) -> (u32, u32) {
            (self.0[&entry].1, self.0[&entry].2)
        }
        fn set_links(&mut self, entry: u32, before: u32, after: u32) {
            let kept = self.0.get_mut(&entry).unwrap();
            (kept.1, kept.2) = (before, after);
        }
    }

    fn drain(wheel: &mut Wheel, entries: &mut WheelEntries, now: u64) -> Vec<u32> {
        let mut due = Vec::new();
        for _ in 0..1_000_000 {
            match wheel.step(entries, Millis(now)) {
                WheelStep::Expired(entry) => due.push(entry),
                WheelStep::Moved => {}
                WheelStep::Later(at) => {
                    assert!(at.0 > now);
                    break;
                }
                WheelStep::Idle => break,
            }
        }
        due.sort_unstable();
        due
    }

    #[test]
    fn entries_expire_at_their_deadlines_and_not_before() {
        let mut wheel = Wheel::default();
        let mut entries = WheelEntries::default();
        for (entry, due) in [(1, 1), (2, 64), (3, 65), (4, 5_000), (5, 86_400_000), (6, 400_000_000_000)] {
            entries.0.insert(entry, (due, 0, 0));
            wheel.insert(&mut entries, entry);
        }
        assert_eq!(drain(&mut wheel, &mut entries, 0), []);
        assert_eq!(drain(&mut wheel, &mut entries, 63), [1]);
        assert_eq!(drain(&mut wheel, &mut entries, 64), [2]);
        assert_eq!(drain(&mut wheel, &mut entries, 4_999), [3]);
        assert_eq!(drain(&mut wheel, &mut entries, 5_000), [4]);
        assert_eq!(drain(&mut wheel, &mut entries, 86_400_000), [5]);
        assert_eq!(drain(&mut wheel, &mut entries, 399_999_999_999), [], "beyond the horizon");
        assert_eq!(drain(&mut wheel, &mut entries, 400_000_000_000), [6]);
        assert_eq!(wheel.next(), None);
    }

    proptest! {
        /// A sorted list is simple enough to be right.
        #[test]
        fn the_wheel_agrees_with_a_sorted_list(
            steps in proptest::collection::vec((0u8..4, 0u32..200, 0u32..26), 1..400)
        ) {
            let mut wheel = Wheel::default();
            let mut entries = WheelEntries::default();
            let mut model: BTreeMap<u32, u64> = BTreeMap::new();
            let mut now = 0;
            let mut next_name = 1;
            for (what, amount, scale) in steps {
                let span = u64::from(amount) << scale;
                match what {
                    0 | 1 => {
                        entries.0.insert(next_name, (now + 1 + span, 0, 0));
                        wheel.insert(&mut entries, next_name);
                        model.insert(next_name, now + 1 + span);
                        next_name += 1;
                    }
                    2 => {
                        let Some((name, due)) = model.iter().nth(amount as usize % model.len().max(1)).map(|(n, d)| (*n, *d)) else { continue };
                        if scale % 2 == 0 {
                            wheel.remove(&mut entries, name);
                            wheel.remove(&mut entries, name);
                            model.remove(&name);
                        } else {
                            // A deadline moves out without a call of the wheel.
                            entries.0.get_mut(&name).unwrap().0 = due + span;
                            model.insert(name, due + span);
                        }
                    }
                    _ => {
                        now += span;
                        let over: Vec<u32> = model.iter().filter(|(_, due)| **due <= now).map(|(n, _)| *n).collect();
                        prop_assert_eq!(drain(&mut wheel, &mut entries, now), over.clone());
                        over.iter().for_each(|name| { model.remove(name); });
                    }
                }
                let mut all = Vec::new();
                wheel.for_each(&entries, |entry| all.push(entry));
                all.sort_unstable();
                prop_assert!(all.iter().eq(model.keys()));
                if let Some(next) = wheel.next() {
                    let first = model.values().min().copied();
                    prop_assert!(first.is_some_and(|first| next.0 <= first), "{next:?} against {first:?}");
                } else {
                    prop_assert!(model.is_empty());
                }
            }
        }
    }
}
