//! Each test plants a problem in healthy nodes. The doctor must find it, and nothing else.

use super::*;
use crate::doctor::facts::ExaminedNode;
use crate::group_report::{NodeReport, ServerVersion};
use redlock_client::{
    Failure, FailureKind, HighWater, NodeState, NonVoting, NonVotingReason, Origin, Quorum,
};
use redlock_contract::settings;
use std::time::Duration;

fn healthy(number: usize) -> ExaminedNode {
    let mut state = NodeState::default();
    state.id = format!("id-{number}");
    state.version = "0.1.0".into();
    state.incarnation = Some(2);
    state.origin = Some(Origin::New);
    state.high_water = Some(1 << 21);
    state.max_ttl = Some(Duration::from_secs(600));
    state.claim_window = Some(Duration::from_millis(100));
    let mut node = ExaminedNode::new(NodeReport {
        node: format!("10.0.0.{number}:6379").into(),
        state: Ok(state),
        latency: Duration::from_micros(300),
        numbers: [("grants".to_owned(), 1)].into(),
        server: Some(ServerVersion {
            name: "redis",
            version: "7.2.4".into(),
            run_id: format!("run-{number}"),
        }),
    });
    node.role = Some("master".into());
    let settings = [
        ("maxmemory", "0"),
        ("maxmemory-policy", "noeviction"),
        ("redlock.max-ttl", "600000"),
        ("redlock.restart-grace", "auto"),
        ("appendonly", "no"),
        ("save", ""),
    ];
    node.settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    node.used_memory = Some(1_000_000);
    node.persistence = "rdb_last_bgsave_status:ok\r\naof_last_write_status:ok\r\n".into();
    node.clock_ms = Some(0);
    node.missing_rights = Some(Vec::new());
    node
}

fn three() -> GroupFacts {
    let quorum = Quorum::of(3).expect("three nodes");
    GroupFacts { nodes: (1..=3).map(healthy).collect(), quorum, ttl: Duration::from_secs(30) }
}

/// The findings after a change to three healthy nodes.
fn found(change: impl FnOnce(&mut GroupFacts)) -> Vec<(Severity, &'static str)> {
    let mut facts = three();
    change(&mut facts);
    facts.quorum = Quorum::of(facts.nodes.len()).expect("a node");
    examine(&facts).into_iter().map(|finding| (finding.severity, finding.check)).collect()
}

fn set(facts: &mut GroupFacts, name: &str, value: &str) {
    facts.nodes[1].settings.insert(name.to_owned(), value.to_owned());
}

fn state(node: &mut ExaminedNode) -> &mut NodeState {
    node.report.state.as_mut().expect("a node that answers")
}

fn down(why: &str) -> Failure {
    Failure::new(FailureKind::Down, why)
}

#[test]
fn healthy_nodes_have_no_findings() {
    assert_eq!(found(|_| {}), []);
}

/// An older module does not report what it uses of its limits, and lists them only among its settings.
#[test]
fn waiters_of_an_older_module_are_compared_with_its_setting() {
    let crowded = |facts: &mut GroupFacts, waiters: u64| {
        facts.nodes.iter_mut().for_each(|node| {
            node.settings.insert("redlock.max-waiters".into(), "10".into());
        });
        state(&mut facts.nodes[1]).waiters = waiters;
    };
    assert_eq!(found(|facts| crowded(facts, 7)), []);
    assert_eq!(found(|facts| crowded(facts, 8)), [(Severity::Warning, "waiters")]);
}

/// Where the limit is 0, clients are not meant to wait.
#[test]
fn every_limit_of_waiters_has_a_finding_of_its_own() {
    let limits = [
        ("waiter_keys", "max_waiters"),
        ("longest_queue", "max_waiters_per_key"),
        ("most_waiters_on_connection", "max_waiters_per_connection"),
        ("waiters_bytes", "max_waiters_bytes"),
    ];
    for (used, limit) in limits {
        let with = |facts: &mut GroupFacts, number: u64, most: u64| {
            let numbers = &mut facts.nodes[1].report.numbers;
            numbers.extend([(used.to_owned(), number), (limit.to_owned(), most)]);
        };
        assert_eq!(found(|facts| with(facts, 79, 100)), [], "{used}");
        assert_eq!(found(|facts| with(facts, 80, 100)), [(Severity::Warning, "waiters")], "{used}");
        assert_eq!(found(|facts| with(facts, 0, 0)), [], "{used}");
    }
}

#[test]
fn problems_of_the_group_are_found() {
    use Severity::{Error, Note, Warning};
    assert_eq!(found(|facts| facts.nodes.truncate(2)), [(Warning, "few-nodes")]);
    assert_eq!(found(|facts| facts.nodes.push(healthy(4))), [(Warning, "even-nodes")]);
    let away = |facts: &mut GroupFacts| {
        facts.nodes[0].report.state = Err(down("unreachable: refused"));
        facts.nodes[1].report.state = Err(down("unreachable: refused"));
    };
    assert_eq!(found(away), [(Error, "no-quorum"), (Error, "unreachable"), (Error, "unreachable")]);
    let twins = |facts: &mut GroupFacts| {
        let server = facts.nodes[0].report.server.clone();
        facts.nodes[2].report.server = server;
    };
    assert_eq!(found(twins), [(Error, "same-server")]);
    assert_eq!(found(|facts| facts.nodes[2].report.node = "10.0.0.1:6380".into()), [(Warning, "same-host")]);
    let mixed = |facts: &mut GroupFacts| {
        if let Ok(state) = &mut facts.nodes[2].report.state {
            state.version = "0.2.0".into();
        }
    };
    assert_eq!(found(mixed), [(Warning, "mixed-versions")]);
    let old = |facts: &mut GroupFacts| {
        if let Ok(state) = &mut facts.nodes[2].report.state {
            state.claim_window = None;
        }
    };
    assert_eq!(found(old), [(Note, "no-waiting")]);
    assert_eq!(found(|facts| set(facts, "redlock.max-ttl", "60000")), [(Warning, "max-ttl")]);
    let both = found(|facts| set(facts, "redlock.max-ttl", "5000"));
    assert_eq!(both, [(Error, "max-ttl"), (Warning, "max-ttl")]);
    let hour = |facts: &mut GroupFacts| {
        facts
            .nodes
            .iter_mut()
            .for_each(|node| drop(node.settings.insert("redlock.max-ttl".into(), "3600000".into())));
    };
    assert_eq!(found(hour), [], "the default of redlock.max-ttl");
    let identities = |facts: &mut GroupFacts, incarnations: [u64; 3]| {
        for (node, incarnation) in facts.nodes.iter_mut().zip(incarnations) {
            state(node).incarnation = Some(incarnation);
        }
    };
    assert_eq!(found(|facts| identities(facts, [3, 1, 2])), [(Note, "new-node")]);
    assert_eq!(found(|facts| identities(facts, [1, 1, 2])), [], "two nodes on their first start");
    let admitted = |facts: &mut GroupFacts| {
        identities(facts, [3, 1, 2]);
        state(&mut facts.nodes[1]).origin = Some(Origin::Admitted);
    };
    assert_eq!(found(admitted), []);
    assert_eq!(found(|facts| facts.nodes[0].clock_ms = Some(-61_000)), [(Note, "clock")]);
    let slow = |facts: &mut GroupFacts| facts.nodes[0].report.latency = Duration::from_millis(40);
    assert_eq!(found(slow), [(Warning, "slow-node")]);
}

#[test]
fn problems_of_one_node_are_found() {
    use Severity::{Error, Note, Warning};
    let failing = |failure: Failure| move |facts: &mut GroupFacts| facts.nodes[1].report.state = Err(failure);
    for (kind, check) in [
        (FailureKind::NoModule, "no-module"),
        (FailureKind::SameNode, "same-server"),
        (FailureKind::LoginRefused, "login"),
    ] {
        assert_eq!(found(failing(Failure::new(kind, "10.0.0.1:6379"))), [(Error, check)]);
    }
    assert_eq!(found(failing(down("unreachable: no route"))), [(Error, "unreachable")]);
    let quarantined = |facts: &mut GroupFacts| {
        if let Ok(state) = &mut facts.nodes[2].report.state {
            state.quarantine = Duration::from_secs(9);
        }
    };
    assert_eq!(found(quarantined), [(Warning, "quarantine")]);
    let non_voting = |facts: &mut GroupFacts| {
        if let Ok(state) = &mut facts.nodes[1].report.state {
            state.non_voting = Some(NonVotingReason::Known(NonVoting::CopiedState));
            state.quarantine = Duration::from_secs(9);
        }
    };
    assert_eq!(
        found(non_voting),
        [(Error, "non-voting")],
        "the quarantine of a non-voting node is no finding"
    );
    let mut facts = three();
    non_voting(&mut facts);
    let finding = examine(&facts).remove(0);
    assert_eq!(finding.reason, "it does not vote and grants nothing: its state file is a copy");
    assert!(finding.remedy.contains("`redlock admit 10.0.0.2:6379`"), "{finding:?}");
    let high = |facts: &mut GroupFacts| state(&mut facts.nodes[1]).high_water = Some((1 << 62) + 1);
    assert_eq!(found(high), [(Warning, "high-fences")]);
    assert_eq!(found(|facts| state(&mut facts.nodes[1]).high_water = Some(1 << 62)), []);
    let far = |count| {
        move |facts: &mut GroupFacts| {
            facts.nodes[1].report.numbers.extend([("far_stripes".to_owned(), count)])
        }
    };
    assert_eq!(found(far(513)), [(Warning, "far-stripes")]);
    assert_eq!(found(far(512)), []);
    // Other stripes on each node: an admitted node takes over all of them.
    let far_on_each = |count: u16| {
        move |facts: &mut GroupFacts| {
            for (node, first) in facts.nodes.iter_mut().zip([0, 1_000, 2_000]) {
                let mut marks = HighWater::new(9);
                (first..first + count).for_each(|stripe| marks.raise(stripe, 1 << 40));
                state(node).high_water_marks = Some(marks);
            }
        }
    };
    assert_eq!(found(far_on_each(171)), [(Warning, "far-stripes")]);
    assert_eq!(found(far_on_each(170)), []);
    assert_eq!(found(|facts| facts.nodes[0].role = Some("slave".into())), [(Error, "replica")]);
    let old = |facts: &mut GroupFacts| {
        if let Some(server) = &mut facts.nodes[2].report.server {
            server.version = "6.2.14".into();
        }
    };
    assert_eq!(found(old), [(Error, "old-server")]);
    assert_eq!(found(|facts| set(facts, "maxmemory-policy", "allkeys-lru")), [(Warning, "eviction")]);
    let evicting = |facts: &mut GroupFacts| {
        set(facts, "maxmemory-policy", "allkeys-lfu");
        set(facts, "maxmemory", "100000000");
    };
    assert_eq!(found(evicting), [(Error, "eviction")]);
    assert_eq!(found(|facts| set(facts, "maxmemory-policy", "volatile-lru")), []);
    assert_eq!(found(|facts| set(facts, "maxmemory", "1100000")), [(Warning, "memory")]);
    assert_eq!(found(|facts| set(facts, "min-replicas-to-write", "1")), [(Warning, "replicas")]);
    assert_eq!(found(|facts| set(facts, "min-replicas-to-write", "0")), []);
    let long = |facts: &mut GroupFacts| {
        if let Ok(state) = &mut facts.nodes[2].report.state {
            state.longest_lease = Duration::from_secs(86_400);
        }
    };
    assert_eq!(found(long), [(Warning, "long-quarantine")]);
    let allowed = |facts: &mut GroupFacts| {
        for node in &mut facts.nodes {
            node.settings.insert("redlock.max-ttl".to_owned(), "86400000".to_owned());
        }
    };
    assert_eq!(found(allowed), [(Note, "long-quarantine")]);
    let broken = |facts: &mut GroupFacts| facts.nodes[1].persistence = "aof_last_write_status:err\r\n".into();
    assert_eq!(found(broken), [(Warning, "disk")]);
    let missing =
        |facts: &mut GroupFacts| facts.nodes[1].missing_rights = Some(vec![("REDLOCK.EXTEND", "no".into())]);
    assert_eq!(found(missing), [(Error, "rights")]);
    let several = |facts: &mut GroupFacts| {
        facts.nodes[1].missing_rights = Some(vec![("REDLOCK.MACQUIRE", "no".into())])
    };
    assert_eq!(
        found(several),
        [(Warning, "rights")],
        "not every application locks several resources at once"
    );
    let looking = |facts: &mut GroupFacts| {
        let none = ["REDLOCK.ACQUIRE", "REDLOCK.EXTEND", "REDLOCK.RELEASE", "REDLOCK.MACQUIRE", "SUBSCRIBE"];
        facts.nodes[1].missing_rights = Some(none.map(|command| (command, "no".to_owned())).to_vec());
    };
    assert_eq!(found(looking), [(Note, "rights")], "a user who only observes");
    let silent =
        |facts: &mut GroupFacts| facts.nodes[1].missing_rights = Some(vec![("SUBSCRIBE", "no".into())]);
    assert_eq!(found(silent), [(Note, "rights")]);
    assert_eq!(found(|facts| facts.nodes[1].missing_rights = None), [(Note, "rights")]);
    assert_eq!(found(|facts| facts.nodes[1].settings.clear()), [(Note, "settings")]);
}

#[test]
fn without_restart_grace_the_severity_depends_on_persistence() {
    use Severity::{Error, Note, Warning};
    let without_grace = |settings: &'static [(&str, &str)]| {
        found(|facts| {
            set(facts, "redlock.restart-grace", "off");
            settings.iter().for_each(|(name, value)| set(facts, name, value));
        })
    };
    assert_eq!(without_grace(&[]), [(Error, "restart-grace")]);
    assert_eq!(without_grace(&[("save", "3600 1")]), [(Warning, "restart-grace")]);
    assert_eq!(
        without_grace(&[("appendonly", "yes"), ("appendfsync", "everysec")]),
        [(Warning, "restart-grace")]
    );
    assert_eq!(without_grace(&[("appendonly", "yes"), ("appendfsync", "always")]), [(Note, "restart-grace")]);
}

#[test]
fn a_host_is_identified_by_its_address() {
    let host = |name: &str| {
        let mut node = healthy(1);
        node.report.node = name.into();
        node.host()
    };
    assert_eq!(host("10.0.0.1:6379").as_deref(), Some("10.0.0.1"));
    assert_eq!(host("Redis-1.example:6379").as_deref(), Some("redis-1.example"));
    for here in ["127.0.0.1:6379", "localhost:6380", "[::1]:6379", "/run/redis.sock"] {
        assert_eq!(host(here).as_deref(), Some("this machine"), "{here}");
    }
    assert_eq!(host("sentinel locks"), None);
    let named = |name: &str, address: &str| {
        let mut node = healthy(1);
        (node.report.node, node.address) = (name.into(), address.parse().ok());
        node.host()
    };
    assert_eq!(
        named("redis-1.example:6379", "10.0.0.1").as_deref(),
        Some("10.0.0.1"),
        "the address to which the name resolves"
    );
    assert_eq!(named("redis-1.example:6379", "127.0.0.1").as_deref(), Some("this machine"));
}

#[test]
fn every_setting_that_a_finding_names_exists() {
    let mut named = 0;
    for source in [include_str!("nodes.rs"), include_str!("servers.rs")] {
        let words = source.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '.'));
        for name in words.filter_map(|word| word.strip_prefix(settings::PREFIX)) {
            assert!(settings::ALL.contains(&name), "{name}");
            named += 1;
        }
    }
    assert!(named > 5, "{named}");
}
