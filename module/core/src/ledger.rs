//! What a node must not forget, whatever happens to its memory and to the server's own files.
//!
//! Two numbers decide whether a restart is harmless. No fence may be given out twice: so a mark above
//! every fence is stored before any fence passes it, and a node that starts begins at the mark. No lock
//! may be granted again that is still held: so the longest time to live is stored before a longer one is
//! granted, and a node that may have forgotten locks waits that long.
//!
//! The mark moves in large steps and the time rarely, so that a grant hardly ever waits for a disk.
//!
//! The ledger is text, for people who have to look at it in trouble; a digest covers every byte.

use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::fence::MAX_FENCE;

/// How far the mark is put ahead of the fence that reached it.
pub const MARK_STEP: u64 = 1 << 20;

/// How far a copy that becomes a master jumps ahead of the mark it knows: further than the old master can
/// have come in what had not yet arrived.
const PROMOTION_LEAP: u64 = 1 << 40;

/// The first line of a ledger, and its version.
const TITLE: &str = "redlock-ledger";
const VERSION: u32 = 1;

/// How long a node's identity is.
pub const ID_DIGITS: usize = 40;

/// What a node must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ledger {
    /// Which node this is: 40 hexadecimal digits.
    pub node_id: String,
    /// Not below any fence that was ever given out.
    pub mark: u64,
    /// Not below any time to live that was ever granted.
    pub longest_ttl_ms: u64,
    /// The locks as they were when the server was shut down in order; none while it runs.
    pub seal: Option<Seal>,
    /// Every grant is in the AOF, safe from a power cut, before it is answered: then a crash forgets none.
    pub grants_are_stored: bool,
}

/// All locks of a node in brief: two tables with the same seal are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seal {
    /// How many locks there are.
    pub locks: u64,
    /// A digest of all of them, in any order.
    pub digest: u64,
}

impl Seal {
    /// Takes a lock in. `span_ms` is the time from its grant to its deadline: it changes whenever the lock is
    /// prolonged, and with nothing else.
    pub fn add(&mut self, database: u16, key: &[u8], owner: &[u8], fence: u64, span_ms: u64) {
        let mut bytes = Vec::with_capacity(key.len() + owner.len() + 26);
        bytes.extend_from_slice(&database.to_le_bytes());
        bytes.extend_from_slice(&fence.to_le_bytes());
        bytes.extend_from_slice(&span_ms.to_le_bytes());
        bytes.extend_from_slice(&(key.len() as u64).to_le_bytes());
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(owner);
        self.locks += 1;
        self.digest = self.digest.wrapping_add(xxh3_64(&bytes));
    }
}

/// Why bytes are not a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A later version wrote it.
    Version(u32),
    /// It is cut off, changed, or something else altogether.
    Damaged,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => {
                write!(f, "a later version wrote it (format {version}, this one reads {VERSION})")
            }
            Self::Damaged => f.write_str("it is damaged or cut off"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl Ledger {
    /// The ledger of a node that has just come into being.
    #[must_use]
    pub fn new(node_id: String) -> Self {
        Self { node_id, mark: 0, longest_ttl_ms: 0, seal: None, grants_are_stored: false }
    }

    /// The ledger that must be stored before this fence and this time to live are granted; `None` if
    /// the present one covers them.
    #[must_use]
    pub fn covering(&self, fence: u64, ttl_ms: u64) -> Option<Self> {
        if self.covers(fence, ttl_ms) {
            return None;
        }
        Some(self.moved_on(self.is_near(fence).then_some(fence), ttl_ms))
    }

    /// Whether this fence and this time to live may be granted with this ledger.
    #[must_use]
    #[inline]
    pub fn covers(&self, fence: u64, ttl_ms: u64) -> bool {
        !self.is_near(fence) && ttl_ms <= self.longest_ttl_ms
    }

    /// Half a step early, so that copies have the mark long before it is reached.
    #[inline]
    fn is_near(&self, fence: u64) -> bool {
        fence > self.mark.saturating_sub(MARK_STEP / 2) && self.mark < MAX_FENCE
    }

    /// The ledger with a mark ahead of `fence`, if there is one, and with this time to live.
    #[cold]
    fn moved_on(&self, fence: Option<u64>, ttl_ms: u64) -> Self {
        let mut next = self.clone();
        if let Some(fence) = fence {
            next.mark = fence.saturating_add(MARK_STEP).min(MAX_FENCE);
        }
        if ttl_ms > self.longest_ttl_ms {
            next.longest_ttl_ms = rounded_up(ttl_ms);
        }
        next
    }

    /// The ledger of a node that begins a new life: numbers start above the old mark, and none of the old
    /// seal holds any longer. Tells the number to start above, too.
    #[must_use]
    pub fn reborn(&self) -> (Self, u64) {
        let mark = self.mark.saturating_add(MARK_STEP).min(MAX_FENCE);
        (Self { mark, seal: None, grants_are_stored: false, ..self.clone() }, self.mark)
    }

    /// The ledger of a copy that becomes a master, and the number to start above.
    #[must_use]
    pub fn promoted(&self) -> (Self, u64) {
        let above = self.mark.saturating_add(PROMOTION_LEAP).min(MAX_FENCE);
        let mark = above.saturating_add(MARK_STEP).min(MAX_FENCE);
        (Self { mark, seal: None, ..self.clone() }, above)
    }

    /// The ledger with what another one of the same dataset says; `None` if it says nothing new.
    #[must_use]
    pub fn joined_with(&self, mark: u64, longest_ttl_ms: u64) -> Option<Self> {
        if mark <= self.mark && longest_ttl_ms <= self.longest_ttl_ms {
            return None;
        }
        let (mark, longest_ttl_ms) =
            (self.mark.max(mark.min(MAX_FENCE)), self.longest_ttl_ms.max(longest_ttl_ms));
        Some(Self { mark, longest_ttl_ms, ..self.clone() })
    }

    /// How long a node that may have forgotten locks waits: the longest time to live, and what two clocks
    /// may drift apart meanwhile.
    #[must_use]
    pub fn quarantine_ms(&self) -> u64 {
        let longest = self.longest_ttl_ms;
        if longest == 0 { 0 } else { longest.saturating_add(longest / 100).saturating_add(2) }
    }

    /// The ledger as text.
    #[must_use]
    pub fn encode(&self) -> String {
        let seal = self
            .seal
            .map_or_else(|| "none".to_owned(), |seal| format!("{} {:016x}", seal.locks, seal.digest));
        let stored = if self.grants_are_stored { "yes" } else { "no" };
        let text = format!(
            "{TITLE} {VERSION}\nnode-id {}\nmark {}\nlongest-ttl-ms {}\nseal {seal}\ngrants-stored {stored}\n",
            self.node_id, self.mark, self.longest_ttl_ms
        );
        let digest = xxh3_64(text.as_bytes());
        format!("{text}digest {digest:016x}\n")
    }

    /// Reads what [`encode`](Self::encode) wrote.
    ///
    /// # Errors
    /// [`Unreadable`], for anything that differs by as much as a bit.
    pub fn decode(bytes: &[u8]) -> Result<Self, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
        let found = Self::parse(text).ok_or(Unreadable::Damaged);
        // A later version may have other lines; its digest, in the last line, tells it from damage.
        if found.is_err()
            && let Some(version) = version_of(text)
            && version > VERSION
            && has_its_digest(text)
        {
            return Err(Unreadable::Version(version));
        }
        // There is one spelling: whatever would be written differently was not written by us.
        found.and_then(|ledger| if ledger.encode() == text { Ok(ledger) } else { Err(Unreadable::Damaged) })
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        value(TITLE).filter(|version| *version == VERSION.to_string())?;
        let node_id = value("node-id")
            .filter(|id| id.len() == ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let mark = value("mark")?.parse().ok()?;
        let longest_ttl_ms = value("longest-ttl-ms")?.parse().ok()?;
        let seal = match value("seal")? {
            "none" => None,
            seal => {
                let (locks, digest) = seal.split_once(' ')?;
                Some(Seal { locks: locks.parse().ok()?, digest: u64::from_str_radix(digest, 16).ok()? })
            }
        };
        let grants_are_stored = value("grants-stored")? == "yes";
        Some(Self { node_id: node_id.to_owned(), mark, longest_ttl_ms, seal, grants_are_stored })
    }
}

fn version_of(text: &str) -> Option<u32> {
    text.lines().next()?.strip_prefix(TITLE)?.strip_prefix(' ')?.parse().ok()
}

fn has_its_digest(text: &str) -> bool {
    let Some((content, digest)) = text.trim_end_matches('\n').rsplit_once('\n') else { return false };
    let expected = xxh3_64(format!("{content}\n").as_bytes());
    digest == format!("digest {expected:016x}")
}

/// A little more than asked for, so that times that creep up are stored a few hundred times at most.
fn rounded_up(ttl_ms: u64) -> u64 {
    let grain = 1_u64 << ttl_ms.max(1).ilog2().saturating_sub(4);
    // Time left comes from a master or a file as well, and may be any number: it must not wrap around to none.
    ttl_ms.checked_next_multiple_of(grain).unwrap_or(ttl_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger() -> Ledger {
        Ledger {
            node_id: "0123456789abcdef0123456789abcdef01234567".to_owned(),
            mark: 1_048_577,
            longest_ttl_ms: 30_000,
            seal: Some(Seal { locks: 2, digest: 0xfeed }),
            grants_are_stored: true,
        }
    }

    #[test]
    fn a_ledger_comes_back() {
        for ledger in
            [ledger(), Ledger::new("f".repeat(40)), Ledger { seal: None, mark: MAX_FENCE, ..ledger() }]
        {
            assert_eq!(Ledger::decode(ledger.encode().as_bytes()), Ok(ledger));
        }
    }

    #[test]
    fn every_changed_byte_is_seen() {
        let good = ledger().encode().into_bytes();
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                assert!(Ledger::decode(&bad).is_err(), "byte {at}, bit {bit}");
            }
            assert_eq!(Ledger::decode(&good[..at]), Err(Unreadable::Damaged), "cut at {at}");
        }
        let mut longer = good.clone();
        longer.push(b'\n');
        assert!(Ledger::decode(&longer).is_err());
    }

    #[test]
    fn a_later_version_is_told_from_damage() {
        let content = format!("{TITLE} 2\nsomething new\n");
        let later = format!("{content}digest {:016x}\n", xxh3_64(content.as_bytes()));
        assert_eq!(Ledger::decode(later.as_bytes()), Err(Unreadable::Version(2)));
        assert_eq!(Ledger::decode(format!("{content}digest 0\n").as_bytes()), Err(Unreadable::Damaged));
    }

    #[test]
    fn little_is_stored() {
        let mut ledger = Ledger::new("f".repeat(40));
        let mut stored = 0;
        for fence in 1..=3_000_000 {
            if let Some(next) = ledger.covering(fence, 30_000) {
                ledger = next;
                stored += 1;
            }
            assert!(fence <= ledger.mark);
        }
        assert!(stored <= 6, "about two in a million: {stored}");
        let mut stored = 0;
        for ttl_ms in 1..=2_000_000 {
            if let Some(next) = ledger.covering(1, ttl_ms) {
                ledger = next;
                stored += 1;
            }
            assert!(ledger.longest_ttl_ms >= ttl_ms && ledger.longest_ttl_ms <= ttl_ms.max(30_000) * 9 / 8);
        }
        assert!(stored < 200, "{stored}");
    }

    #[test]
    fn no_time_is_too_long_to_be_remembered() {
        for ttl_ms in [u64::MAX, u64::MAX - 1, u64::MAX / 101 * 100] {
            let ledger = Ledger::new("f".repeat(40)).covering(1, ttl_ms).unwrap();
            assert!(ledger.longest_ttl_ms >= ttl_ms && ledger.quarantine_ms() >= ttl_ms, "{ttl_ms}");
        }
    }

    #[test]
    fn a_seal_knows_every_lock() {
        type Lock = (u16, &'static [u8], &'static [u8], u64, u64);
        let seal = |locks: &[Lock]| {
            let mut seal = Seal::default();
            locks.iter().for_each(|(database, key, owner, fence, span)| {
                seal.add(*database, key, owner, *fence, *span)
            });
            seal
        };
        let (a, b): (Lock, Lock) = ((0, b"k", b"a", 1, 9), (0, b"j", b"a", 2, 9));
        assert_eq!(seal(&[a, b]), seal(&[b, a]), "in any order");
        for other in [
            &[a][..],
            &[a, a],
            &[a, (0, b"j", b"a", 3, 9)],
            &[a, (0, b"j", b"b", 2, 9)],
            &[a, (1, b"j", b"a", 2, 9)],
            &[a, (0, b"ja", b"", 2, 9)],
            &[a, (0, b"j", b"a", 2, 10)],
        ] {
            assert_ne!(seal(other), seal(&[a, b]));
        }
    }
}
