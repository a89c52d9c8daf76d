//! Planted ills, each of which must be found.

use crate::program::{Desk, ILL, Said, WARNING, names};
use redlock_tests::{Cluster, Fleet, Server};
use serde_json::Value;

/// What was found: severity, check and node, without what all servers of a test have in common.
fn findings(desk: &Desk) -> Vec<(String, String, String)> {
    let report = desk.run(&["--json", "doctor"]).json();
    let text = |value: &Value| value.as_str().unwrap_or("all").to_owned();
    let all = report["findings"].as_array().expect("findings").iter();
    let each =
        all.map(|finding| (text(&finding["severity"]), text(&finding["check"]), text(&finding["node"])));
    each.filter(|(_, check, _)| check != "same-host").collect()
}

#[track_caller]
fn finds(desk: &Desk, severity: &str, check: &str, node: &Server) {
    let found = findings(desk);
    let name = node.url().replace("redis://", "");
    let wanted = (severity.to_owned(), check.to_owned(), name);
    assert!(found.contains(&wanted), "{wanted:?} is not in {found:?}");
}

fn three() -> (Fleet, Desk) {
    let fleet = Fleet::start(3);
    let desk = Desk::of(&fleet);
    (fleet, desk)
}

fn set(node: &Server, name: &str, value: &str) {
    let answer = node.connect().call(&["CONFIG", "SET", name, value]);
    assert_eq!(answer, redlock_tests::Answer::Status("OK".into()));
}

#[test]
fn nodes_that_are_well_are_left_in_peace() {
    let (_fleet, desk) = three();
    assert_eq!(findings(&desk), []);
    // All servers of a test are on one machine, and that is worth a word.
    let said: Said = desk.run(&["doctor"]).exits(WARNING);
    assert!(said.stdout.contains("warning [same-host] all nodes: "), "{said:?}");
    let report = desk.run(&["--json", "doctor"]).exits(WARNING).json();
    assert_eq!(names(&report), ["findings", "nodes", "worst"]);
    assert_eq!(report["worst"], "warning");
    assert_eq!(names(&report["findings"][0]), ["check", "node", "reason", "remedy", "severity"]);
}

#[test]
fn too_few_nodes_and_an_even_number() {
    let (fleet, _) = three();
    let urls = fleet.urls();
    let check = |urls: &[String]| findings(&Desk::at(urls)).first().map(|(_, check, _)| check.clone());
    assert_eq!(check(&urls[..1]).as_deref(), Some("few-nodes"));
    assert_eq!(check(&urls[..2]).as_deref(), Some("few-nodes"));
    let fourth = Server::builder().tcp().start();
    let four: Vec<String> = urls.iter().cloned().chain([fourth.url()]).collect();
    assert_eq!(check(&four).as_deref(), Some("even-nodes"));
}

#[test]
fn a_server_that_is_named_twice() {
    let (fleet, _) = three();
    let mut urls = fleet.urls();
    urls[2] = urls[0].replace("127.0.0.1", "localhost");
    let found = findings(&Desk::at(&urls));
    let is_found = found
        .iter()
        .any(|(severity, check, _)| (severity.as_str(), check.as_str()) == ("error", "same-server"));
    assert!(is_found, "{found:?}");
}

#[test]
fn a_server_without_the_module_and_one_that_is_away() {
    let (mut fleet, _) = three();
    let plain = Server::builder().without_module().tcp().start();
    let mut urls = fleet.urls();
    urls[1] = plain.url();
    fleet[2].kill();
    let desk = Desk::at(&urls);
    finds(&desk, "error", "no-module", &plain);
    finds(&desk, "error", "unreachable", &fleet[2]);
    let said = desk.run(&["doctor"]).exits(ILL);
    assert!(said.stdout.contains("loadmodule"), "the remedy is told: {said:?}");
    assert!(said.stdout.contains("no-quorum"), "{said:?}");
}

#[test]
fn eviction_and_memory() {
    let (fleet, desk) = three();
    set(&fleet[0], "maxmemory-policy", "allkeys-lru");
    finds(&desk, "warning", "eviction", &fleet[0]);
    set(&fleet[0], "maxmemory", "1gb");
    finds(&desk, "error", "eviction", &fleet[0]);
    set(&fleet[1], "maxmemory", "1mb");
    finds(&desk, "warning", "memory", &fleet[1]);
}

#[test]
fn a_replica() {
    let (fleet, _) = three();
    let replica = Server::builder().replica_of(&fleet[2]).start();
    let mut urls = fleet.urls();
    urls[2] = replica.url();
    finds(&Desk::at(&urls), "error", "replica", &replica);
}

#[test]
fn quarantine() {
    let (mut fleet, desk) = three();
    desk.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet.crash(&[1]);
    finds(&desk, "warning", "quarantine", &fleet[1]);
}

#[test]
fn no_grace_after_a_restart() {
    let (fleet, desk) = three();
    set(&fleet[1], "redlock.restart-grace", "off");
    finds(&desk, "error", "restart-grace", &fleet[1]);
    set(&fleet[1], "save", "3600 1");
    finds(&desk, "warning", "restart-grace", &fleet[1]);
}

#[test]
fn limits_that_differ() {
    let (fleet, desk) = three();
    set(&fleet[0], "redlock.max-ttl", "60000");
    let has = |severity: &str| {
        findings(&desk)
            .iter()
            .any(|(found, check, _)| (found.as_str(), check.as_str()) == (severity, "max-ttl"))
    };
    assert!(has("warning") && !has("error"));
    set(&fleet[0], "redlock.max-ttl", "5000");
    assert!(has("error"), "less than what is asked for");
}

#[test]
fn rights_that_are_missing() {
    let rules =
        "on >hush ~* &* -@all +redlock.acquire +redlock.release +redlock.node +acl|whoami +acl|dryrun +info";
    let shy =
        "on >hush ~app:* resetchannels -@all +redlock.acquire +redlock.extend +redlock.release +redlock.node";
    let fleet = Fleet::start_with(3, |_, node| node.user("app", rules).user("shy", shy));
    let as_user = |user: &str| -> Vec<String> {
        fleet.urls().iter().map(|url| url.replace("redis://", &format!("redis://{user}:hush@"))).collect()
    };
    let desk = Desk::at(&as_user("app"));
    finds(&desk, "error", "rights", &fleet[0]);
    let said = desk.run(&["doctor"]).exits(ILL);
    assert!(said.stdout.contains("redlock.extend is not allowed"), "{said:?}");
    assert!(!said.stdout.contains("redlock.acquire is not allowed"), "{said:?}");
    assert!(said.stdout.contains("may not read settings"), "{said:?}");
    // A user who may not even ask is told so.
    finds(&Desk::at(&as_user("shy")), "note", "rights", &fleet[0]);
    finds(&Desk::at(&as_user("nobody")), "error", "login", &fleet[0]);
}

#[test]
fn replies_in_resp2() {
    let (fleet, _) = three();
    let mut urls = fleet.urls();
    urls[0].push_str("?protocol=resp2");
    let found = findings(&Desk::at(&urls));
    assert_eq!(found, [("note".into(), "no-waiting".into(), "all".into())]);
}

#[test]
fn a_cluster_is_not_looked_into() {
    let (fleet, _) = three();
    let cluster = Cluster::start(3);
    let desk = Desk::without_nodes();
    let urls: Vec<String> = fleet.urls()[..2].iter().map(|url| format!("{url:?}")).collect();
    let seeds: Vec<String> = cluster.urls().iter().map(|url| format!("{url:?}")).collect();
    let text = format!("nodes = [{}]\n[[cluster]]\nurls = [{}]\n", urls.join(", "), seeds.join(", "));
    std::fs::write(desk.path().join("redlock.toml"), text).expect("a file");
    let found = findings(&desk);
    assert!(
        found.iter().any(|(severity, check, _)| (severity.as_str(), check.as_str()) == ("note", "cluster")),
        "{found:?}"
    );
    desk.run(&["run", "job", "--", "true"]).succeeds();
    desk.run(&["top", "--once"]).succeeds();
    desk.run(&["status", "--prometheus"]).succeeds();
}
