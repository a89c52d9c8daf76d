//! Planted ills, each of which must be found.

use crate::program::{ILL, Launcher, NO_QUORUM, ProgramOutput, WARNING, names};
use redlock_tests::{Answer, FakeClock, Fleet, OLDER_VERSION, Proxy, Server, granted, older_module};
use serde_json::Value;

/// What was found: severity, check and node, without what all servers of a test have in common.
fn findings(redlock: &Launcher) -> Vec<(String, String, String)> {
    let report = redlock.run(&["--json", "doctor"]).json();
    let text = |value: &Value| value.as_str().unwrap_or("all").to_owned();
    let all = report["findings"].as_array().expect("findings").iter();
    let each =
        all.map(|finding| (text(&finding["severity"]), text(&finding["check"]), text(&finding["node"])));
    // All are on one machine.
    each.filter(|(_, check, _)| check != "same-host").collect()
}

#[track_caller]
fn finds(redlock: &Launcher, severity: &str, check: &str, node: &Server) {
    let found = findings(redlock);
    let name = node.url().replace("redis://", "");
    let wanted = (severity.to_owned(), check.to_owned(), name);
    assert!(found.contains(&wanted), "{wanted:?} is not in {found:?}");
}

fn three() -> (Fleet, Launcher) {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    (fleet, redlock)
}

fn set(node: &Server, name: &str, value: &str) {
    let answer = node.connect().call(&["CONFIG", "SET", name, value]);
    assert_eq!(answer, Answer::Status("OK".into()));
}

#[test]
fn nodes_that_are_well_are_left_in_peace() {
    let (_fleet, redlock) = three();
    assert_eq!(findings(&redlock), []);
    // All servers of a test are on one machine, and that is worth a word.
    let said: ProgramOutput = redlock.run(&["doctor"]).exits(WARNING);
    assert!(said.stdout.contains("warning [same-host] all nodes: "), "{said:?}");
    assert!(said.stdout.ends_with("3 nodes: 0 errors, 1 warning, 0 notes.\n"), "{said:?}");
    let report = redlock.run(&["--json", "doctor"]).exits(WARNING).json();
    assert_eq!(names(&report), ["findings", "nodes", "worst"]);
    assert_eq!(report["worst"], "warning");
    assert_eq!(names(&report["findings"][0]), ["check", "node", "reason", "remedy", "severity"]);
}

#[test]
fn too_few_nodes_and_an_even_number() {
    let (fleet, _) = three();
    let urls = fleet.urls();
    let check = |urls: &[String]| findings(&Launcher::at(urls)).first().map(|(_, check, _)| check.clone());
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
    let found = findings(&Launcher::at(&urls));
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
    let redlock = Launcher::at(&urls);
    finds(&redlock, "error", "no-module", &plain);
    finds(&redlock, "error", "unreachable", &fleet[2]);
    let said = redlock.run(&["doctor"]).exits(ILL);
    assert!(said.stdout.contains("loadmodule"), "the remedy is told: {said:?}");
    assert!(said.stdout.contains("no-quorum"), "{said:?}");
}

#[test]
fn eviction_and_memory() {
    let (fleet, redlock) = three();
    set(&fleet[0], "maxmemory-policy", "allkeys-lru");
    finds(&redlock, "warning", "eviction", &fleet[0]);
    set(&fleet[0], "maxmemory", "1gb");
    finds(&redlock, "error", "eviction", &fleet[0]);
    set(&fleet[1], "maxmemory", "1mb");
    finds(&redlock, "warning", "memory", &fleet[1]);
}

#[test]
fn a_replica() {
    let (fleet, _) = three();
    let replica = Server::builder().replica_of(&fleet[2]).start();
    let mut urls = fleet.urls();
    urls[2] = replica.url();
    finds(&Launcher::at(&urls), "error", "replica", &replica);
}

/// A promoted replica cannot know what it has missed: it does not vote, and every command says so.
#[test]
fn a_promoted_replica() {
    let (mut fleet, _) = three();
    let replica = Server::builder().replica_of(&fleet[2]).start();
    replica.wait_for_replication(&fleet[2]);
    fleet[2].kill();
    assert_eq!(replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
    let name = replica.url().replace("redis://", "");
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replica.url()]);
    finds(&redlock, "error", "non-voting", &replica);
    let said = redlock.run(&["doctor"]).exits(ILL);
    assert!(said.stdout.contains("it is or was a replica"), "{said:?}");
    assert!(said.stdout.contains(&format!("`redlock admit {name}`")), "{said:?}");

    let said = redlock.run(&["status"]).succeeds();
    let words = format!("{name}: non-voting: it is or was a replica; run `redlock admit {name}`");
    assert!(said.stdout.contains(&words), "{said:?}");
    assert!(said.stdout.contains("2 of 3 nodes grant, 2 are needed."), "{said:?}");
    let node = &redlock.run(&["--json", "status"]).succeeds().json()["nodes"][2];
    assert_eq!((&node["can_grant"], &node["voting"]), (&false.into(), &false.into()));
    assert_eq!(node["non_voting_reason"], "replica");
    let metrics = redlock.run(&["status", "--prometheus"]).succeeds().stdout;
    assert!(metrics.contains(&format!("redlock_node_voting{{node=\"{name}\"}} 0\n")), "{metrics}");
    let board = redlock.run(&["top", "--once"]).succeeds().stdout;
    assert!(board.contains(&format!("{name}  non-voting")), "{board}");
    // Without it there is no majority, and waiting does not help.
    fleet[1].kill();
    redlock.run(&["status"]).exits(NO_QUORUM);
}

#[test]
fn fences_that_were_raised_far() {
    let (fleet, redlock) = three();
    let mut wire = fleet[1].connect();
    let fence = granted(&wire.call_strs("REDLOCK.ACQUIRE job me 60000 FENCE 4611686018427387904"));
    assert_eq!(fence, 1 << 62);
    finds(&redlock, "warning", "high-fences", &fleet[1]);
    for number in 0..520 {
        granted(
            &fleet[2]
                .connect()
                .call_strs(&format!("REDLOCK.ACQUIRE key:{number} me 60000 FENCE {}", 1_u64 << 40)),
        );
    }
    finds(&redlock, "warning", "far-stripes", &fleet[2]);
}

#[test]
fn quarantine() {
    let (mut fleet, redlock) = three();
    redlock.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet.crash(&[1]);
    finds(&redlock, "warning", "quarantine", &fleet[1]);
}

#[test]
fn no_grace_after_a_restart() {
    let (fleet, redlock) = three();
    set(&fleet[1], "redlock.restart-grace", "off");
    finds(&redlock, "error", "restart-grace", &fleet[1]);
    set(&fleet[1], "save", "3600 1");
    finds(&redlock, "warning", "restart-grace", &fleet[1]);
}

/// A crash is as long as the longest lock: what may come is worth a word, what will come a warning.
#[test]
fn locks_that_make_a_quarantine_long() {
    let (fleet, redlock) = three();
    for node in fleet.iter() {
        set(node, "redlock.max-ttl", "86400000");
    }
    let said = redlock.run(&["doctor"]).exits(WARNING);
    assert!(
        said.stdout.contains("note [long-quarantine] all nodes: redlock.max-ttl is 24h0m on "),
        "{said:?}"
    );
    redlock.run(&["acquire", "--ttl", "1d", "job"]).succeeds();
    finds(&redlock, "warning", "long-quarantine", &fleet[0]);
    for node in fleet.iter() {
        set(node, "redlock.max-ttl", "600000");
    }
    let said = redlock.run(&["doctor"]).exits(WARNING);
    assert!(!said.stdout.contains("note [long-quarantine]"), "{said:?}");
}

#[test]
fn replicas_without_which_a_node_refuses() {
    let (fleet, redlock) = three();
    set(&fleet[1], "min-replicas-to-write", "1");
    finds(&redlock, "warning", "replicas", &fleet[1]);
    let mut wire = fleet[1].connect();
    let answer = wire.call(&["REDLOCK.ACQUIRE", "job", "owner", "1000"]);
    assert_eq!(answer.error_word(), Some("NOREPLICAS"), "what it warns of is so");
}

#[test]
fn a_clock_that_is_off() {
    let clock = FakeClock::new();
    let fleet = Fleet::start_with(3, |place, node| if place == 1 { node.clock(&clock) } else { node });
    let redlock = Launcher::of(&fleet);
    assert_eq!(findings(&redlock), []);
    clock.jump_wall(-3_600);
    finds(&redlock, "note", "clock", &fleet[1]);
    let said = redlock.run(&["doctor"]).exits(WARNING);
    assert!(said.stdout.contains("behind ours") && !said.stdout.contains("ahead of"), "{said:?}");
    clock.jump_wall(7_200);
    let said = redlock.run(&["doctor"]).exits(WARNING);
    assert!(said.stdout.contains("ahead of ours"), "{said:?}");
}

/// Two names of one machine are one machine.
#[test]
fn hosts_are_known_by_where_their_names_lead() {
    let (fleet, _) = three();
    let urls: Vec<String> = fleet.urls().iter().map(|url| url.replace("127.0.0.1", "0x7f000001")).collect();
    let said = Launcher::at(&urls).run(&["doctor"]).exits(WARNING);
    assert!(said.stdout.contains("are on this machine: they fail together"), "{said:?}");
}

/// An upgrade that was not finished: what the third node says of itself is changed on its way.
#[test]
fn versions_that_differ() {
    let fleet = Fleet::start(3);
    let proxy = Proxy::to(&fleet[2]);
    let node = fleet[2].connect().call(&["REDLOCK.NODE"]);
    let mut forged = format!("*{}\r\n", node.pairs().len() * 2);
    for (name, value) in node.pairs() {
        let name = name.string();
        let value = match value {
            Answer::Int(number) => format!(":{number}"),
            _ if name == "version" => "$5\r\n0.9.9".to_owned(),
            text => format!("${}\r\n{}", text.string().len(), text.string()),
        };
        forged += &format!("${}\r\n{name}\r\n{value}\r\n", name.len());
    }
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), proxy.url()]);
    assert_eq!(findings(&redlock), []);
    proxy.forge_reply("REDLOCK.NODE", forged);
    assert_eq!(findings(&redlock), [("warning".into(), "mixed-versions".into(), "all".into())]);
}

#[test]
fn limits_that_differ() {
    let (fleet, redlock) = three();
    set(&fleet[0], "redlock.max-ttl", "60000");
    let has = |severity: &str| {
        findings(&redlock)
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
    let redlock = Launcher::at(&as_user("app"));
    finds(&redlock, "error", "rights", &fleet[0]);
    let said = redlock.run(&["doctor"]).exits(ILL);
    assert!(said.stdout.contains("REDLOCK.EXTEND is not allowed"), "{said:?}");
    assert!(!said.stdout.contains("REDLOCK.ACQUIRE is not allowed"), "{said:?}");
    assert!(said.stdout.contains("may not read settings"), "{said:?}");
    // Who may lock one at a time lacks what many never use; who may lock nothing is there to look.
    let found = findings(&redlock);
    assert!(
        found.iter().any(|(severity, check, _)| (severity.as_str(), check.as_str()) == ("warning", "rights"))
    );
    // A user who may not even ask is told so.
    finds(&Launcher::at(&as_user("shy")), "note", "rights", &fleet[0]);
    finds(&Launcher::at(&as_user("nobody")), "error", "login", &fleet[0]);
}

#[test]
fn replies_in_resp2() {
    let (fleet, _) = three();
    let mut urls = fleet.urls();
    urls[0].push_str("?protocol=resp2");
    assert_eq!(findings(&Launcher::at(&urls)), [], "the client polls there, which is no fault");
}

#[test]
fn nodes_with_an_older_module() {
    let Some(older) = older_module() else { return };
    let fleet =
        Fleet::start_with(3, |node, builder| if node == 1 { builder.module_file(&older) } else { builder });
    let said = Launcher::of(&fleet).run(&["doctor"]).exits(WARNING);
    let names: Vec<String> = fleet.urls().iter().map(|url| url.replace("redis://", "")).collect();
    let present = env!("CARGO_PKG_VERSION");
    let versions = format!("{OLDER_VERSION} on {}; {present} on {}, {}", names[1], names[0], names[2]);
    assert!(said.stdout.contains(&versions), "{versions} is not in {said:?}");
    assert!(said.stdout.contains("[mixed-versions]"), "{said:?}");
}
