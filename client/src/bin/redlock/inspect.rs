//! `redlock inspect`: who holds a lock.

use crate::args::{Common, Inspect};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, Failure};
use crate::output::{Output, Table, Tone, cell, failure_json, tame, toned};
use redlock_client::{Holding, Inspection, NodeSighting, Record};
use serde_json::{Value, json};

pub(crate) async fn main(common: &Common, args: &Inspect, output: &Output) -> Result<Code, Failure> {
    let locks = Config::load(common)?.manager()?;
    let inspection = locks.inspect(&args.resource).await?;
    if output.is_json {
        output.json(&json(&args.resource, &inspection))?;
    } else {
        text(&args.resource, &inspection, *output)?;
    }
    Ok(match inspection.holding {
        Holding::Held(_) => Code::Success,
        Holding::Free => Code::Free,
        _ => Code::NoQuorum,
    })
}

fn state(inspection: &Inspection) -> &'static str {
    match inspection.holding {
        Holding::Held(_) => "held",
        Holding::Free => "free",
        _ => "unclear",
    }
}

fn record_json(record: &Record) -> Value {
    json!({
        "fence": record.fence,
        "label": record.label,
        "left_ms": millis(record.left),
        "held_ms": millis(record.held),
        "extensions": record.extensions,
        "waiters": record.waiters,
    })
}

fn json(resource: &str, inspection: &Inspection) -> Value {
    let node = |sighting: &NodeSighting| match &sighting.lock {
        Ok(Some(record)) => json!({"node": &*sighting.node, "state": "held", "lock": record_json(record)}),
        Ok(None) => json!({"node": &*sighting.node, "state": "free"}),
        Err(failure) => json!({"node": &*sighting.node, "state": "unknown", "error": failure_json(failure)}),
    };
    json!({
        "resource": resource,
        "state": state(inspection),
        "lock": inspection.lock().map(record_json),
        "nodes": inspection.nodes.iter().map(node).collect::<Vec<_>>(),
    })
}

fn text(resource: &str, inspection: &Inspection, output: Output) -> Result<(), Failure> {
    let resource = tame(resource);
    match inspection.lock() {
        Some(record) => {
            let label =
                if record.label.is_empty() { String::new() } else { format!(" by {}", tame(&record.label)) };
            output.line(&format!(
                "{resource} is {}{label}, fence {}, for {} so far, {} left",
                output.paint(Tone::Doubtful, "held"),
                record.fence,
                show(record.held),
                show(record.left),
            ))?;
        }
        None if matches!(inspection.holding, Holding::Free) => {
            output.line(&format!("{resource} is {}", output.paint(Tone::Good, "free")))?;
        }
        None => output.line(&format!(
            "{resource} is {}: no majority holds it, and none has it free",
            output.paint(Tone::Bad, "unclear")
        ))?,
    }
    let mut table = Table::new(&["node", "state", "fence", "left", "held", "extended", "waiters", "label"]);
    for sighting in &inspection.nodes {
        let node = cell(&*sighting.node);
        table.row(match &sighting.lock {
            Ok(Some(record)) => vec![
                node,
                toned(Tone::Doubtful, "held"),
                cell(record.fence.to_string()),
                cell(show(record.left)),
                cell(show(record.held)),
                cell(record.extensions.to_string()),
                cell(record.waiters.to_string()),
                cell(tame(&record.label)),
            ],
            Ok(None) => vec![node, toned(Tone::Good, "free")],
            Err(failure) => vec![node, toned(Tone::Bad, tame(&failure.to_string()))],
        });
    }
    output.lines(&table.lines(output))
}
