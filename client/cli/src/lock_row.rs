//! One lock, combined from the answers of all nodes.

use crate::duration::{millis, show};
use crate::output::{Tone, cell, tame, tame_bytes, toned};
use redlock_client::{LockInfo, LockStatus, Quorum};
use redlock_proto::inspection::{NodeStatus, lock_status};
use serde_json::{Value, json};
use std::time::Duration;

fn first_text(mut texts: impl Iterator<Item = String>) -> String {
    texts.find(|text| !text.is_empty()).unwrap_or_default()
}

/// How many labels of a shared lock to show.
const LABELS: usize = 3;

/// Who holds a lock, by label: the label of an exclusive lock, and the number and the first labels of a shared one.
pub(crate) fn holders_text(info: &LockInfo) -> String {
    if !info.is_shared {
        return tame(&info.label);
    }
    let labels = info.holders.iter().map(|holder| tame(&holder.label)).filter(|label| !label.is_empty());
    let mut labels: Vec<String> = labels.take(LABELS + 1).collect();
    if let Some(more) = labels.get_mut(LABELS) {
        *more = "…".to_owned();
    }
    let names = if labels.is_empty() { String::new() } else { format!(": {}", labels.join(", ")) };
    format!("shared by {}{names}", info.holders.len())
}

/// The columns of a table of locks; [`LockRow::cells`] fills them.
pub(crate) const COLUMNS: [&str; 7] = ["key", "fence", "nodes", "left", "age", "waiters", "label"];

/// One lock, combined from the answers of all nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LockRow {
    pub(crate) key: String,
    /// The name that `inspect` and `break` take: the key without the prefix.
    pub(crate) resource: String,
    /// The fence that most nodes report.
    pub(crate) fence: u64,
    pub(crate) label: String,
    /// Who holds the lock: see [`holders_text`].
    pub(crate) holder: String,
    /// How many clients share the lock on one node, at most; 0 for an exclusive lock.
    pub(crate) shared_by: usize,
    /// How long the lock has been held.
    pub(crate) age: Duration,
    /// How long a majority still holds the lock; without a majority, how long all of its nodes still hold it.
    pub(crate) left: Duration,
    /// How many nodes hold the key, whatever the fence.
    pub(crate) holders: usize,
    pub(crate) waiters: u64,
    /// Whether a client holds the lock: a majority of the nodes holds it with one fence, or holds it shared, with any
    /// fences.
    pub(crate) is_held: bool,
}

impl LockRow {
    /// The row of a lock; `None` if no node holds it.
    pub(crate) fn new(key: &[u8], prefix: &str, infos: &[LockInfo], quorum: Quorum) -> Option<Self> {
        let count = |fence: u64| infos.iter().filter(|info| info.fence == fence).count();
        let fence = infos.iter().map(|info| info.fence).max_by_key(|fence| (count(*fence), *fence))?;
        let alike: Vec<&LockInfo> = infos.iter().filter(|info| info.fence == fence).collect();
        let statuses: Vec<NodeStatus> = infos.iter().cloned().map(NodeStatus::Held).collect();
        let (left, is_held) = match lock_status(quorum, &statuses) {
            LockStatus::Held(info) => (info.left, true),
            _ => (alike.iter().map(|info| info.left).min()?, false),
        };
        Some(Self {
            key: tame_bytes(key),
            resource: tame_bytes(key.strip_prefix(prefix.as_bytes()).unwrap_or(key)),
            fence,
            label: first_text(alike.iter().map(|info| tame(&info.label))),
            holder: first_text(alike.iter().map(|info| holders_text(info))),
            shared_by: infos.iter().map(|info| info.holders.len()).max().unwrap_or(0),
            age: alike.iter().map(|info| info.held).max().unwrap_or_default(),
            left,
            holders: infos.len(),
            waiters: infos.iter().map(|info| info.waiters).max().unwrap_or(0),
            is_held,
        })
    }

    /// The cells for [`COLUMNS`], with this name in the first. `of` is the number of nodes.
    pub(crate) fn cells(&self, name: &str, of: usize) -> Vec<(String, Option<Tone>)> {
        let holders = format!("{}/{of}", self.holders);
        vec![
            cell(name),
            cell(self.fence.to_string()),
            if self.is_held { cell(holders) } else { toned(Tone::Doubtful, holders) },
            cell(show(self.left)),
            cell(show(self.age)),
            cell(self.waiters.to_string()),
            cell(&self.holder),
        ]
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "resource": self.resource,
            "key": self.key,
            "fence": self.fence,
            "label": self.label,
            "shared_by": self.shared_by,
            "held_ms": millis(self.age),
            "left_ms": millis(self.left),
            "holders": self.holders,
            "held": self.is_held,
            "waiters": self.waiters,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use redlock_client::HolderInfo;

    pub(crate) fn info(fence: u64, left: u64) -> LockInfo {
        let mut info = LockInfo::new(fence, "worker".into(), Duration::from_secs(left));
        info.held = Duration::from_secs(60 - left);
        info
    }

    #[test]
    fn a_shared_lock_shows_how_many_hold_it_and_the_first_labels() {
        let mut shared = info(7, 10);
        shared.is_shared = true;
        let holder = |label: &str| {
            HolderInfo::new(label.to_owned(), Duration::from_secs(1), Duration::from_secs(1), 0)
        };
        shared.holders = vec![holder(""), holder("")];
        assert_eq!(holders_text(&shared), "shared by 2");
        shared.holders = vec![holder("a"), holder(""), holder("b")];
        assert_eq!(holders_text(&shared), "shared by 3: a, b");
        shared.holders = ["a", "b", "c", "d", "e"].map(holder).to_vec();
        assert_eq!(holders_text(&shared), "shared by 5: a, b, c, …");
        let row = LockRow::new(b"job", "", &[shared], Quorum::of(1).expect("a node")).expect("a lock");
        assert_eq!((row.shared_by, row.holder.as_str()), (5, "shared by 5: a, b, c, …"));
        assert_eq!(row.label, "worker");
    }

    #[test]
    fn a_row_shows_the_fence_of_most_nodes() {
        let of_three = Quorum::of(3).expect("three nodes");
        let row =
            LockRow::new(b"job", "", &[info(7, 10), info(7, 20), info(9, 50)], of_three).expect("a lock");
        assert_eq!((row.fence, row.holders, row.is_held), (7, 3, true));
        assert_eq!(row.left, Duration::from_secs(10), "as long as two nodes hold the lock");
        let row = LockRow::new(b"job", "", &[info(7, 10)], of_three).expect("a lock");
        assert!(!row.is_held);
        let apart = LockRow::new(b"job", "", &[info(7, 10), info(8, 10)], of_three).expect("a lock");
        assert_eq!((apart.holders, apart.is_held), (2, false), "two nodes hold it, with two fences");
        assert_eq!(LockRow::new(b"job", "", &[], of_three), None);
    }
}
