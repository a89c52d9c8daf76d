//! The metrics of the nodes in the text format of Prometheus.

use crate::group_report::{GroupReport, NodeReport};
use redlock_client::NodeState;
use redlock_contract::fields::{counter, info};
use std::fmt::Write;

/// A number that an older module has instead of [`info::LONGEST_LEASE_MS`]. It is not a counter.
const LONGEST_TTL_MS: &str = "longest_ttl_ms";

/// A gauge of a node.
struct Gauge {
    /// The name after `redlock_node_`.
    name: &'static str,
    help: &'static str,
    /// The value; `None` if the node does not report it.
    value: fn(&NodeReport) -> Option<f64>,
}

const GAUGES: [Gauge; 23] = [
    Gauge {
        name: "up",
        help: "1 if the node answers, else 0.",
        value: |node| Some(truth(node.state.is_ok())),
    },
    Gauge {
        name: "twin",
        help: "1 if the address leads to the same node as another address, and so has no vote; else 0.",
        value: |node| Some(truth(node.twin().is_some())),
    },
    Gauge {
        name: "latency_seconds",
        help: "How long the node took to answer.",
        value: |node| reported(node).map(|_| node.latency.as_secs_f64()),
    },
    Gauge { name: "locks", help: "Locks held.", value: |node| Some(float(reported(node)?.locks)) },
    Gauge {
        name: "waiters",
        help: "Clients that are queued for a lock.",
        value: |node| Some(float(reported(node)?.waiters)),
    },
    Gauge {
        name: info::WAITER_KEYS,
        help: "Clients that are queued for a lock, each counted once for each of its keys.",
        value: |node| Some(float(*node.numbers.get(info::WAITER_KEYS)?)),
    },
    Gauge {
        name: info::MAX_WAITERS,
        help: "The setting redlock.max-waiters: the most that waiter_keys may be.",
        value: |node| Some(float(*node.numbers.get(info::MAX_WAITERS)?)),
    },
    Gauge {
        name: info::LONGEST_QUEUE,
        help: "Clients that are queued for the key with the longest queue.",
        value: |node| Some(float(*node.numbers.get(info::LONGEST_QUEUE)?)),
    },
    Gauge {
        name: info::MAX_WAITERS_PER_KEY,
        help: "The setting redlock.max-waiters-per-key: the longest queue of a key.",
        value: |node| Some(float(*node.numbers.get(info::MAX_WAITERS_PER_KEY)?)),
    },
    Gauge {
        name: info::MOST_WAITERS_ON_CONNECTION,
        help: "Waiters on the connection with the most, each counted once for each of its keys.",
        value: |node| Some(float(*node.numbers.get(info::MOST_WAITERS_ON_CONNECTION)?)),
    },
    Gauge {
        name: info::MAX_WAITERS_PER_CONNECTION,
        help: "The setting redlock.max-waiters-per-connection: the most waiters on one connection.",
        value: |node| Some(float(*node.numbers.get(info::MAX_WAITERS_PER_CONNECTION)?)),
    },
    Gauge {
        name: info::WAITERS_BYTES,
        help: "Memory of waiters, approximate.",
        value: |node| Some(float(*node.numbers.get(info::WAITERS_BYTES)?)),
    },
    Gauge {
        name: info::MAX_WAITERS_BYTES,
        help: "The setting redlock.max-waiters-memory: the most memory of waiters.",
        value: |node| Some(float(*node.numbers.get(info::MAX_WAITERS_BYTES)?)),
    },
    Gauge {
        name: "quarantine_seconds",
        help: "How long the quarantine of the node still lasts; 0 if it is not in quarantine.",
        value: |node| Some(reported(node)?.quarantine.as_secs_f64()),
    },
    Gauge {
        name: "largest_fence",
        help: "The largest fence that the node has granted.",
        value: |node| Some(float(reported(node)?.fence)),
    },
    Gauge {
        name: "longest_lease_seconds",
        help: "An upper bound of every lease that may still run on the node.",
        value: |node| Some(reported(node)?.longest_lease.as_secs_f64()),
    },
    Gauge {
        name: "max_ttl_seconds",
        help: "The longest lease that the node grants.",
        value: |node| Some(reported(node)?.max_ttl?.as_secs_f64()),
    },
    Gauge {
        name: "voting",
        help: "1 if the node votes; 0 for a replica and for a node that must be admitted.",
        value: |node| Some(truth(reported(node)?.votes())),
    },
    Gauge {
        name: "incarnation",
        help: "How many times the node has started.",
        value: |node| Some(float(reported(node)?.incarnation?)),
    },
    Gauge {
        name: "high_water",
        help: "The high-water mark: at least every fence that the node has granted.",
        value: |node| Some(float(reported(node)?.high_water?)),
    },
    Gauge {
        name: "far_stripes",
        help: "Stripes of keys with a high-water mark of their own.",
        value: |node| Some(float(*node.numbers.get(info::FAR_STRIPES)?)),
    },
    Gauge {
        name: "memory_bytes",
        help: "Memory of held locks and, roughly, of waiters; 0 without both.",
        value: |node| Some(float(*node.numbers.get(info::MEMORY_BYTES)?)),
    },
    Gauge {
        name: "allocated_bytes",
        help: "All memory that the module has allocated, used or not.",
        value: |node| Some(float(*node.numbers.get(info::ALLOCATED_BYTES)?)),
    },
];

/// What the node reports, if it answers.
fn reported(node: &NodeReport) -> Option<&NodeState> {
    node.state.as_ref().ok()
}

/// All metrics of the group.
pub(crate) fn text(report: &GroupReport) -> String {
    let mut text = String::new();
    identities(&mut text, &report.nodes);
    for Gauge { name, help, value } in GAUGES {
        family(&mut text, &report.nodes, name, "gauge", help, value);
    }
    for name in counts(&report.nodes) {
        // A later module may have more counters.
        let known = counter::ALL.iter().find(|(known, _)| *known == name);
        let help = known.map_or("A counter of the node.", |(_, help)| help);
        let value = |node: &NodeReport| Some(float(*node.numbers.get(name)?));
        family(&mut text, &report.nodes, &format!("{name}_total"), "counter", help, value);
    }
    quorum(&mut text, report);
    text
}

/// Writes a metric, with one sample for each node that has a value.
fn family(
    text: &mut String,
    nodes: &[NodeReport],
    name: &str,
    kind: &str,
    help: &str,
    value: impl Fn(&NodeReport) -> Option<f64>,
) {
    let values: Vec<_> = nodes.iter().filter_map(|node| Some((&node.node, value(node)?))).collect();
    if values.is_empty() {
        return;
    }
    // Writing to a string cannot fail.
    let _ = writeln!(text, "# HELP redlock_node_{name} {help}");
    let _ = writeln!(text, "# TYPE redlock_node_{name} {kind}");
    for (node, value) in values {
        let _ = writeln!(text, "redlock_node_{name}{{node=\"{}\"}} {value}", escaped(node));
    }
}

/// The counters that any node has: the known ones in their order, then the others.
fn counts(nodes: &[NodeReport]) -> Vec<&str> {
    let known = counter::ALL.iter().map(|(name, _)| *name);
    let mut names: Vec<&str> =
        known.filter(|name| nodes.iter().any(|node| node.numbers.contains_key(*name))).collect();
    for name in nodes.iter().flat_map(|node| node.numbers.keys()) {
        let is_a_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_counter = !info::NUMBERS.contains(&name.as_str()) && name != LONGEST_TTL_MS;
        if is_a_name && is_counter && !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    names
}

fn identities(text: &mut String, nodes: &[NodeReport]) {
    let _ = writeln!(text, "# HELP redlock_node_info Server, module and node id of the node; always 1.");
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
    let can_grant = u8::from(report.standing().can_grant());
    let _ = writeln!(text, "# HELP redlock_can_grant 1 if a majority of the nodes can grant a lock, else 0.");
    let _ = writeln!(text, "# TYPE redlock_can_grant gauge");
    let _ = writeln!(text, "redlock_can_grant {can_grant}");
}

/// Prometheus has only floats. Numbers above 2^53 are rounded.
#[allow(clippy::cast_precision_loss, reason = "the format has no other numbers")]
fn float(number: u64) -> f64 {
    number as f64
}

fn truth(is_true: bool) -> f64 {
    f64::from(u8::from(is_true))
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_client::Quorum;
    use std::time::Duration;

    #[test]
    fn every_counter_of_this_version_has_a_help_text() {
        let node = NodeReport {
            node: "a:1".into(),
            state: Ok(NodeState::default()),
            latency: Duration::ZERO,
            numbers: counter::ALL.map(|(name, _)| (name.to_owned(), 1)).into(),
            server: None,
        };
        let text = text(&GroupReport { nodes: vec![node], quorum: Quorum::SINGLE });
        for (name, help) in counter::ALL {
            assert!(text.contains(&format!("\n# HELP redlock_node_{name}_total {help}\n")), "{text}");
        }
    }

    #[test]
    fn special_characters_in_a_label_are_escaped() {
        assert_eq!(escaped("/run/a\"b\\c\nd"), "/run/a\\\"b\\\\c\\nd");
    }
}
