//! What the nodes together say about a lock.

use crate::Quorum;
use std::time::Duration;

/// What one node knows of a lock that is held there. Never its owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockInfo {
    /// The number it was granted with there.
    pub fence: u64,
    /// What its holder said about itself; empty if nothing.
    pub label: String,
    /// How long it lasts if nobody extends it.
    pub left: Duration,
    /// For how long it has been held.
    pub held: Duration,
    /// How often it was extended.
    pub extensions: u64,
    /// How many wait for it.
    pub waiters: u64,
}

impl LockInfo {
    /// What a node said.
    #[must_use]
    pub fn new(fence: u64, label: String, left: Duration) -> Self {
        Self { fence, label, left, held: Duration::ZERO, extensions: 0, waiters: 0 }
    }
}

/// What a node said about a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeStatus {
    /// It is held there.
    Held(LockInfo),
    /// A plain key is there, as `SET NX PX` makes one, which counts as held.
    Foreign,
    /// It is free there.
    Free,
    /// The node did not say.
    Unknown,
}

/// What a majority makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockStatus {
    /// A majority holds it under one number: somebody has the lock.
    Held(LockInfo),
    /// A majority has a plain key there, as `SET NX PX` makes one: nobody gets the lock while it is there.
    Foreign,
    /// A majority has it free: anybody could take it, once those nodes that are in quarantine grant again.
    Free,
    /// Neither: an attempt is under way or was given up, nodes are away, or a lock is running out.
    Unclear,
}

/// What the nodes together say about a lock.
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
        let mut alike: Vec<&LockInfo> = records().filter(|record| record.fence == candidate.fence).collect();
        if quorum.is_reached_by(alike.len()) {
            // It is held for as long as a majority holds it.
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
        use NodeStatus::{Foreign, Free, Unknown};
        let five = Quorum::of(5).unwrap();
        let view = |statuses: [NodeStatus; 5]| lock_status(five, &statuses);
        let LockStatus::Held(record) = view([held(7, 50), held(7, 90), held(7, 70), held(7, 80), Free])
        else {
            panic!("four nodes hold it");
        };
        assert_eq!((record.fence, record.left.as_millis()), (7, 70), "for as long as three hold it");
        assert_eq!(view([Free, Free, Free, held(1, 9), Unknown]), LockStatus::Free);
        assert_eq!(view([Foreign, Foreign, Free, Foreign, Unknown]), LockStatus::Foreign);
        assert_eq!(view([Foreign, Foreign, Free, Free, Unknown]), LockStatus::Unclear);
        assert_eq!(view([held(1, 9), held(1, 9), Free, Free, Unknown]), LockStatus::Unclear);
        assert_eq!(view([held(1, 9), held(1, 9), held(2, 9), Free, Free]), LockStatus::Unclear);
        assert_eq!(view([Unknown, Unknown, Unknown, Unknown, Unknown]), LockStatus::Unclear);
    }
}
