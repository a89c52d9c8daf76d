//! The procedures of module/OPERATIONS.md that end with `redlock admit`. The tests run the commands of the page.

use crate::program::{Launcher, PATH, ProgramOutput, USAGE};
use redlock_tests::{Answer, Fleet, SOON, Server, ServerBuilder, eventually, granted, skip};
use std::fs;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The longest lease that the nodes grant, so that the waits are short.
const MAX_TTL: &str = "500";

fn node() -> ServerBuilder {
    Server::builder().tcp().module_args(["max-ttl", MAX_TTL])
}

/// The first block of shell commands under a heading of the page.
fn commands(heading: &str) -> String {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../module/OPERATIONS.md"));
    let page = page.expect("a readable page");
    let section = page.split("\n## ").find(|section| section.starts_with(&format!("{heading}\n")));
    let section = section.unwrap_or_else(|| panic!("no section {heading}"));
    let block = section.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap_or_else(|| panic!("no commands under {heading}")).to_owned()
}

/// Runs the commands of a section with these nodes and the variables that the page uses.
fn run_section(heading: &str, urls: &[String], variables: &[(&str, &str)]) -> ProgramOutput {
    let redlock = Launcher::at(urls);
    let folder = Path::new(PATH).parent().expect("a folder");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new("sh");
    for (name, value) in redlock.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.args(["-euc", &commands(heading)]).env("PATH", path).envs(variables.iter().copied());
    command.current_dir(redlock.path());
    redlock.finish(command).succeeds()
}

fn has_cli() -> bool {
    let is_installed = Command::new("redis-cli").arg("--version").output().is_ok();
    if !is_installed {
        skip("redis-cli is not installed");
    }
    is_installed
}

fn field(node: &Server, name: &str) -> Answer {
    node.connect().call_strs("REDLOCK.NODE").field(name).expect("a field").clone()
}

fn acquire(node: &Server, key: &str) -> Answer {
    node.connect().call(&["REDLOCK.ACQUIRE", key, "me", "400"])
}

/// Three nodes that have granted a lock with a large fence. Returns the fence, too.
fn three() -> (Fleet, i64) {
    let fleet =
        Fleet::start_with(3, |_, node| node.module_args(["max-ttl", MAX_TTL]).arg("appendonly", "yes"));
    let fence = 70_000_000;
    for node in fleet.iter() {
        let line = format!("REDLOCK.ACQUIRE job holder 500 FENCE {fence}");
        assert_eq!(granted(&node.connect().call_strs(&line)), fence);
    }
    (fleet, fence)
}

/// Asserts that the node does not vote, and after the commands of the page votes and grants fences above `above`.
fn assert_admitted(heading: &str, others: &Fleet, node: &Server, variable: &str, above: i64) {
    let urls = [others[0].url(), others[1].url(), node.url()];
    let said = run_section(heading, &urls, &[(variable, &node.url())]);
    assert!(said.stdout.contains("non-voting"), "before the admission, status shows non-voting: {said:?}");
    assert!(said.stdout.contains("is admitted: it votes now"), "{said:?}");
    assert_eq!(field(node, "voting"), Answer::Int(1));
    assert_eq!(field(node, "origin"), Answer::text("admitted"));
    let fence = eventually("the wait is over", SOON, || match acquire(node, "job") {
        Answer::Int(fence) => Some(fence),
        _ => None,
    });
    assert!(fence > above, "fence {fence} is not above {above}");
    // The node votes now, so a second admission is refused.
    Launcher::at(&urls).run(&["admit", "--yes", &node.url()]).exits(USAGE);
}

#[test]
fn the_procedure_for_replacing_a_node_works() {
    let (mut fleet, above) = three();
    fleet[2].kill();
    let newcomer =
        Server::builder().tcp().module_args(["max-ttl", MAX_TTL, "new-node", "non-voting"]).start();
    assert_eq!(acquire(&newcomer, "job").error_word(), Some("REDLOCKNOVOTE"));
    assert_admitted("Replacing a node", &fleet, &newcomer, "NEWCOMER", above);
}

#[test]
fn the_procedure_for_failing_over_works() {
    if !has_cli() {
        return;
    }
    let (mut fleet, above) = three();
    let replica = node().replica_of(&fleet[2]).start();
    replica.wait_for_replication(&fleet[2]);
    fleet[2].kill();
    assert_admitted("Failing over", &fleet, &replica, "REPLICA", above);
}

/// The nodes of the new shard vote and answer, so `--alone` works only with one node in the settings.
#[test]
fn the_procedure_for_adding_a_shard_raises_the_fences_of_a_voting_node() {
    let (fleet, above) = three();
    let high_water = above + 9_000_000;
    let node = &fleet[1];
    let variables = [("NODE", &*node.url()), ("HIGH_WATER", &*high_water.to_string())];
    run_section("Adding a shard", &fleet.urls(), &variables);
    let fence = eventually("the node grants", SOON, || match acquire(node, "moved") {
        Answer::Int(fence) => Some(fence),
        _ => None,
    });
    assert!(fence > high_water, "fence {fence} is not above {high_water}");
}

/// Copies a folder recursively, as a backup does.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("a copy");
        }
    }
}

/// The reason why a server does not vote; empty if it votes.
fn reason(node: &Server) -> String {
    field(node, "non-voting-reason").string()
}

#[test]
fn the_procedure_for_restoring_a_backup_works() {
    let (mut fleet, above) = three();
    let home = TempDir::new().expect("a folder");
    fleet[2].shutdown();
    let (whole, data) = (home.path().join("whole"), home.path().join("data"));
    copy(fleet[2].data_dir(), &whole);
    copy(fleet[2].data_dir(), &data);
    fs::remove_file(data.join("redlock.state")).expect("the state file");

    let restored = node().arg("appendonly", "yes").data_dir(&data).start();
    assert_eq!(reason(&restored), "no-state-file");
    let restored = node().arg("appendonly", "yes").data_dir(&whole).start();
    assert_eq!(reason(&restored), "copied-state-file");
    assert_eq!(acquire(&restored, "other").error_word(), Some("REDLOCKNOVOTE"));
    assert_admitted("Restoring a backup", &fleet, &restored, "NODE", above);
}

/// With an older data set and its own state file, a node keeps its node id, and waits for the locks that it may have
/// forgotten.
#[test]
fn older_data_with_the_own_state_file_causes_a_quarantine() {
    let home = TempDir::new().expect("a folder");
    let dir = home.path().join("dir");
    let start = || Server::builder().arg("save", "3600 1").data_dir(&dir).start();
    let mut server = start();
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE early me 600000"));
    assert_eq!(server.connect().call_strs("SAVE"), Answer::ok());
    fs::copy(dir.join("dump.rdb"), home.path().join("older.rdb")).expect("a backup");
    granted(&server.connect().call_strs("REDLOCK.ACQUIRE late me 600000"));
    let id = field(&server, "node-id");
    server.shutdown();
    drop(server);
    fs::copy(home.path().join("older.rdb"), dir.join("dump.rdb")).expect("a restore");
    let server = start();
    assert_eq!((field(&server, "node-id"), reason(&server)), (id, String::new()));
    let answer = server.connect().call_strs("REDLOCK.ACQUIRE late another 1000");
    assert_eq!(answer.error_word(), Some("REDLOCKQUARANTINE"));
}

#[test]
fn a_node_keeps_its_identity_when_its_data_moves() {
    let home = TempDir::new().expect("a folder");
    let (old, moved, copied) =
        (home.path().join("old"), home.path().join("moved"), home.path().join("copied"));
    let start = |dir: &Path| Server::builder().tcp().arg("appendonly", "yes").data_dir(dir).start();
    let mut server = start(&old);
    let fence = granted(&server.connect().call_strs("REDLOCK.ACQUIRE job holder 600000"));
    let id = field(&server, "node-id");
    server.shutdown();
    drop(server);
    fs::rename(&old, &moved).expect("the same file system");
    copy(&moved, &copied);
    // With another folder and another port it is the same node, and it has forgotten nothing.
    let server = start(&moved);
    assert_eq!((field(&server, "node-id"), reason(&server)), (id, String::new()));
    assert_eq!(field(&server, "quarantine-ms"), Answer::Int(0));
    assert_eq!(server.connect().inspect("job").map(|lock| lock.fence), Some(fence));
    assert_eq!(reason(&start(&copied)), "copied-state-file");
}

/// A node on a wiped disk looks like a new node, which votes unless it is started with `new-node non-voting`.
#[test]
fn a_node_on_a_wiped_disk_votes_unless_new_nodes_are_non_voting() {
    let home = TempDir::new().expect("a folder");
    let start = |arguments: &[&str]| {
        Server::builder().data_dir(home.path()).module_args(arguments.iter().copied()).start()
    };
    let mut server = start(&[]);
    server.shutdown();
    drop(server);
    // With a state file, the argument has no effect.
    assert_eq!(reason(&start(&["new-node", "non-voting"])), "");
    let wipe = || fs::remove_file(home.path().join("redlock.state")).expect("the state file");
    wipe();
    assert_eq!(reason(&start(&["new-node", "non-voting"])), "new-node");
    wipe();
    let server = start(&[]);
    assert_eq!((reason(&server), field(&server, "started")), (String::new(), Answer::text("new")));
}
