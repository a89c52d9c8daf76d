//! `redlock status`: shows the state of the nodes.

use crate::args::{CommonArgs, StatusArgs};
use crate::config::Config;
use crate::duration::{millis, show, show_latency};
use crate::exit::{Code, ExitError};
use crate::group_report::{GroupReport, NodeReport};
use crate::output::{Printer, Table, Tone, cell, failure_json, tame, toned};
use crate::prometheus;
use redlock_client::{GroupStanding, NodeStanding, NonVotingReason, Origin};
use serde_json::{Value, json};
use std::time::Duration;

pub(crate) async fn main(
    common: &CommonArgs,
    args: &StatusArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let locks = Config::load(common)?.manager()?;
    let report = GroupReport::take(&locks).await?;
    if args.prometheus {
        output.line(prometheus::text(&report).trim_end())?;
    } else if output.is_json {
        output.json(&json(&report))?;
    } else {
        text(&report, *output)?;
    }
    Ok(code(report.standing()))
}

/// The exit code for nodes that can or cannot grant locks.
pub(crate) fn code(standing: GroupStanding) -> Code {
    match standing.grants_in {
        Some(Duration::ZERO) => Code::Success,
        Some(_) => Code::Quarantined,
        None => Code::NoQuorum,
    }
}

pub(crate) fn json(report: &GroupReport) -> Value {
    let standing = report.standing();
    json!({
        "can_grant": standing.can_grant(),
        "granting": standing.granting,
        "needed": standing.quorum.needed(),
        "nodes": report.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn node_json(node: &NodeReport) -> Value {
    let server = node.server.as_ref();
    match &node.state {
        Ok(state) => json!({
            "node": &*node.node,
            "up": true,
            "state": state.standing().name(),
            "can_grant": node.can_grant(),
            "latency_ms": node.latency_ms(),
            "server": server.map(|server| server.name),
            "server_version": server.map(|server| &server.version),
            "version": state.version,
            "node_id": state.id,
            "fence": state.fence,
            "quarantine_ms": node.quarantine_ms(),
            "replica": state.is_replica,
            "voting": state.votes(),
            "non_voting_reason": state.non_voting.as_ref().map(NonVotingReason::name),
            "incarnation": state.incarnation,
            "origin": state.origin.map(Origin::name),
            "high_water": state.high_water,
            "max_ttl_ms": state.max_ttl.map(millis),
            "locks": state.locks,
            "waiters": state.waiters,
            "longest_ttl_ms": millis(state.longest_lease),
            "started": state.started,
            "info": node.numbers,
        }),
        Err(failure) => {
            let error = failure_json(failure);
            json!({"node": &*node.node, "up": false, "state": "down", "can_grant": false, "error": error})
        }
    }
}

fn text(report: &GroupReport, output: Printer) -> Result<(), ExitError> {
    let heading = ["node", "state", "latency", "server", "module", "fence", "locks", "waiters"];
    let mut table = Table::new(&heading);
    for node in &report.nodes {
        let server = node
            .server
            .as_ref()
            .map_or_else(|| "?".into(), |server| format!("{} {}", server.name, server.version));
        let state = match &node.state {
            Ok(state) => state,
            Err(failure) => {
                table.failed_row(&node.node, "down", failure);
                continue;
            }
        };
        let standing = state.standing();
        table.row(vec![
            cell(&*node.node),
            match standing {
                NodeStanding::Grants => toned(Tone::Good, standing.name()),
                NodeStanding::Quarantine(left) => {
                    toned(Tone::Doubtful, format!("quarantine for {}", show(left)))
                }
                _ => toned(Tone::Bad, standing.name()),
            },
            cell(show_latency(node.latency)),
            cell(tame(&server)),
            cell(tame(&state.version)),
            cell(state.fence.to_string()),
            cell(state.locks.to_string()),
            cell(state.waiters.to_string()),
        ]);
        if let NodeStanding::NonVoting(reason) = standing {
            let words = format!("non-voting: {}; {}", reason.explanation(), reason.remedy(&node.node));
            table.remark(&node.node, &words);
        }
    }
    output.lines(&table.lines(output))?;
    let standing = report.standing();
    let (tone, words) = if standing.can_grant() {
        (Tone::Good, "Locks can be granted")
    } else {
        (Tone::Bad, "No lock can be granted")
    };
    let when = match standing.grants_in {
        Some(left) if !left.is_zero() => format!(" A majority may grant in {}.", show(left)),
        _ => String::new(),
    };
    output.line(&format!("{}: {standing}.{when}", output.paint(tone, words)))?;
    Ok(())
}
