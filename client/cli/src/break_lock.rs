//! `redlock break`: breaks a lock whose holder does not release it.
//!
//! Each node breaks the lock only if it still has the fence that the operator has seen: if the lock has a new holder
//! meanwhile, the program spares it. A shared lock may get a larger fence while its readers hold it on, so the program
//! looks again and breaks it with that fence.

use crate::args::{BreakArgs, CommonArgs};
use crate::config::Config;
use crate::confirm::confirm;
use crate::exit::{Code, ExitError};
use crate::inspect::view::{NodeLock, NodeView, ResourceState, ResourceView};
use crate::inspect::{self, record_json};
use crate::output::{Printer, Tone, counted, tame};
use redlock_client::{Failure, FailureKind, LockInfo, LockManager, Query, Quorum};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// How often the fence of a shared lock may be raised between a look and the break.
const MOST_RAISES: usize = 8;

/// What happened on one node.
enum NodeOutcome {
    /// The node broke the lock with this fence.
    Broken(u64),
    /// No lock was there.
    Free,
    /// The lock is gone or has another fence: it was released, it expired, or it has a new holder.
    Changed,
    /// A plain key, which is not a lock of the module.
    PlainKey,
    Failed(Failure),
}

impl NodeOutcome {
    fn is_rejected(&self) -> bool {
        matches!(self, Self::Failed(failure) if failure.kind == FailureKind::Rejected)
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Broken(_) => "broken",
            Self::Free => "free",
            Self::Changed => "changed",
            Self::PlainKey => "plain key",
            Self::Failed(_) if self.is_rejected() => "refused",
            Self::Failed(_) => "unknown",
        }
    }

    /// One line for people, without the node, and its tone.
    fn words(&self) -> (String, Tone) {
        match self {
            Self::Broken(fence) => (format!("broken, fence {fence}"), Tone::Good),
            Self::Free => ("was free".to_owned(), Tone::Faint),
            Self::Changed => {
                ("nothing broken: the lock is gone, or has a new holder".to_owned(), Tone::Doubtful)
            }
            Self::PlainKey => ("nothing broken: a plain key, see DEL".to_owned(), Tone::Doubtful),
            Self::Failed(failure) => (tame(&failure.to_string()), Tone::Bad),
        }
    }
}

pub(crate) async fn main(common: &CommonArgs, args: &BreakArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let resource = &args.resource;
    let view = ResourceView::take(&locks, config.prefix(), resource).await?;
    let Some(lock) = lock_to_break(&view) else { return nothing_to_break(resource, &view, *output) };
    if !output.is_json {
        inspect::text(resource, &view, *output)?;
        output.lines(&risks(&lock))?;
    }
    if !args.yes {
        let question = format!("Type yes to break {} on all nodes", tame(resource));
        confirm(&question, "break", "not_broken", *output)?;
    }
    let key = format!("{}{resource}", config.prefix());
    let outcomes = break_everywhere(&locks, resource, &key, &view, &lock).await?;
    let nodes: Vec<(&NodeView, NodeOutcome)> = view.nodes.iter().zip(outcomes).collect();
    report(resource, &lock, view.quorum, &nodes, *output)
}

/// The lock of the majority; without one, the lock that the nodes report with the largest fence.
fn lock_to_break(view: &ResourceView) -> Option<LockInfo> {
    if let ResourceState::Held(lock) = &view.verdict {
        return Some(lock.clone());
    }
    let held = view.nodes.iter().filter_map(|node| match &node.state {
        NodeLock::Held(lock) => Some(lock),
        _ => None,
    });
    held.max_by_key(|lock| lock.fence).cloned()
}

/// No node holds the lock: free, a plain key, or too few answers.
fn nothing_to_break(resource: &str, view: &ResourceView, output: Printer) -> Result<Code, ExitError> {
    let name = tame(resource);
    let answers = || view.nodes.iter().map(|node| (node.name.to_string(), state_words(&node.state)));
    match view.verdict {
        ResourceState::Free => {
            if output.is_json {
                let node = |node: &NodeView| json!({"node": &*node.name, "answer": state_words(&node.state)});
                let nodes: Vec<Value> = view.nodes.iter().map(node).collect();
                output.json(&json!({"resource": resource, "lock": null, "broken": 0, "nodes": nodes}))?;
            } else {
                output.line(&format!("{name} is free: there is nothing to break"))?;
            }
            Ok(Code::Free)
        }
        ResourceState::Foreign(_) => Err(ExitError::new(
            Code::Usage,
            "not_broken",
            format!(
                "{name} is a plain key (SET NX PX), not a lock of the module: delete it on every node with DEL"
            ),
        )
        .with_nodes(answers())),
        ResourceState::Held(_) | ResourceState::Unclear => {
            let node = |node: &NodeView| match &node.state {
                NodeLock::Unknown(why) => Some(format!("{}: {}", node.name, tame(&why.to_string()))),
                _ => None,
            };
            let reasons: Vec<String> = view.nodes.iter().filter_map(node).collect();
            let message = format!(
                "too few nodes answered to see whether {name} is held ({}); nothing was done",
                reasons.join("; ")
            );
            let refused = view.nodes.iter().filter(|node| node.is_rejected()).count();
            Err(ExitError::too_few(message, view.quorum, refused).with_nodes(answers()))
        }
    }
}

fn state_words(state: &NodeLock) -> String {
    match state {
        NodeLock::Held(_) => "held".to_owned(),
        NodeLock::Foreign(_) => "plain key".to_owned(),
        NodeLock::Free(_) => "free".to_owned(),
        NodeLock::Unknown(failure) => failure.to_string(),
    }
}

/// What the operator must know first.
fn risks(lock: &LockInfo) -> Vec<String> {
    let mut lines = vec![
        "Breaking the lock does not stop its holder. The holder is not notified: it finds out at its next extension, \
         or when its time runs out. Until then, two clients can work at the same time. Only a storage that compares \
         fences rejects its late writes. Stop the holder first, if you can."
            .to_owned(),
    ];
    if lock.extensions > 0 {
        lines.push(format!("The holder has extended the lock {}: it is alive.", times(lock.extensions)));
    }
    if lock.waiters > 0 {
        lines.push(format!("The first of {} gets the lock at once.", counted(lock.waiters, "waiter")));
    }
    lines
}

fn times(count: u64) -> String {
    if count == 1 { "once".to_owned() } else { format!("{count} times") }
}

/// Sends the break to every node that held the lock or did not answer, to all at once.
async fn break_everywhere(
    locks: &LockManager,
    resource: &str,
    key: &str,
    view: &ResourceView,
    lock: &LockInfo,
) -> Result<Vec<NodeOutcome>, ExitError> {
    let mut tasks = JoinSet::new();
    let mut outcomes = Vec::new();
    for (place, node) in view.nodes.iter().enumerate() {
        let seen = match &node.state {
            NodeLock::Held(lock) => lock.clone(),
            NodeLock::Unknown(_) => lock.clone(),
            NodeLock::Free(_) => {
                outcomes.push(NodeOutcome::Free);
                continue;
            }
            NodeLock::Foreign(_) => {
                outcomes.push(NodeOutcome::PlainKey);
                continue;
            }
        };
        outcomes.push(NodeOutcome::Changed);
        let (locks, resource, key) = (locks.clone(), resource.to_owned(), key.to_owned());
        tasks.spawn(async move { (place, break_on(&locks, place, &resource, &key, seen).await) });
    }
    while let Some(Ok((place, outcome))) = tasks.join_next().await {
        outcomes[place] = outcome?;
    }
    Ok(outcomes)
}

/// Breaks the lock on one node, as it was seen there.
async fn break_on(
    locks: &LockManager,
    place: usize,
    resource: &str,
    key: &str,
    mut seen: LockInfo,
) -> Result<NodeOutcome, ExitError> {
    for _ in 0..MOST_RAISES {
        match locks.break_on_node(place, resource, seen.fence).await? {
            Ok(true) => return Ok(NodeOutcome::Broken(seen.fence)),
            Ok(false) if seen.is_shared => {}
            Ok(false) => return Ok(NodeOutcome::Changed),
            Err(failure) => return Ok(NodeOutcome::Failed(failure)),
        }
        let reply = locks.ask_node(place, &Query::inspect(key)).await?;
        let now = match reply.response {
            Ok(response) => response.lock_info(),
            Err(failure) => return Ok(NodeOutcome::Failed(failure)),
        };
        match now.filter(|now| now.is_shared && now.fence > seen.fence) {
            Some(now) => seen = now,
            None => break,
        }
    }
    Ok(NodeOutcome::Changed)
}

/// Prints the outcome of each node. It is a success if no majority holds the lock any more.
fn report(
    resource: &str,
    lock: &LockInfo,
    quorum: Quorum,
    nodes: &[(&NodeView, NodeOutcome)],
    output: Printer,
) -> Result<Code, ExitError> {
    let count = |test: fn(&NodeOutcome) -> bool| nodes.iter().filter(|(_, outcome)| test(outcome)).count();
    let broken = count(|outcome| matches!(outcome, NodeOutcome::Broken(_)));
    let gone =
        count(|outcome| matches!(outcome, NodeOutcome::Broken(_) | NodeOutcome::Free | NodeOutcome::Changed));
    if output.is_json {
        let node = |(node, outcome): &(&NodeView, NodeOutcome)| {
            let mut value = json!({"node": &*node.name, "answer": outcome.word()});
            match outcome {
                NodeOutcome::Broken(fence) => value["fence"] = json!(fence),
                NodeOutcome::Failed(failure) => value["error"] = crate::output::failure_json(failure),
                _ => {}
            }
            value
        };
        let nodes: Vec<Value> = nodes.iter().map(node).collect();
        output.json(&json!({
            "resource": resource,
            "lock": record_json(lock),
            "broken": broken,
            "nodes": nodes,
        }))?;
    } else {
        for (node, outcome) in nodes {
            let (words, tone) = outcome.words();
            output.line(&format!("{}: {}", node.name, output.paint(tone, &words)))?;
        }
        output.line(&format!("{} is broken on {broken} of {} nodes", tame(resource), nodes.len()))?;
    }
    if quorum.is_reached_by(gone) {
        return Ok(Code::Success);
    }
    let message = format!(
        "{} may still be held: the lock is gone on {gone} of {} nodes, {} are needed; remove the cause, and run redlock break again",
        tame(resource),
        nodes.len(),
        quorum.needed()
    );
    let answers = nodes.iter().map(|(node, outcome)| (node.name.to_string(), outcome.words().0));
    let refused = nodes.iter().filter(|(_, outcome)| outcome.is_rejected()).count();
    Err(ExitError::too_few(message, quorum, refused).with_nodes(answers))
}
