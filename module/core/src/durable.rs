//! The durable state of a node: what survives a crash and the loss of the server's own files.
//!
//! Three parts of it decide whether a restart is harmless.
//!
//! - **The identity.** A server acts as node x only with x's own, latest durable state. Any other server (a
//!   replica, a copied disk, a data set without its state) is *non-voting*: it has a node id of its own and
//!   grants nothing until an operator admits it.
//! - **The high-water mark.** The node stores the mark before it grants a fence above it, and starts from the
//!   mark after a restart. The mark moves in large steps, so a grant hardly ever waits for a disk. A stripe
//!   that a client has raised far beyond the others has a high-water mark of its own and does not move the
//!   others.
//! - **The longest lease.** The node stores it before it grants a longer one, and lowers it when no such lease is left.
//!   A node that may have forgotten locks is in quarantine that long.
//!
//! The state is text, so that an operator can read it. A digest covers every byte.

use redlock_contract::drift::with_drift;
use redlock_contract::limits::MAX_FENCE;
use redlock_contract::{HighWater, NonVoting, Origin};
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::fence::{Stripe, Stripes};

/// How far a high-water mark is put ahead of the fence that reached it.
pub const HIGH_WATER_STEP: u64 = 1 << 20;

/// A fence up to this distance above the common high-water mark moves the common mark. The stripe of a fence further
/// away gets a mark of its own. Sixteen restarts move a node by this distance.
const NEAR: u64 = 1 << 24;

/// The longest lease is never lowered below this, in milliseconds. A quarantine of a minute costs little, and a node
/// with few short locks should not store its state for each of them.
pub const SHORT_LEASE_MS: u64 = 1 << 16;

/// The first line of a state file, and its version.
const TITLE: &str = "redlock-state";
const VERSION: u32 = 2;
/// The title of format 1.
const TITLE_1: &str = "redlock-ledger";

/// The number of hexadecimal digits of a node id.
pub const ID_DIGITS: usize = 40;

/// The durable state of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState {
    /// The node id: 40 hexadecimal digits.
    pub node_id: String,
    /// The number of starts of this node.
    pub incarnation: u64,
    /// The origin of this node.
    pub origin: Origin,
    /// Why this server does not vote; `None` if it does.
    pub non_voting: Option<NonVoting>,
    /// The high-water marks: no granted fence is larger.
    pub high_water: HighWater,
    /// The longest lease, in milliseconds: no lease that may still run is longer.
    pub longest_lease_ms: u64,
    /// The id of the data set that belongs to this state: 63 random bits, or 0 in format 1, which had none.
    pub dataset_id: u64,
    /// The locks at the orderly shutdown; `None` while the node runs.
    pub locks_at_shutdown: Option<LocksDigest>,
}

/// The number and digest of a node's locks: two nodes with the same digest hold the same locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocksDigest {
    /// The number of locks.
    pub locks: u64,
    /// The digest of all locks, independent of their order.
    pub digest: u64,
}

impl LocksDigest {
    /// Adds a lock. `span_ms` is the time from its grant to its deadline, which only an extension changes.
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

/// What a loaded data set says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dataset {
    /// The id of the data set; the last one if it contains several.
    pub id: Option<u64>,
    /// Whether it contains locks.
    pub has_locks: bool,
    /// The common high-water mark of the node that wrote it.
    pub high_water: u64,
    /// The largest fence in the data set, or `high_water` if that is larger.
    pub highest_fence: u64,
}

/// The file that a state was written to. A copy of it is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The inode number.
    pub inode: u64,
    /// When the file was created, in nanoseconds of the file system's clock; 0 if the file system does not record it.
    /// It is only compared for equality.
    pub born_ns: u128,
}

impl FileId {
    /// Whether both are the same file. If the file system or the kernel records no creation time, the inode decides.
    #[must_use]
    pub fn is_same(self, other: Self) -> bool {
        let same_birth = self.born_ns == other.born_ns || self.born_ns == 0 || other.born_ns == 0;
        self.inode == other.inode && same_birth
    }
}

/// A state as it was read from a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredState {
    /// The state.
    pub state: DurableState,
    /// The file that it was written to; `None` in format 1, which did not record it.
    pub file: Option<FileId>,
}

/// Why bytes are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A later version of the module wrote it.
    Version(u32),
    /// The bytes are truncated, changed, or not a state.
    Damaged,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Version(version) => write!(
                f,
                "a later version of the module wrote it (format {version}; this version reads up to {VERSION})"
            ),
            Self::Damaged => f.write_str("it is damaged or truncated"),
        }
    }
}

impl std::error::Error for Unreadable {}

impl DurableState {
    /// The state of a new node, which has not started yet.
    #[must_use]
    pub fn new(node_id: String, dataset_id: u64) -> Self {
        Self {
            node_id,
            incarnation: 0,
            origin: Origin::New,
            non_voting: None,
            high_water: HighWater::default(),
            longest_lease_ms: 0,
            dataset_id,
            locks_at_shutdown: None,
        }
    }

    /// Whether the node may grant this fence, on any stripe, and this lease without storing a new state.
    #[must_use]
    #[inline]
    pub fn covers(&self, fence: u64, lease_ms: u64) -> bool {
        is_below(self.high_water.common(), fence) && lease_ms <= self.longest_lease_ms
    }

    /// The state that the node must store before it grants this fence on these stripes and this lease; `None` if the
    /// present state covers them.
    #[must_use]
    pub fn reserving(
        &self,
        stripes: impl IntoIterator<Item = Stripe>,
        fence: u64,
        lease_ms: u64,
    ) -> Option<Self> {
        let mut next = None::<Self>;
        for stripe in stripes {
            if !next.as_ref().unwrap_or(self).covers_on(stripe, fence) {
                next.get_or_insert_with(|| self.clone()).reserve_fence(stripe, fence);
            }
        }
        if lease_ms > self.longest_lease_ms {
            next.get_or_insert_with(|| self.clone()).longest_lease_ms = rounded_up(lease_ms);
        }
        next
    }

    /// Whether the node may grant this fence on this stripe without storing a new state.
    fn covers_on(&self, stripe: Stripe, fence: u64) -> bool {
        is_below(self.high_water.of(stripe.index()), fence)
    }

    fn reserve_fence(&mut self, stripe: Stripe, fence: u64) {
        let mark = fence.saturating_add(HIGH_WATER_STEP);
        if fence <= self.high_water.common().saturating_add(NEAR) {
            self.high_water.raise_common(mark);
        } else {
            self.high_water.raise(stripe.index(), mark);
        }
    }

    /// The state of the next start, and its stripes: their next fences are larger than all granted ones.
    #[must_use]
    pub fn restarted(&self) -> (Self, Stripes) {
        let next = Self {
            high_water: self.high_water.plus(HIGH_WATER_STEP),
            incarnation: self.incarnation.saturating_add(1),
            locks_at_shutdown: None,
            ..self.clone()
        };
        (next, Stripes::above(&self.high_water))
    }

    /// The state of a server that no longer votes, with a node id of its own.
    #[must_use]
    pub fn without_vote(&self, reason: NonVoting, node_id: String) -> Self {
        Self {
            node_id,
            incarnation: 1,
            origin: Origin::New,
            non_voting: Some(reason),
            locks_at_shutdown: None,
            ..self.clone()
        }
    }

    /// The state of a node that an operator admits, and its stripes: their next fences are above `floor` and above its
    /// own high-water marks. The new marks also cover `loaded`, the fences of the data set that the server has loaded
    /// without a vote: at its next start, the node must recognize that data set as its own. After a crash during the
    /// quarantine it starts a quarantine of the same length.
    #[must_use]
    pub fn admitted(&self, floor: &HighWater, loaded: &Stripes, wait_ms: u64) -> (Self, Stripes) {
        let mut above = self.high_water.clone();
        above.include(floor);
        let mut next = Self {
            non_voting: None,
            origin: Origin::Admitted,
            high_water: above.plus(HIGH_WATER_STEP),
            longest_lease_ms: self.longest_lease_ms.max(rounded_up(wait_ms)),
            ..self.clone()
        };
        for (stripe, fence) in loaded.used() {
            if !next.covers_on(stripe, fence) {
                next.reserve_fence(stripe, fence);
            }
        }
        (next, Stripes::above(&above))
    }

    /// The state of a server that follows another server's data set with this id and this common high-water mark.
    /// `None` if the present state already covers them. The far stripes follow with the locks that raised them.
    #[must_use]
    pub fn following(&self, dataset_id: Option<u64>, common: u64) -> Option<Self> {
        let mut next = self.clone();
        next.dataset_id = dataset_id.unwrap_or(self.dataset_id);
        if common > next.high_water.common() {
            next.high_water.raise_common(common.saturating_add(HIGH_WATER_STEP));
        }
        (next != *self).then_some(next)
    }

    /// The reason why a server that started with this state and has loaded this data set cannot vote; `None` if it can.
    /// `stored` contains the high-water marks of the state file at the start; `None` if there was no state file.
    #[must_use]
    pub fn reason_not_to_vote(&self, dataset: Dataset, stored: Option<&HighWater>) -> Option<NonVoting> {
        let Some(stored) = stored else {
            // A data set without data of this module makes a new node.
            let has_past = dataset.id.is_some() || dataset.has_locks || dataset.highest_fence > 0;
            return (has_past && self.non_voting.is_none()).then_some(NonVoting::NoState);
        };
        // A high-water mark that was not stored yet is at most half a step ahead.
        let is_newer = |mark: u64, stored: u64| mark > stored.saturating_add(HIGH_WATER_STEP / 2);
        match dataset.id {
            _ if self.non_voting.is_some() => None,
            // With a state older than the data set the node would grant its fences again.
            _ if is_newer(dataset.highest_fence, stored.highest()) => Some(NonVoting::ForeignData),
            // One key that was raised far hides from the highest mark that the others have moved.
            _ if is_newer(dataset.high_water, stored.common()) => Some(NonVoting::ForeignData),
            Some(id) if id != self.dataset_id => Some(NonVoting::ForeignData),
            // The node's own data set, or one of format 1, which had no id.
            _ => None,
        }
    }

    /// The state with a lower longest lease; `None` if it would not be half as long. `left_ms` is the longest time that
    /// any lease still runs.
    #[must_use]
    pub fn with_leases_of(&self, left_ms: u64) -> Option<Self> {
        let longest_lease_ms = rounded_up(left_ms.max(SHORT_LEASE_MS));
        (longest_lease_ms <= self.longest_lease_ms / 2).then(|| Self { longest_lease_ms, ..self.clone() })
    }

    /// The length of a quarantine, in milliseconds: the longest lease, and the drift between two clocks meanwhile.
    #[must_use]
    pub fn quarantine_ms(&self) -> u64 {
        with_drift(self.longest_lease_ms)
    }

    /// The state as text, as it is written to `file`.
    #[must_use]
    pub fn encode(&self, file: FileId) -> String {
        let voting =
            self.non_voting.map_or_else(|| "yes".to_owned(), |reason| format!("no {}", reason.name()));
        let locks = self
            .locks_at_shutdown
            .map_or_else(|| "unknown".to_owned(), |locks| format!("{} {:016x}", locks.locks, locks.digest));
        let text = format!(
            "{TITLE} {VERSION}\nnode-id {}\nincarnation {}\norigin {}\nvoting {voting}\nhigh-water {}\n\
             far-stripes {}\nlongest-lease-ms {}\ndataset-id {:016x}\nlocks-at-shutdown {locks}\nfile {} {}\n",
            self.node_id,
            self.incarnation,
            self.origin.name(),
            self.high_water.common(),
            self.high_water.far_text(),
            self.longest_lease_ms,
            self.dataset_id,
            file.inode,
            file.born_ns,
        );
        let digest = xxh3_64(text.as_bytes());
        format!("{text}digest {digest:016x}\n")
    }

    /// Reads what [`encode`](Self::encode) wrote, or what format 1 wrote.
    ///
    /// # Errors
    /// [`Unreadable`] for any other bytes, even if they differ by one bit.
    pub fn decode(bytes: &[u8]) -> Result<StoredState, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
        // The digest in the last line distinguishes a later version, which may have other lines, from damage.
        if !has_its_digest(text) {
            return Err(Unreadable::Damaged);
        }
        if text.starts_with(TITLE_1) {
            let state = parse_format_1(text).ok_or(Unreadable::Damaged)?;
            return Ok(StoredState { state, file: None });
        }
        match Self::parse(text) {
            // Each state has one encoding. This module has not written any other text.
            Some((state, file)) if state.encode(file) == text => Ok(StoredState { state, file: Some(file) }),
            _ => Err(match version_of(text) {
                Some(version) if version > VERSION => Unreadable::Version(version),
                _ => Unreadable::Damaged,
            }),
        }
    }

    /// Whether a file that begins with these bytes may be a state file.
    #[must_use]
    pub fn is_beginning(bytes: &[u8]) -> bool {
        bytes.starts_with(TITLE.as_bytes()) || bytes.starts_with(TITLE_1.as_bytes())
    }

    fn parse(text: &str) -> Option<(Self, FileId)> {
        let mut lines = text.lines();
        let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
        value(TITLE).filter(|version| *version == VERSION.to_string())?;
        let node_id = value("node-id").filter(|id| is_node_id(id))?.to_owned();
        let incarnation = value("incarnation")?.parse().ok()?;
        let origin = Origin::named(value("origin")?)?;
        let non_voting = match value("voting")? {
            "yes" => None,
            no => Some(NonVoting::named(no.strip_prefix("no ")?)?),
        };
        let common = value("high-water")?.parse().ok()?;
        let high_water = HighWater::parse(common, value("far-stripes")?)?;
        let longest_lease_ms = value("longest-lease-ms")?.parse().ok()?;
        let dataset_id = u64::from_str_radix(value("dataset-id")?, 16).ok()?;
        let locks_at_shutdown = parse_locks(value("locks-at-shutdown")?, "unknown")?;
        let (inode, born_ns) = value("file")?.split_once(' ')?;
        let file = FileId { inode: inode.parse().ok()?, born_ns: born_ns.parse().ok()? };
        let state = Self {
            node_id,
            incarnation,
            origin,
            non_voting,
            high_water,
            longest_lease_ms,
            dataset_id,
            locks_at_shutdown,
        };
        Some((state, file))
    }
}

/// Reads format 1. Its data set has no id.
fn parse_format_1(text: &str) -> Option<DurableState> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    value(TITLE_1).filter(|version| *version == "1")?;
    let node_id = value("node-id").filter(|id| is_node_id(id))?.to_owned();
    let high_water = HighWater::parse(value("mark")?.parse().ok()?, "none")?;
    let longest_lease_ms = value("longest-ttl-ms")?.parse().ok()?;
    let locks_at_shutdown = parse_locks(value("seal")?, "none")?;
    Some(DurableState { high_water, longest_lease_ms, locks_at_shutdown, ..DurableState::new(node_id, 0) })
}

fn parse_locks(text: &str, unknown: &str) -> Option<Option<LocksDigest>> {
    if text == unknown {
        return Some(None);
    }
    let (locks, digest) = text.split_once(' ')?;
    Some(Some(LocksDigest { locks: locks.parse().ok()?, digest: u64::from_str_radix(digest, 16).ok()? }))
}

fn is_node_id(id: &str) -> bool {
    id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn version_of(text: &str) -> Option<u32> {
    text.lines().next()?.strip_prefix(TITLE)?.strip_prefix(' ')?.parse().ok()
}

fn has_its_digest(text: &str) -> bool {
    let Some((content, digest)) = text.strip_suffix('\n').and_then(|text| text.rsplit_once('\n')) else {
        return false;
    };
    let expected = xxh3_64(format!("{content}\n").as_bytes());
    digest == format!("digest {expected:016x}")
}

/// Whether a fence is at least half a step below a high-water mark, so that the mark is stored long before a fence
/// reaches it. The largest mark covers every fence.
#[inline]
fn is_below(high_water: u64, fence: u64) -> bool {
    fence <= high_water.saturating_sub(HIGH_WATER_STEP / 2) || high_water >= MAX_FENCE
}

/// The lease rounded up by at most 1/16, so that slowly growing leases store the state a few hundred times at most.
fn rounded_up(lease_ms: u64) -> u64 {
    let grain = 1_u64 << lease_ms.max(1).ilog2().saturating_sub(4);
    // The result must not wrap around to 0.
    lease_ms.checked_next_multiple_of(grain).unwrap_or(lease_ms)
}

#[cfg(test)]
mod tests;
