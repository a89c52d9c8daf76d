//! Checks of all nodes together.

use super::Severity::{Error, Note, Warning};
use super::servers::{LONG_QUARANTINE, QUARANTINE_REMEDY, RAISES_REMEDY};
use super::{Findings, GroupFacts};
use crate::doctor::facts::ExaminedNode;
use crate::duration::{show, show_latency};
use redlock_client::{GroupStanding, HighWater, NodeState, Origin};
use redlock_contract::limits::MAX_FAR_STRIPES;
use redlock_contract::settings;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A larger difference between two clocks, in milliseconds, hints at a problem of the host.
const CLOCKS_MS: i64 = 1_000;

/// A node is slow if its latency is above this multiple of the median, and above this duration.
const SLOW: (u32, Duration) = (5, Duration::from_millis(20));

/// Whether a setting should be equal on all nodes. `max-ttl` and `restart-grace` have checks of their own.
fn should_be_equal(name: &str) -> bool {
    name != settings::MAX_TTL && name != settings::RESTART_GRACE
}

/// A larger difference between two common high-water marks does not come from restarts: that would take thousands.
const APART: u64 = 1 << 32;

pub(super) fn examine(facts: &GroupFacts, findings: &mut Findings) {
    number(facts, findings);
    majority(facts, findings);
    twins(facts, findings);
    hosts(facts, findings);
    versions(facts, findings);
    newcomers(facts, findings);
    limits(facts, findings);
    settings(facts, findings);
    marks(facts, findings);
    raised(facts, findings);
    clocks(facts, findings);
    latencies(facts, findings);
}

fn states(facts: &GroupFacts) -> impl Iterator<Item = (&ExaminedNode, &NodeState)> {
    facts.nodes.iter().filter_map(|node| Some((node, node.report.state.as_ref().ok()?)))
}

fn number(facts: &GroupFacts, findings: &mut Findings) {
    let count = facts.nodes.len();
    if count < 3 {
        let reason = format!("fewer than three nodes ({count}): when one fails, no lock can be granted");
        findings.add(
            Warning,
            "few-nodes",
            None,
            reason,
            "use three or five nodes, each on a machine of its own",
        );
    } else if count.is_multiple_of(2) {
        let reason = format!("{count} nodes tolerate no more failures than {} nodes", count - 1);
        findings.add(Warning, "even-nodes", None, reason, "remove one node or add one");
    }
}

fn majority(facts: &GroupFacts, findings: &mut Findings) {
    let standing = GroupStanding::of(facts.quorum, facts.nodes.iter().map(|node| &node.report.state));
    if !standing.can_grant() {
        let reason = format!("no lock can be granted: {standing}");
        findings.add(Error, "no-quorum", None, reason, "see the findings about single nodes");
    }
}

/// Two addresses of one server are one vote. The client also detects this, and then counts only one of them.
fn twins(facts: &GroupFacts, findings: &mut Findings) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for node in &facts.nodes {
        let Some(server) = node.report.server.as_ref().filter(|server| !server.run_id.is_empty()) else {
            continue;
        };
        if let Some(twin) = seen.insert(&server.run_id, &node.report.node) {
            let reason = format!("it is the same server as {twin}");
            findings.add(Error, "same-server", Some(&node.report.node), reason, TWIN_REMEDY);
        }
    }
}

pub(super) const TWIN_REMEDY: &str = "list every server once: two addresses of one server are one vote";

fn hosts(facts: &GroupFacts, findings: &mut Findings) {
    let mut hosts: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for node in &facts.nodes {
        if let Some(host) = node.host() {
            hosts.entry(host).or_default().push(&node.report.node);
        }
    }
    for (host, nodes) in hosts.into_iter().filter(|(_, nodes)| nodes.len() > 1) {
        let reason = format!("{} are on {host}: they fail together", nodes.join(", "));
        findings.add(Warning, "same-host", None, reason, "put every node on a machine of its own");
    }
}

fn versions(facts: &GroupFacts, findings: &mut Findings) {
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (node, state) in states(facts) {
        versions.entry(&state.version).or_default().push(&node.report.node);
    }
    if versions.len() > 1 {
        let each = versions.iter().map(|(version, nodes)| format!("{version} on {}", nodes.join(", ")));
        let reason = format!(
            "the nodes run {} versions of the module: {}",
            versions.len(),
            each.collect::<Vec<_>>().join("; ")
        );
        findings.add(Warning, "mixed-versions", None, reason, "finish the upgrade, one node at a time");
    }
    if states(facts).any(|(_, state)| state.claim_window.is_none()) {
        let reason = "the module on some nodes is too old to queue clients: clients poll for held locks";
        findings.add(Note, "no-waiting", None, reason, "use the same, recent module on all nodes");
    }
}

/// A node on its first start among nodes that have run before may have lost its disk. The server itself cannot
/// distinguish a wiped disk from a new node.
fn newcomers(facts: &GroupFacts, findings: &mut Findings) {
    let incarnation = |state: &NodeState| state.incarnation.unwrap_or_default();
    let is_new = |state: &NodeState| incarnation(state) == 1 && state.origin == Some(Origin::New);
    for (node, _) in states(facts).filter(|(_, state)| state.votes() && is_new(state)) {
        let mut others = states(facts).filter(|(other, _)| other.report.node != node.report.node).peekable();
        if others.peek().is_some() && others.all(|(_, other)| incarnation(other) > 1) {
            let reason = "it votes as a new node on its first start, and every other node has run before";
            let remedy = format!(
                "do nothing if it is the first node at this address. If it replaces a node, or its disk was wiped: \
                 `redlock admit --force {}`",
                node.report.node
            );
            findings.add(Note, "new-node", Some(&node.report.node), reason, remedy);
        }
    }
}

fn limits(facts: &GroupFacts, findings: &mut Findings) {
    let mut limits: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for node in &facts.nodes {
        if let Some(limit) = node.module_number(settings::MAX_TTL) {
            limits.entry(limit).or_default().push(&node.report.node);
        }
    }
    if limits.len() > 1 {
        let each = limits
            .iter()
            .map(|(ms, nodes)| format!("{} on {}", show(Duration::from_millis(*ms)), nodes.join(", ")));
        let reason = format!("redlock.max-ttl differs: {}", each.collect::<Vec<_>>().join("; "));
        let remedy = "CONFIG SET redlock.max-ttl to one value on all nodes: a lock that some nodes refuse may lack a majority";
        findings.add(Warning, "max-ttl", None, reason, remedy);
    }
    let long = u64::try_from(LONG_QUARANTINE.as_millis()).unwrap_or(u64::MAX);
    for (limit, nodes) in limits.range(long.saturating_add(1)..) {
        let limit = show(Duration::from_millis(*limit));
        let reason = format!(
            "redlock.max-ttl is {limit} on {}: after one lock of that length, a node that crashes grants nothing for \
             {limit}",
            nodes.join(", ")
        );
        findings.add(Note, "long-quarantine", None, reason, QUARANTINE_REMEDY);
    }
    let ttl_ms = u64::try_from(facts.ttl.as_millis()).unwrap_or(u64::MAX);
    for (limit, nodes) in limits.range(..ttl_ms) {
        let (limit, ttl) = (show(Duration::from_millis(*limit)), show(facts.ttl));
        let reason = format!(
            "redlock.max-ttl is {limit} on {}, and the time to live in your settings is {ttl}",
            nodes.join(", ")
        );
        findings.add(Error, "max-ttl", None, reason, "use a shorter ttl, or raise redlock.max-ttl");
    }
}

fn settings(facts: &GroupFacts, findings: &mut Findings) {
    for name in settings::ALL.into_iter().filter(|name| should_be_equal(name)) {
        let mut values: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for node in &facts.nodes {
            if let Some(value) = node.module_setting(name) {
                values.entry(value).or_default().push(&node.report.node);
            }
        }
        if values.len() > 1 {
            let each = values.iter().map(|(value, nodes)| format!("{value} on {}", nodes.join(", ")));
            let name = format!("{}{name}", settings::PREFIX);
            let reason = format!("{name} differs: {}", each.collect::<Vec<_>>().join("; "));
            let remedy = format!("CONFIG SET {name} to one value on all nodes");
            findings.add(Note, "settings-differ", None, reason, remedy);
        }
    }
}

/// High-water marks that are far apart: every key whose majority includes the node with the larger mark gets a much
/// larger fence.
fn marks(facts: &GroupFacts, findings: &mut Findings) {
    let mark = |(node, state): (&'_ ExaminedNode, &'_ NodeState)| {
        Some((state.high_water_marks.as_ref()?.common(), node.report.node.to_string()))
    };
    let marks: Vec<(u64, String)> =
        states(facts).filter(|(_, state)| state.votes()).filter_map(mark).collect();
    let (Some((least, low)), Some((most, high))) = (marks.iter().min(), marks.iter().max()) else { return };
    if most - least > APART {
        let reason = format!(
            "the high-water marks are far apart, {least} on {low} and {most} on {high}: fences jump when {high} votes"
        );
        let remedy = "nothing is broken, and fences only increase. Look for a node that was admitted with too large a --floor, \
                      or a client that raises fences far (FENCE)";
        findings.add(Note, "marks-apart", None, reason, remedy);
    }
}

/// Warns if the nodes together have too many far stripes: an admitted node takes over the marks of all others. Too many
/// on a single node are another finding.
fn raised(facts: &GroupFacts, findings: &mut Findings) {
    let voting = states(facts).filter(|(_, state)| state.votes());
    let marks: Vec<&HighWater> = voting.filter_map(|(_, state)| state.high_water_marks.as_ref()).collect();
    let common = marks.iter().map(|marks| marks.common()).max().unwrap_or_default();
    let far = marks.iter().flat_map(|marks| marks.far()).filter(|(_, mark)| *mark > common);
    let stripes = far.map(|(stripe, _)| stripe).collect::<BTreeSet<_>>().len();
    let is_many = |stripes: usize| stripes > MAX_FAR_STRIPES / 2;
    if is_many(stripes) && !marks.iter().any(|marks| is_many(marks.far().len())) {
        let reason = format!(
            "{stripes} stripes of keys have a high-water mark of their own, on all nodes together, and the limit is \
             {MAX_FAR_STRIPES}: beyond it, the fences of all keys of an admitted node rise to the median of those marks"
        );
        findings.add(Warning, "far-stripes", None, reason, RAISES_REMEDY);
    }
}

fn clocks(facts: &GroupFacts, findings: &mut Findings) {
    for node in &facts.nodes {
        let Some(ms) = node.clock_ms.filter(|ms| ms.abs() > CLOCKS_MS) else { continue };
        let (by, way) =
            (show(Duration::from_millis(ms.unsigned_abs())), if ms < 0 { "behind" } else { "ahead of" });
        let reason = format!(
            "its clock is {by} {way} the clock of this machine. No lock depends on wall clocks, but a healthy host has \
             a correct clock"
        );
        findings.add(
            Note,
            "clock",
            Some(&node.report.node),
            reason,
            "check the time service of that host and of this one",
        );
    }
}

fn latencies(facts: &GroupFacts, findings: &mut Findings) {
    let mut all: Vec<Duration> = states(facts).map(|(node, _)| node.report.latency).collect();
    all.sort_unstable();
    let Some(median) = all.get(usize::midpoint(0, all.len())).copied().filter(|_| all.len() > 2) else {
        return;
    };
    let (times, least) = SLOW;
    for (node, _) in states(facts) {
        let latency = node.report.latency;
        if latency > median * times && latency > least {
            let reason = format!(
                "it took {} to answer, and the median of all nodes is {}",
                show_latency(latency),
                show_latency(median)
            );
            let remedy = "look for slow commands (SLOWLOG), swapping, a busy host or a long network path";
            findings.add(Warning, "slow-node", Some(&node.report.node), reason, remedy);
        }
    }
}
