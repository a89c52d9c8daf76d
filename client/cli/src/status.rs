//! `redlock status`: how the nodes are.

use crate::args::{CommonArgs, StatusArgs};
use crate::config::Config;
use crate::duration::{millis, show, show_latency};
use crate::exit::{Code, ExitError};
use crate::group_report::{GroupReport, NodeReport, explanation, remedy};
use crate::output::{Printer, Table, Tone, cell, failure_json, tame, toned};
use crate::prometheus;
use redlock_client::Origin;
use serde_json::{Value, json};

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
    Ok(if report.can_grant() {
        Code::Success
    } else if report.waits_for_quarantine() {
        Code::Quarantined
    } else {
        Code::NoQuorum
    })
}

fn json(report: &GroupReport) -> Value {
    json!({
        "can_grant": report.can_grant(),
        "granting": report.granting(),
        "needed": report.quorum().needed(),
        "nodes": report.nodes.iter().map(node_json).collect::<Vec<_>>(),
    })
}

fn node_json(node: &NodeReport) -> Value {
    let server = node.server.as_ref();
    match &node.state {
        Ok(state) => json!({
            "node": &*node.node,
            "up": true,
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
            "non_voting_reason": state.non_voting.as_deref(),
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
            json!({"node": &*node.node, "up": false, "can_grant": false, "error": failure_json(failure)})
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
        table.row(vec![
            cell(&*node.node),
            if state.is_replica {
                toned(Tone::Bad, "replica")
            } else if state.non_voting.as_deref().is_some() {
                toned(Tone::Bad, "non-voting")
            } else if state.quarantine.is_zero() {
                toned(Tone::Good, "grants")
            } else {
                toned(Tone::Doubtful, format!("quarantine for {}", show(state.quarantine)))
            },
            cell(show_latency(node.latency)),
            cell(tame(&server)),
            cell(tame(&state.version)),
            cell(state.fence.to_string()),
            cell(state.locks.to_string()),
            cell(state.waiters.to_string()),
        ]);
        if let Some(word) = state.non_voting.as_deref().filter(|_| !state.is_replica) {
            let words = format!("non-voting: {}; {}", explanation(word), remedy(word, &node.node));
            table.remark(&node.node, &words);
        }
    }
    output.lines(&table.lines(output))?;
    let (granting, of, needed) = (report.granting(), report.nodes.len(), report.quorum().needed());
    if report.can_grant() {
        let word = output.paint(Tone::Good, "Locks can be granted");
        output.line(&format!("{word}: {granting} of {of} nodes grant, {needed} are needed."))?;
    } else {
        let word = output.paint(Tone::Bad, "No lock can be granted");
        let when = if report.waits_for_quarantine() {
            format!(" A majority may grant in {}.", show(report.quarantine_left()))
        } else {
            String::new()
        };
        output.line(&format!("{word}: {granting} of {of} nodes grant, {needed} are needed.{when}"))?;
    }
    Ok(())
}
