//! `redlock doctor` finds each planted problem.

use crate::program::{DOCTOR_ERRORS, DOCTOR_WARNINGS, Launcher, NO_QUORUM, ProgramOutput, names};
use redlock_tests::{
    Answer, FakeClock, Fleet, OLDER_VERSION, Proxy, SOON, Server, eventually, granted, older_module,
};
use serde_json::Value;

/// The findings as severity, check and node, without `same-host`: all servers of a test are on one machine.
fn findings(redlock: &Launcher) -> Vec<(String, String, String)> {
    let report = redlock.run(&["--json", "doctor"]).json();
    let text = |value: &Value| value.as_str().unwrap_or("all").to_owned();
    let all = report["findings"].as_array().expect("findings").iter();
    let each =
        all.map(|finding| (text(&finding["severity"]), text(&finding["check"]), text(&finding["node"])));
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
fn healthy_nodes_have_no_findings_but_their_common_host() {
    let (_fleet, redlock) = three();
    assert_eq!(findings(&redlock), []);
    // All servers of a test are on one machine, which is a warning.
    let said: ProgramOutput = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains("warning [same-host] all nodes: "), "{said:?}");
    assert!(said.stdout.ends_with("3 nodes: 0 errors, 1 warning, 0 notes.\n"), "{said:?}");
    let report = redlock.run(&["--json", "doctor"]).exits(DOCTOR_WARNINGS).json();
    assert_eq!(names(&report), ["findings", "nodes", "worst"]);
    assert_eq!(report["worst"], "warning");
    assert_eq!(names(&report["findings"][0]), ["check", "node", "reason", "remedy", "severity"]);
}

#[test]
fn too_few_nodes_and_an_even_number_are_found() {
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
fn a_server_that_is_listed_twice_is_found() {
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
fn a_missing_module_and_an_unreachable_server_are_found() {
    let (mut fleet, _) = three();
    let plain = Server::builder().without_module().tcp().start();
    let mut urls = fleet.urls();
    urls[1] = plain.url();
    fleet[2].kill();
    let redlock = Launcher::at(&urls);
    finds(&redlock, "error", "no-module", &plain);
    finds(&redlock, "error", "unreachable", &fleet[2]);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_ERRORS);
    assert!(said.stdout.contains("loadmodule"), "the remedy is printed: {said:?}");
    assert!(said.stdout.contains("no-quorum"), "{said:?}");
}

#[test]
fn an_eviction_policy_and_full_memory_are_found() {
    let (fleet, redlock) = three();
    set(&fleet[0], "maxmemory-policy", "allkeys-lru");
    finds(&redlock, "warning", "eviction", &fleet[0]);
    set(&fleet[0], "maxmemory", "1gb");
    finds(&redlock, "error", "eviction", &fleet[0]);
    set(&fleet[1], "maxmemory", "1mb");
    finds(&redlock, "warning", "memory", &fleet[1]);
}

#[test]
fn a_replica_is_found() {
    let (fleet, _) = three();
    let replica = Server::builder().replica_of(&fleet[2]).start();
    let mut urls = fleet.urls();
    urls[2] = replica.url();
    finds(&Launcher::at(&urls), "error", "replica", &replica);
}

/// A promoted replica does not know which writes it has missed. It does not vote, and every command shows that.
#[test]
fn a_promoted_replica_is_shown_as_non_voting() {
    let (mut fleet, _) = three();
    let replica = Server::builder().replica_of(&fleet[2]).start();
    replica.wait_for_replication(&fleet[2]);
    fleet[2].kill();
    assert_eq!(replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
    let name = replica.url().replace("redis://", "");
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replica.url()]);
    finds(&redlock, "error", "non-voting", &replica);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_ERRORS);
    assert!(said.stdout.contains("it is or was a replica"), "{said:?}");
    assert!(said.stdout.contains(&format!("`redlock admit {name}`")), "{said:?}");

    let said = redlock.run(&["status"]).succeeds();
    let words = format!("{name}: non-voting: it is or was a replica; run `redlock admit {name}`");
    assert!(said.stdout.contains(&words), "{said:?}");
    assert!(said.stdout.contains("2 of 3 nodes grant, 2 are needed."), "{said:?}");
    let node = &redlock.run(&["--json", "status"]).succeeds().json()["nodes"][2];
    assert_eq!((&node["can_grant"], &node["voting"]), (&false.into(), &false.into()));
    assert_eq!((&node["non_voting_reason"], &node["state"]), (&"replica".into(), &"non-voting".into()));
    let metrics = redlock.run(&["status", "--prometheus"]).succeeds().stdout;
    assert!(metrics.contains(&format!("redlock_node_voting{{node=\"{name}\"}} 0\n")), "{metrics}");
    let board = redlock.run(&["top", "--once"]).succeeds().stdout;
    assert!(board.contains(&format!("{name}  non-voting")), "{board}");
    // With one more node down there is no majority, and waiting does not help: the code is not 114.
    fleet[1].kill();
    redlock.run(&["status"]).exits(NO_QUORUM);
}

#[test]
fn far_raised_fences_are_found() {
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
fn a_quarantine_is_found() {
    let (mut fleet, redlock) = three();
    redlock.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet.crash(&[1]);
    finds(&redlock, "warning", "quarantine", &fleet[1]);
}

#[test]
fn restart_grace_off_is_found() {
    let (fleet, redlock) = three();
    set(&fleet[1], "redlock.restart-grace", "off");
    finds(&redlock, "error", "restart-grace", &fleet[1]);
    set(&fleet[1], "save", "3600 1");
    finds(&redlock, "warning", "restart-grace", &fleet[1]);
}

/// After a crash, a node waits for the longest lease. A large limit is a note, a long lease a warning.
#[test]
fn long_limits_and_long_leases_are_found() {
    let (fleet, redlock) = three();
    for node in fleet.iter() {
        set(node, "redlock.max-ttl", "86400000");
    }
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(
        said.stdout.contains("note [long-quarantine] all nodes: redlock.max-ttl is 24h0m on "),
        "{said:?}"
    );
    redlock.run(&["acquire", "--ttl", "1d", "job"]).succeeds();
    finds(&redlock, "warning", "long-quarantine", &fleet[0]);
    for node in fleet.iter() {
        set(node, "redlock.max-ttl", "600000");
    }
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(!said.stdout.contains("note [long-quarantine]"), "{said:?}");
}

#[test]
fn min_replicas_to_write_is_found() {
    let (fleet, redlock) = three();
    set(&fleet[1], "min-replicas-to-write", "1");
    finds(&redlock, "warning", "replicas", &fleet[1]);
    let mut wire = fleet[1].connect();
    let answer = wire.call(&["REDLOCK.ACQUIRE", "job", "owner", "1000"]);
    assert_eq!(answer.error_word(), Some("NOREPLICAS"), "the node refuses locks, as the warning says");
}

/// A promoted replica does not vote: the operator should know before the promotion.
#[test]
fn a_replica_that_somebody_may_promote_is_found() {
    let (fleet, redlock) = three();
    let _replica = Server::builder().tcp().replica_of(&fleet[1]).start();
    // A server reports a replica as connected after the replica's first acknowledgement.
    let said = eventually("the replica is found", SOON, || {
        let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
        said.stdout.contains("note [replicas]").then_some(said)
    });
    let name = fleet[1].url().replace("redis://", "");
    assert!(said.stdout.contains(&format!("{name}: it has replicas, 127.0.0.1:")), "{said:?}");
}

/// The reasons and remedies of the findings about waiters.
fn about_waiters(redlock: &Launcher) -> Vec<(String, String)> {
    let report = redlock.run(&["--json", "doctor"]).json();
    let all = report["findings"].as_array().expect("findings").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let found = all.filter(|finding| finding["check"] == "waiters");
    found.map(|finding| (text(&finding["reason"]), text(&finding["remedy"]))).collect()
}

#[test]
fn waiters_near_each_of_their_four_limits_are_found() {
    // What 3 and what 4 waiters use of each limit: below and at 80 percent of 5.
    for (setting, keys) in [
        ("max-waiters", 1),
        ("max-waiters", 3),
        ("max-waiters-per-key", 2),
        ("max-waiters-per-connection", 2),
    ] {
        let (fleet, redlock) = three();
        let counted = if setting == "max-waiters-per-key" { 1 } else { keys };
        for node in fleet.iter() {
            set(node, &format!("redlock.{setting}"), &(5 * counted).to_string());
        }
        let mut wire = fleet[1].connect();
        let names = ["job", "other", "third"];
        granted(&wire.call_strs("REDLOCK.ACQUIRE job me 600000"));
        let mut queue = |count: usize| {
            let names = names[..keys].join(" ");
            let line =
                format!("REDLOCK.MACQUIRE {keys} {names} waiter-{count} 600000 WAIT {count} 600000 channel");
            assert!(matches!(wire.call_strs(&line), Answer::List(_)), "{line}");
        };
        (1..=3).for_each(&mut queue);
        assert_eq!(findings(&redlock), [], "60 percent of {setting}");
        queue(4);
        finds(&redlock, "warning", "waiters", &fleet[1]);
        let found = about_waiters(&redlock);
        let [(reason, remedy)] = &found[..] else { panic!("{setting}: {found:?}") };
        let used = format!("{} of at most {} waiters", 4 * counted, 5 * counted);
        assert!(reason.starts_with(&used) && reason.contains(&format!("(redlock.{setting})")), "{reason}");
        assert!(remedy.ends_with(&format!("or raise redlock.{setting}")), "{remedy}");
    }
}

#[test]
fn waiters_near_their_limit_in_bytes_are_found() {
    let (fleet, redlock) = three();
    let mut wire = fleet[1].connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE job me 600000"));
    let line = "REDLOCK.ACQUIRE job waiter 600000 WAIT 1 600000 channel";
    assert!(matches!(wire.call_strs(line), Answer::List(_)));
    let bytes = fleet[1].info("redlock", "redlock_waiters_bytes").expect("the field");
    let bytes: u64 = bytes.parse().expect("a number");
    assert!((100..10_000).contains(&bytes), "{bytes}");
    let limit = |most: u64| {
        fleet.iter().for_each(|node| set(node, "redlock.max-waiters-memory", &most.to_string()));
    };
    limit(bytes * 2);
    assert_eq!(findings(&redlock), [], "half of the limit");
    limit(bytes);
    finds(&redlock, "warning", "waiters", &fleet[1]);
    let found = about_waiters(&redlock);
    let [(reason, remedy)] = &found[..] else { panic!("{found:?}") };
    assert!(reason.starts_with(&format!("{bytes} of at most {bytes} bytes of waiters")), "{reason}");
    assert!(remedy.ends_with("or raise redlock.max-waiters-memory"), "{remedy}");
}

#[test]
fn marks_that_are_far_apart_are_found() {
    let (fleet, redlock) = three();
    redlock_tests::admit(&mut fleet[2].connect(), 1 << 40, 0);
    let found = findings(&redlock);
    assert_eq!(found, [("note".to_owned(), "marks-apart".to_owned(), "all".to_owned())]);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains(&fleet[2].url().replace("redis://", "")), "{said:?}");
}

#[test]
fn settings_that_differ_are_found() {
    let (fleet, redlock) = three();
    set(&fleet[0], "redlock.claim-window", "250");
    assert_eq!(findings(&redlock), [("note".to_owned(), "settings-differ".to_owned(), "all".to_owned())]);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains("redlock.claim-window differs: 100 on "), "{said:?}");
}

#[test]
fn a_wrong_clock_is_found() {
    let clock = FakeClock::new();
    let fleet = Fleet::start_with(3, |place, node| if place == 1 { node.clock(&clock) } else { node });
    let redlock = Launcher::of(&fleet);
    assert_eq!(findings(&redlock), []);
    clock.jump_wall(-3_600);
    finds(&redlock, "note", "clock", &fleet[1]);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(
        said.stdout.contains("behind the clock of this machine") && !said.stdout.contains("ahead of"),
        "{said:?}"
    );
    clock.jump_wall(7_200);
    let said = redlock.run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains("ahead of the clock of this machine"), "{said:?}");
}

/// Names that resolve to one address are one machine.
#[test]
fn a_common_host_is_found_by_its_address() {
    let (fleet, _) = three();
    let urls: Vec<String> = fleet.urls().iter().map(|url| url.replace("127.0.0.1", "0x7f000001")).collect();
    let said = Launcher::at(&urls).run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains("are on this machine: they fail together"), "{said:?}");
}

/// An unfinished upgrade: a proxy changes the version that the third node reports.
#[test]
fn different_versions_of_the_module_are_found() {
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
fn different_limits_are_found() {
    let (fleet, redlock) = three();
    set(&fleet[0], "redlock.max-ttl", "60000");
    let has = |severity: &str| {
        findings(&redlock)
            .iter()
            .any(|(found, check, _)| (found.as_str(), check.as_str()) == (severity, "max-ttl"))
    };
    assert!(has("warning") && !has("error"));
    set(&fleet[0], "redlock.max-ttl", "5000");
    assert!(has("error"), "a limit below the time to live in the settings is an error");
}

#[test]
fn missing_permissions_are_found() {
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
    let said = redlock.run(&["doctor"]).exits(DOCTOR_ERRORS);
    assert!(said.stdout.contains("REDLOCK.EXTEND is not allowed"), "{said:?}");
    assert!(!said.stdout.contains("REDLOCK.ACQUIRE is not allowed"), "{said:?}");
    assert!(said.stdout.contains("may not read settings"), "{said:?}");
    // The commands for several locks at once, which many applications never use, are only a warning.
    let found = findings(&redlock);
    assert!(
        found.iter().any(|(severity, check, _)| (severity.as_str(), check.as_str()) == ("warning", "rights"))
    );
    // A user who may not query its permissions gets a note.
    finds(&Launcher::at(&as_user("shy")), "note", "rights", &fleet[0]);
    finds(&Launcher::at(&as_user("nobody")), "error", "login", &fleet[0]);
}

#[test]
fn resp2_is_no_finding() {
    let (fleet, _) = three();
    let mut urls = fleet.urls();
    urls[0].push_str("?protocol=resp2");
    assert_eq!(
        findings(&Launcher::at(&urls)),
        [],
        "a node without pushes is no problem: the client polls it"
    );
}

#[test]
fn an_older_module_is_found() {
    let Some(older) = older_module() else { return };
    let fleet =
        Fleet::start_with(3, |node, builder| if node == 1 { builder.module_file(&older) } else { builder });
    let said = Launcher::of(&fleet).run(&["doctor"]).exits(DOCTOR_WARNINGS);
    let names: Vec<String> = fleet.urls().iter().map(|url| url.replace("redis://", "")).collect();
    let present = env!("CARGO_PKG_VERSION");
    let versions = format!("{OLDER_VERSION} on {}; {present} on {}, {}", names[1], names[0], names[2]);
    assert!(said.stdout.contains(&versions), "{versions} is not in {said:?}");
    assert!(said.stdout.contains("[mixed-versions]"), "{said:?}");
}
