//! Dashboard and alerts: every metric that they name exists, and the alerts fire when they should.
//!
//! The metrics of a node are the fields of `INFO redlock`, under the names of the exporter. The metrics of a client are
//! those of `client/OBSERVING.md`, which another test compares with the client.

use crate::links::has_target;
use crate::page::{Page, read, root};
use crate::program::{describe, find, run};
use redlock_tests::{SOON, Server, skip};
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use yaml_rust2::{Yaml, YamlLoader};

const DASHBOARD: &str = "docker/grafana/dashboards/redlock.json";
const ALERTS: &str = "docker/prometheus/alerts.yml";

/// The metric that the exporter derives from a field of `INFO redlock`. `None` for a field that is not a number.
fn exported(field: &str) -> Option<String> {
    let name = field.strip_prefix("redlock_").unwrap_or_else(|| panic!("not a field of the module: {field}"));
    match name {
        "version" | "node_id" | "origin" | "non_voting_reason" => None,
        "locks"
        | "waiters"
        | "waiter_keys"
        | "longest_queue"
        | "most_waiters_on_connection"
        | "waiters_bytes"
        | "max_waiters"
        | "max_waiters_per_key"
        | "max_waiters_per_connection"
        | "max_waiters_bytes"
        | "largest_fence"
        | "memory_bytes"
        | "allocated_bytes"
        | "voting"
        | "incarnation"
        | "high_water"
        | "far_stripes" => Some(format!("redlock_node_{name}")),
        "quarantine_ms" | "longest_lease_ms" | "max_ttl_ms" => {
            Some(format!("redlock_node_{}_seconds", name.trim_end_matches("_ms")))
        }
        count => Some(format!("redlock_node_{count}_total")),
    }
}

/// The metrics of a node, from the `INFO redlock` of a real one.
fn node_metrics() -> BTreeSet<String> {
    let server = Server::start();
    let info = server.connect().call_strs("INFO redlock").string();
    let fields = info.lines().filter_map(|line| line.split_once(':')).map(|(field, _)| field);
    let reported: BTreeSet<String> = fields.filter_map(exported).collect();
    assert!(reported.len() > 15, "{reported:?}");
    // The exporter adds these itself.
    let own = ["redlock_node_up", "redlock_node_info", "redlock_node_latency_seconds"];
    reported.into_iter().chain(own.map(String::from)).collect()
}

/// The metrics of a client. A histogram is exported as several series.
fn client_metrics() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in read("client/OBSERVING.md").lines().filter(|line| line.starts_with("| `redlock_")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`').split('{').next().expect("a name").to_string();
        match cells[2] {
            "histogram" => found.extend(["sum", "count", "bucket"].map(|part| format!("{name}_{part}"))),
            _ => drop(found.insert(name)),
        }
    }
    assert!(found.len() > 8, "{found:?}");
    found
}

/// The names of Redlock metrics and recording rules in an expression.
fn named(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'));
    words
        .filter(|word| word.starts_with("redlock_") || word.starts_with("redlock:"))
        .map(String::from)
        .collect()
}

/// Collects every expression of the dashboard, in its panels and in the variables at its top.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| match (name.as_str(), value) {
            ("expr" | "definition", Value::String(text)) => found.push(text.clone()),
            _ => expressions(value, found),
        }),
        Value::Array(members) => members.iter().for_each(|member| expressions(member, found)),
        _ => {}
    }
}

fn dashboard() -> Value {
    serde_json::from_str(&read(DASHBOARD)).unwrap_or_else(|error| panic!("{DASHBOARD}: {error}"))
}

/// The rules of all groups in the file.
fn rules() -> Vec<Yaml> {
    let documents =
        YamlLoader::load_from_str(&read(ALERTS)).unwrap_or_else(|error| panic!("{ALERTS}: {error}"));
    let groups = documents[0]["groups"].as_vec().expect("groups").clone();
    groups.iter().flat_map(|group| group["rules"].as_vec().expect("rules").clone()).collect()
}

fn known() -> BTreeSet<String> {
    let recorded = rules().iter().filter_map(|rule| rule["record"].as_str().map(String::from)).collect();
    // An alert uses this metric. The dashboard does not show it, because it is almost always 0.
    let alarm = BTreeSet::from(["redlock_node_twin".to_string()]);
    [node_metrics(), client_metrics(), recorded, alarm].into_iter().flatten().collect()
}

#[test]
fn every_metric_of_the_dashboard_exists() {
    let known = known();
    let mut found = Vec::new();
    expressions(&dashboard(), &mut found);
    assert!(found.len() > 20, "{found:?}");
    for expression in &found {
        let names = named(expression);
        assert!(!names.is_empty(), "no Redlock metric: {expression}");
        assert!(names.is_subset(&known), "{expression} names {:?}", names.difference(&known));
    }
}

#[test]
fn every_metric_of_a_node_is_on_the_dashboard() {
    let mut found = Vec::new();
    expressions(&dashboard(), &mut found);
    let shown: BTreeSet<String> = found.iter().flat_map(|expression| named(expression)).collect();
    let missing: Vec<_> = node_metrics().into_iter().filter(|name| !shown.contains(name)).collect();
    assert!(missing.is_empty(), "the dashboard does not show {missing:?}");
}

#[test]
fn every_metric_of_an_alert_exists_and_every_alert_has_a_runbook() {
    let known = known();
    let page = Page::open("README.md");
    let mut alerts = 0;
    for rule in rules() {
        let expression = rule["expr"].as_str().expect("an expression");
        // `up` is a metric of Prometheus: whether it could reach the exporter.
        let names = named(expression);
        assert!(!names.is_empty() || expression.starts_with("up{"), "{expression}");
        assert!(names.is_subset(&known), "{expression} names {:?}", names.difference(&known));
        if let Some(name) = rule["alert"].as_str() {
            alerts += 1;
            let note = |field: &str| {
                rule["annotations"][field].as_str().unwrap_or_else(|| panic!("{name}: {field}"))
            };
            assert!(
                ["info", "warning", "critical"]
                    .contains(&rule["labels"]["severity"].as_str().unwrap_or_default())
            );
            assert!(!note("summary").is_empty() && !note("description").is_empty());
            assert!(
                has_target(&page, note("runbook")),
                "{name}: the runbook {} does not exist",
                note("runbook")
            );
        }
    }
    assert!(alerts > 10);
}

#[test]
fn a_metric_that_does_not_exist_is_detected() {
    let known = known();
    let names = named("rate(redlock_node_grants_total{job=\"a\"}[5m]) / redlock_node_grant_total");
    let unknown: Vec<_> = names.difference(&known).collect();
    assert_eq!(unknown, ["redlock_node_grant_total"]);
}

#[test]
fn the_panels_of_the_dashboard_have_unique_ids_and_do_not_overlap() {
    let board = dashboard();
    let panels = board["panels"].as_array().expect("panels");
    let numbers: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("a number")).collect();
    assert_eq!(numbers.len(), panels.len());
    for (one, other) in
        panels.iter().enumerate().flat_map(|(i, one)| panels[i + 1..].iter().map(move |o| (one, o)))
    {
        assert!(!overlap(&one["gridPos"], &other["gridPos"]), "{} overlaps {}", one["title"], other["title"]);
    }
}

fn overlap(one: &Value, other: &Value) -> bool {
    let span = |place: &Value, from: &str, length: &str| {
        let [from, length] = [from, length].map(|name| place[name].as_u64().expect("a place"));
        from..from + length
    };
    let meet = |from: &str, length: &str| {
        let (a, b) = (span(one, from, length), span(other, from, length));
        a.start < b.end && b.start < a.end
    };
    meet("x", "w") && meet("y", "h")
}

/// The program that checks and runs alert rules: the one that the gate has fetched, or the installed one. Without it,
/// the test is skipped.
fn promtool() -> Option<PathBuf> {
    let found = std::env::var_os("REDLOCK_PROMTOOL").map(PathBuf::from).or_else(|| find("promtool"));
    if found.is_none() {
        skip("promtool is not installed (Debian: package prometheus)");
    }
    found
}

#[test]
fn prometheus_accepts_the_rules_and_they_fire_when_they_should() {
    let Some(promtool) = promtool() else { return };
    let folder = root().join("docker/prometheus");
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["check", "config", "prometheus.yml"],
        ["test", "rules", "alerts.test.yml"],
    ] {
        let output = run(Command::new(&promtool).args(arguments).current_dir(&folder), SOON);
        assert!(output.status.success(), "promtool {arguments:?}: {}", describe(&output));
    }
}

#[test]
fn prometheus_accepts_every_expression_of_the_dashboard() {
    let Some(promtool) = promtool() else { return };
    let mut found = Vec::new();
    expressions(&dashboard(), &mut found);
    // Replace the variables of Grafana. Queries with label_values belong to Grafana and are no PromQL.
    let filled = found.iter().filter(|text| !text.starts_with("label_values("));
    let filled = filled.map(|text| text.replace("$__rate_interval", "1m").replace('$', ""));
    let rules: String = filled
        .enumerate()
        .map(|(number, text)| format!("      - record: panel:{number}\n        expr: >-\n          {text}\n"))
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let check = |rules: &str| {
        let text = format!("groups:\n  - name: dashboard\n    rules:\n{rules}");
        std::fs::write(folder.path().join("rules.yml"), text).expect("a file");
        run(Command::new(&promtool).args(["check", "rules", "rules.yml"]).current_dir(folder.path()), SOON)
    };
    let output = check(&rules);
    assert!(output.status.success(), "{}", describe(&output));
    assert!(
        !check("      - record: panel:0\n        expr: rate(\n").status.success(),
        "promtool rejects a broken expression"
    );
}
