//! `redlock ls` and `redlock break`.

use crate::program::{Launcher, NO_QUORUM, REJECTED, USAGE, names};
use crate::tmux::Tmux;
use redlock_tests::{Answer, Fleet, SOON, eventually};

#[test]
fn held_locks_are_listed_with_the_view_of_the_quorum() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["ls"]).succeeds();
    assert!(said.stdout.is_empty() && said.stderr == "redlock: 0 locks held\n", "{said:?}");
    for job in ["app:job:a", "app:job:b", "app:other", "elsewhere"] {
        redlock.run(&["acquire", "--ttl", "9m", "--label", "tester", job]).succeeds();
    }
    let app = |arguments: &[&str]| redlock.run(&[&["--prefix", "app:"], arguments].concat());
    let waiting = redlock.start(&["run", "--wait", "forever", "app:job:b", "--", "true"]);
    // One node has lost a lock, one has a lock that the others do not have.
    fleet[2].connect().call(&["DEL", "app:job:a"]);
    fleet[1].connect().call(&["REDLOCK.ACQUIRE", "app:left", "nobody", "600000", "FENCE", "70"]);
    let list = |arguments: &[&str]| app(&[&["--json", "ls"], arguments].concat()).succeeds().json();
    let said = eventually("the waiter is listed", SOON, || {
        let said = list(&[]);
        // The client queues on one node after the other, and `ls` asks a node first for itself and then for its locks.
        let is_queued = said["locks"][1]["waiters"] == 1 && said["nodes"][0]["waiters"] == 1;
        is_queued.then_some(said)
    });
    assert_eq!(names(&said), ["cut", "locks", "needed", "nodes", "refused"]);
    assert_eq!((said["nodes"].as_array().map(Vec::len), &said["needed"]), (Some(3), &2.into()));
    assert_eq!(said["nodes"][0]["up"], true);
    let fields = [
        "fence",
        "held",
        "held_ms",
        "holders",
        "key",
        "label",
        "left_ms",
        "resource",
        "shared_by",
        "waiters",
    ];
    assert_eq!(names(&said["locks"][0]), fields);
    let rows: Vec<String> = said["locks"]
        .as_array()
        .expect("locks")
        .iter()
        .map(|lock| {
            format!(
                "{} {} {} {} {}",
                lock["resource"], lock["fence"], lock["holders"], lock["held"], lock["label"]
            )
            .replace('"', "")
        })
        .collect();
    let expected =
        ["job:a 1 2 true tester", "job:b 1 3 true tester", "left 70 1 false ", "other 1 3 true tester"];
    assert_eq!(rows, expected);
    let found = |pattern: &str| list(&[pattern])["locks"].as_array().map(Vec::len);
    assert_eq!(
        (found("job:*"), found("job:?"), found("job"), found("[jl]*")),
        (Some(2), Some(2), Some(0), Some(3))
    );
    let said = app(&["ls", "job:*"]).succeeds();
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(lines[0].starts_with("resource  fence  nodes  left"), "{said:?}");
    assert!(lines[1].starts_with("job:a     1      2/3    8m5") && lines[1].ends_with("tester"), "{said:?}");
    assert_eq!(said.stderr, "redlock: 2 locks held\n");
    let said = app(&["ls"]).succeeds();
    assert!(said.stderr.contains("3 locks held; 1 on fewer than a majority of the nodes"), "{said:?}");
    let said = app(&["ls", "--limit", "1"]).succeeds();
    assert!(said.stderr.contains("not all locks are shown"), "{said:?}");
    fleet[0].kill();
    assert_eq!(list(&[])["locks"].as_array().map(Vec::len), Some(4));
    fleet[1].kill();
    let said = app(&["--json", "ls"]).exits(NO_QUORUM);
    assert_eq!(said.json_error()["reason"], "no_quorum");
    assert_eq!(said.json()["locks"].as_array().map(Vec::len), Some(2), "what one node shows is printed");
    drop(waiting);
}

#[test]
fn a_list_that_this_user_may_not_see_is_a_failure() {
    let rules = "on >hush ~* &* -@all +hello +redlock.node +redlock.inspect +info";
    let fleet = Fleet::start_with(3, |_, node| node.user("blind", rules));
    let urls: Vec<String> =
        fleet.urls().iter().map(|url| url.replace("redis://", "redis://blind:hush@")).collect();
    let said = Launcher::at(&urls).run(&["ls"]).exits(REJECTED);
    assert!(said.stderr.contains("0 of 3 nodes showed their locks, 2 are needed"), "{said:?}");
    assert!(said.stderr.contains("NOPERM") && said.stderr.to_lowercase().contains("scan"), "{said:?}");
}

fn counter(fleet: &Fleet, name: &str) -> Vec<Option<String>> {
    fleet.iter().map(|node| node.info("redlock", name)).collect()
}

#[test]
fn a_lock_is_broken_on_all_nodes_and_passes_to_the_first_waiter() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock =
        redlock.run(&["--json", "acquire", "--ttl", "9m", "--label", "stuck", "job"]).succeeds().json();
    let waiting =
        redlock.start(&["run", "--wait", "forever", "job", "--", "sh", "-c", "echo $REDLOCK_FENCE"]);
    let waiters = |count: i64| {
        let seen = |node: &redlock_tests::Server| {
            node.connect().call_strs("REDLOCK.NODE").field("waiters").map(Answer::int)
        };
        eventually("waiters", SOON, || fleet.iter().all(|node| seen(node) == Some(count)).then_some(()));
    };
    waiters(1);
    // Without a terminal it shows what it would do, and does nothing.
    let said = redlock.run(&["break", "job"]).exits(USAGE);
    assert!(said.stdout.starts_with("job is held by stuck, fence 1, for "), "{said:?}");
    assert!(said.stdout.contains("does not stop its holder"), "{said:?}");
    assert!(said.stdout.contains("The first of 1 waiter gets the lock at once."), "{said:?}");
    assert!(said.stderr.contains("nothing was done") && said.stderr.contains("--yes"), "{said:?}");
    let said = redlock.run(&["--json", "break", "job"]).exits(USAGE);
    assert!(said.stdout.is_empty() && said.json_error()["reason"] == "usage", "{said:?}");
    assert_eq!(redlock.run(&["--json", "inspect", "job"]).succeeds().json()["lock"]["fence"], 1);

    let said = redlock.run(&["break", "--yes", "job"]).succeeds();
    let name = fleet[1].url().replace("redis://", "");
    assert!(said.stdout.contains(&format!("{name}: broken, fence 1\n")), "{said:?}");
    assert!(said.stdout.ends_with("job is broken on 3 of 3 nodes\n"), "{said:?}");
    assert_eq!(counter(&fleet, "redlock_broken"), vec![Some("1".to_owned()); 3]);
    let next = waiting.finish().succeeds();
    assert!(
        next.stdout.trim().parse::<u64>().expect("a fence") > 1,
        "the waiter has a larger fence: {next:?}"
    );
    // The old holder has lost the lock.
    let owner = lock["owner"].as_str().expect("an owner");
    redlock.run(&["extend", "--owner", owner, "--fence", "1", "job"]).exits(crate::program::LOST);
}

#[test]
fn what_break_prints_as_json() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["--json", "break", "--yes", "job"]).exits(1).json();
    let urls = fleet.urls();
    let free = urls.iter().map(|url| url.trim_start_matches("redis://"));
    let free: Vec<_> = free.map(|node| serde_json::json!({"node": node, "answer": "free"})).collect();
    assert_eq!(said, serde_json::json!({"resource": "job", "lock": null, "broken": 0, "nodes": free}));
    redlock.run(&["acquire", "--ttl", "9m", "--label", "stuck", "job"]).succeeds();
    fleet[0].connect().call(&["DEL", "job"]);
    fleet[2].kill();
    let said = redlock.run(&["--json", "break", "--yes", "job"]).succeeds().json();
    assert_eq!(names(&said), ["broken", "lock", "nodes", "resource"]);
    assert_eq!((&said["broken"], &said["lock"]["label"]), (&1.into(), &"stuck".into()));
    let answers: Vec<&str> =
        said["nodes"].as_array().expect("nodes").iter().filter_map(|node| node["answer"].as_str()).collect();
    assert_eq!(answers, ["free", "broken", "unknown"]);
    assert!(said["nodes"][2]["error"].is_string() && said["nodes"][1]["fence"] == 1, "{said}");
    // The nodes that do not answer may still hold the lock.
    redlock.run(&["acquire", "--ttl", "9m", "job"]).succeeds();
    fleet[1].kill();
    let said = redlock.run(&["--json", "break", "--yes", "job"]).exits(NO_QUORUM);
    assert_eq!(said.json()["broken"], 1);
    assert_eq!(said.json_error()["resource"], "job");
    fleet[0].kill();
    let said = redlock.run(&["--json", "break", "--yes", "job"]).exits(NO_QUORUM);
    assert_eq!((said.stdout.as_str(), &said.json_error()["resource"]), ("", &"job".into()));
}

#[test]
fn plain_keys_are_not_broken() {
    let fleet = Fleet::start(3);
    for node in fleet.iter() {
        node.connect().call(&["SET", "job", "somebody", "NX", "PX", "600000"]);
    }
    let error = Launcher::of(&fleet).run(&["--json", "break", "--yes", "job"]).exits(USAGE).json_error();
    assert_eq!((&error["reason"], &error["resource"]), (&"not_broken".into(), &"job".into()));
    assert!(error["message"].as_str().is_some_and(|words| words.contains("DEL")), "{error}");
    assert_eq!(
        (&error["nodes"][2]["answer"], &error["nodes"][3]),
        (&"plain key".into(), &serde_json::Value::Null)
    );
    assert!(fleet.iter().all(|node| node.connect().call_strs("EXISTS job") == Answer::Int(1)));
}

#[test]
fn a_refusal_to_break_is_reported() {
    let rules = "on >hush ~* &* -@all +hello +redlock.node +redlock.inspect +type +pttl";
    let fleet = Fleet::start_with(3, |_, node| node.user("watcher", rules));
    Launcher::of(&fleet).run(&["acquire", "job"]).succeeds();
    let urls: Vec<String> =
        fleet.urls().iter().map(|url| url.replace("redis://", "redis://watcher:hush@")).collect();
    let said = Launcher::at(&urls).run(&["--json", "break", "--yes", "job"]).exits(REJECTED);
    assert_eq!(said.json()["nodes"][0]["answer"], "refused");
    assert!(
        said.json()["nodes"][0]["error"].as_str().is_some_and(|words| words.contains("NOPERM")),
        "{said:?}"
    );
}

/// Readers raise the fence of the lock that they share: it is the same lock.
#[test]
fn a_shared_lock_is_broken_although_a_reader_raises_its_fence_meanwhile() {
    let mut fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    Launcher::of(&fleet).run(&["acquire", "--shared", "--ttl", "9m", "job"]).succeeds();
    tmux.line("redlock break job; echo code=$?");
    tmux.until("Type yes to break job on all nodes");
    for node in fleet.iter() {
        let raised = node.connect().call_strs("REDLOCK.ACQUIRE job other 500000 SHARED FENCE 9");
        assert_eq!(raised, redlock_tests::Answer::Int(9));
    }
    tmux.line("yes");
    let screen = tmux.until("code=0");
    assert!(screen.contains("broken, fence 9"), "{screen}");
    assert!(fleet.is_free("job"));
}

#[test]
fn on_a_terminal_break_asks_and_spares_a_new_holder() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lock = redlock.run(&["--json", "acquire", "--ttl", "9m", "job"]).succeeds().json();
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    // The screen must not show the question of the time before.
    let ask = || {
        tmux.line("clear; echo emp''ty");
        tmux.until("empty");
        tmux.line("redlock break job; echo code=$?");
        tmux.until("Type yes to break job on all nodes");
    };
    ask();
    tmux.line("no");
    tmux.until(&format!("code={USAGE}"));
    ask();
    // Meanwhile the lock passes to another client.
    redlock.run(&["release", "--owner", lock["owner"].as_str().expect("an owner"), "job"]).succeeds();
    redlock.run(&["acquire", "--ttl", "9m", "--label", "innocent", "job"]).succeeds();
    tmux.line("yes");
    let screen = tmux.until("code=0");
    assert!(screen.contains("nothing broken: the lock is gone, or has a new holder"), "{screen}");
    let held = redlock.run(&["--json", "inspect", "job"]).succeeds().json();
    assert_eq!((&held["state"], &held["lock"]["label"]), (&"held".into(), &"innocent".into()));
    ask();
    tmux.line("yes");
    tmux.until("job is broken on 3 of 3 nodes");
    redlock.run(&["inspect", "job"]).exits(1);
}
