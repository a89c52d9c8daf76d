//! `module/OPERATIONS.md`: users may do what they should and no more, configurations start, commands work.
//!
//! The procedures that end with `redlock admit` are tested with the program, in `client/cli/tests/cli/procedures.rs`.

use crate::page::{Block, Page};
use crate::program::{find, run, told};
use redlock_client::{LockManager, WaitPolicy};
use redlock_tests::{
    Answer, Certs, ClientCertificate, Fleet, SOON, Server, ServerBuilder, Wire, eventually, granted, in_time,
    module_path, skip,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

fn page() -> Page {
    Page::open("module/OPERATIONS.md")
}

/// The blocks of one language under one heading, of which there must be some.
fn blocks(heading: &str, language: &str) -> Vec<Block> {
    let all = page().blocks().into_iter();
    let found: Vec<_> = all.filter(|block| block.heading == heading && block.language == language).collect();
    assert!(!found.is_empty(), "no block of {language} under {heading}");
    found
}

/// A server on which the page's users are set up; the page's passwords are the users' own.
fn with_users() -> Server {
    let server = Server::start();
    let mut wire = server.connect();
    let lines: Vec<String> =
        blocks("Users", "text").iter().map(|block| block.text.trim().to_string()).collect();
    assert_eq!(lines.len(), 6, "five users, and the default one");
    for line in lines.iter().filter(|line| !line.contains("SETUSER default")) {
        assert_eq!(wire.call_strs(line), Answer::ok(), "{line}");
    }
    server
}

/// A connection of a user of the page.
fn user(server: &Server, name: &str) -> Wire {
    let text = page().text;
    let rule = text.lines().find(|line| line.starts_with(&format!("ACL SETUSER {name} "))).expect("a rule");
    let secret = rule.split_whitespace().find_map(|word| word.strip_prefix('>')).expect("a secret");
    let mut wire = server.connect();
    assert_eq!(wire.call(&["AUTH", name, secret]), Answer::ok());
    wire
}

/// Whether the server let the user do it; that it then failed for another reason does not matter here.
fn may(wire: &mut Wire, line: &str) -> bool {
    wire.call_strs(line).error_word() != Some("NOPERM")
}

const TAKE: [&str; 7] = [
    "REDLOCK.ACQUIRE orders:1 me 60000",
    "REDLOCK.EXTEND orders:1 me 60000",
    "REDLOCK.RELEASE orders:1 me",
    "REDLOCK.MACQUIRE 2 orders:1 orders:2 me 60000",
    "REDLOCK.MEXTEND 2 orders:1 orders:2 me 60000",
    "REDLOCK.MRELEASE 2 orders:1 orders:2 me",
    "REDLOCK.ACQUIRE orders:1 me 60000 WAIT 1 1000 desk",
];
const LOOK: [&str; 3] = ["REDLOCK.INSPECT orders:1", "REDLOCK.NODE", "PING"];
const SURVEY: [&str; 5] = ["INFO redlock", "SCAN 0 COUNT 10", "TIME", "TYPE orders:1", "PTTL orders:1"];
const HARM: [&str; 8] = [
    "FLUSHALL",
    "CONFIG SET maxmemory 1",
    "MONITOR",
    "SLOWLOG GET",
    "SET orders:1 x",
    "EXPIRE orders:1 1",
    "KEYS *",
    "ACL LIST",
];

#[test]
fn an_application_takes_its_own_locks_and_does_nothing_else() {
    let server = with_users();
    let mut wire = user(&server, "orders");
    for line in TAKE.iter().chain(&LOOK) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&SURVEY).chain(&[
        "DEL orders:1",
        "REDLOCK.ACQUIRE stock:1 me 60000",
        "GET orders:1",
    ]) {
        assert!(!may(&mut wire, line), "{line}");
    }
    assert!(!may(&mut wire, "REDLOCK.MACQUIRE 2 orders:1 stock:1 me 60000"));
    assert!(!may(&mut wire, "SUBSCRIBE elsewhere"));
    assert!(may(&mut wire, "SUBSCRIBE redlock:grant:desk"));
}

#[test]
fn whoever_watches_changes_nothing() {
    let server = with_users();
    let mut wire = user(&server, "watcher");
    for line in LOOK.iter().chain(&SURVEY) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&TAKE).chain(&[
        "DEL orders:1",
        "CONFIG GET maxmemory",
        "SUBSCRIBE redlock:grant:desk",
    ]) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn people_on_call_break_locks_and_cannot_take_them() {
    let server = with_users();
    let mut wire = user(&server, "oncall");
    for line in LOOK.iter().chain(&SURVEY).chain(&["DEL orders:1", "CONFIG GET maxmemory"]) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&TAKE) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn who_looks_for_ills_changes_nothing() {
    let server = with_users();
    let mut wire = user(&server, "doctor");
    for line in LOOK.iter().chain(&["INFO redlock", "TIME", "CONFIG GET maxmemory", "ROLE", "ACL WHOAMI"]) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&TAKE).chain(&["DEL orders:1", "ACL SETUSER doctor ~*"]) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn an_operator_admits_nodes_and_nobody_else_does() {
    let server = with_users();
    let admit = |id: &str| format!("REDLOCK.ADMIT {id} 7 0");
    let id = server.connect().call_strs("REDLOCK.NODE").field("node-id").expect("a field").string();
    for name in ["orders", "watcher", "oncall", "doctor"] {
        assert!(!may(&mut user(&server, name), &admit(&id)), "{name}");
    }
    let mut wire = user(&server, "operator");
    for line in ["REDLOCK.NODE", "INFO redlock", "PING"] {
        assert!(may(&mut wire, line), "{line}");
    }
    assert_eq!(wire.call_strs(&admit(&"0".repeat(40))).error_word(), Some("REDLOCKARG"), "another node");
    assert_eq!(wire.call_strs(&admit(&id)), Answer::Int(1));
    for line in HARM.iter().chain(&TAKE).chain(&["DEL orders:1", "REDLOCK.INSPECT orders:1"]) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn without_the_default_user_nobody_comes_in_unnamed() {
    let server = with_users();
    let off = blocks("Users", "text").last().expect("the last rule").text.trim().to_string();
    assert_eq!(server.connect().call_strs(&off), Answer::ok());
    assert_eq!(server.connect().call_strs("REDLOCK.NODE").error_word(), Some("NOAUTH"));
    assert!(may(&mut user(&server, "watcher"), "REDLOCK.NODE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_client_needs_no_more_than_an_application_has() {
    let server = Server::builder().tcp().start();
    let rule = blocks("Users", "text").remove(0).text;
    assert_eq!(server.connect().call_strs(rule.trim()), Answer::ok());
    let address = server.url().replace("redis://", "redis://orders:a-long-random-secret@");
    let locks =
        LockManager::builder().nodes([address]).wait_policy(WaitPolicy::Queue).build().expect("a manager");
    let ttl = Duration::from_secs(60);
    let first = locks.acquire("orders:1", ttl).await.expect("a lock");
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { locks.acquire("orders:1", ttl).await.map(|guard| guard.fence()) }
    });
    eventually("somebody is in line", SOON, || (node(&server, "waiters") > 0).then_some(()));
    let fence = first.fence();
    first.release().await;
    let next = in_time("the lock is handed on", SOON, waiting).await.expect("a task").expect("a lock");
    assert!(next > fence);
    assert!(locks.acquire("stock:1", ttl).await.is_err(), "another application's name");
}

/// The lines of a configuration on the page; the file that it loads is the module under test.
fn configured(heading: &str, mut server: ServerBuilder) -> ServerBuilder {
    let block = &blocks(heading, "text")[0];
    assert!(block.text.starts_with("# redis.conf\n"), "{heading}");
    for line in block.text.lines().skip(1) {
        let (name, value) = line.split_once(' ').expect("a name and a value");
        server = match name {
            "loadmodule" => server.module_args(value.split(' ').skip(1)),
            // Those are the harness's own.
            "dir" | "port" | "tls-port" | "tls-cert-file" | "tls-key-file" | "tls-ca-cert-file" => server,
            _ => server.arg(name, value),
        };
    }
    server
}

#[test]
fn a_server_takes_the_configuration_of_the_page() {
    assert!(module_path().is_file());
    let server = configured("A configuration", Server::builder()).start();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 600000"));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE other me 600001").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn a_server_takes_the_tls_settings_of_the_page() {
    let certs = Certs::new();
    let server = configured("TLS", Server::builder().tls(&certs, ClientCertificate::Required)).try_start();
    match server {
        Ok(server) => {
            let mut wire = server.connect();
            let protocols = wire.call_strs("CONFIG GET tls-protocols");
            assert_eq!(protocols.field("tls-protocols"), Some(&Answer::text("TLSv1.2 TLSv1.3")));
            // Certificates are changed while the server runs.
            let file = certs.server_cert().display().to_string();
            assert_eq!(wire.call(&["CONFIG", "SET", "tls-cert-file", &file]), Answer::ok());
        }
        Err(failure) if failure.lacks_tls() => skip("this server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs a block of the page with a shell, with a `redis-cli` that fails where the server answers with an error.
fn shell(block: &Block, environment: &[(&str, String)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (wrapper, real) = (folder.path().join("redis-cli"), find("redis-cli").expect("looked for before"));
    fs::write(&wrapper, format!("#!/bin/sh\nexec '{}' -e \"$@\"\n", real.display())).expect("a script");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("a file of one's own");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new("sh");
    command.args(["-euc", &block.text]).env("PATH", path);
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    run(&mut command, SOON)
}

fn has_cli() -> bool {
    let there = find("redis-cli").is_some();
    if !there {
        skip("no redis-cli here");
    }
    there
}

#[test]
fn the_commands_of_the_page_work() {
    if !has_cli() {
        return;
    }
    let mut count = 0;
    for block in page().blocks().iter().filter(|block| block.language == "sh") {
        // Those with the program are run by the program's own tests.
        if block.text.contains("redlock admit") {
            continue;
        }
        let fleet = Fleet::start(3);
        for node in fleet.iter().filter(|_| block.heading == "A lock that nobody releases") {
            granted(&node.connect().call_strs("REDLOCK.ACQUIRE orders:42 lost 600000 LABEL nightly"));
        }
        let urls = fleet.urls();
        let output = shell(block, &[("NODES", urls.join(" ")), ("NODE", urls[0].clone())]);
        assert!(output.status.success(), "line {}: {}", block.line, told(&output));
        assert!(!output.stdout.is_empty(), "line {} shows something", block.line);
        let text = String::from_utf8_lossy(&output.stdout);
        match block.text.contains("DEL orders:42") {
            true => assert_eq!(text, "1\n1\n1\n", "broken on every node"),
            false => {
                assert!(block.heading != "A lock that nobody releases" || text.contains("nightly"), "{text}")
            }
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} blocks");
}

#[test]
fn a_command_that_is_wrong_is_noticed() {
    if !has_cli() {
        return;
    }
    let fleet = Fleet::start(1);
    let mut block = blocks("Monitoring", "sh").remove(0);
    block.text = "redis-cli -u \"$NODE\" REDLOCK.NODES\n".into();
    assert!(!shell(&block, &[("NODE", fleet.urls().remove(0))]).status.success());
}

#[test]
fn after_a_lock_was_broken_the_next_holder_has_the_larger_fence() {
    let server = Server::start();
    let mut wire = server.connect();
    let first = granted(&wire.call_strs("REDLOCK.ACQUIRE orders:42 lost 600000"));
    assert_eq!(wire.call_strs("DEL orders:42"), Answer::Int(1));
    assert_eq!(
        wire.call_strs("REDLOCK.EXTEND orders:42 lost 600000"),
        Answer::Nil,
        "the old holder finds out"
    );
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE orders:42 next 600000")) > first);
}

/// What one node says about itself.
fn node(server: &Server, field: &str) -> i64 {
    server.connect().call_strs("REDLOCK.NODE").field(field).expect("a field").int()
}
