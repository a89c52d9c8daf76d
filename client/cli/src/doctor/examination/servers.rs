//! Checks of one node and its server.

use super::Findings;
use super::Severity::{Error, Note, Warning};
use super::nodes::TWIN_REMEDY;
use crate::doctor::facts::{ExaminedNode, SUBSCRIBE};
use crate::duration::show;
use crate::group_report::field;
use redlock_client::{Failure, FailureKind, NodeStanding, NodeState};
use redlock_contract::commands::Verb;
use redlock_contract::fields::info;
use redlock_contract::limits::{DEFAULT_MAX_TTL_MS, MAX_FAR_STRIPES, RAISE_CAP, RAISE_STEP};
use redlock_contract::settings;
use std::time::Duration;

/// The oldest servers that the module runs on.
const OLDEST: [(&str, (u32, u32)); 2] = [("redis", (7, 0)), ("valkey", (7, 2))];

/// The doctor reports a possible quarantine that is longer. This is the default of `redlock.max-ttl`.
pub(super) const LONG_QUARANTINE: Duration = Duration::from_millis(DEFAULT_MAX_TTL_MS);

pub(super) const QUARANTINE_REMEDY: &str = "use short leases and extend them, and CONFIG SET redlock.max-ttl to the longest quarantine that you accept";

/// A server that uses at least this share of `maxmemory` may soon have no memory for a lock.
const FULL_PERCENT: u64 = 90;

/// A node that uses at least this share of a limit on waiters will soon refuse to queue clients.
const QUEUED_PERCENT: u64 = 80;

pub(super) fn examine(node: &ExaminedNode, findings: &mut Findings) {
    match &node.report.state {
        Err(failure) => away(node, failure, findings),
        Ok(state) => {
            vote(node, state, findings);
            if let NodeStanding::Quarantine(left) = state.standing() {
                let reason = format!("it may have forgotten locks, and grants nothing for {}", show(left));
                let remedy = "wait; the table of restarts in module/COMMANDS.md lists the causes";
                findings.add(Warning, "quarantine", Some(&node.report.node), reason, remedy);
            }
            role(node, findings);
            version(node, findings);
            memory(node, findings);
            replicas(node, findings);
            waiters(node, state, findings);
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
        let remedy = "add the line loadmodule /path/to/libredlock.so to its configuration, and restart it";
        findings.add(Error, "no-module", name, "the server has not loaded the redlock module", remedy);
    } else if let Some(twin) = node.report.twin() {
        findings.add(Error, "same-server", name, format!("it is the same node as {twin}"), TWIN_REMEDY);
    } else if failure.kind == FailureKind::LoginRefused {
        let remedy = "check the user and the password, and the permissions of the user: see Users in module/OPERATIONS.md";
        findings.add(Error, "login", name, format!("it refuses the login: {words}"), remedy);
    } else {
        let remedy =
            "check that the server runs, and that its address, its port and the TLS settings are right";
        findings.add(Error, "unreachable", name, words, remedy);
    }
}

/// A server that cannot prove which node it is does not vote. A replica does not vote either; the check of the role
/// reports it.
fn vote(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    if let NodeStanding::NonVoting(why) = state.standing() {
        let reason = format!("it does not vote and grants nothing: {}", why.explanation());
        findings.add(Error, "non-voting", Some(&node.report.node), reason, why.remedy(&node.report.node));
    }
}

/// Fences that a client has raised far: a key can only use the fences above its last one.
fn fences(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let high_water = state.high_water.unwrap_or_default();
    if high_water > RAISE_CAP {
        let reason = format!(
            "its high-water mark is {high_water}, above 2^{} ({RAISE_CAP}): there, one command raises a fence by at \
             most 2^{} ({RAISE_STEP})",
            RAISE_CAP.ilog2(),
            RAISE_STEP.ilog2()
        );
        findings.add(Warning, "high-fences", name, reason, RAISES_REMEDY);
    }
    let far = node.report.numbers.get(info::FAR_STRIPES).copied().unwrap_or(0);
    let most = u64::try_from(MAX_FAR_STRIPES).unwrap_or(u64::MAX);
    if far.saturating_mul(2) > most {
        let reason = format!(
            "{far} stripes of keys have a high-water mark of their own, and the limit is {most}: beyond it, the fences \
             of all keys rise to the median of those marks after the next restart"
        );
        findings.add(Warning, "far-stripes", name, reason, RAISES_REMEDY);
    }
}

pub(super) const RAISES_REMEDY: &str = "look for a client that raises fences far (FENCE of REDLOCK.ACQUIRE and REDLOCK.EXTEND), and \
                             limit every application to its own keys: see Users in module/OPERATIONS.md";

fn role(node: &ExaminedNode, findings: &mut Findings) {
    match node.role.as_deref() {
        Some("master") | None => {}
        Some(role) => {
            let reason = format!("it is not a master (its role is {role}): it grants nothing");
            let remedy = "list its master instead, or let Sentinel find the master ([[sentinel]] in the settings file)";
            findings.add(Error, "replica", Some(&node.report.node), reason, remedy);
        }
    }
}

fn version(node: &ExaminedNode, findings: &mut Findings) {
    let Some(server) = &node.report.server else { return };
    let Some((_, oldest)) = OLDEST.iter().find(|(name, _)| *name == server.name) else { return };
    if server.major_minor().is_some_and(|version| version < *oldest) {
        let (major, minor) = oldest;
        let reason = format!(
            "{} {} is older than {major}.{minor}, the oldest version that the module supports",
            server.name, server.version
        );
        findings.add(Error, "old-server", Some(&node.report.node), reason, "upgrade the server");
    }
}

fn memory(node: &ExaminedNode, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    let limit = node.number("maxmemory").unwrap_or(0);
    if let Some(policy) = node.setting("maxmemory-policy").filter(|policy| policy.starts_with("allkeys-")) {
        let remedy =
            "CONFIG SET maxmemory-policy noeviction, or a volatile-* policy: these never evict a lock";
        if limit > 0 {
            let reason = format!("maxmemory-policy {policy} may evict a held lock");
            findings.add(Error, "eviction", name, reason, remedy);
        } else {
            let reason = format!("maxmemory-policy {policy} would evict held locks if maxmemory were set");
            findings.add(Warning, "eviction", name, reason, remedy);
        }
    }
    let used = node.used_memory.unwrap_or(0);
    if limit > 0 && used.saturating_mul(100) >= limit.saturating_mul(FULL_PERCENT) {
        let reason =
            format!("{used} of {limit} bytes (maxmemory) are used: a server without memory grants nothing");
        findings.add(
            Warning,
            "memory",
            name,
            reason,
            "raise maxmemory, or keep other data on another server",
        );
    }
}

/// An acquire is a write, and a server with `min-replicas-to-write` refuses writes without enough replicas.
fn replicas(node: &ExaminedNode, findings: &mut Findings) {
    if let Some(wanted) = node.number("min-replicas-to-write").filter(|wanted| *wanted > 0) {
        let reason = format!(
            "min-replicas-to-write is {wanted}: the node refuses every lock while fewer replicas are connected"
        );
        let remedy = "CONFIG SET min-replicas-to-write 0, and add a node instead of a replica: a promoted replica does not \
                      vote until it is admitted";
        findings.add(Warning, "replicas", Some(&node.report.node), reason, remedy);
    }
    if !node.replicas.is_empty() {
        let reason = format!(
            "it has replicas, {}: if Sentinel or an operator promotes one, that server does not vote",
            node.replicas.join(", ")
        );
        let remedy = "keep them for reading or backups only, or know the procedure: Failing over in module/OPERATIONS.md. A \
                      further node tolerates a failure without a promotion";
        findings.add(Note, "replicas", Some(&node.report.node), reason, remedy);
    }
}

/// One limit on the waiters of a node.
struct WaiterLimit {
    /// The field of `INFO redlock` that says how much of the limit is used.
    used: &'static str,
    /// The field of `INFO redlock` with the limit.
    limit: &'static str,
    /// The name of the setting, without its prefix.
    setting: &'static str,
    /// What is counted.
    what: &'static str,
    /// The first half of the remedy. The report appends `, or raise` and the name of the setting.
    remedy: &'static str,
}

const WAITER_LIMITS: [WaiterLimit; 4] = [
    WaiterLimit {
        used: info::WAITER_KEYS,
        limit: info::MAX_WAITERS,
        setting: settings::MAX_WAITERS,
        what: "waiters on the node, each counted once for each of its keys,",
        remedy: "look for locks that are held for too long (redlock ls)",
    },
    WaiterLimit {
        used: info::LONGEST_QUEUE,
        limit: info::MAX_WAITERS_PER_KEY,
        setting: settings::MAX_WAITERS_PER_KEY,
        what: "waiters for one key",
        remedy: "look for the lock with the most waiters (redlock ls): hold it for a shorter time, or split its resource",
    },
    WaiterLimit {
        used: info::MOST_WAITERS_ON_CONNECTION,
        limit: info::MAX_WAITERS_PER_CONNECTION,
        setting: settings::MAX_WAITERS_PER_CONNECTION,
        what: "waiters on one connection, each counted once for each of its keys,",
        remedy: "let one client process wait for fewer locks at a time",
    },
    WaiterLimit {
        used: info::WAITERS_BYTES,
        limit: info::MAX_WAITERS_BYTES,
        setting: settings::MAX_WAITERS_MEMORY,
        what: "bytes of waiters",
        remedy: "look for locks that are held for too long (redlock ls), and for long keys, owners and labels",
    },
];

/// A node that has reached one of its limits on waiters refuses further requests to queue.
fn waiters(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    for WaiterLimit { used, limit, setting, what, remedy } in WAITER_LIMITS {
        let number = |field| node.report.numbers.get(field).copied();
        // An older module reports only the number of waiters, and only as settings what it allows.
        let used = number(used).or((setting == settings::MAX_WAITERS).then_some(state.waiters));
        let limit = number(limit).or_else(|| node.module_number(setting));
        let (Some(used), Some(most @ 1..)) = (used, limit) else { continue };
        if used.saturating_mul(100) >= most.saturating_mul(QUEUED_PERCENT) {
            let reason = format!(
                "{used} of at most {most} {what} are queued ({prefix}{setting}): beyond that, the node refuses to queue \
                 clients, and they poll",
                prefix = settings::PREFIX,
            );
            let remedy = format!("{remedy}, or raise {}{setting}", settings::PREFIX);
            findings.add(Warning, "waiters", Some(&node.report.node), reason, &remedy);
        }
    }
}

fn persistence(node: &ExaminedNode, findings: &mut Findings) {
    let name = Some(&*node.report.node);
    if node.module_setting(settings::RESTART_GRACE) == Some("off") {
        let remedy = "CONFIG SET redlock.restart-grace auto, and CONFIG REWRITE";
        let appends = node.setting("appendonly") == Some("yes");
        let snapshots = node.setting("save").is_some_and(|save| !save.is_empty());
        if appends && node.setting("appendfsync") == Some("always") {
            let reason = "redlock.restart-grace is off: after a crash, only the AOF brings the locks back";
            findings.add(Note, "restart-grace", name, reason, remedy);
        } else if appends || snapshots {
            let reason = "redlock.restart-grace is off, and the stored data may lack the latest locks: after a crash, two clients can hold one lock";
            findings.add(Warning, "restart-grace", name, reason, remedy);
        } else {
            let reason = "redlock.restart-grace is off, and the server stores no data: after a restart, two clients can hold one lock";
            findings.add(Error, "restart-grace", name, reason, remedy);
        }
    }
    let failed = ["rdb_last_bgsave_status", "aof_last_write_status", "aof_last_bgrewrite_status"]
        .into_iter()
        .filter(|status| field(&node.persistence, status).is_some_and(|status| status != "ok"));
    for status in failed {
        let reason = format!(
            "{status} is not ok: if the server cannot write to its dir, it cannot store its state file and grants nothing"
        );
        findings.add(Warning, "disk", name, reason, "free space on the disk, and read the server's log");
    }
}

/// After a crash, a node waits for the longest lease that may still run.
fn quarantine_to_come(node: &ExaminedNode, state: &NodeState, findings: &mut Findings) {
    if state.longest_lease > LONG_QUARANTINE {
        let lease = show(state.longest_lease);
        let reason =
            format!("leases of up to {lease} may still run: after a crash, it grants nothing for {lease}");
        findings.add(Warning, "long-quarantine", Some(&node.report.node), reason, QUARANTINE_REMEDY);
    }
}

/// The commands that a client needs to lock. A user who may run none of them only observes.
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
        return add(
            Note,
            "rights",
            "this user may not read its own permissions: doctor did not check them".to_owned(),
            remedy,
        );
    };
    let is_missing = |needed: &Verb| missing.iter().any(|(command, _)| *command == needed.name());
    if TO_LOCK.iter().all(is_missing) {
        let reason = "this user may not acquire locks: doctor did not check the users that may acquire locks";
        return add(Note, "rights", reason.to_owned(), "also run doctor as the user of an application");
    }
    for (command, words) in missing {
        if *command == SUBSCRIBE {
            let reason = "this user may not subscribe to redlock:grant:*: its clients poll for held locks";
            add(Note, "rights", reason.to_owned(), "grant +subscribe and &redlock:grant:* to the user");
        } else {
            // A client that locks one resource at a time and does not inspect needs only `TO_LOCK`.
            let is_needed = TO_LOCK.iter().any(|needed| needed.name() == *command);
            let severity = if is_needed { Error } else { Warning };
            let reason = format!("{command} is not allowed: {words}");
            add(severity, "rights", reason, "see Users in module/OPERATIONS.md for rules to copy");
        }
    }
}
