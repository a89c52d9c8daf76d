//! What is wrong with the nodes together.

use super::Severity::{Error, Note, Warning};
use super::servers::{LONG_QUARANTINE, QUARANTINE_REMEDY};
use super::{Findings, GroupFacts};
use crate::doctor::facts::ExaminedNode;
use crate::duration::{show, show_latency};
use crate::group_report::quorum_of;
use redlock_client::{NodeState, Origin};
use std::collections::BTreeMap;
use std::time::Duration;

/// Clocks further apart than this are a sign of a sick host.
const CLOCKS_MS: i64 = 1_000;

/// A node is slow if it takes so many times as long as the one in the middle, and at least so long.
const SLOW: (u32, Duration) = (5, Duration::from_millis(20));

pub(super) fn examine(facts: &GroupFacts, findings: &mut Findings) {
    number(facts, findings);
    majority(facts, findings);
    twins(facts, findings);
    hosts(facts, findings);
    versions(facts, findings);
    newcomers(facts, findings);
    limits(facts, findings);
    clocks(facts, findings);
    latencies(facts, findings);
}

fn states(facts: &GroupFacts) -> impl Iterator<Item = (&ExaminedNode, &NodeState)> {
    facts.nodes.iter().filter_map(|node| Some((node, node.report.state.as_ref().ok()?)))
}

fn number(facts: &GroupFacts, findings: &mut Findings) {
    let count = facts.nodes.len();
    if count < 3 {
        let reason = format!("with {count} nodes the failure of one is the end of all locks");
        findings.add(
            Warning,
            "few-nodes",
            None,
            reason,
            "use three nodes, or five, on machines of their own",
        );
    } else if count.is_multiple_of(2) {
        let reason = format!("{count} nodes survive no more failures than {} would", count - 1);
        findings.add(
            Warning,
            "even-nodes",
            None,
            reason,
            "take one away or add one: an odd number costs nothing",
        );
    }
}

fn majority(facts: &GroupFacts, findings: &mut Findings) {
    let granting = facts.nodes.iter().filter(|node| node.report.can_grant()).count();
    let quorum = quorum_of(facts.nodes.len());
    if !quorum.is_reached_by(granting) {
        let needed = quorum.needed();
        let reason = format!("no lock can be granted: {granting} nodes grant, {needed} are needed");
        findings.add(Error, "no-quorum", None, reason, "see the nodes that are named below");
    }
}

/// Two addresses of one server are one witness. The client finds that out by itself, and does not let one of them vote.
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

pub(super) const TWIN_REMEDY: &str = "name every server once: two addresses of one are one vote";

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
            "the module is there in {} versions: {}",
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

/// A node that has started for the first time among nodes that have not may have lost its disk. The server itself cannot
/// tell a wiped disk from a new node.
fn newcomers(facts: &GroupFacts, findings: &mut Findings) {
    let incarnation = |state: &NodeState| state.incarnation.unwrap_or_default();
    let is_new = |state: &NodeState| incarnation(state) == 1 && state.origin == Some(Origin::New);
    for (node, _) in states(facts).filter(|(_, state)| state.votes() && is_new(state)) {
        let mut others = states(facts).filter(|(other, _)| other.report.node != node.report.node).peekable();
        if others.peek().is_some() && others.all(|(_, other)| incarnation(other) > 1) {
            let reason = "it votes as a new node that has started for the first time, and every other node has run before";
            let remedy = format!(
                "nothing, if it is the first node at this address. If it replaces one, or its disk was wiped: \
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
        if let Some(limit) = node.number("redlock.max-ttl") {
            limits.entry(limit).or_default().push(&node.report.node);
        }
    }
    if limits.len() > 1 {
        let each = limits
            .iter()
            .map(|(ms, nodes)| format!("{} on {}", show(Duration::from_millis(*ms)), nodes.join(", ")));
        let reason = format!("redlock.max-ttl differs: {}", each.collect::<Vec<_>>().join("; "));
        let remedy = "CONFIG SET redlock.max-ttl to the same on all nodes: a lock that some refuse may lack a majority";
        findings.add(Warning, "max-ttl", None, reason, remedy);
    }
    let long = u64::try_from(LONG_QUARANTINE.as_millis()).unwrap_or(u64::MAX);
    for (limit, nodes) in limits.range(long.saturating_add(1)..) {
        let limit = show(Duration::from_millis(*limit));
        let reason = format!(
            "redlock.max-ttl is {limit} on {}: one lock of that length, and a crash means {limit} without grants",
            nodes.join(", ")
        );
        findings.add(Note, "long-quarantine", None, reason, QUARANTINE_REMEDY);
    }
    let ttl_ms = u64::try_from(facts.ttl.as_millis()).unwrap_or(u64::MAX);
    for (limit, nodes) in limits.range(..ttl_ms) {
        let (limit, ttl) = (show(Duration::from_millis(*limit)), show(facts.ttl));
        let reason =
            format!("{} grant locks for {limit} at the most, and {ttl} is asked for", nodes.join(", "));
        findings.add(Error, "max-ttl", None, reason, "ask for less, or raise redlock.max-ttl");
    }
}

fn clocks(facts: &GroupFacts, findings: &mut Findings) {
    for node in &facts.nodes {
        let Some(ms) = node.clock_ms.filter(|ms| ms.abs() > CLOCKS_MS) else { continue };
        let (by, way) =
            (show(Duration::from_millis(ms.unsigned_abs())), if ms < 0 { "behind" } else { "ahead of" });
        let reason = format!(
            "its clock is {by} {way} ours. No lock depends on what clocks show, but a healthy host has the right time"
        );
        findings.add(
            Note,
            "clock",
            Some(&node.report.node),
            reason,
            "see to the time service of that host, or of this one",
        );
    }
}

fn latencies(facts: &GroupFacts, findings: &mut Findings) {
    let mut all: Vec<Duration> = states(facts).map(|(node, _)| node.report.latency).collect();
    all.sort_unstable();
    let Some(middle) = all.get(usize::midpoint(0, all.len())).copied().filter(|_| all.len() > 2) else {
        return;
    };
    let (times, least) = SLOW;
    for (node, _) in states(facts) {
        let latency = node.report.latency;
        if latency > middle * times && latency > least {
            let reason = format!(
                "it took {} to answer, the node in the middle {}",
                show_latency(latency),
                show_latency(middle)
            );
            let remedy = "look for a slow command (SLOWLOG), swapping, a busy host or a long way";
            findings.add(Warning, "slow-node", Some(&node.report.node), reason, remedy);
        }
    }
}
