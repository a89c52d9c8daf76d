//! The users of module/OPERATIONS.md have the permissions for the commands that the page names for them.

use crate::program::{DOCTOR_WARNINGS, Launcher, REJECTED};
use redlock_tests::{Answer, Fleet};
use serde_json::Value;

/// Three nodes with the users of the page.
fn fleet() -> Fleet {
    let fleet = Fleet::start(3);
    for rule in rules() {
        for node in fleet.iter() {
            assert_eq!(node.connect().call_strs(&rule), Answer::ok(), "{rule}");
        }
    }
    fleet
}

/// The rules of the page, except the one for the default user.
fn rules() -> Vec<String> {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../module/OPERATIONS.md"));
    let page = page.expect("a readable page");
    let rules = page.lines().filter(|line| line.starts_with("ACL SETUSER ") && !line.contains(" default "));
    rules.map(str::to_owned).collect()
}

/// The program with the login of one of the page's users.
fn redlock(fleet: &Fleet, user: &str) -> Launcher {
    let rules = rules();
    let rule = rules.iter().find(|rule| rule.starts_with(&format!("ACL SETUSER {user} "))).expect("a rule");
    let secret = rule.split_whitespace().find_map(|word| word.strip_prefix('>')).expect("a secret");
    let login = format!("redis://{user}:{secret}@");
    let urls: Vec<String> = fleet.urls().iter().map(|url| url.replace("redis://", &login)).collect();
    Launcher::at(&urls)
}

#[test]
fn an_application_can_lock_its_own_keys_only() {
    let fleet = fleet();
    let redlock = redlock(&fleet, "orders");
    redlock.run(&["run", "--wait", "1s", "orders:42", "--", "true"]).succeeds();
    redlock.run(&["acquire", "--owner-file", "lock", "orders:42"]).succeeds();
    redlock.run(&["extend", "--owner-file", "lock", "orders:42"]).succeeds();
    redlock.run(&["release", "--owner-file", "lock", "orders:42"]).succeeds();
    // A key of another application.
    redlock.run(&["run", "stock:1", "--", "true"]).exits(REJECTED);
}

#[test]
fn watcher_and_oncall_see_everything_and_lock_nothing() {
    let fleet = fleet();
    Launcher::of(&fleet).run(&["acquire", "orders:42"]).succeeds();
    for node in fleet.iter() {
        node.connect().call(&["SET", "orders:7", "somebody", "NX", "PX", "600000"]);
    }
    for user in ["watcher", "oncall", "ui"] {
        let redlock = redlock(&fleet, user);
        let status = redlock.run(&["--json", "status"]).succeeds().json();
        assert!(status["nodes"][0]["server_version"].is_string(), "{status}");
        assert_eq!(status["nodes"][0]["info"]["grants"], 1, "{status}");
        let metrics = redlock.run(&["status", "--prometheus"]).succeeds().stdout;
        assert_eq!(metrics.matches("redlock_node_grants_total{").count(), 3, "{metrics}");
        let board = redlock.run(&["--json", "top", "--once"]).succeeds().json();
        assert_eq!(board["locks"][0]["key"], "orders:42");
        assert_eq!((&board["refused"], &board["cut"]), (&Value::Array(vec![]), &Value::Array(vec![])));
        redlock.run(&["inspect", "orders:42"]).succeeds();
        let said = redlock.run(&["inspect", "orders:7"]).succeeds();
        assert!(said.stdout.contains("plain key") && said.stderr.is_empty(), "{said:?}");
        redlock.run(&["acquire", "orders:8"]).exits(REJECTED);
        let list = redlock.run(&["--json", "ls", "orders:*"]).succeeds().json();
        assert_eq!(list["locks"][0]["resource"], "orders:42");
    }
    redlock(&fleet, "watcher").run(&["break", "--yes", "orders:42"]).exits(REJECTED);
    redlock(&fleet, "oncall").run(&["break", "--yes", "orders:42"]).succeeds();
}

#[test]
fn the_doctor_user_and_the_ui_user_can_make_every_check() {
    let fleet = fleet();
    for user in ["doctor", "ui"] {
        let report = redlock(&fleet, user).run(&["--json", "doctor"]).exits(DOCTOR_WARNINGS).json();
        let findings = report["findings"].as_array().expect("findings");
        let checks: Vec<(&str, &str)> = findings
            .iter()
            .map(|finding| {
                (finding["severity"].as_str().unwrap_or("?"), finding["check"].as_str().unwrap_or("?"))
            })
            .collect();
        // All nodes of a test are on one machine. This user may not acquire locks, which doctor notes for each node.
        let expected = [("warning", "same-host"), ("note", "rights"), ("note", "rights"), ("note", "rights")];
        assert_eq!(checks, expected, "{report}");
    }
    // Doctor finds a setting, so it reads the settings.
    fleet[1].connect().call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    let said = redlock(&fleet, "doctor").run(&["doctor"]).exits(DOCTOR_WARNINGS);
    assert!(said.stdout.contains("warning [eviction]"), "{said:?}");
}
