//! The locks of a node, each a record in one slot of bytes, and the order in which they expire.
//!
//! The server's keyspace maps a key to a [`LockId`]; everything else about a lock is here. A record outlives the value
//! in the keyspace: the node adds the record before it sets the key, and removes it after the server has freed the
//! value.

mod long_leases;

use redlock_contract::limits::{MAX_LABEL_BYTES, MAX_OWNER_BYTES};
use std::collections::HashMap;

use long_leases::LongLeases;

use crate::database_swaps::DatabaseSwaps;
use crate::durable::{LocksDigest, SHORT_LEASE_MS};
use crate::image::LockImage;
use crate::slab::{Slab, SlotId};
use crate::time::Millis;
use crate::wheel::{Wheel, WheelLinks, WheelStep};

/// The id of a lock on this node: the value that the keyspace holds under the lock's key.
pub type LockId = SlotId;

/// The number of a database.
pub type Database = u16;

/// The content of a new record.
#[derive(Clone, Copy, Debug)]
pub struct NewLock<'a> {
    /// The database of the key.
    pub database: Database,
    /// The key of the lock.
    pub key: &'a [u8],
    /// The owner, the secret of the client that may change the lock.
    pub owner: &'a [u8],
    /// A text for people; 0 to 256 bytes.
    pub label: &'a [u8],
    /// The fence of the lock; 1 to 2^63 - 1.
    pub fence: u64,
    /// When the node granted it.
    pub granted: Millis,
    /// When it expires.
    pub deadline: Millis,
    /// The time for which it was granted, or what is left of it, in milliseconds.
    pub lease_ms: u64,
    /// The number of extensions.
    pub extensions: u32,
}

/// The offset of each field of a record. Numbers are little-endian. Times have 48 bits, enough for milliseconds over
/// thousands of years.
mod at {
    pub(super) const FENCE: usize = 0;
    pub(super) const BEFORE: usize = 8;
    pub(super) const AFTER: usize = 12;
    pub(super) const DEADLINE: usize = 16;
    pub(super) const GRANTED: usize = 22;
    pub(super) const EXTENSIONS: usize = 28;
    pub(super) const KEY_LEN: usize = 32;
    pub(super) const DATABASE: usize = 34;
    pub(super) const OWNER_LEN: usize = 36;
    pub(super) const LABEL_LEN: usize = 37;
    pub(super) const FLAGS: usize = 38;
    /// Owner, label and key follow each other.
    pub(super) const BODY: usize = 39;
}

impl NewLock<'_> {
    /// The record without its body.
    #[inline]
    fn header(&self, database: Database, (before, after): (u32, u32)) -> [u8; at::BODY] {
        let mut header = [0; at::BODY];
        let mut set = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        let label_bit = if self.label.len() == MAX_LABEL_BYTES { LONGEST_LABEL } else { 0 };
        set(at::FENCE, &self.fence.to_le_bytes());
        set(at::BEFORE, &before.to_le_bytes());
        set(at::AFTER, &after.to_le_bytes());
        set(at::DEADLINE, &time_bytes(self.deadline));
        set(at::GRANTED, &time_bytes(self.granted));
        set(at::EXTENSIONS, &self.extensions.to_le_bytes());
        set(at::KEY_LEN, &u16::try_from(self.key.len()).unwrap_or(u16::MAX).to_le_bytes());
        set(at::DATABASE, &database.to_le_bytes());
        set(at::OWNER_LEN, &[u8::try_from(self.owner.len().saturating_sub(1)).unwrap_or(u8::MAX)]);
        set(at::LABEL_LEN, &[u8::try_from(self.label.len()).unwrap_or(0)]);
        set(at::FLAGS, &[label_bit | LongLeases::class_of(self.lease_ms) << CLASS_SHIFT]);
        header
    }
}

fn time_bytes(time: Millis) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = time.0.min(LATEST).to_le_bytes();
    [a, b, c, d, e, f]
}

/// The length of an owner of 16 random bytes, as clients of this project send.
const USUAL_OWNER: usize = 16;
/// The same length in a record, which stores the length less one.
const USUAL_OWNER_LEN: u8 = 15;
/// A flag: the label has 256 bytes, one more than its length byte can hold.
const LONGEST_LABEL: u8 = 0b0100;

/// The lengths fit into a byte each: an owner has at least one byte, and the longest label has a flag of its own.
const _: () = assert!(MAX_OWNER_BYTES == 256 && MAX_LABEL_BYTES == 256);
/// A flag: the lock is under another key than the one in the record.
const MOVED: u8 = 0b1000;
/// A flag: the lock has expired and is not under its key, so the caller searches for it.
const MISSING: u8 = 0b0001;
/// The upper half of the flags is the class of the lock's longest lease.
const CLASS_SHIFT: u8 = 4;
/// A key of this length or more fills its slot to the end.
const LONG_KEY: usize = u16::MAX as usize;
/// The largest time of 48 bits.
const LATEST: u64 = (1 << 48) - 1;

/// The locks of a node.
#[derive(Debug, Default)]
pub struct LockTable {
    slots: Slots,
    wheel: Wheel,
    /// The locations of locks that were renamed or moved after their grant. They are few, so records have no space for
    /// them.
    moved: HashMap<LockId, (Database, Box<[u8]>)>,
    /// Missing locks that were removed.
    no_longer_missing: Vec<LockId>,
    /// Swapped databases. Records name a database by its number before any swap.
    swaps: DatabaseSwaps,
    long_leases: LongLeases,
}

/// The slab, read and written as records.
#[derive(Debug, Default)]
struct Slots(Slab);

/// A record in its slot.
#[derive(Clone, Copy)]
struct LockRecord<'a> {
    header: &'a [u8; at::BODY],
    body: &'a [u8],
}

impl<'a> LockRecord<'a> {
    fn number<const N: usize>(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&self.header[at..at + N]);
        u64::from_le_bytes(bytes)
    }

    fn time(&self, at: usize) -> Millis {
        Millis(self.number::<6>(at))
    }

    fn flags(&self) -> u8 {
        self.header[at::FLAGS]
    }

    fn lease_class(&self) -> u8 {
        self.flags() >> CLASS_SHIFT
    }

    /// The lengths of the owner and of the label.
    fn lengths(&self) -> (usize, usize) {
        let owner = usize::from(self.header[at::OWNER_LEN]) + 1;
        let is_longest = self.flags() & LONGEST_LABEL != 0;
        let label = if is_longest { MAX_LABEL_BYTES } else { usize::from(self.header[at::LABEL_LEN]) };
        (owner, label)
    }

    fn part(&self, from: usize, len: usize) -> &'a [u8] {
        self.body.get(from..from + len).unwrap_or(&[])
    }

    #[inline]
    fn is_owned_by(&self, owner: &[u8]) -> bool {
        // The compiler knows the length of the usual owner: two comparisons, no call.
        match <&[u8; USUAL_OWNER]>::try_from(owner) {
            Ok(usual) => {
                self.header[at::OWNER_LEN] == USUAL_OWNER_LEN && self.body.first_chunk() == Some(usual)
            }
            Err(_) => self.owner() == owner,
        }
    }

    /// The links of the wheel.
    fn links(&self) -> (u32, u32) {
        let link = |at| u32::try_from(self.number::<4>(at)).unwrap_or(0);
        (link(at::BEFORE), link(at::AFTER))
    }

    fn owner(&self) -> &'a [u8] {
        let (owner, _) = self.lengths();
        self.part(0, owner)
    }

    fn label(&self) -> &'a [u8] {
        let (owner, label) = self.lengths();
        self.part(owner, label)
    }

    fn key(&self) -> &'a [u8] {
        let (owner, label) = self.lengths();
        match usize::from(u16::from_le_bytes([self.header[at::KEY_LEN], self.header[at::KEY_LEN + 1]])) {
            LONG_KEY => self.body.get(owner + label..).unwrap_or(&[]),
            len => self.part(owner + label, len),
        }
    }

    fn database(&self) -> Database {
        u16::from_le_bytes([self.header[at::DATABASE], self.header[at::DATABASE + 1]])
    }
}

impl Slots {
    /// The record with this id; a record of zeros if it does not exist.
    #[inline]
    fn record(&self, id: LockId) -> LockRecord<'_> {
        let (header, body) = self.0.get(id).split_first_chunk().unwrap_or((&[0; at::BODY], &[]));
        LockRecord { header, body }
    }

    fn set<const N: usize>(&mut self, id: LockId, at: usize, bytes: [u8; N]) {
        if let Some(header) = self.0.get_mut(id).first_chunk_mut::<{ at::BODY }>() {
            header[at..at + N].copy_from_slice(&bytes);
        }
    }
}

impl WheelLinks for Slots {
    fn deadline(&self, entry: u32) -> Millis {
        self.record(LockId::from_bits(entry)).time(at::DEADLINE)
    }

    fn links(&self, entry: u32) -> (u32, u32) {
        self.record(LockId::from_bits(entry)).links()
    }

    fn set_links(&mut self, entry: u32, before: u32, after: u32) {
        let both = u64::from(before) | u64::from(after) << 32;
        self.set(LockId::from_bits(entry), at::BEFORE, both.to_le_bytes());
    }
}

impl LockTable {
    /// The number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.0.len()
    }

    /// Whether there is no record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.0.is_empty()
    }

    /// The memory of all records, in bytes; 0 without records.
    #[must_use]
    pub fn used_bytes(&self) -> usize {
        self.slots.0.used_bytes()
    }

    /// The memory that the table has allocated, in bytes: records, and space for more.
    #[must_use]
    pub fn allocated_bytes(&self) -> usize {
        self.slots.0.allocated_bytes()
    }

    /// The memory of one record, in bytes.
    #[must_use]
    pub fn bytes_of(&self, id: LockId) -> usize {
        self.slots.0.get(id).len()
    }

    /// Whether `records` more records can be added for certain.
    #[must_use]
    pub fn has_room_for(&self, records: usize) -> bool {
        self.slots.0.has_room_for(records)
    }

    /// Adds a record; `None` if the table is full.
    pub fn insert(&mut self, lock: &NewLock<'_>) -> Option<LockId> {
        let database = self.swaps.before(lock.database);
        let bytes = at::BODY + lock.owner.len() + lock.label.len() + lock.key.len();
        let links = self.wheel.links_at(lock.deadline);
        let (id, content) = self.slots.0.insert(bytes)?;
        let (header, body) = content.split_first_chunk_mut()?;
        *header = lock.header(database, links);
        let (owner_part, rest) = body.split_at_mut_checked(lock.owner.len())?;
        match (lock.owner.try_into(), owner_part.first_chunk_mut::<USUAL_OWNER>()) {
            (Ok(usual), Some(part)) => *part = usual,
            _ => owner_part.copy_from_slice(lock.owner),
        }
        let (label_part, rest) = rest.split_at_mut_checked(lock.label.len())?;
        if !lock.label.is_empty() {
            label_part.copy_from_slice(lock.label);
        }
        rest.get_mut(..lock.key.len())?.copy_from_slice(lock.key);
        self.wheel.link(&mut self.slots, id.to_bits(), links);
        self.long_leases.add(LongLeases::class_of(lock.lease_ms), lock.deadline);
        Some(id)
    }

    /// Removes a record.
    pub fn remove(&mut self, id: LockId) {
        let record = self.slots.record(id);
        let (links, flags) = (record.links(), record.flags());
        if flags & (MOVED | MISSING) != 0 {
            self.moved.remove(&id);
            self.no_longer_missing.extend((flags & MISSING != 0).then_some(id));
        }
        self.long_leases.remove(flags >> CLASS_SHIFT);
        self.wheel.unlink(&mut self.slots, links);
        self.slots.0.remove(id);
    }

    /// Whether `owner` is the owner of the lock.
    #[must_use]
    #[inline]
    pub fn is_owned_by(&self, id: LockId, owner: &[u8]) -> bool {
        self.slots.record(id).is_owned_by(owner)
    }

    /// The lock's fence.
    #[must_use]
    pub fn fence(&self, id: LockId) -> u64 {
        self.slots.record(id).number::<8>(at::FENCE)
    }

    /// Sets the lock's fence.
    pub fn set_fence(&mut self, id: LockId, fence: u64) {
        self.slots.set(id, at::FENCE, fence.to_le_bytes());
    }

    /// When the lock expires.
    #[must_use]
    #[inline]
    pub fn deadline(&self, id: LockId) -> Millis {
        self.slots.record(id).time(at::DEADLINE)
    }

    /// Moves the deadline out, never in: a lock ends no earlier than promised. Returns the deadline in force. The wheel
    /// notices the change when it reaches the old deadline.
    pub fn extend(&mut self, id: LockId, lease_ms: u64, deadline: Millis) -> Millis {
        let record = self.slots.record(id);
        let (deadline, class) = (deadline.max(record.time(at::DEADLINE)), record.lease_class());
        self.slots.set(id, at::DEADLINE, time_bytes(deadline));
        if class > 0 || lease_ms > SHORT_LEASE_MS {
            self.note_long_lease(id, class, lease_ms, deadline);
        }
        deadline
    }

    #[cold]
    fn note_long_lease(&mut self, id: LockId, before: u8, lease_ms: u64, deadline: Millis) {
        let class = before.max(LongLeases::class_of(lease_ms));
        if class == before {
            return self.long_leases.note(class, deadline);
        }
        self.long_leases.remove(before);
        self.long_leases.add(class, deadline);
        let flags = self.slots.record(id).flags() & !(u8::MAX << CLASS_SHIFT);
        self.slots.set(id, at::FLAGS, [flags | class << CLASS_SHIFT]);
    }

    /// When the last lock with a long lease expires, or somewhat later; `None` if no lease is longer than
    /// [`SHORT_LEASE_MS`].
    #[must_use]
    pub fn last_long_deadline(&self) -> Option<Millis> {
        self.long_leases.last_deadline()
    }

    /// When the node granted the lock.
    #[must_use]
    pub fn granted(&self, id: LockId) -> Millis {
        self.slots.record(id).time(at::GRANTED)
    }

    /// Sets the time of the grant.
    pub fn set_granted(&mut self, id: LockId, granted: Millis) {
        self.slots.set(id, at::GRANTED, time_bytes(granted));
    }

    /// The number of extensions.
    #[must_use]
    pub fn extensions(&self, id: LockId) -> u32 {
        u32::try_from(self.slots.record(id).number::<4>(at::EXTENSIONS)).unwrap_or(0)
    }

    /// Sets the number of extensions.
    pub fn set_extensions(&mut self, id: LockId, extensions: u32) {
        self.slots.set(id, at::EXTENSIONS, extensions.to_le_bytes());
    }

    /// The lock's owner, a secret.
    #[must_use]
    pub fn owner(&self, id: LockId) -> &[u8] {
        self.slots.record(id).owner()
    }

    /// The lock's label; empty if it has none.
    #[must_use]
    pub fn label(&self, id: LockId) -> &[u8] {
        self.slots.record(id).label()
    }

    /// The database and the key of the lock. The table does not know of a rename before [`found_at`](Self::found_at).
    #[must_use]
    pub fn location(&self, id: LockId) -> (Database, &[u8]) {
        let record = self.slots.record(id);
        if record.flags() & MOVED != 0
            && let Some((database, key)) = self.moved.get(&id)
        {
            return (self.swaps.now(*database), key);
        }
        (self.swaps.now(record.database()), record.key())
    }

    /// Whether the lock is under this key, in any database, as far as the table knows.
    #[must_use]
    #[inline]
    pub fn is_at(&self, id: LockId, key: &[u8]) -> bool {
        let record = self.slots.record(id);
        if record.flags() & MOVED == 0 { record.key() == key } else { self.location(id).1 == key }
    }

    /// Records that a lock is under another key than the one it was granted for, and puts it back into the wheel.
    pub fn found_at(&mut self, id: LockId, database: Database, key: &[u8]) {
        self.wheel.remove(&mut self.slots, id.to_bits());
        self.wheel.insert(&mut self.slots, id.to_bits());
        let flags = self.slots.record(id).flags();
        self.slots.set(id, at::FLAGS, [(flags | MOVED) & !MISSING]);
        self.moved.insert(id, (self.swaps.before(database), key.into()));
    }

    /// Records that the caller searches for an expired lock that is not under its key.
    pub fn set_missing(&mut self, id: LockId) {
        let flags = self.slots.record(id).flags();
        self.slots.set(id, at::FLAGS, [flags | MISSING]);
    }

    /// The missing locks that were removed since the last call: the caller need not search for them.
    pub fn take_no_longer_missing(&mut self) -> Vec<LockId> {
        std::mem::take(&mut self.no_longer_missing)
    }

    /// Records that two databases were swapped.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        self.swaps.swap(one, other);
    }

    /// The saved form of a lock.
    #[must_use]
    pub fn image(&self, id: LockId, now: Millis) -> LockImage {
        let record = self.slots.record(id);
        LockImage {
            owner: record.owner().to_vec(),
            label: record.label().to_vec(),
            fence: self.fence(id),
            left_ms: now.left_until(self.deadline(id)),
            held_ms: now.since(self.granted(id)),
            extensions: self.extensions(id),
        }
    }

    /// When the last lock of a database, or of all databases for `None`, expires.
    #[must_use]
    pub fn last_deadline(&self, database: Option<Database>) -> Option<Millis> {
        let mut last = None;
        self.wheel.for_each(&self.slots, |entry| {
            let id = LockId::from_bits(entry);
            if database.is_none_or(|database| self.location(id).0 == database) {
                last = last.max(Some(self.deadline(id)));
            }
        });
        last
    }

    /// The number and digest of all locks.
    #[must_use]
    pub fn digest(&self) -> LocksDigest {
        let mut digest = LocksDigest::default();
        self.wheel.for_each(&self.slots, |entry| {
            let id = LockId::from_bits(entry);
            let record = self.slots.record(id);
            let (database, key) = self.location(id);
            let span_ms = self.deadline(id).since(self.granted(id));
            digest.add(database, key, record.owner(), self.fence(id), span_ms);
        });
        digest
    }

    /// Does one step of the wheel towards `now`; see [`Wheel::step`].
    pub fn step(&mut self, now: Millis) -> WheelStep {
        self.wheel.step(&mut self.slots, now)
    }

    /// A time before which no lock expires; `None` if there is no lock.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.wheel.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock<'a>(key: &'a [u8], owner: &'a [u8], label: &'a [u8]) -> NewLock<'a> {
        NewLock {
            database: 3,
            key,
            owner,
            label,
            fence: 7,
            granted: Millis(100),
            deadline: Millis(201),
            lease_ms: 100,
            extensions: 2,
        }
    }

    #[test]
    fn a_record_returns_what_was_stored() {
        let long_key = vec![b'k'; 70_000];
        let long_text = vec![0xff; 256];
        for key in [&b""[..], b"job", &[0; 65_534], &[1; 65_535], &[2; 65_536], &long_key] {
            for owner in [&b"a"[..], b"0123456789abcdef", b"0f8fad5b-d9cb-469f-a165-70867728950e", &long_text]
            {
                for label in [&b""[..], b"host 7", &[b'l'; 255], &long_text] {
                    let mut table = LockTable::default();
                    let id = table.insert(&lock(key, owner, label)).unwrap();
                    assert_eq!(table.location(id), (3, key));
                    assert_eq!(table.label(id), label);
                    assert!(table.is_owned_by(id, owner));
                    assert!(!table.is_owned_by(id, b"b"));
                    let image = table.image(id, Millis(150));
                    assert_eq!((image.owner, image.label), (owner.to_vec(), label.to_vec()));
                    assert_eq!((image.fence, image.left_ms, image.held_ms, image.extensions), (7, 50, 50, 2));
                    table.remove(id);
                    assert!(table.is_empty());
                    assert_eq!(table.next_deadline(), None);
                }
            }
        }
    }

    #[test]
    fn a_usual_lock_fits_in_72_bytes() {
        let mut table = LockTable::default();
        let mut size = |owner| {
            let id = table.insert(&lock(b"lock:000000000001", owner, b"")).unwrap();
            table.bytes_of(id)
        };
        assert_eq!(size(b"0123456789abcdef"), 72);
        assert_eq!(size(b"0f8fad5bd9cb469fa16570867728950e"), 88);
    }

    #[test]
    fn a_deadline_only_moves_out() {
        let mut table = LockTable::default();
        let id = table.insert(&lock(b"job", b"a", b"")).unwrap();
        assert_eq!(table.extend(id, 50, Millis(150)), Millis(201));
        assert_eq!(table.extend(id, 800, Millis(900)), Millis(900));
        let mut steps = 0;
        let due_at = loop {
            steps += 1;
            match table.step(Millis(899)) {
                WheelStep::Moved => {}
                WheelStep::Later(at) => break at,
                other => panic!("{other:?} after {steps} steps"),
            }
        };
        assert!(due_at <= Millis(900) && steps < 10);
        while table.step(Millis(900)) != WheelStep::Expired(id.to_bits()) {
            steps += 1;
            assert!(steps < 20);
        }
    }

    #[test]
    fn the_last_long_deadline_is_forgotten_with_its_lock() {
        let (mut table, owner) = (LockTable::default(), b"a".as_slice());
        let grant = |table: &mut LockTable, lease_ms: u64| {
            let deadline = Millis(100 + lease_ms);
            table.insert(&NewLock { lease_ms, deadline, ..lock(b"job", owner, b"") }).unwrap()
        };
        grant(&mut table, SHORT_LEASE_MS);
        assert_eq!(table.last_long_deadline(), None, "usual leases are not counted");
        let (hour, day) = (3_600_000, 24 * 3_600_000);
        let long = grant(&mut table, day);
        let middle = grant(&mut table, hour);
        assert_eq!(table.last_long_deadline(), Some(Millis(100 + day)));
        table.remove(long);
        assert_eq!(table.last_long_deadline(), Some(Millis(100 + hour)));
        // An extension can make a lease long, and moves the deadline of a long one.
        table.extend(middle, 1_000, Millis(200 + hour));
        assert_eq!(table.last_long_deadline(), Some(Millis(200 + hour)));
        table.extend(middle, day, Millis(300 + day));
        assert_eq!(table.last_long_deadline(), Some(Millis(300 + day)));
        assert!(table.is_owned_by(middle, owner));
        table.remove(middle);
        assert_eq!(table.last_long_deadline(), None);
        for lease_ms in [SHORT_LEASE_MS + 1, u64::MAX / 2] {
            let lock = grant(&mut table, lease_ms);
            assert!(table.last_long_deadline().is_some(), "{lease_ms}");
            table.remove(lock);
            assert_eq!(table.last_long_deadline(), None, "{lease_ms}");
        }
    }

    #[test]
    fn a_lock_is_found_again_after_a_move_and_a_swap() {
        let mut table = LockTable::default();
        let stays = table.insert(&lock(b"job", b"a", b"")).unwrap();
        let moves = table.insert(&lock(b"tmp", b"a", b"")).unwrap();
        table.found_at(moves, 5, b"renamed");
        assert_eq!(table.location(moves), (5, &b"renamed"[..]));
        table.databases_swapped(3, 5);
        assert_eq!(table.location(stays), (5, &b"job"[..]));
        assert_eq!(table.location(moves), (3, &b"renamed"[..]));
        let fresh = table.insert(&lock(b"new", b"a", b"")).unwrap();
        assert_eq!(table.location(fresh), (3, &b"new"[..]), "granted in database 3 after the swap");
        table.databases_swapped(5, 8);
        assert_eq!(table.location(stays).0, 8);
        table.databases_swapped(8, 5);
        table.databases_swapped(5, 3);
        assert_eq!((table.location(stays).0, table.location(moves).0, table.location(fresh).0), (3, 5, 5));
    }
}
