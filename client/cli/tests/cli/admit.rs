//! `redlock admit`: which nodes it admits, which it refuses, and what it prints.

use crate::program::{Launcher, NO_QUORUM, REJECTED, Running, USAGE, names};
use crate::tmux::Tmux;
use redlock_tests::{Answer, Fleet, SOON, Server, ServerBuilder, eventually, granted, older_module};
use std::time::{Duration, Instant};

/// The longest lease that the nodes grant, so that the wait is short.
const MAX_TTL: &str = "500";

fn nodes(size: usize) -> Fleet {
    nodes_with(size, MAX_TTL)
}

fn nodes_with(size: usize, max_ttl: &str) -> Fleet {
    Fleet::start_with(size, |_, node| node.module_args(["max-ttl", max_ttl]))
}

/// A server that replaces a lost node. It does not vote until it is admitted.
fn newcomer() -> ServerBuilder {
    newcomer_with(MAX_TTL)
}

fn newcomer_with(max_ttl: &str) -> ServerBuilder {
    Server::builder().tcp().module_args(["max-ttl", max_ttl, "new-node", "non-voting"])
}

fn name(node: &Server) -> String {
    node.url().replace("redis://", "")
}

fn acquire(node: &Server, key: &str) -> Answer {
    node.connect().call(&["REDLOCK.ACQUIRE", key, "me", "400"])
}

fn field(node: &Server, field: &str) -> Answer {
    node.connect().call_strs("REDLOCK.NODE").field(field).expect("a field").clone()
}

fn number(node: &Server, name: &str) -> i64 {
    field(node, name).int()
}

#[test]
fn a_replacement_waits_and_grants_fences_above_all_others() {
    let mut fleet = nodes(3);
    let highest = granted(&fleet[1].connect().call_strs("REDLOCK.ACQUIRE job me 400 FENCE 70000000"));
    assert_eq!(highest, 70_000_000);
    fleet[2].kill();
    let replacement = newcomer().start();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replacement.url()]);
    assert_eq!(acquire(&replacement, "job").error_word(), Some("REDLOCKNOVOTE"));
    let status = redlock.run(&["--json", "status"]).succeeds().json();
    assert_eq!(status["nodes"][2]["non_voting_reason"], "new-node");

    let node = name(&replacement);
    let said = redlock.run(&["--json", "admit", &node, "--yes"]).succeeds().json();
    let fields = [
        "alone",
        "answers",
        "far_floors",
        "fences_above",
        "floor",
        "needed",
        "node",
        "node_id",
        "non_voting_reason",
        "votes_in_ms",
        "wait_ms",
        "was_voting",
    ];
    assert_eq!(names(&said), fields);
    assert_eq!(names(&said["answers"][0]), ["high_water", "max_ttl_ms", "node"]);
    assert_eq!(said["answers"].as_array().map(Vec::len), Some(2));
    assert_eq!((&said["needed"], &said["alone"]), (&2.into(), &false.into()));
    assert_eq!((&said["was_voting"], &said["non_voting_reason"]), (&false.into(), &"new-node".into()));
    assert_eq!(said["wait_ms"], 500);
    assert_eq!(said["votes_in_ms"], 0, "the program has already waited");
    let marks = fleet.iter().take(2).map(|node| number(node, "common-high-water"));
    assert_eq!(said["floor"].as_i64(), marks.max(), "{said}");
    let far = said["far_floors"].as_array().expect("a list");
    assert_eq!((far.len(), names(&far[0])), (1, vec!["floor", "stripe"]), "{said}");
    assert!(far[0]["floor"].as_i64() >= Some(highest), "{said}");

    // It grants fences above all fences of the others, and the raised key does not raise the other keys.
    assert_eq!(redlock.run(&["--json", "status"]).succeeds().json()["nodes"][2]["voting"], true);
    assert!(granted(&acquire(&replacement, "job")) > highest);
    let another = granted(&acquire(&replacement, "another"));
    assert!(another > said["floor"].as_i64().expect("a floor") && another < highest, "{another}");
    assert_eq!(field(&replacement, "origin"), Answer::text("admitted"));
    eventually("the lease has ended", SOON, || {
        let said = redlock.run(&["acquire", "--ttl", "400ms", "later"]);
        (said.code() == Some(0)).then_some(())
    });
}

/// Starts an admission, and returns when the program waits.
fn begins_to_wait(redlock: &Launcher, node: &str) -> Running {
    let mut program = redlock.start(&["admit", "--yes", node]);
    let plan: Vec<String> = (0..4).map(|_| program.line()).collect();
    assert!(plan[3].starts_with("Assumed: "), "{plan:?}");
    program
}

/// After its restart, the node may have loaded locks that run on when the wait is over.
#[test]
fn a_node_that_restarts_during_the_wait_is_not_admitted() {
    let (fleet, mut replacement) = (nodes_with(2, "4000"), newcomer_with("4000").start());
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replacement.url()]);
    let program = begins_to_wait(&redlock, &name(&replacement));
    replacement.restart();
    let said = program.finish().exits(USAGE);
    assert!(said.stderr.contains("is not admitted: it was started again during the wait"), "{said:?}");
    assert_eq!(acquire(&replacement, "job").error_word(), Some("REDLOCKNOVOTE"));
}

#[test]
fn a_limit_that_is_raised_during_the_wait_lengthens_it() {
    let (fleet, replacement) = (nodes_with(2, "3000"), newcomer_with("3000").start());
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replacement.url()]);
    let began = Instant::now();
    let program = begins_to_wait(&redlock, &name(&replacement));
    assert_eq!(fleet[0].connect().call_strs("CONFIG SET redlock.max-ttl 6000"), Answer::ok());
    program.finish().succeeds();
    assert!(began.elapsed() >= Duration::from_secs(6), "{:?}", began.elapsed());
    granted(&acquire(&replacement, "job"));
}

#[test]
fn the_plan_and_its_assumptions_are_printed() {
    let mut fleet = nodes(3);
    fleet[0].kill();
    let replacement = newcomer().start();
    let node = name(&replacement);
    let redlock = Launcher::at(&[replacement.url(), fleet[1].url(), fleet[2].url()]);
    // Without a terminal it prints what it would do, and does nothing.
    let said = redlock.run(&["admit", &node]).exits(USAGE);
    assert!(said.stderr.contains("admit needs --yes"), "{said:?}");
    assert!(said.stdout.contains("the server that this node replaces is stopped"), "{said:?}");
    let said = redlock.run(&["--json", "admit", &node]).exits(USAGE);
    assert!(said.stdout.is_empty() && said.json_error()["reason"] == "usage", "{said:?}");
    assert_eq!(acquire(&replacement, "job").error_word(), Some("REDLOCKNOVOTE"));

    let said = redlock.run(&["admit", "--yes", &replacement.url()]).succeeds();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert_eq!(lines.len(), 5, "{said:?}");
    assert!(lines[0].starts_with(&format!("{node}, node id ")), "{said:?}");
    assert!(lines[0].ends_with("does not vote: it was started with new-node non-voting."), "{said:?}");
    let answers = format!("{}, {} (2 vote and answer, 2 are needed).", name(&fleet[1]), name(&fleet[2]));
    assert!(lines[1].starts_with("floor ") && lines[1].ends_with(&answers), "{said:?}");
    assert!(lines[2].starts_with("wait 500ms: "), "{said:?}");
    assert!(
        lines[4].starts_with(&format!("{node} is admitted: it votes now, with fences above ")),
        "{said:?}"
    );
    granted(&acquire(&replacement, "job"));
}

/// A node in quarantine knows its high-water mark; a non-voting node may not.
#[test]
fn nodes_in_quarantine_count_and_non_voting_nodes_do_not() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    redlock.run(&["acquire", "--ttl", "10m", "job"]).succeeds();
    fleet[2].kill();
    fleet.crash(&[0, 1]);
    assert!(number(&fleet[0], "quarantine-ms") > 0);
    let (one, other) = (newcomer().start(), newcomer().start());
    let two_lost = Launcher::at(&[fleet[0].url(), other.url(), one.url()]);
    let said = two_lost.run(&["admit", "--yes", &name(&one)]).exits(NO_QUORUM);
    assert!(said.stderr.contains("1 of the other 2 nodes vote and answer, 2 are needed"), "{said:?}");
    assert!(
        said.stderr.contains(&format!("{}: does not vote: it was started with", name(&other))),
        "{said:?}"
    );
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), one.url()]);
    // The wait is an hour: the largest redlock.max-ttl of the group.
    let said = redlock.run(&["admit", &name(&one)]).exits(USAGE);
    assert!(said.stdout.contains("wait 1h"), "{said:?}");
}

#[test]
fn a_node_is_named_by_its_address_or_by_its_id() {
    let fleet = nodes(2);
    let replacement = newcomer().start();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replacement.url()]);
    let id = field(&replacement, "node-id").string();
    for unknown in ["127.0.0.1:1", &id[..7], "0123456789abcdef"] {
        let said = redlock.run(&["admit", "--yes", unknown]).exits(USAGE);
        assert!(said.stderr.contains("is not a configured node; configured nodes:"), "{said:?}");
    }
    let said = redlock.run(&["--json", "admit", "--yes", &id[..8].to_uppercase()]).succeeds().json();
    assert_eq!(said["node"], name(&replacement));
}

#[test]
fn a_voting_node_is_admitted_only_with_force() {
    let fleet = nodes(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["admit", "--yes", &name(&fleet[1])]).exits(USAGE);
    assert!(said.stderr.contains("it already votes (origin new, incarnation 1); --force"), "{said:?}");
    let error = redlock.run(&["--json", "admit", "--yes", &name(&fleet[1])]).exits(USAGE).json_error();
    assert_eq!(error["reason"], "not_admitted");
    let said = redlock.run(&["--json", "admit", "--yes", "--force", &name(&fleet[1])]).succeeds().json();
    assert_eq!(said["was_voting"], true);
    assert_eq!(field(&fleet[1], "origin"), Answer::text("admitted"));
}

#[test]
fn a_replica_must_be_promoted_first() {
    let mut fleet = nodes(3);
    let replica = Server::builder().module_args(["max-ttl", MAX_TTL]).replica_of(&fleet[2]).start();
    replica.wait_for_replication(&fleet[2]);
    fleet[2].kill();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replica.url()]);
    let said = redlock.run(&["admit", "--yes", &name(&replica)]).exits(USAGE);
    assert!(said.stderr.contains("it is a replica") && said.stderr.contains("REPLICAOF NO ONE"), "{said:?}");
    assert_eq!(replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
    assert_eq!(acquire(&replica, "job").error_word(), Some("REDLOCKNOVOTE"));
    redlock.run(&["admit", "--yes", &name(&replica)]).succeeds();
    eventually("the wait is over", SOON, || matches!(acquire(&replica, "job"), Answer::Int(_)).then_some(()));
}

#[test]
fn a_node_with_several_state_files_is_not_admitted() {
    let mut fleet = nodes(3);
    let redlock = Launcher::of(&fleet);
    fleet[2].shutdown();
    let dir = fleet[2].data_dir().to_path_buf();
    std::fs::copy(dir.join("redlock.state"), dir.join("redlock-old.state")).expect("a second state file");
    fleet[2].restart();
    let said = redlock.run(&["admit", "--yes", &name(&fleet[2])]).exits(USAGE);
    assert!(
        said.stderr.contains("there is more than one state file; keep the state file of this node"),
        "{said:?}"
    );
}

#[test]
fn unreachable_nodes_are_named_in_the_error() {
    let mut fleet = nodes(3);
    let redlock = Launcher::of(&fleet);
    fleet[2].kill();
    let said = redlock.run(&["admit", "--yes", &name(&fleet[2])]).exits(NO_QUORUM);
    assert!(
        said.stderr.contains("it does not answer as a node") && said.stderr.contains("refused"),
        "{said:?}"
    );
    let replacement = newcomer().start();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[2].url(), replacement.url()]);
    let said = redlock.run(&["admit", "--yes", &name(&replacement)]).exits(NO_QUORUM);
    assert!(said.stderr.contains("1 of the other 2 nodes vote and answer, 2 are needed"), "{said:?}");
    assert!(said.stderr.contains(&format!("{}: ", name(&fleet[2]))), "{said:?}");
    assert!(said.stderr.contains("Start the other nodes, or"), "{said:?}");
    let plain = Server::builder().without_module().tcp().start();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), plain.url()]);
    let said = redlock.run(&["admit", "--yes", &name(&plain)]).exits(NO_QUORUM);
    assert!(said.stderr.contains("has not loaded the redlock module"), "{said:?}");
}

#[test]
fn an_older_module_cannot_be_admitted() {
    let Some(older) = older_module() else { return };
    let fleet =
        Fleet::start_with(3, |node, builder| if node == 1 { builder.module_file(&older) } else { builder });
    let said = Launcher::of(&fleet).run(&["admit", "--yes", &name(&fleet[1])]).exits(USAGE);
    assert!(said.stderr.contains("does not report whether it votes; upgrade the module"), "{said:?}");
}

/// In a group of one or two nodes, too few other nodes can answer: the operator gives floor and wait.
#[test]
fn a_single_node_is_admitted_with_the_values_of_the_operator() {
    let (node, _clock) = redlock_tests::start_frozen(newcomer());
    let redlock = Launcher::at(&[node.url()]);
    let named = name(&node);
    let said = redlock.run(&["admit", "--yes", &named]).exits(NO_QUORUM);
    assert!(said.stderr.contains("0 of the other 0 nodes vote and answer, 1 are needed"), "{said:?}");
    assert!(said.stderr.contains("--alone --floor NUMBER --wait TIME"), "{said:?}");
    for incomplete in [
        &["--alone"][..],
        &["--alone", "--floor", "9"],
        &["--alone", "--wait", "1s"],
        &["--floor", "9", "--wait", "1s"],
        &["--alone", "--floor", "9", "--wait", "30"],
    ] {
        redlock.run(&[&["admit", "--yes", &named], incomplete].concat()).exits(USAGE);
    }
    let said =
        redlock.run(&["admit", "--yes", "--alone", "--floor", "9000000", "--wait", "2s", &named]).succeeds();
    assert!(said.stdout.contains("You vouch that this group has granted no fence above 9000000"), "{said:?}");
    assert!(said.stdout.ends_with("is admitted: it votes in 2.0s, with fences above 9000000.\n"), "{said:?}");
    assert_eq!(acquire(&node, "job").error_word(), Some("REDLOCKQUARANTINE"));

    // If enough other nodes answer, --alone is rejected. A refusal of the node is reported.
    let fleet = nodes(2);
    let three = Launcher::at(&[fleet[0].url(), fleet[1].url(), node.url()]);
    let alone = ["admit", "--yes", "--force", "--alone", "--floor", "9", "--wait", "1s", &named];
    let said = three.run(&alone).exits(USAGE);
    assert!(said.stderr.contains("2 of them vote and answer: leave --alone"), "{said:?}");
    let too_high =
        ["admit", "--yes", "--force", "--alone", "--floor", "6917529027641081856", "--wait", "1s", &named];
    let said = redlock.run(&too_high).exits(REJECTED);
    assert!(said.stderr.contains("is not admitted: ") && said.stderr.contains("(floor) must be"), "{said:?}");
}

#[test]
fn a_user_without_permission_is_refused() {
    let rules = "on >hush ~* &* -@all +hello +info +redlock.node";
    let node = newcomer().user("watcher", rules).start();
    let redlock = Launcher::at(&[node.url().replace("redis://", "redis://watcher:hush@")]);
    let named = name(&node);
    let said =
        redlock.run(&["admit", "--yes", "--alone", "--floor", "1", "--wait", "1s", &named]).exits(REJECTED);
    assert!(said.stderr.contains("NOPERM"), "{said:?}");
    assert_eq!(acquire(&node, "job").error_word(), Some("REDLOCKNOVOTE"));
}

#[test]
fn on_a_terminal_the_operator_must_type_yes() {
    let fleet = nodes(2);
    let replacement = newcomer().start();
    let redlock = Launcher::at(&[fleet[0].url(), fleet[1].url(), replacement.url()]);
    let Some(tmux) = Tmux::start(redlock) else { return };
    let line = format!("redlock admit {}; echo code=$?", name(&replacement));
    tmux.line(&line);
    tmux.until("Type yes to admit");
    tmux.line("no");
    tmux.until(&format!("code={USAGE}"));
    assert_eq!(acquire(&replacement, "job").error_word(), Some("REDLOCKNOVOTE"));
    tmux.line("clear");
    tmux.line(&line);
    tmux.until("Type yes to admit");
    tmux.line("yes");
    tmux.until("code=0");
    assert_eq!(field(&replacement, "origin"), Answer::text("admitted"));
}
