//! `redlock inspect`: shows which client holds a lock.
//!
//! `view.rs` combines the answers of the nodes.

pub(crate) mod view;

use crate::args::{CommonArgs, InspectArgs};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, ExitError};
use crate::holder::{EXCLUSIVE, SHARED};
use crate::lock_row::holders_text;
use crate::output::{Printer, Table, Tone, cell, failure_json, tame, toned};
use redlock_client::{HolderInfo, LockInfo};
use serde_json::{Value, json};
use view::{NodeLock, NodeView, ResourceState, ResourceView, TimeLeft};

pub(crate) async fn main(
    common: &CommonArgs,
    args: &InspectArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let view = ResourceView::take(&locks, config.prefix(), &args.resource).await?;
    if output.is_json {
        output.json(&json(&args.resource, &view))?;
    } else {
        text(&args.resource, &view, *output)?;
    }
    Ok(match view.verdict {
        ResourceState::Held(_) | ResourceState::Foreign(_) => Code::Success,
        ResourceState::Free => Code::Free,
        ResourceState::Unclear => {
            let refused = view.nodes.iter().filter(|node| node.is_rejected()).count();
            ExitError::too_few("", view.quorum, refused).code
        }
    })
}

fn holder_json(holder: &HolderInfo) -> Value {
    json!({
        "label": holder.label,
        "left_ms": millis(holder.left),
        "held_ms": millis(holder.held),
        "extensions": holder.extensions,
    })
}

pub(crate) fn record_json(record: &LockInfo) -> Value {
    json!({
        "fence": record.fence,
        "label": record.label,
        "left_ms": millis(record.left),
        "held_ms": millis(record.held),
        "extensions": record.extensions,
        "waiters": record.waiters,
        "mode": if record.is_shared { SHARED } else { EXCLUSIVE },
        "holders": record.holders.iter().map(holder_json).collect::<Vec<_>>(),
    })
}

/// The time left in milliseconds; null if the key never expires.
fn left_json(left: TimeLeft) -> Value {
    match left {
        TimeLeft::For(left) => json!(millis(left)),
        TimeLeft::Endless => Value::Null,
    }
}

fn node_json(node: &NodeView) -> Value {
    let name = &*node.name;
    match &node.state {
        NodeLock::Held(record) => json!({"node": name, "state": "held", "lock": record_json(record)}),
        NodeLock::Foreign(left) => json!({"node": name, "state": "foreign", "left_ms": left_json(*left)}),
        NodeLock::Free(None) => json!({"node": name, "state": "free"}),
        NodeLock::Free(Some(why)) => json!({"node": name, "state": "free", "unseen": failure_json(why)}),
        NodeLock::Unknown(why) => json!({"node": name, "state": "unknown", "error": failure_json(why)}),
    }
}

fn json(resource: &str, view: &ResourceView) -> Value {
    let (state, lock) = match &view.verdict {
        ResourceState::Held(record) => ("held", record_json(record)),
        ResourceState::Foreign(_) => ("foreign", Value::Null),
        ResourceState::Free => ("free", Value::Null),
        ResourceState::Unclear => ("unclear", Value::Null),
    };
    json!({
        "resource": resource,
        "state": state,
        "lock": lock,
        "nodes": view.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn show_left(left: TimeLeft) -> String {
    match left {
        TimeLeft::For(left) => show(left),
        TimeLeft::Endless => "no expiry".to_owned(),
    }
}

fn headline(resource: &str, verdict: &ResourceState, output: Printer) -> String {
    let resource = tame(resource);
    match verdict {
        ResourceState::Held(record) => {
            let holders = match holders_text(record) {
                text if text.is_empty() => text,
                text if record.is_shared => format!(", {text}"),
                text => format!(" by {text}"),
            };
            format!(
                "{resource} is {}{holders}, fence {}, for {} so far, {} left",
                output.paint(Tone::Doubtful, "held"),
                record.fence,
                show(record.held),
                show(record.left),
            )
        }
        ResourceState::Foreign(left) => {
            let left = match left {
                TimeLeft::For(left) => format!("{} left", show(*left)),
                TimeLeft::Endless => "no expiry".to_owned(),
            };
            let word = output.paint(Tone::Doubtful, "held");
            format!("{resource} is {word} by a plain key (SET NX PX): no fence, no label, {left}")
        }
        ResourceState::Free => format!("{resource} is {}", output.paint(Tone::Good, "free")),
        ResourceState::Unclear => {
            let word = output.paint(Tone::Bad, "unclear");
            format!("{resource} is {word}: neither held nor free on a majority of the nodes")
        }
    }
}

/// Prints who holds the lock, and the answer of each node.
pub(crate) fn text(resource: &str, view: &ResourceView, output: Printer) -> Result<(), ExitError> {
    output.line(&headline(resource, &view.verdict, output))?;
    let mut table = Table::new(&["node", "state", "fence", "left", "held", "extended", "waiters", "label"]);
    for node in &view.nodes {
        let name = cell(&*node.name);
        table.row(match &node.state {
            NodeLock::Held(record) => vec![
                name,
                toned(Tone::Doubtful, "held"),
                cell(record.fence.to_string()),
                cell(show(record.left)),
                cell(show(record.held)),
                cell(record.extensions.to_string()),
                cell(record.waiters.to_string()),
                cell(holders_text(record)),
            ],
            NodeLock::Foreign(left) => {
                vec![name, toned(Tone::Doubtful, "plain key"), cell("-"), cell(show_left(*left))]
            }
            NodeLock::Free(_) => vec![name, toned(Tone::Good, "free")],
            NodeLock::Unknown(failure) => {
                table.failed_row(&node.name, "unknown", failure);
                continue;
            }
        });
    }
    output.lines(&table.lines(output))?;
    if let Some(failure) = view.hidden_plain_keys() {
        let words = tame(&failure.to_string());
        output.note(&format!("cannot see plain keys (SET NX PX): {words}; this user needs +type and +pttl"));
    }
    Ok(())
}
