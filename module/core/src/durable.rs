//! What a node must not forget, whatever happens to its memory and to the server's own files.
//!
//! Three things decide whether a restart is harmless.
//!
//! - **Who the server is.** A server acts as node x only with x's own, latest durable state. Any other server (a
//!   replica, a copied disk, a data set without its state) is *non-voting*: it has a node id of its own and grants
//!   nothing until an operator admits it.
//! - **Which fences it has given out.** The high-water mark is stored before any fence passes it, and a node that
//!   starts begins there. It moves in large steps, so a grant hardly ever waits for a disk. A stripe that a client
//!   has raised far beyond the others has a high-water mark of its own: it does not move the others.
//! - **How long a forgotten lock may still be held.** The longest lease is stored before a longer one is granted,
//!   and lowered when no such lease is left. A node that may have forgotten locks waits that long.
//!
//! The state is text, for the operator who has to look at it; a digest covers every byte.

use std::collections::BTreeMap;
use std::fmt;

use xxhash_rust::xxh3::xxh3_64;

use crate::fence::{Stripe, Stripes};
use redlock_contract::drift::with_drift;
use redlock_contract::limits::{MAX_FAR_STRIPES, MAX_FENCE};
use redlock_contract::{NonVoting, Origin};

/// How far a high-water mark is put ahead of the fence that reached it.
pub const HIGH_WATER_STEP: u64 = 1 << 20;

/// A fence at most so far above the common high-water mark moves the common mark; one that is further away gets a
/// mark of its own. Sixteen restarts move a node that far.
const NEAR: u64 = 1 << 24;

/// The longest lease is never lowered below this: a wait of a minute costs little, and a node that sees a short
/// lock now and then should not store its state each time.
pub const SHORT_LEASE_MS: u64 = 1 << 16;

/// The first line of a state file, and its version.
const TITLE: &str = "redlock-state";
const VERSION: u32 = 2;
/// What the first line of format 1 said.
const TITLE_1: &str = "redlock-ledger";

/// How many hexadecimal digits a node id has.
pub const ID_DIGITS: usize = 40;

/// What a node must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DurableState {
    /// Which node this is: 40 hexadecimal digits.
    pub node_id: String,
    /// How often this node has started.
    pub incarnation: u64,
    /// How this node began.
    pub origin: Origin,
    /// Why this server does not vote; `None` if it does.
    pub non_voting: Option<NonVoting>,
    /// At least every fence that was given out, but for those on far stripes.
    pub high_water: u64,
    /// The high-water marks of stripes that are far above `high_water`.
    far: BTreeMap<u16, u64>,
    /// At least every lease that may still be running, in milliseconds.
    pub longest_lease_ms: u64,
    /// The id of the data set that belongs to this state: 63 random bits, or 0 in format 1, which had none.
    pub dataset_id: u64,
    /// The locks at the orderly shutdown; `None` while the node runs.
    pub locks_at_shutdown: Option<LocksDigest>,
}

/// The set of locks of a node in brief: two nodes with the same digest hold the same locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocksDigest {
    /// How many locks there are.
    pub locks: u64,
    /// A digest of all of them, in any order.
    pub digest: u64,
}

impl LocksDigest {
    /// Adds a lock. `span_ms` is the time from its grant to its deadline: it changes whenever the lock is
    /// extended, and with nothing else.
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

/// What the loaded data set says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dataset {
    /// The id that it carries; the last one if there were several.
    pub id: Option<u64>,
    /// Whether it has locks in it.
    pub has_locks: bool,
    /// The largest fence in it.
    pub highest_fence: u64,
}

/// The file that a state was written to. A copy of it is another file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileId {
    /// The inode number.
    pub inode: u64,
    /// When the file was created, in nanoseconds of the file system's clock; 0 where it keeps no such time. It is
    /// only compared for equality.
    pub born_ns: u128,
}

impl FileId {
    /// Whether both name the same file. A file system, or a kernel, that keeps no time of creation cannot say more than
    /// the inode.
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
    /// The file that it was written to; `None` in format 1, which did not say.
    pub file: Option<FileId>,
}

/// Why bytes are not a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreadable {
    /// A later version of the module wrote it.
    Version(u32),
    /// It is truncated, changed, or something else altogether.
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
            high_water: 0,
            far: BTreeMap::new(),
            longest_lease_ms: 0,
            dataset_id,
            locks_at_shutdown: None,
        }
    }

    /// Whether this fence, on any stripe, and this lease may be granted without storing a new state.
    #[must_use]
    #[inline]
    pub fn covers(&self, fence: u64, lease_ms: u64) -> bool {
        is_below(self.high_water, fence) && lease_ms <= self.longest_lease_ms
    }

    /// The state that must be stored before this fence on these stripes and this lease are granted; `None` if the
    /// present one covers them.
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

    /// Whether this fence may be given out on this stripe without storing a new state.
    fn covers_on(&self, stripe: Stripe, fence: u64) -> bool {
        let own = self.far.get(&stripe.index()).copied().unwrap_or(0);
        is_below(self.high_water.max(own), fence)
    }

    fn reserve_fence(&mut self, stripe: Stripe, fence: u64) {
        let mark = fence.saturating_add(HIGH_WATER_STEP).min(MAX_FENCE);
        if fence <= self.high_water.saturating_add(NEAR) {
            self.raise_high_water(mark);
            return;
        }
        self.far.insert(stripe.index(), mark);
        if self.far.len() > MAX_FAR_STRIPES {
            // So many raised stripes are the rule here, not the exception: the lower half joins the common mark.
            let mut marks: Vec<u64> = self.far.values().copied().collect();
            marks.sort_unstable();
            self.raise_high_water(marks[marks.len() / 2]);
        }
    }

    fn raise_high_water(&mut self, mark: u64) {
        self.high_water = self.high_water.max(mark.min(MAX_FENCE));
        let high_water = self.high_water;
        self.far.retain(|_, far| *far > high_water);
    }

    /// How many stripes have a high-water mark of their own.
    #[must_use]
    pub fn far_stripes(&self) -> usize {
        self.far.len()
    }

    /// At least every fence that was given out, on any stripe.
    #[must_use]
    pub fn highest(&self) -> u64 {
        self.far.values().copied().fold(self.high_water, u64::max)
    }

    /// The state of the next start, and the stripes to go on with: all above what was given out before.
    #[must_use]
    pub fn restarted(&self) -> (Self, Stripes) {
        let mut stripes = Stripes::starting_at(self.high_water);
        let mut next = self.clone();
        for (index, mark) in &self.far {
            stripes.restore(*index, *mark);
            next.far.insert(*index, mark.saturating_add(HIGH_WATER_STEP).min(MAX_FENCE));
        }
        next.high_water = self.high_water.saturating_add(HIGH_WATER_STEP).min(MAX_FENCE);
        next.raise_high_water(next.high_water);
        next.incarnation = self.incarnation.saturating_add(1);
        next.locks_at_shutdown = None;
        (next, stripes)
    }

    /// The state of a server that does not vote from now on, under a node id of its own.
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

    /// The state of a node that is admitted: its fences are above `floor`, and a crash during the wait waits as long
    /// again.
    #[must_use]
    pub fn admitted(&self, floor: u64, wait_ms: u64) -> Self {
        let mut next = Self { non_voting: None, origin: Origin::Admitted, ..self.clone() };
        next.raise_high_water(self.highest().max(floor).saturating_add(HIGH_WATER_STEP));
        next.longest_lease_ms = self.longest_lease_ms.max(rounded_up(wait_ms));
        next
    }

    /// The state of a server that follows the data set of another: the data set has this id and fences up to
    /// `highest`. `None` if the present state says so already.
    #[must_use]
    pub fn following(&self, dataset_id: Option<u64>, highest: u64) -> Option<Self> {
        let mut next = self.clone();
        next.dataset_id = dataset_id.unwrap_or(self.dataset_id);
        if highest > next.high_water {
            next.raise_high_water(highest.saturating_add(HIGH_WATER_STEP));
        }
        (next != *self).then_some(next)
    }

    /// Why a server that started with this state and has loaded this data set cannot vote. `stored` is the highest fence
    /// that the state file knew of when the server started; `None` if there was no state file.
    #[must_use]
    pub fn disowned_by(&self, dataset: Dataset, stored: Option<u64>) -> Option<NonVoting> {
        let Some(stored) = stored else {
            // No data of this module: a new node.
            let has_past = dataset.id.is_some() || dataset.has_locks || dataset.highest_fence > 0;
            return (has_past && self.non_voting.is_none()).then_some(NonVoting::NoState);
        };
        match dataset.id {
            _ if self.non_voting.is_some() => None,
            // A state that is older than the data set would give its fences out again. A mark that was not stored yet
            // is at most half a step ahead.
            _ if dataset.highest_fence > stored.saturating_add(HIGH_WATER_STEP / 2) => {
                Some(NonVoting::ForeignData)
            }
            Some(id) if id != self.dataset_id => Some(NonVoting::ForeignData),
            // Its own, or one of format 1, which had no id.
            _ => None,
        }
    }

    /// The state with a lower longest lease: `left_ms` is the longest time that any lease still runs. `None` if
    /// that would not change much.
    #[must_use]
    pub fn with_leases_of(&self, left_ms: u64) -> Option<Self> {
        let longest_lease_ms = rounded_up(left_ms.max(SHORT_LEASE_MS));
        (longest_lease_ms <= self.longest_lease_ms / 2).then(|| Self { longest_lease_ms, ..self.clone() })
    }

    /// How long a node that may have forgotten locks waits, in milliseconds: the longest lease, and the drift
    /// between two clocks meanwhile.
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
        let far: Vec<String> = self.far.iter().map(|(stripe, mark)| format!("{stripe}:{mark}")).collect();
        let far = if far.is_empty() { "none".to_owned() } else { far.join(",") };
        let text = format!(
            "{TITLE} {VERSION}\nnode-id {}\nincarnation {}\norigin {}\nvoting {voting}\nhigh-water {}\n\
             far-stripes {far}\nlongest-lease-ms {}\ndataset-id {:016x}\nlocks-at-shutdown {locks}\nfile {} {}\n",
            self.node_id,
            self.incarnation,
            self.origin.name(),
            self.high_water,
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
    /// [`Unreadable`], for anything that differs by as much as a bit.
    pub fn decode(bytes: &[u8]) -> Result<StoredState, Unreadable> {
        let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
        // The digest in the last line tells a later version, which may have other lines, from damage.
        if !has_its_digest(text) {
            return Err(Unreadable::Damaged);
        }
        if text.starts_with(TITLE_1) {
            let state = parse_format_1(text).ok_or(Unreadable::Damaged)?;
            return Ok(StoredState { state, file: None });
        }
        match Self::parse(text) {
            // There is one spelling: any other text was not written by this module.
            Some((state, file)) if state.encode(file) == text => Ok(StoredState { state, file: Some(file) }),
            _ => Err(match version_of(text) {
                Some(version) if version > VERSION => Unreadable::Version(version),
                _ => Unreadable::Damaged,
            }),
        }
    }

    /// Whether a file that begins like this may be a state file.
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
        let origin = match value("origin")? {
            "new" => Origin::New,
            "admitted" => Origin::Admitted,
            _ => return None,
        };
        let non_voting = match value("voting")? {
            "yes" => None,
            no => Some(NonVoting::named(no.strip_prefix("no ")?)?),
        };
        let high_water = value("high-water")?.parse().ok().filter(|mark| *mark <= MAX_FENCE)?;
        let mut far = BTreeMap::new();
        match value("far-stripes")? {
            "none" => {}
            list => {
                for entry in list.split(',') {
                    let (stripe, mark) = entry.split_once(':')?;
                    far.insert(stripe.parse().ok()?, mark.parse().ok().filter(|mark| *mark <= MAX_FENCE)?);
                }
            }
        }
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
            far,
            longest_lease_ms,
            dataset_id,
            locks_at_shutdown,
        };
        Some((state, file))
    }
}

/// Reads format 1: the same node, whose data set is not known by an id yet.
fn parse_format_1(text: &str) -> Option<DurableState> {
    let mut lines = text.lines();
    let mut value = |name: &str| lines.next()?.strip_prefix(name)?.strip_prefix(' ');
    value(TITLE_1).filter(|version| *version == "1")?;
    let node_id = value("node-id").filter(|id| is_node_id(id))?.to_owned();
    let high_water = value("mark")?.parse().ok().filter(|mark| *mark <= MAX_FENCE)?;
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

/// Whether a fence is far enough below a high-water mark. Half a step early, so that the mark is stored long before
/// it is reached; at the end of the numbers there is no more room.
#[inline]
fn is_below(mark: u64, fence: u64) -> bool {
    fence <= mark.saturating_sub(HIGH_WATER_STEP / 2) || mark >= MAX_FENCE
}

/// A little more than asked for, so that leases that creep up are stored a few hundred times at most.
fn rounded_up(lease_ms: u64) -> u64 {
    let grain = 1_u64 << lease_ms.max(1).ilog2().saturating_sub(4);
    // It must not wrap around to 0.
    lease_ms.checked_next_multiple_of(grain).unwrap_or(lease_ms)
}

#[cfg(test)]
mod tests;
