//! The state of a lock, from what the nodes report.

use crate::Quorum;
use std::fmt;
use std::time::Duration;

/// What one node reports about a lock that it holds. It never reports the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The fence of the lock on this node.
    pub fence: u64,
    /// The label that the holder gave; empty if it gave none.
    pub label: String,
    /// The time until the lock expires, unless its holder extends it.
    pub left: Duration,
    /// The time since the node granted the lock.
    pub held: Duration,
    /// The number of extensions.
    pub extensions: u64,
    /// The number of waiters in the queue.
    pub waiters: u64,
    /// Whether any number of owners may hold the lock together. The label, the times and the number of extensions are
    /// then those of the holder that expires last.
    pub is_shared: bool,
    /// The holders of a shared lock, in the order in which they got it. Empty for an exclusive lock.
    pub holders: Vec<HolderInfo>,
}

/// What one node reports about one holder of a shared lock. It never reports the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HolderInfo {
    /// The label that the holder gave; empty if it gave none.
    pub label: String,
    /// The time until its lease expires, unless the holder extends it.
    pub left: Duration,
    /// The time since the node granted it.
    pub held: Duration,
    /// The number of extensions.
    pub extensions: u64,
}

impl HolderInfo {
    /// Creates the report about a holder.
    #[must_use]
    pub fn new(label: String, left: Duration, held: Duration, extensions: u64) -> Self {
        Self { label, left, held, extensions }
    }
}

impl LockInfo {
    /// Creates the report of a node, with zero for all that is not given.
    #[must_use]
    pub fn new(fence: u64, label: String, left: Duration) -> Self {
        Self {
            fence,
            label,
            left,
            held: Duration::ZERO,
            extensions: 0,
            waiters: 0,
            is_shared: false,
            holders: Vec::new(),
        }
    }
}

/// The lock for people: label, fence and times.
impl fmt::Display for LockInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.label.is_empty() {
            f.write_str("without a label")?;
        } else {
            write!(f, "\"{}\"", self.label.escape_debug())?;
        }
        let Self { fence, left, held, extensions, waiters, .. } = self;
        let (left, held) = (left.as_millis(), held.as_millis());
        write!(f, ", fence {fence}, {left} ms left, held for {held} ms")?;
        if *extensions > 0 {
            write!(f, ", extended {extensions} times")?;
        }
        if self.is_shared {
            write!(f, ", shared by {}", self.holders.len())?;
        }
        if *waiters > 0 { write!(f, ", {waiters} waiting") } else { Ok(()) }
    }
}

impl fmt::Display for LockStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Held(info) => write!(f, "held: {info}"),
            Self::Foreign => f.write_str("held: a plain key, as SET NX PX makes it"),
            Self::Free => f.write_str("free"),
            Self::Unclear => f.write_str("unclear: no majority of the nodes agrees"),
        }
    }
}

/// What a node reports about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// The node holds the lock.
    Held(LockInfo),
    /// The node has a plain key of this name, such as `SET NX PX` makes. It counts as held.
    Foreign,
    /// The lock is free on this node.
    Free,
    /// The node did not report.
    Unknown,
}

/// The state of a lock, by a majority of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockStatus {
    /// A majority holds the lock with one fence, or holds it shared: a client holds the lock.
    Held(LockInfo),
    /// A majority has a plain key of this name, such as `SET NX PX` makes: no client gets the lock while it
    /// exists.
    Foreign,
    /// The lock is free on a majority: a client can take it, once the nodes in quarantine grant again.
    Free,
    /// None of these: an attempt is in progress or was abandoned, nodes are unreachable, or a lock is about
    /// to expire.
    Unclear,
}

/// Finds the state of a lock from what each node reports.
#[must_use]
pub fn lock_status(quorum: Quorum, statuses: &[NodeStatus]) -> LockStatus {
    let records = || {
        statuses.iter().filter_map(|status| match status {
            NodeStatus::Held(record) => Some(record),
            _ => None,
        })
    };
    let count = |what: &NodeStatus| statuses.iter().filter(|status| *status == what).count();
    if quorum.is_reached_by(count(&NodeStatus::Free)) {
        return LockStatus::Free;
    }
    if quorum.is_reached_by(count(&NodeStatus::Foreign)) {
        return LockStatus::Foreign;
    }
    for candidate in records() {
        // Clients that share a lock raise its fence on some nodes and not yet on others.
        let is_alike =
            |record: &&LockInfo| record.fence == candidate.fence || (record.is_shared && candidate.is_shared);
        let mut alike: Vec<&LockInfo> = records().filter(is_alike).collect();
        if quorum.is_reached_by(alike.len()) {
            // The lock is held for as long as a majority holds it.
            alike.sort_unstable_by_key(|record| std::cmp::Reverse(record.left));
            if let Some(last_of_majority) = alike.get(quorum.needed() - 1) {
                return LockStatus::Held((*last_of_majority).clone());
            }
        }
    }
    LockStatus::Unclear
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(fence: u64, left_ms: u64) -> NodeStatus {
        NodeStatus::Held(LockInfo::new(fence, "worker".into(), Duration::from_millis(left_ms)))
    }

    #[test]
    fn a_majority_decides() {
        use NodeStatus::{Foreign, Free, Held, Unknown};
        let five = Quorum::of(5).unwrap();
        let view = |statuses: [NodeStatus; 5]| lock_status(five, &statuses);
        let LockStatus::Held(record) = view([held(7, 50), held(7, 90), held(7, 70), held(7, 80), Free])
        else {
            panic!("four nodes hold it");
        };
        assert_eq!((record.fence, record.left.as_millis()), (7, 70), "as long as three nodes hold it");
        assert_eq!(view([Free, Free, Free, held(1, 9), Unknown]), LockStatus::Free);
        assert_eq!(view([Foreign, Foreign, Free, Foreign, Unknown]), LockStatus::Foreign);
        assert_eq!(view([Foreign, Foreign, Free, Free, Unknown]), LockStatus::Unclear);
        assert_eq!(view([held(1, 9), held(1, 9), Free, Free, Unknown]), LockStatus::Unclear);
        assert_eq!(view([held(1, 9), held(1, 9), held(2, 9), Free, Free]), LockStatus::Unclear);
        assert_eq!(view([Unknown, Unknown, Unknown, Unknown, Unknown]), LockStatus::Unclear);
        let shared = |fence| {
            let mut info = LockInfo::new(fence, String::new(), Duration::from_millis(9));
            info.is_shared = true;
            Held(info)
        };
        assert!(matches!(view([shared(1), shared(2), shared(3), Free, Free]), LockStatus::Held(_)));
        assert_eq!(view([shared(1), shared(2), held(3, 9), Free, Free]), LockStatus::Unclear);
    }
}
