//! `module/OPERATIONS.md`: the ACL users have exactly the permissions that they need, servers start with the
//! configurations, and the commands work.
//!
//! `client/cli/tests/cli/procedures.rs` tests the procedures that end with `redlock admit`.

use crate::page::{Block, Page};
use crate::program::{describe, find, run};
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

/// The blocks of one language under one heading. There must be at least one.
fn blocks(heading: &str, language: &str) -> Vec<Block> {
    let all = page().blocks().into_iter();
    let found: Vec<_> = all.filter(|block| block.heading == heading && block.language == language).collect();
    assert!(!found.is_empty(), "no block of {language} under {heading}");
    found
}

/// A server with the users of the page, except that the default user still works. Passwords are those of the page.
fn with_users() -> Server {
    let server = Server::start();
    let mut wire = server.connect();
    let lines: Vec<String> =
        blocks("Users", "text").iter().map(|block| block.text.trim().to_string()).collect();
    assert_eq!(lines.len(), 7, "six users, and the default one");
    for line in lines.iter().filter(|line| !line.contains("SETUSER default")) {
        assert_eq!(wire.call_strs(line), Answer::ok(), "{line}");
    }
    server
}

/// Connects as a user of the page.
fn user(server: &Server, name: &str) -> Wire {
    let text = page().text;
    let rule = text.lines().find(|line| line.starts_with(&format!("ACL SETUSER {name} "))).expect("a rule");
    let secret = rule.split_whitespace().find_map(|word| word.strip_prefix('>')).expect("a secret");
    let mut wire = server.connect();
    assert_eq!(wire.call(&["AUTH", name, secret]), Answer::ok());
    wire
}

/// Whether the user has the permission. The command may fail for another reason.
fn may(wire: &mut Wire, line: &str) -> bool {
    wire.call_strs(line).error_word() != Some("NOPERM")
}

/// Commands that take, extend and release locks.
const TAKE: [&str; 7] = [
    "REDLOCK.ACQUIRE orders:1 me 60000",
    "REDLOCK.EXTEND orders:1 me 60000",
    "REDLOCK.RELEASE orders:1 me",
    "REDLOCK.MACQUIRE 2 orders:1 orders:2 me 60000",
    "REDLOCK.MEXTEND 2 orders:1 orders:2 me 60000",
    "REDLOCK.MRELEASE 2 orders:1 orders:2 me",
    "REDLOCK.ACQUIRE orders:1 me 60000 WAIT 1 1000 desk",
];
/// Commands that read one lock or one node.
const LOOK: [&str; 3] = ["REDLOCK.INSPECT orders:1", "REDLOCK.NODE", "PING"];
/// Commands that read the whole server.
const SURVEY: [&str; 5] = ["INFO redlock", "SCAN 0 COUNT 10", "TIME", "TYPE orders:1", "PTTL orders:1"];
/// Commands that no user of the page may run.
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
        "REDLOCK.BREAK orders:1",
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
fn the_watcher_changes_nothing() {
    let server = with_users();
    let mut wire = user(&server, "watcher");
    for line in LOOK.iter().chain(&SURVEY) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&TAKE).chain(&[
        "DEL orders:1",
        "REDLOCK.BREAK orders:1",
        "CONFIG GET maxmemory",
        "SUBSCRIBE redlock:grant:desk",
    ]) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn the_person_on_call_can_break_locks_and_not_take_them() {
    let server = with_users();
    let mut wire = user(&server, "oncall");
    for line in
        LOOK.iter().chain(&SURVEY).chain(&["DEL orders:1", "REDLOCK.BREAK orders:1", "CONFIG GET maxmemory"])
    {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in HARM.iter().chain(&TAKE) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn the_doctor_changes_nothing() {
    let server = with_users();
    let mut wire = user(&server, "doctor");
    for line in LOOK.iter().chain(&["INFO redlock", "TIME", "CONFIG GET maxmemory", "ROLE", "ACL WHOAMI"]) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in
        HARM.iter().chain(&TAKE).chain(&["DEL orders:1", "REDLOCK.BREAK orders:1", "ACL SETUSER doctor ~*"])
    {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn the_page_in_the_browser_changes_nothing() {
    let server = with_users();
    let mut wire = user(&server, "ui");
    for line in LOOK.iter().chain(&SURVEY).chain(&["CONFIG GET maxmemory", "ROLE", "ACL WHOAMI"]) {
        assert!(may(&mut wire, line), "{line}");
    }
    for line in
        HARM.iter().chain(&TAKE).chain(&["DEL orders:1", "REDLOCK.BREAK orders:1", "ACL SETUSER ui ~*"])
    {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn only_the_operator_can_admit_nodes() {
    let server = with_users();
    let admit = |id: &str| format!("REDLOCK.ADMIT {id} 7 0");
    let id = server.connect().call_strs("REDLOCK.NODE").field("node-id").expect("a field").string();
    for name in ["orders", "watcher", "oncall", "doctor", "ui"] {
        assert!(!may(&mut user(&server, name), &admit(&id)), "{name}");
    }
    let mut wire = user(&server, "operator");
    for line in ["REDLOCK.NODE", "INFO redlock", "PING"] {
        assert!(may(&mut wire, line), "{line}");
    }
    assert_eq!(wire.call_strs(&admit(&"0".repeat(40))).error_word(), Some("REDLOCKARG"), "another node");
    assert_eq!(wire.call_strs(&admit(&id)), Answer::Int(1));
    for line in HARM.iter().chain(&TAKE).chain(&[
        "DEL orders:1",
        "REDLOCK.BREAK orders:1",
        "REDLOCK.INSPECT orders:1",
    ]) {
        assert!(!may(&mut wire, line), "{line}");
    }
}

#[test]
fn without_the_default_user_an_anonymous_client_is_refused() {
    let server = with_users();
    let off = blocks("Users", "text").last().expect("the last rule").text.trim().to_string();
    assert_eq!(server.connect().call_strs(&off), Answer::ok());
    assert_eq!(server.connect().call_strs("REDLOCK.NODE").error_word(), Some("NOAUTH"));
    assert!(may(&mut user(&server, "watcher"), "REDLOCK.NODE"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_permissions_of_an_application_are_enough_for_the_client() {
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
    eventually("a client is queued", SOON, || (node(&server, "waiters") > 0).then_some(()));
    let fence = first.fence();
    first.release().await;
    let next = in_time("the lock is handed off", SOON, waiting).await.expect("a task").expect("a lock");
    assert!(next > fence);
    assert!(locks.acquire("stock:1", ttl).await.is_err(), "a key of another application");
}

/// Adds a configuration on the page to a server, which loads the module under test.
fn configured(heading: &str, server: ServerBuilder) -> ServerBuilder {
    let block = &blocks(heading, "text")[0];
    assert!(block.text.starts_with("# redis.conf\n"), "{heading}");
    configured_by(&block.text, server)
}

/// The configuration that the page recommends for a node.
pub(crate) fn recommended() -> String {
    blocks("A configuration", "text").remove(0).text
}

/// The settings of a configuration, each with its value.
pub(crate) fn settings(configuration: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = configuration.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(' ').expect("a name and a value"))
}

/// Adds a configuration to a server, which loads the module under test.
pub(crate) fn configured_by(configuration: &str, server: ServerBuilder) -> ServerBuilder {
    settings(configuration).fold(server, |server, (name, value)| match name {
        "loadmodule" => server.module_args(value.split(' ').skip(1)),
        // The harness sets these.
        "dir" | "bind" | "port" | "aclfile" => server,
        "tls-port" | "tls-cert-file" | "tls-key-file" | "tls-ca-cert-file" => server,
        _ => server.arg(name, value),
    })
}

#[test]
fn a_server_accepts_the_configuration_of_the_page() {
    assert!(module_path().is_file());
    let server = configured("A configuration", Server::builder()).start();
    let mut wire = server.connect();
    granted(&wire.call_strs("REDLOCK.ACQUIRE lock me 600000"));
    assert_eq!(wire.call_strs("REDLOCK.ACQUIRE other me 600001").error_word(), Some("REDLOCKTTL"));
}

#[test]
fn a_server_accepts_the_tls_settings_of_the_page() {
    let certs = Certs::new();
    let server = configured("TLS", Server::builder().tls(&certs, ClientCertificate::Required)).try_start();
    match server {
        Ok(server) => {
            let mut wire = server.connect();
            let protocols = wire.call_strs("CONFIG GET tls-protocols");
            assert_eq!(protocols.field("tls-protocols"), Some(&Answer::text("TLSv1.2 TLSv1.3")));
            // The page changes certificates at run time.
            let file = certs.server_cert().display().to_string();
            assert_eq!(wire.call(&["CONFIG", "SET", "tls-cert-file", &file]), Answer::ok());
        }
        Err(failure) if failure.lacks_tls() => skip("this server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Runs a block of the page in a shell, with a `redis-cli` that fails when the server answers with an error.
fn shell(block: &Block, environment: &[(&str, String)]) -> Output {
    let folder = tempfile::tempdir().expect("a folder");
    let (wrapper, real) =
        (folder.path().join("redis-cli"), find("redis-cli").expect("redis-cli is installed"));
    fs::write(&wrapper, format!("#!/bin/sh\nexec '{}' -e \"$@\"\n", real.display())).expect("a script");
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).expect("the test owns the file");
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").expect("a PATH"));
    let mut command = Command::new("sh");
    command.args(["-euc", &block.text]).env("PATH", path);
    command.envs(environment.iter().map(|(name, value)| (*name, value.as_str())));
    run(&mut command, SOON)
}

fn has_cli() -> bool {
    let is_installed = find("redis-cli").is_some();
    if !is_installed {
        skip("redis-cli is not installed");
    }
    is_installed
}

#[test]
fn the_commands_of_the_page_work() {
    if !has_cli() {
        return;
    }
    let mut count = 0;
    for block in page().blocks().iter().filter(|block| block.language == "sh") {
        // The tests of the command line run these blocks.
        let admits = |line: &str| line.trim_start().starts_with("redlock ") && line.contains(" admit ");
        if block.text.lines().any(admits) {
            continue;
        }
        let fleet = Fleet::start(3);
        for node in fleet.iter().filter(|_| block.heading == "A lock that nobody releases") {
            granted(&node.connect().call_strs("REDLOCK.ACQUIRE orders:42 lost 600000 LABEL nightly"));
        }
        let urls = fleet.urls();
        let output = shell(block, &[("NODES", urls.join(" ")), ("NODE", urls[0].clone())]);
        assert!(output.status.success(), "line {}: {}", block.line, describe(&output));
        assert!(!output.stdout.is_empty(), "line {} prints nothing", block.line);
        let text = String::from_utf8_lossy(&output.stdout);
        match block.text.contains("REDLOCK.BREAK orders:42") {
            true => assert_eq!(text, "1\n1\n1\n", "the lock is broken on every node"),
            false => {
                assert!(block.heading != "A lock that nobody releases" || text.contains("nightly"), "{text}")
            }
        }
        count += 1;
    }
    assert!(count >= 8, "only {count} blocks");
}

#[test]
fn a_wrong_command_is_detected() {
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
    assert_eq!(wire.call_strs("REDLOCK.BREAK orders:42"), Answer::Int(first));
    assert_eq!(
        wire.call_strs("REDLOCK.EXTEND orders:42 lost 600000"),
        Answer::Nil,
        "the old holder has lost the lock"
    );
    assert!(granted(&wire.call_strs("REDLOCK.ACQUIRE orders:42 next 600000")) > first);
}

/// A number in the reply of `REDLOCK.NODE`.
fn node(server: &Server, field: &str) -> i64 {
    server.connect().call_strs("REDLOCK.NODE").field(field).expect("a field").int()
}
