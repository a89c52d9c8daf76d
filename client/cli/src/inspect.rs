//! `redlock inspect`: who holds a lock.
//!
//! `view.rs` puts together what the nodes say.

mod view;

use crate::args::{Common, Inspect};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, Failure};
use crate::output::{Output, Table, Tone, cell, failure_json, tame, toned};
use redlock_client::LockInfo;
use serde_json::{Value, json};
use view::{Left, Node, State, Verdict, View};

pub(crate) async fn main(common: &Common, args: &Inspect, output: &Output) -> Result<Code, Failure> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let view = View::take(&locks, config.prefix(), &args.resource).await?;
    if output.is_json {
        output.json(&json(&args.resource, &view))?;
    } else {
        text(&args.resource, &view, *output)?;
    }
    Ok(match view.verdict {
        Verdict::Held(_) | Verdict::Foreign(_) => Code::Success,
        Verdict::Free => Code::Free,
        Verdict::Unclear => Code::NoQuorum,
    })
}

fn record_json(record: &LockInfo) -> Value {
    json!({
        "fence": record.fence,
        "label": record.label,
        "left_ms": millis(record.left),
        "held_ms": millis(record.held),
        "extensions": record.extensions,
        "waiters": record.waiters,
    })
}

/// Null if it has no end.
fn left_json(left: Left) -> Value {
    match left {
        Left::For(left) => json!(millis(left)),
        Left::Endless => Value::Null,
    }
}

fn node_json(node: &Node) -> Value {
    let name = &*node.name;
    match &node.state {
        State::Held(record) => json!({"node": name, "state": "held", "lock": record_json(record)}),
        State::Foreign(left) => json!({"node": name, "state": "foreign", "left_ms": left_json(*left)}),
        State::Free(None) => json!({"node": name, "state": "free"}),
        State::Free(Some(why)) => json!({"node": name, "state": "free", "unseen": failure_json(why)}),
        State::Unknown(why) => json!({"node": name, "state": "unknown", "error": failure_json(why)}),
    }
}

fn json(resource: &str, view: &View) -> Value {
    let (state, lock) = match &view.verdict {
        Verdict::Held(record) => ("held", record_json(record)),
        Verdict::Foreign(_) => ("foreign", Value::Null),
        Verdict::Free => ("free", Value::Null),
        Verdict::Unclear => ("unclear", Value::Null),
    };
    json!({
        "resource": resource,
        "state": state,
        "lock": lock,
        "nodes": view.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn show_left(left: Left) -> String {
    match left {
        Left::For(left) => show(left),
        Left::Endless => "no end".to_owned(),
    }
}

fn headline(resource: &str, verdict: &Verdict, output: Output) -> String {
    let resource = tame(resource);
    match verdict {
        Verdict::Held(record) => {
            let label =
                if record.label.is_empty() { String::new() } else { format!(" by {}", tame(&record.label)) };
            format!(
                "{resource} is {}{label}, fence {}, for {} so far, {} left",
                output.paint(Tone::Doubtful, "held"),
                record.fence,
                show(record.held),
                show(record.left),
            )
        }
        Verdict::Foreign(left) => {
            let left = match left {
                Left::For(left) => format!("{} left", show(*left)),
                Left::Endless => "no end".to_owned(),
            };
            let word = output.paint(Tone::Doubtful, "held");
            format!("{resource} is {word} by a plain key, as SET NX PX makes one: no fence, no label, {left}")
        }
        Verdict::Free => format!("{resource} is {}", output.paint(Tone::Good, "free")),
        Verdict::Unclear => {
            let word = output.paint(Tone::Bad, "unclear");
            format!("{resource} is {word}: no majority holds it, and none has it free")
        }
    }
}

fn text(resource: &str, view: &View, output: Output) -> Result<(), Failure> {
    output.line(&headline(resource, &view.verdict, output))?;
    let mut table = Table::new(&["node", "state", "fence", "left", "held", "extended", "waiters", "label"]);
    for node in &view.nodes {
        let name = cell(&*node.name);
        table.row(match &node.state {
            State::Held(record) => vec![
                name,
                toned(Tone::Doubtful, "held"),
                cell(record.fence.to_string()),
                cell(show(record.left)),
                cell(show(record.held)),
                cell(record.extensions.to_string()),
                cell(record.waiters.to_string()),
                cell(tame(&record.label)),
            ],
            State::Foreign(left) => {
                vec![name, toned(Tone::Doubtful, "plain key"), cell("-"), cell(show_left(*left))]
            }
            State::Free(_) => vec![name, toned(Tone::Good, "free")],
            State::Unknown(failure) => {
                table.failed_row(&node.name, "unknown", failure);
                continue;
            }
        });
    }
    output.lines(&table.lines(output))?;
    if let Some(failure) = view.blindness() {
        let words = tame(&failure.to_string());
        output.note(&format!(
            "plain keys, as SET NX PX makes them, cannot be seen: {words} (+type and +pttl are needed)"
        ));
    }
    Ok(())
}
