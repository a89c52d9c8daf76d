//! Asks the nodes which locks they hold, in bounded steps.
//!
//! A node may have millions of keys and a hundred thousand locks. A snapshot takes a limited number of steps of `SCAN`
//! on each node, and asks about a limited number of locks. It reports what it left out.

use crate::activity::CounterSample;
use crate::exit::ExitError;
use crate::group_report::{GroupReport, NodeReport};
use crate::lock_row::LockRow;
use crate::output::{failure_json, tame};
use redlock_client::{FailureKind, LockInfo, LockManager, Query, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use tokio::task::JoinSet;

/// How many keys one step of `SCAN` visits. It takes the server a fraction of a millisecond.
const STEP: u32 = 1_000;
/// How many locks to ask a node about at once. Acquires of other clients get their turn between these batches.
const AT_ONCE: usize = 32;

/// Which locks a snapshot contains, and how much it asks of each node.
#[derive(Clone, Debug)]
pub(crate) struct ScanScope {
    /// What the keys begin with, before the name of the resource.
    pub(crate) prefix: String,
    /// The pattern of the keys, as `SCAN` takes it.
    pub(crate) pattern: Vec<u8>,
    /// How many steps of `SCAN` to take on each node.
    pub(crate) steps: usize,
    /// How many locks to ask about.
    pub(crate) limit: usize,
}

/// The locks and nodes at one moment.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    pub(crate) group: GroupReport,
    /// By key: the answer of each node that holds the lock.
    pub(crate) locks: BTreeMap<Vec<u8>, Vec<LockInfo>>,
    /// The nodes whose list of locks is incomplete.
    pub(crate) cut: Vec<String>,
    /// The nodes that refused a command, with their error.
    pub(crate) refusals: Vec<(String, String)>,
    /// How many nodes showed no lock at all because they refused.
    blind: usize,
    prefix: String,
    pub(crate) taken: Instant,
}

impl Snapshot {
    /// The counters of the nodes, and when they were read.
    pub(crate) fn counters(&self) -> CounterSample<'_> {
        CounterSample { nodes: &self.group.nodes, taken: self.taken }
    }

    /// The locks, combined from the answers of all nodes.
    pub(crate) fn rows(&self) -> Vec<LockRow> {
        let quorum = self.group.quorum;
        let row = |(key, infos): (&Vec<u8>, &Vec<_>)| LockRow::new(key, &self.prefix, infos, quorum);
        self.locks.iter().filter_map(row).collect()
    }

    /// The nodes, these locks, and what is missing, as JSON.
    pub(crate) fn json<'a>(&self, rows: impl IntoIterator<Item = &'a LockRow>) -> Value {
        let node = |node: &NodeReport| match &node.state {
            Ok(state) => json!({
                "node": &*node.node,
                "up": true,
                "locks": state.locks,
                "waiters": state.waiters,
                "quarantine_ms": node.quarantine_ms(),
                "latency_ms": node.latency_ms(),
            }),
            Err(failure) => json!({"node": &*node.node, "up": false, "error": failure_json(failure)}),
        };
        let refusal = |(node, words): &(String, String)| json!({"node": node, "error": words});
        json!({
            "locks": rows.into_iter().map(LockRow::json).collect::<Vec<_>>(),
            "nodes": self.group.nodes.iter().map(node).collect::<Vec<_>>(),
            "needed": self.group.quorum.needed(),
            "cut": self.cut,
            "refused": self.refusals.iter().map(refusal).collect::<Vec<_>>(),
        })
    }

    /// The error if fewer than a majority of the nodes showed their locks: the others did not answer or refused.
    pub(crate) fn check_majority(&self) -> Result<(), ExitError> {
        let (nodes, quorum) = (&self.group.nodes, self.group.quorum);
        let answers = nodes.iter().filter(|node| node.state.is_ok()).count();
        let shown = answers.saturating_sub(self.blind);
        if quorum.is_reached_by(shown) {
            return Ok(());
        }
        let down = nodes.iter().filter_map(|node| Some((&node.node, node.state.as_ref().err()?)));
        let rejections = down.clone().filter(|(_, failure)| failure.kind == FailureKind::Rejected).count();
        let down = down.map(|(node, failure)| (node.to_string(), tame(&failure.to_string())));
        let refused = self.refusals.iter().map(|(node, words)| (node.clone(), tame(words)));
        let answers: Vec<(String, String)> = down.chain(refused).collect();
        let reasons: Vec<String> = answers.iter().map(|(node, words)| format!("{node}: {words}")).collect();
        let (of, needed) = (quorum.nodes(), quorum.needed());
        let message =
            format!("{shown} of {of} nodes showed their locks, {needed} are needed ({})", reasons.join("; "));
        Err(ExitError::too_few(message, quorum, self.blind + rejections).with_nodes(answers))
    }

    /// Says that locks are missing and why; `None` if the list is complete.
    pub(crate) fn omission(&self) -> Option<String> {
        if let Some((node, words)) = self.refusals.first() {
            return Some(format!("not all locks are shown: {} ({node})", tame(words)));
        }
        (!self.cut.is_empty()).then(|| {
            format!("not all locks are shown: the list of {} is cut (see --limit)", self.cut.join(", "))
        })
    }

    pub(crate) async fn take(locks: &LockManager, search: &ScanScope) -> Result<Self, ExitError> {
        let group = GroupReport::take(locks).await?;
        let taken = Instant::now();
        let limit = search.limit;
        let mut scans = JoinSet::new();
        for (node, report) in group.nodes.iter().enumerate() {
            if report.state.is_ok() {
                let (locks, search) = (locks.clone(), search.clone());
                scans.spawn(async move { (node, scan(&locks, node, &search).await) });
            }
        }
        let mut cut = BTreeSet::new();
        let mut refusals = BTreeMap::new();
        let mut blind = BTreeSet::new();
        let mut keys = BTreeSet::new();
        while let Some(Ok((node, scanned))) = scans.join_next().await {
            let LockScan { found, is_all, refusal } = scanned?;
            keys.extend(found);
            if !is_all {
                cut.insert(node);
            }
            blind.extend(refusal.as_ref().map(|_| node));
            refusals.extend(refusal.map(|words| (node, words)));
        }
        // Ask every node about the same keys, so that each lock is complete.
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
            // A user who may look at some keys is not blind.
            blind.extend(refusal.as_ref().filter(|_| infos.is_empty()).map(|_| node));
            for (key, info) in infos {
                seen.entry(key).or_default().push(info);
            }
            refusals.extend(refusal.map(|words| (node, words)));
        }
        let name = |node: usize| group.nodes.get(node).map(|node| node.node.to_string());
        let cut = cut.into_iter().filter_map(name).collect();
        let refusals = refusals.into_iter().filter_map(|(node, words)| Some((name(node)?, words))).collect();
        let (blind, prefix) = (blind.len(), search.prefix.clone());
        Ok(Self { group, locks: seen, cut, refusals, blind, prefix, taken })
    }
}

impl ScanScope {
    /// The keys that begin with the prefix and continue with a pattern.
    pub(crate) fn new(prefix: &str, rest: &str, steps: usize, limit: usize) -> Self {
        Self { prefix: prefix.to_owned(), pattern: pattern(prefix, rest), steps, limit }
    }
}

/// The pattern for keys that begin with the prefix and continue with a pattern. Escapes the special characters in the
/// prefix.
fn pattern(prefix: &str, rest: &str) -> Vec<u8> {
    let mut pattern = Vec::with_capacity(prefix.len() + rest.len());
    for byte in prefix.bytes() {
        if matches!(byte, b'*' | b'?' | b'[' | b']' | b'\\') {
            pattern.push(b'\\');
        }
        pattern.push(byte);
    }
    pattern.extend_from_slice(rest.as_bytes());
    pattern
}

/// The result of the scan of one node.
#[derive(Default)]
struct LockScan {
    found: BTreeSet<Vec<u8>>,
    /// Whether `found` contains all locks of the node.
    is_all: bool,
    /// The error of the node, if it refused the scan.
    refusal: Option<String>,
}

async fn scan(locks: &LockManager, node: usize, search: &ScanScope) -> Result<LockScan, ExitError> {
    let mut scan = LockScan::default();
    let mut cursor = 0;
    for _ in 0..search.steps {
        let reply = locks.ask_node(node, &Query::scan_locks(cursor, search.pattern.as_slice(), STEP)).await?;
        // If a node does not answer or refuses, keep what it has shown so far.
        scan.refusal = reply.response.as_ref().err().and_then(refusal);
        let Some((next, keys)) = reply.response.ok().and_then(step) else { return Ok(scan) };
        scan.found.extend(keys);
        cursor = next;
        scan.is_all = cursor == 0;
        if scan.is_all || scan.found.len() > search.limit {
            break;
        }
    }
    Ok(scan)
}

/// The error of a server that refused a command. Unreachable nodes are reported elsewhere.
fn refusal(failure: &redlock_client::Failure) -> Option<String> {
    (failure.kind == FailureKind::Rejected).then(|| failure.detail.to_string())
}

/// The result of one step of `SCAN`: the next cursor, and keys.
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
impl Snapshot {
    /// A snapshot of three nodes, without reports and refusals, for tests.
    pub(crate) fn of(locks: BTreeMap<Vec<u8>, Vec<LockInfo>>, cut: Vec<String>) -> Self {
        let quorum = redlock_client::Quorum::of(3).expect("three nodes");
        let (group, prefix) = (GroupReport { nodes: Vec::new(), quorum }, String::new());
        Self { group, locks, cut, refusals: Vec::new(), blind: 0, prefix, taken: Instant::now() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_taken_literally() {
        assert_eq!(pattern("", "*"), b"*");
        assert_eq!(pattern("app:", "job:?"), b"app:job:?");
        assert_eq!(pattern("a*[b]?\\", "*"), b"a\\*\\[b\\]\\?\\\\*");
    }
}
