//! What is wrong with one node and its server.

use super::Findings;
use super::Severity::{Error, Note, Warning};
use super::nodes::TWIN_REMEDY;
use crate::doctor::facts::{ExaminedNode, SUBSCRIBE};
use crate::duration::show;
use crate::group_report::{explanation, field, remedy};
use redlock_client::{Failure, FailureKind, NodeState};
use redlock_contract::commands::Verb;
use redlock_contract::limits::{MAX_FAR_STRIPES, RAISE_CAP, RAISE_STEP};
use std::time::Duration;

/// The oldest servers that the module runs on.
const OLDEST: [(&str, (u32, u32)); 2] = [("redis", (7, 0)), ("valkey", (7, 2))];

/// A quarantine longer than this is worth a thought before it comes. It is the default of `redlock.max-ttl`.
pub(super) const LONG_QUARANTINE: Duration = Duration::from_secs(3_600);

pub(super) const QUARANTINE_REMEDY: &str =
    "take short locks and extend them, and CONFIG SET redlock.max-ttl to the longest that you want to wait";

/// Above this share of its limit a server may soon have no memory for a lock.
const FULL_PERCENT: u64 = 90;

pub(super) fn examine(node: &ExaminedNode, findings: &mut Findings) {
    match &node.report.state {
        Err(failure) => away(node, failure, findings),
        Ok(state) => {
            vote(node, state, findings);
            if state.votes() && !state.quarantine.is_zero() {
                let reason =
                    format!("it may have forgotten locks, and grants none for {}", show(state.quarantine));
                let remedy = "wait; see the table of restarts in module/COMMANDS.md for what leads to this";
                findings.add(Warning, "quarantine", Some(&node.report.node), reason, remedy);
            }
            role(node, findings);
            version(node, findings);
            memory(node, findings);
            replicas(node, findings);
            persistence(node, findings);
            quarantine_to_come(node, state, findings);
            fences(node, state, findings);
            rights(node, findings);
        }
    }
}

fn away(node: &ExaminedNode, failure: &Failure, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let words = failure.to_string();
    if failure.kind == FailureKind::NoModule {
        let remedy = "add loadmodule /path/to/libredlock.so to its configuration, and restart it";
        findings.add(Error, "no-module", name, "the server has not loaded the redlock module", remedy);
    } else if let Some(twin) = node.report.twin() {
        findings.add(Error, "same-server", name, format!("it is the same node as {twin}"), TWIN_REMEDY);
    } else if failure.kind == FailureKind::LoginRefused {
        let remedy =
            "check the user and the password, and the rights of the user: see Users in module/OPERATIONS.md";
        findings.add(Error, "login", name, format!("it does not let us in: {words}"), remedy);
    } else {
        let remedy = "check that the server runs, and that its address, port and TLS are as named";
        findings.add(Error, "unreachable", name, words, remedy);
    }
}

/// A server that cannot prove which node it is does not vote. That a replica is one is found by its role.
fn vote(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    if let Some(word) = state.non_voting.as_deref().filter(|_| !state.is_replica) {
        let reason = format!("it does not vote and grants nothing: {}", explanation(word));
        let remedy = remedy(word, &node.report.node);
        findings.add(Error, "non-voting", Some(&node.report.node), reason, remedy);
    }
}

/// Fences that a client has raised far: a key has as many left as are above its fence.
fn fences(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let high_water = state.high_water.unwrap_or_default();
    if high_water > RAISE_CAP {
        let reason = format!(
            "its high-water mark is {high_water}, above 2^62 ({RAISE_CAP}): above it one command raises a fence by at \
             most 2^20 ({RAISE_STEP})"
        );
        findings.add(Warning, "high-fences", name, reason, RAISES_REMEDY);
    }
    let far = node.report.numbers.get("far_stripes").copied().unwrap_or(0);
    let most = u64::try_from(MAX_FAR_STRIPES).unwrap_or(u64::MAX);
    if far.saturating_mul(2) > most {
        let reason = format!(
            "{far} stripes of keys have a high-water mark of their own, {most} may: after that the fences of all keys \
             rise to the middle one of those marks"
        );
        findings.add(Warning, "far-stripes", name, reason, RAISES_REMEDY);
    }
}

const RAISES_REMEDY: &str = "look for a client that raises fences far (FENCE of REDLOCK.ACQUIRE and REDLOCK.EXTEND), and \
                             give every application only its own keys: see Users in module/OPERATIONS.md";

fn role(node: &ExaminedNode, findings: &mut Findings) {
    match node.role.as_deref() {
        Some("master") | None => {}
        Some(role) => {
            let reason = format!("it is no master but a {role}: it grants nothing");
            let remedy = "name its master, or let Sentinel name it ([[sentinel]] in the file of settings)";
            findings.add(Error, "replica", Some(&node.report.node), reason, remedy);
        }
    }
}

fn version(node: &ExaminedNode, findings: &mut Findings) {
    let Some(server) = &node.report.server else { return };
    let Some((_, oldest)) = OLDEST.iter().find(|(name, _)| *name == server.name) else { return };
    if server.major_minor().is_some_and(|version| version < *oldest) {
        let (major, minor) = oldest;
        let reason = format!("{} {} is older than {major}.{minor}", server.name, server.version);
        findings.add(Error, "old-server", Some(&node.report.node), reason, "upgrade the server");
    }
}

fn memory(node: &ExaminedNode, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let limit = node.number("maxmemory").unwrap_or(0);
    if let Some(policy) = node.setting("maxmemory-policy").filter(|policy| policy.starts_with("allkeys-")) {
        let remedy =
            "CONFIG SET maxmemory-policy noeviction, or a volatile-* policy: those never take a lock";
        if limit > 0 {
            let reason = format!("maxmemory-policy {policy} may evict a lock that is held");
            findings.add(Error, "eviction", name, reason, remedy);
        } else {
            let reason = format!("maxmemory-policy {policy} would evict locks if maxmemory were set");
            findings.add(Warning, "eviction", name, reason, remedy);
        }
    }
    let used = node.used_memory.unwrap_or(0);
    if limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(FULL_PERCENT) {
        let reason =
            format!("{used} of {limit} bytes of memory are used: a server without memory grants nothing");
        findings.add(Warning, "memory", name, reason, "give it more, or keep other data elsewhere");
    }
}

/// Locks are writes, and a server that wants replicas refuses writes without them.
fn replicas(node: &ExaminedNode, findings: &mut Findings) {
    if let Some(wanted) = node.number("min-replicas-to-write").filter(|wanted| *wanted > 0) {
        let reason = format!(
            "min-replicas-to-write is {wanted}: it refuses every lock while fewer replicas are connected"
        );
        let remedy = "CONFIG SET min-replicas-to-write 0: a promoted replica does not vote until it is admitted, and \
                      another master is worth more than a replica";
        findings.add(Warning, "replicas", Some(&node.report.node), reason, remedy);
    }
}

fn persistence(node: &ExaminedNode, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    if node.setting("redlock.restart-grace") == Some("off") {
        let remedy = "CONFIG SET redlock.restart-grace auto, and CONFIG REWRITE";
        let appends = node.setting("appendonly") == Some("yes");
        let snapshots = node.setting("save").is_some_and(|save| !save.is_empty());
        if appends && node.setting("appendfsync") == Some("always") {
            let reason = "redlock.restart-grace is off: only the AOF keeps locks over a crash";
            findings.add(Note, "restart-grace", name, reason, remedy);
        } else if appends || snapshots {
            let reason = "redlock.restart-grace is off, and what is stored may lack the last locks: after a crash a lock can be held twice";
            findings.add(Warning, "restart-grace", name, reason, remedy);
        } else {
            let reason = "redlock.restart-grace is off, and nothing is stored: after a restart a lock can be held twice";
            findings.add(Error, "restart-grace", name, reason, remedy);
        }
    }
    let failed = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"]
        .into_iter()
        .filter(|status| field(&node.persistence, status).is_some_and(|status| status != "ok"));
    for status in failed {
        let reason = format!(
            "{status} is not ok: if its dir cannot be written, neither can its state file, and it grants nothing"
        );
        findings.add(Warning, "disk", name, reason, "make room on the disk, and see the server's log");
    }
}

/// A node that crashes waits for the longest lease that may still run.
fn quarantine_to_come(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    if state.longest_lease > LONG_QUARANTINE {
        let lease = show(state.longest_lease);
        let reason =
            format!("leases of up to {lease} may run there: after a crash it grants nothing for {lease}");
        findings.add(Warning, "long-quarantine", Some(&node.report.node), reason, QUARANTINE_REMEDY);
    }
}

/// The commands that a client needs to lock. A user without any of them only observes.
const TO_LOCK: [Verb; 3] = [Verb::Acquire, Verb::Extend, Verb::Release];

fn rights(node: &ExaminedNode, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let mut add =
        |severity, check, reason: String, remedy: &str| findings.add(severity, check, name, reason, remedy);
    if node.settings.is_empty() {
        let reason = "this user may not read settings: doctor did not check limits, eviction and persistence";
        let remedy = "grant +config|get to the user that runs doctor, or run it as another user";
        add(Note, "settings", reason.to_owned(), remedy);
    }
    if node.report.numbers.is_empty() {
        let reason = "this user may not read INFO: doctor did not check versions, memory and counts";
        let remedy = "grant +info to the user that runs doctor, or run it as another user";
        add(Note, "settings", reason.to_owned(), remedy);
    }
    let Some(missing) = &node.missing_rights else {
        let remedy = "grant +acl|whoami +acl|dryrun to the user that runs doctor, or run it as another user";
        return add(Note, "rights", "this user may not read its own rights".to_owned(), remedy);
    };
    let is_missing = |needed: &Verb| missing.iter().any(|(command, _)| *command == needed.name());
    if TO_LOCK.iter().all(is_missing) {
        let reason = "this user may not acquire locks: doctor did not check the users that do";
        return add(Note, "rights", reason.to_owned(), "run doctor as the user of an application, too");
    }
    for (command, words) in missing {
        if *command == SUBSCRIBE {
            let reason = "this user may not subscribe to redlock:grant:*: its clients poll for held locks";
            add(Note, "rights", reason.to_owned(), "grant +subscribe and &redlock:grant:* to the user");
        } else {
            // A client that locks one resource at a time, and inspects nothing, needs no other command.
            let is_needed = TO_LOCK.iter().any(|needed| needed.name() == *command);
            let severity = if is_needed { Error } else { Warning };
            let reason = format!("{command} is not allowed: {words}");
            add(severity, "rights", reason, "see Users in module/OPERATIONS.md for rules to copy");
        }
    }
}
