//! Asks the nodes which locks they hold, in bounded steps.
//!
//! A node may have millions of keys and a hundred thousand locks. A look takes at most so many steps of `SCAN` on each
//! node, and asks about at most so many locks; what is left out is said.

use crate::exit::ExitError;
use crate::group_report::{GroupReport, NodeReport, quorum_of};
use redlock_client::{FailureKind, LockInfo, LockManager, Query, Response};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::task::JoinSet;

/// How many keys one step looks at: a fraction of a millisecond of the server's time.
const STEP: u32 = 1_000;
/// How many steps one look takes on a node.
const STEPS: usize = 50;
/// How many locks are asked about at once on a node: those who take locks come in between.
const AT_ONCE: usize = 32;

/// What was seen.
#[derive(Clone, Debug)]
pub(super) struct Snapshot {
    pub(super) nodes: Vec<NodeReport>,
    /// By key: what each node that holds it says.
    pub(super) locks: BTreeMap<Vec<u8>, Vec<LockInfo>>,
    /// Nodes of which not all locks were seen.
    pub(super) cut: Vec<String>,
    /// Nodes that did not let us look, and what they said.
    pub(super) refusals: Vec<(String, String)>,
    pub(super) taken: Instant,
}

impl Snapshot {
    /// Whether enough nodes answered for what is seen to be the truth.
    pub(super) fn has_majority(&self) -> bool {
        let answers = self.nodes.iter().filter(|node| node.state.is_ok()).count();
        quorum_of(self.nodes.len()).is_reached_by(answers)
    }

    pub(super) async fn take(locks: &LockManager, prefix: &str, limit: usize) -> Result<Self, ExitError> {
        let group = GroupReport::take(locks).await?;
        let taken = Instant::now();
        let pattern = pattern(prefix);
        let mut scans = JoinSet::new();
        for (node, report) in group.nodes.iter().enumerate() {
            if report.state.is_ok() {
                let (locks, pattern) = (locks.clone(), pattern.clone());
                scans.spawn(async move { (node, scan(&locks, node, &pattern, limit).await) });
            }
        }
        let mut cut = BTreeSet::new();
        let mut refusals = BTreeMap::new();
        let mut keys = BTreeSet::new();
        while let Some(Ok((node, scanned))) = scans.join_next().await {
            let LockScan { found, is_all, refusal } = scanned?;
            keys.extend(found);
            if !is_all {
                cut.insert(node);
            }
            refusals.extend(refusal.map(|words| (node, words)));
        }
        // The same keys on all nodes, so that what is seen of a lock is all there is.
        let mut wanted: Vec<Vec<u8>> = keys.into_iter().collect();
        if wanted.len() > limit {
            wanted.truncate(limit);
            cut.extend(
                group.nodes.iter().enumerate().filter(|(_, node)| node.state.is_ok()).map(|(node, _)| node),
            );
        }
        let mut inspections = JoinSet::new();
        for (node, report) in group.nodes.iter().enumerate() {
            if report.state.is_ok() {
                let (locks, wanted) = (locks.clone(), wanted.clone());
                inspections.spawn(async move { (node, inspect(&locks, node, &wanted).await) });
            }
        }
        let mut seen: BTreeMap<Vec<u8>, Vec<LockInfo>> = BTreeMap::new();
        while let Some(Ok((node, inspected))) = inspections.join_next().await {
            let (infos, refusal) = inspected?;
            for (key, info) in infos {
                seen.entry(key).or_default().push(info);
            }
            refusals.extend(refusal.map(|words| (node, words)));
        }
        let name = |node: usize| group.nodes.get(node).map(|node| node.node.to_string());
        let cut = cut.into_iter().filter_map(name).collect();
        let refusals = refusals.into_iter().filter_map(|(node, words)| Some((name(node)?, words))).collect();
        Ok(Self { nodes: group.nodes, locks: seen, cut, refusals, taken })
    }
}

/// Keys that begin with the prefix, whatever characters are in it.
fn pattern(prefix: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + 1);
    for byte in prefix.bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.push(b'*');
    pattern
}

/// The locks on one node.
#[derive(Default)]
struct LockScan {
    found: BTreeSet<Vec<u8>>,
    /// Whether these are all.
    is_all: bool,
    /// Why these are not all, if the node does not let us look.
    refusal: Option<String>,
}

async fn scan(locks: &LockManager, node: usize, pattern: &[u8], limit: usize) -> Result<LockScan, ExitError> {
    let mut scan = LockScan::default();
    let mut cursor = 0;
    for _ in 0..STEPS {
        let reply = locks.ask_node(node, &Query::scan_locks(cursor, pattern, STEP)).await?;
        // A node that does not answer, or does not let us look, shows what it has shown so far.
        scan.refusal = reply.response.as_ref().err().and_then(refusal);
        let Some((next, keys)) = reply.response.ok().and_then(step) else { return Ok(scan) };
        scan.found.extend(keys);
        cursor = next;
        scan.is_all = cursor == 0;
        if scan.is_all || scan.found.len() > limit {
            break;
        }
    }
    Ok(scan)
}

/// The words of a server that does not let us do what we ask. A node that is away is told of elsewhere.
fn refusal(failure: &redlock_client::Failure) -> Option<String> {
    (failure.kind == FailureKind::Rejected).then(|| failure.detail.to_string())
}

/// What one step of `SCAN` brought: where to go on, and keys.
fn step(response: Response) -> Option<(u64, Vec<Vec<u8>>)> {
    let items = response.items()?;
    let cursor = items.first()?.text()?.parse().ok()?;
    let keys = items.get(1)?.items()?;
    Some((cursor, keys.iter().filter_map(|key| key.bytes().map(<[u8]>::to_vec)).collect()))
}

async fn inspect(
    locks: &LockManager,
    node: usize,
    keys: &[Vec<u8>],
) -> Result<(Vec<(Vec<u8>, LockInfo)>, Option<String>), ExitError> {
    let mut infos = Vec::new();
    let mut refused = None;
    for some in keys.chunks(AT_ONCE) {
        let mut asked = JoinSet::new();
        for key in some {
            let (locks, key) = (locks.clone(), key.clone());
            asked.spawn(async move {
                let reply = locks.ask_node(node, &Query::inspect(key.clone())).await;
                (key, reply)
            });
        }
        while let Some(Ok((key, reply))) = asked.join_next().await {
            match reply?.response {
                Ok(response) => infos.extend(response.lock_info().map(|lock| (key, lock))),
                Err(failure) => refused = refusal(&failure).or(refused),
            }
        }
    }
    Ok((infos, refused))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_literally() {
        assert_eq!(pattern(""), b"*");
        assert_eq!(pattern("app:"), b"app:*");
        assert_eq!(pattern("a*[b]?\\"), b"a\\*\\[b\\]\\?\\\\*");
    }
}
