//! The numbers of the nodes in the text format of Prometheus.

use crate::group_report::{GroupReport, NodeReport};
use std::fmt::Write;

/// Names of `INFO redlock` that are no counts: they have a unit or a name of their own below.
const STATES: [&str; 12] = [
    "voting",
    "incarnation",
    "high_water",
    "far_stripes",
    "longest_lease_ms",
    "max_ttl_ms",
    "locks",
    "waiters",
    "largest_fence",
    "quarantine_ms",
    "memory_bytes",
    // Of an older module, in the place of "longest_lease_ms".
    "longest_ttl_ms",
];

/// What the counts are, as far as they are known. A later module may have more.
const COUNTS: [(&str, &str); 15] = [
    ("state_writes", "How often the node's state file was written."),
    ("grants", "Locks granted."),
    ("refreshes", "Acquires by the owner that held the lock already."),
    ("refusals", "Acquires that found the lock held."),
    ("late_refusals", "Acquires that came after their own release."),
    ("quarantine_refusals", "Acquires refused in quarantine."),
    ("waits", "Acquires that were put in line."),
    ("handoffs", "Locks handed to the next in line."),
    ("unclaimed", "Locks that were handed on and not claimed."),
    ("extensions", "Extensions."),
    ("stale_extensions", "Extensions by somebody who does not hold the lock."),
    ("releases", "Releases."),
    ("stale_releases", "Releases by somebody who does not hold the lock."),
    ("expirations", "Keys whose lock ran out without a release."),
    ("quarantines", "How often the node began to wait because it may have forgotten locks."),
];

/// A family of numbers, one for each node that has it.
struct Family<'a> {
    text: &'a mut String,
    nodes: &'a [NodeReport],
}

impl Family<'_> {
    fn write(&mut self, name: &str, kind: &str, help: &str, value: impl Fn(&NodeReport) -> Option<f64>) {
        let values: Vec<_> = self.nodes.iter().filter_map(|node| Some((&node.node, value(node)?))).collect();
        if values.is_empty() {
            return;
        }
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP redlock_node_{name} {help}");
        let _ = writeln!(self.text, "# TYPE redlock_node_{name} {kind}");
        for (node, value) in values {
            let _ = writeln!(self.text, "redlock_node_{name}{{node=\"{}\"}} {value}", escaped(node));
        }
    }

    fn gauge(&mut self, name: &str, help: &str, value: impl Fn(&NodeReport) -> Option<f64>) {
        self.write(name, "gauge", help, value);
    }
}

/// The whole exposition.
pub(crate) fn text(report: &GroupReport) -> String {
    let mut text = String::new();
    info(&mut text, &report.nodes);
    let mut family = Family { text: &mut text, nodes: &report.nodes };
    family.gauge("up", "Whether the node answers.", |node| Some(f64::from(u8::from(node.state.is_ok()))));
    family.gauge("twin", "Whether the address leads to a node that another one leads to as well.", |node| {
        Some(f64::from(u8::from(node.twin().is_some())))
    });
    family.gauge("latency_seconds", "How long the node took to answer.", |node| {
        node.state.as_ref().ok().map(|_| node.latency.as_secs_f64())
    });
    family.gauge("locks", "Locks held.", |node| Some(float(node.state.as_ref().ok()?.locks)));
    family.gauge("waiters", "How many wait in line.", |node| Some(float(node.state.as_ref().ok()?.waiters)));
    family.gauge("quarantine_seconds", "How long the node grants nothing; 0 if it grants.", |node| {
        Some(node.state.as_ref().ok()?.quarantine.as_secs_f64())
    });
    family.gauge("largest_fence", "The largest fence given out for any key.", |node| {
        Some(float(node.state.as_ref().ok()?.fence))
    });
    family.gauge("longest_lease_seconds", "At least every lease that may still run there.", |node| {
        Some(node.state.as_ref().ok()?.longest_lease.as_secs_f64())
    });
    family.gauge("max_ttl_seconds", "The longest lease that the node grants.", |node| {
        Some(node.state.as_ref().ok()?.max_ttl?.as_secs_f64())
    });
    family.gauge(
        "voting",
        "Whether the node votes; 0 for a replica and for a node that must be admitted.",
        |node| Some(f64::from(u8::from(node.state.as_ref().ok()?.votes()))),
    );
    family.gauge("incarnation", "How often the node has started.", |node| {
        Some(float(node.state.as_ref().ok()?.incarnation?))
    });
    family.gauge("high_water", "At least every fence that the node has given out.", |node| {
        Some(float(node.state.as_ref().ok()?.high_water?))
    });
    family.gauge("far_stripes", "Stripes of keys with a high-water mark of their own.", |node| {
        Some(float(*node.numbers.get("far_stripes")?))
    });
    family.gauge("memory_bytes", "Memory kept for held locks.", |node| {
        Some(float(*node.numbers.get("memory_bytes")?))
    });
    for name in counts(&report.nodes) {
        let help =
            COUNTS.iter().find(|(known, _)| *known == name).map_or("A count of the node.", |(_, help)| help);
        family.write(&format!("{name}_total"), "counter", help, |node| Some(float(*node.numbers.get(name)?)));
    }
    quorum(&mut text, report);
    text
}

/// All counts that any node has: the known ones in their order, then the others.
fn counts(nodes: &[NodeReport]) -> Vec<&str> {
    let known = COUNTS.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> =
        known.filter(|name| nodes.iter().any(|node| node.numbers.contains_key(*name))).collect();
    for name in nodes.iter().flat_map(|node| node.numbers.keys()) {
        let is_a_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        if is_a_name && !STATES.contains(&name.as_str()) && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn info(text: &mut String, nodes: &[NodeReport]) {
    let _ = writeln!(text, "# HELP redlock_node_info What the node is; always 1.");
    let _ = writeln!(text, "# TYPE redlock_node_info gauge");
    for node in nodes {
        let Ok(state) = &node.state else { continue };
        let (server, version) =
            node.server.as_ref().map_or(("", ""), |server| (server.name, &server.version));
        let _ = writeln!(
            text,
            "redlock_node_info{{node=\"{}\",server=\"{}\",server_version=\"{}\",version=\"{}\",node_id=\"{}\"}} 1",
            escaped(&node.node),
            escaped(server),
            escaped(version),
            escaped(&state.version),
            escaped(&state.id),
        );
    }
}

fn quorum(text: &mut String, report: &GroupReport) {
    let can_grant = u8::from(report.can_grant());
    let _ =
        writeln!(text, "# HELP redlock_can_grant Whether a majority of the nodes would grant a free lock.");
    let _ = writeln!(text, "# TYPE redlock_can_grant gauge");
    let _ = writeln!(text, "redlock_can_grant {can_grant}");
}

/// Prometheus knows floats only; above 2^53 they are rounded.
#[allow(clippy::cast_precision_loss, reason = "the format has no other numbers")]
fn float(number: u64) -> f64 {
    number as f64
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_cannot_break_out() {
        assert_eq!(escaped("/run/a\"b\\c\nd"), "/run/a\\\"b\\\\c\\nd");
    }
}
