//! `redlock status`, the metrics for Prometheus, and `redlock exporter`.

use crate::http::{get, talk};
use crate::processes::SIGTERM;
use crate::program::{INTERNAL, Launcher, NO_QUORUM, QUARANTINED, USAGE, names};
use redlock_tests::{Fleet, SOON, eventually};
use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};

#[test]
fn status_shows_healthy_nodes() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "job"]).succeeds();
    let said = redlock.run(&["status"]).succeeds();
    let flavor = fleet[0].flavor().to_string().to_lowercase();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{said:?}");
    assert!(lines[0].starts_with("node"), "{said:?}");
    assert!(lines[1].contains("grants") && lines[1].contains(&flavor), "{said:?}");
    assert_eq!(lines[4], "Locks can be granted: 3 of 3 nodes grant, 2 are needed.");

    let status = redlock.run(&["--json", "status"]).succeeds().json();
    assert_eq!(names(&status), ["can_grant", "granting", "needed", "nodes"]);
    let node = &status["nodes"][0];
    let fields = [
        "can_grant",
        "fence",
        "high_water",
        "incarnation",
        "info",
        "latency_ms",
        "locks",
        "longest_ttl_ms",
        "max_ttl_ms",
        "node",
        "node_id",
        "non_voting_reason",
        "origin",
        "quarantine_ms",
        "replica",
        "server",
        "server_version",
        "started",
        "state",
        "up",
        "version",
        "voting",
        "waiters",
    ];
    assert_eq!(names(node), fields);
    assert_eq!((&node["locks"], &node["fence"], &node["info"]["grants"]), (&1.into(), &1.into(), &1.into()));
    assert_eq!(node["state"], "grants");
    assert_eq!((&node["voting"], &node["non_voting_reason"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!((&node["incarnation"], &node["max_ttl_ms"]), (&1.into(), &3_600_000.into()));
}

#[test]
fn the_exit_code_says_whether_locks_can_be_granted() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet[0].kill();
    redlock.run(&["status"]).succeeds();
    fleet[1].kill();
    let said = redlock.run(&["status"]).exits(NO_QUORUM);
    assert!(said.stdout.contains("No lock can be granted: 1 of 3 nodes grant, 2 are needed."), "{said:?}");
    // The long reason is below the table, so that it does not widen a column.
    let lines: Vec<&str> = said.stdout.lines().collect();
    let columns: Vec<&str> = lines[0].split_whitespace().collect();
    assert_eq!(columns.len(), 8, "{said:?}");
    assert!(lines[0].len() < 100 && lines[1].ends_with("  down"), "{said:?}");
    let away = lines[1].split_whitespace().next().expect("a node");
    assert!(lines[4].starts_with(&format!("{away}: ")) && lines[4].contains("refused"), "{said:?}");
    let status = redlock.run(&["--json", "status"]).exits(NO_QUORUM).json();
    assert_eq!(names(&status["nodes"][0]), ["can_grant", "error", "node", "state", "up"]);
    // The nodes restart, and may have forgotten locks.
    fleet[0].restart();
    fleet[1].restart();
    let said = redlock.run(&["status"]).exits(QUARANTINED);
    assert!(
        said.stdout.contains("quarantine for") && said.stdout.contains("A majority may grant in"),
        "{said:?}"
    );
    redlock.run(&["run", "other", "--", "true"]).exits(QUARANTINED);
}

/// Parses the text format strictly: each family has its HELP and TYPE before its samples, and no sample occurs twice.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let mut samples = BTreeMap::new();
    let mut family: Option<(String, bool)> = None;
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a name and a text");
            assert!(!help.is_empty(), "{line}");
            family = Some((name.to_owned(), false));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a name and a type");
            assert!(matches!(kind, "gauge" | "counter"), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            assert_eq!(family.replace((name.to_owned(), true)), Some((name.to_owned(), false)), "{line}");
        } else {
            let (sample, value) = line.rsplit_once(' ').expect("a sample and a value");
            let name = sample.split('{').next().expect("a name");
            assert_eq!(family, Some((name.to_owned(), true)), "{line}");
            let labels = sample.strip_prefix(name).expect("labels");
            assert!(
                labels.is_empty() || (labels.starts_with("{node=\"") && labels.ends_with("\"}")),
                "{line}"
            );
            let value: f64 = value.parse().expect("a number");
            assert_eq!(samples.insert(sample.to_owned(), value), None, "{line} occurs twice");
        }
    }
    samples
}

/// Asserts that every node has all metrics.
fn check_samples(text: &str, fleet: &Fleet) {
    let samples = parse(text);
    for url in fleet.urls() {
        let node = url.strip_prefix("redis://").expect("an address");
        let value = |name: &str| {
            let sample = format!("redlock_node_{name}{{node=\"{node}\"}}");
            *samples.get(&sample).unwrap_or_else(|| panic!("{sample} is missing in {text}"))
        };
        assert!((value("up") - 1.0).abs() < 1e-9);
        assert!((value("locks") - 1.0).abs() < 1e-9);
        assert!((value("grants_total") - 1.0).abs() < 1e-9);
        assert!((value("largest_fence") - 1.0).abs() < 1e-9);
        // The node rounds the lease up, so that it rarely stores a longer one.
        assert!((30.0..33.0).contains(&value("longest_lease_seconds")));
        assert!((value("max_ttl_seconds") - 3_600.0).abs() < 1e-9);
        assert!((value("voting") - 1.0).abs() < 1e-9 && (value("incarnation") - 1.0).abs() < 1e-9);
        assert!(value("high_water") >= 1.0 && value("far_stripes").abs() < 1e-9);
        assert!(value("memory_bytes") > 0.0 && value("allocated_bytes") > value("memory_bytes"));
        assert!(value("latency_seconds") > 0.0);
        assert!(value("quarantine_seconds").abs() < 1e-9 && value("waiters").abs() < 1e-9);
        for (used, limit) in [
            ("waiter_keys", "max_waiters"),
            ("longest_queue", "max_waiters_per_key"),
            ("most_waiters_on_connection", "max_waiters_per_connection"),
            ("waiters_bytes", "max_waiters_bytes"),
        ] {
            assert!(value(used).abs() < 1e-9 && value(limit) > 1_000.0, "{used}");
        }
        // All other numbers of INFO redlock are counters.
        let info = fleet[0].connect().call(&["INFO", "redlock"]).string();
        let states = [
            "version",
            "node_id",
            "incarnation",
            "origin",
            "voting",
            "non_voting_reason",
            "high_water",
            "far_stripes",
            "longest_lease_ms",
            "max_ttl_ms",
            "locks",
            "waiters",
            "waiter_keys",
            "max_waiters",
            "longest_queue",
            "max_waiters_per_key",
            "most_waiters_on_connection",
            "max_waiters_per_connection",
            "waiters_bytes",
            "max_waiters_bytes",
            "largest_fence",
            "quarantine_ms",
            "memory_bytes",
            "allocated_bytes",
        ];
        let names = info.lines().filter_map(|line| Some(line.strip_prefix("redlock_")?.split_once(':')?.0));
        let counts: Vec<&str> = names.filter(|name| !states.contains(name)).collect();
        assert!(counts.len() >= 15, "{counts:?}");
        counts.iter().for_each(|name| assert!(value(&format!("{name}_total")) >= 0.0));
        let info =
            samples.keys().find(|name| name.starts_with(&format!("redlock_node_info{{node=\"{node}\"")));
        let info = info.expect("redlock_node_info");
        for label in ["server=\"", "server_version=\"", "version=\"0.", "node_id=\""] {
            assert!(info.contains(label), "{info}");
        }
    }
    assert_eq!(samples.get("redlock_can_grant"), Some(&1.0));
}

#[test]
fn the_metrics_are_valid_and_complete() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "job"]).succeeds();
    check_samples(&redlock.run(&["status", "--prometheus"]).succeeds().stdout, &fleet);
    fleet[2].kill();
    let samples = parse(&redlock.run(&["status", "--prometheus"]).succeeds().stdout);
    let down =
        samples.iter().filter(|(name, value)| name.starts_with("redlock_node_up{") && value.abs() < 1e-9);
    assert_eq!(down.count(), 1);
    assert_eq!(samples.keys().filter(|name| name.starts_with("redlock_node_locks{")).count(), 2);
}

/// One server under two names: the client counts only one of them, and an alert needs a metric for that.
#[test]
fn a_node_with_two_addresses_is_a_twin() {
    let fleet = Fleet::start(3);
    let mut urls = fleet.urls();
    let twins = |urls: &[String], code: i32| {
        let samples = parse(&Launcher::at(urls).run(&["status", "--prometheus"]).exits(code).stdout);
        let of = |name: &str| {
            let all = samples.iter().filter(|(sample, _)| sample.starts_with(name));
            all.map(|(_, value)| *value).sum::<f64>().round()
        };
        (of("redlock_node_twin{"), of("redlock_node_up{"))
    };
    assert_eq!(twins(&urls, 0), (0.0, 3.0));
    urls[2] = urls[0].replace("127.0.0.1", "localhost");
    assert_eq!(twins(&urls, 0), (1.0, 2.0));
}

#[test]
fn the_exporter_serves_metrics_despite_bad_requests_and_idle_connections() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "job"]).succeeds();
    let mut exporter = redlock.start(&["--json", "exporter", "--listen", "127.0.0.1:0"]);
    let line: serde_json::Value = serde_json::from_str(&exporter.line()).expect("JSON");
    let address = line["listening"].as_str().expect("an address");
    let answer = get(address, "/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200") && head.contains("text/plain; version=0.0.4"), "{head}");
    check_samples(body, &fleet);

    assert!(get(address, "/elsewhere").starts_with("HTTP/1.1 404"));
    let posted =
        talk(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
    let garbled = talk(address, b"\x16\x03\x01 not HTTP at all\r\n\r\n");
    assert!(garbled.is_empty() || garbled.starts_with("HTTP/1.1 400"), "{garbled}");
    let endless = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 100_000]].concat();
    let refused = talk(address, &endless);
    assert!(refused.is_empty() || refused.starts_with("HTTP/1.1 4"), "{refused}");

    // Idle connections block other clients only until their timeout.
    let idle: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(address).expect("a queue")).collect();
    let answer = eventually("the exporter accepts a connection again", SOON * 3, || {
        Some(get(address, "/metrics")).filter(|answer| answer.starts_with("HTTP/1.1 200"))
    });
    assert!(answer.contains("redlock_node_up"));
    drop(idle);
    exporter.signal(SIGTERM);
    exporter.finish().succeeds();
}

#[test]
fn an_address_in_use_is_named_in_the_error() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    let taken = TcpListener::bind("127.0.0.1:0").expect("an address");
    let address = taken.local_addr().expect("its address").to_string();
    let said = redlock.run(&["exporter", "--listen", &address]).exits(INTERNAL);
    assert!(said.stderr.contains(&address) && said.stdout.is_empty(), "{said:?}");
    let said = redlock.run(&["--json", "exporter", "--listen", &address]).exits(INTERNAL);
    assert_eq!(said.json_error()["exit_code"], INTERNAL);
    let said = redlock.run(&["exporter", "--listen", "nowhere"]).exits(USAGE);
    assert!(said.stderr.contains("127.0.0.1:9464") && said.stderr.contains(":9464 for all"), "{said:?}");
    // A port alone means all addresses, as for other exporters.
    let mut exporter = redlock.start(&["--json", "exporter", "--listen", ":0"]);
    let line = exporter.line();
    assert!(line.contains("\"0.0.0.0:"), "{line}");
    exporter.signal(SIGTERM);
    exporter.finish().succeeds();
}
