//! The first steps: the commands of README.md lead to a held lock, and those of CLI.md install completions and pages.

use crate::program::{Launcher, PATH, ProgramOutput};
use redlock_tests::{SOON, eventually, module_path};
use std::path::Path;
use std::process::Command;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The commands under a heading of the page, one in each line.
fn commands(page: &str, heading: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(ROOT).join(page)).expect("a readable page");
    let part = text.split(&format!("\n## {heading}\n")).nth(1).expect("the heading");
    let part = part.split("\n## ").next().expect("the text of the section");
    let mut is_code = false;
    let mut found = Vec::new();
    for line in part.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        } else if is_code {
            found.push(line.to_owned());
        }
    }
    found
}

/// Runs a line in the checkout, with the module and the program that are already built.
fn shell(redlock: &Launcher, line: &str) -> ProgramOutput {
    let mut command = Command::new("bash");
    for (name, value) in redlock.command(&[]).get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    // `scripts/test` chooses the server.
    if let Some(server) = std::env::var_os("REDLOCK_SERVER") {
        command.env("REDLOCK_SERVER", server);
    }
    command
        .args(["-c", line])
        .current_dir(ROOT)
        .env("HOME", std::env::var_os("HOME").unwrap_or_default())
        .env("CARGO_TARGET_DIR", redlock.path().join("target"))
        .env("REDLOCK_MODULE", module_path())
        .env("REDLOCK_COMMAND", PATH);
    redlock.finish(command)
}

/// Stops the nodes when it is dropped.
struct Nodes<'a>(&'a Launcher);

impl Drop for Nodes<'_> {
    fn drop(&mut self) {
        shell(self.0, "./scripts/cluster stop");
    }
}

#[test]
fn two_commands_lead_to_a_held_lock() {
    let redlock = Launcher::without_nodes();
    let lines = commands("README.md", "Two commands");
    let [start, hold] = lines.get(..2).expect("two commands") else { panic!("{lines:?}") };
    assert!(start.starts_with("./scripts/cluster start"), "{lines:?}");
    let nodes = Nodes(&redlock);
    let started = shell(&redlock, start).succeeds();
    let said = shell(&redlock, hold).succeeds();
    assert_eq!(said.stdout, "held with fence 1\n");
    // The export line that it prints works for a shell without settings.
    let export = started.stdout.lines().map(str::trim).find(|line| line.starts_with("export REDLOCK_NODES="));
    let export = export.unwrap_or_else(|| panic!("{started:?}"));
    let said = shell(&redlock, &format!("{export}; '{PATH}' status")).succeeds();
    assert!(said.stdout.contains("Locks can be granted: 5 of 5 nodes grant, 3 are needed."), "{said:?}");
    // A majority is enough: two of five nodes may be down.
    let pids: Vec<&str> =
        started.stdout.lines().skip(1).take(2).filter_map(|line| line.split_whitespace().nth(2)).collect();
    shell(&redlock, &format!("kill -9 {}", pids.join(" "))).succeeds();
    eventually("two of five nodes are down", SOON, || {
        let said = shell(&redlock, "./scripts/cluster redlock --json status");
        said.stdout.contains("\"granting\":3").then_some(())
    });
    shell(&redlock, hold).succeeds();
    drop(nodes);
    shell(&redlock, "./scripts/cluster redlock status").exits(1);
}

/// The commands of CLI.md write completions and manual pages to the places where bash and `man` look for them.
#[test]
fn the_commands_for_completions_and_manual_pages_work() {
    let redlock = Launcher::without_nodes();
    let text = std::fs::read_to_string(Path::new(ROOT).join("client/CLI.md")).expect("a page");
    let recipe = text.split("```sh\n").nth(1).and_then(|rest| rest.split("```").next()).expect("a recipe");
    let line = format!(
        "export XDG_DATA_HOME='{}'; redlock() {{ '{PATH}' \"$@\"; }}; set -e\n{recipe}",
        redlock.path().display()
    );
    shell(&redlock, &line).succeeds();
    for file in ["bash-completion/completions/redlock", "man/man1/redlock.1", "man/man1/redlock-run.1"] {
        let length = std::fs::metadata(redlock.path().join(file)).map(|file| file.len());
        assert!(length.is_ok_and(|length| length > 100), "{file}");
    }
}
