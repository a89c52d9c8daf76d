//! `CONTRIBUTING.md` and the workflow of the public CI: every command, option and folder that they name exists.

use crate::page::{Page, read, root};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn page() -> Page {
    Page::open("CONTRIBUTING.md")
}

/// The folders of all packages of the workspace, by name.
fn packages() -> BTreeMap<String, PathBuf> {
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("the members");
    let folders = members.trim_end_matches(']').split(',').map(|folder| folder.trim().trim_matches('"'));
    let name = |folder: &str| {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name");
        (name.trim_matches('"').to_owned(), root().join(folder))
    };
    folders.map(name).collect()
}

/// The words of a command, without the variables before it.
fn words(command: &str) -> Vec<&str> {
    let is_variable = |word: &&str| word.split_once('=').is_some_and(|(name, _)| name == name.to_uppercase());
    command.split_whitespace().skip_while(is_variable).collect()
}

/// The problem with a command, if it has one.
fn problem(command: &str) -> Option<String> {
    let words = words(command);
    let value = |option: &str| {
        let at = words.iter().position(|word| *word == option)?;
        words.get(at + 1).copied()
    };
    match words.split_first()? {
        (&"cargo", _) => {
            let package = value("-p").unwrap_or_default();
            let Some(folder) = packages().remove(package) else {
                return Some(format!("no package {package:?}"));
            };
            let test = value("--test")?;
            let tests = folder.join("tests");
            let exists =
                tests.join(format!("{test}.rs")).is_file() || tests.join(test).join("main.rs").is_file();
            (!exists).then(|| format!("{package} has no test {test:?}"))
        }
        (script, rest) => {
            let Some(name) = script.strip_prefix("scripts/") else {
                return Some("not a command of this project".into());
            };
            // Some scripts pass their options on to a program.
            let sources = [
                format!("scripts/{name}"),
                format!("tests/{name}/src/main.rs"),
                format!("tests/{name}/src/bin/{name}.rs"),
            ];
            let sources = sources.map(|path| std::fs::read_to_string(root().join(path)).unwrap_or_default());
            if sources[0].is_empty() {
                return Some(format!("no script {name:?}"));
            }
            // What follows `--` is another command.
            let options = rest.iter().take_while(|word| **word != "--").filter(|word| word.starts_with("--"));
            let known = |option: &&&str| sources.iter().any(|source| source.contains(**option));
            let unknown = options.clone().find(|option| !known(option));
            let mutant =
                (name == "mutants").then(|| rest.iter().find(|word| !word.starts_with("--"))).flatten();
            let planted = |mutant: &&&str| planted_file(mutant).is_file();
            let missing = mutant.filter(|mutant| !planted(mutant));
            unknown.or(missing).map(|word| format!("{name} does not know {word:?}"))
        }
    }
}

fn planted_file(name: &str) -> PathBuf {
    root().join("tests/mutants/planted").join(format!("{name}.txt"))
}

#[test]
fn every_command_of_the_page_exists() {
    let mut problems = Vec::new();
    let mut count = 0;
    for block in page().blocks().iter().filter(|block| block.language == "bash") {
        for line in block.text.lines() {
            let command = line.split(" #").next().unwrap_or_default().trim();
            problems.extend(problem(command).map(|problem| format!("{command}: {problem}")));
            count += 1;
        }
    }
    assert!(count > 15, "only {count} commands");
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn a_command_that_does_not_exist_is_detected() {
    for command in [
        "cargo test -p redlock-nothing",
        "cargo test -p redlock-tests --test nothing",
        "REDLOCK_SEED=1 scripts/nothing",
        "scripts/test --nothing",
        "scripts/mutants no-such-bug",
        "make",
    ] {
        assert!(problem(command).is_some(), "{command}");
    }
}

#[test]
fn every_folder_of_the_map_exists() {
    let text = page().text;
    let (_, map) = text.split_once("| folder | content |").expect("the map");
    let rows = map.lines().skip(2).take_while(|line| line.starts_with('|'));
    let named: BTreeSet<&str> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 15, "{named:?}");
    for folder in &named {
        assert!(root().join(folder).is_dir(), "{folder}");
    }
    for folder in packages().values() {
        let folder = folder.strip_prefix(root()).expect("a folder of the workspace");
        assert!(named.iter().any(|name| Path::new(name) == folder), "the map lacks {}", folder.display());
    }
}

#[test]
fn the_planted_bug_of_the_page_is_one_of_the_project() {
    let page = page();
    let block =
        page.blocks().into_iter().find(|block| block.heading == "Plant a bug").expect("a planted bug");
    let file = std::fs::read_to_string(planted_file("half-is-a-majority")).expect("the planted bug");
    assert_eq!(block.text.trim(), file.trim());
}

#[test]
fn the_public_ci_runs_the_gate_with_options_that_it_has() {
    let (workflow, gate) = (read(".github/workflows/ci.yml"), read("scripts/test"));
    assert!(workflow.contains("run: ./scripts/test $ARGUMENTS\n"));
    let line = workflow.lines().find(|line| line.trim().starts_with("ARGUMENTS:")).expect("the arguments");
    let options: Vec<&str> = line.split('\'').filter(|word| word.starts_with("--")).collect();
    assert_eq!(options.len(), 2, "{options:?}");
    for option in options {
        let is_case = |line: &str| line.trim_start().starts_with(&format!("{option})"));
        assert!(gate.lines().any(is_case), "scripts/test does not know {option}");
    }
    assert!(!workflow.contains("secrets."), "the gate needs no secret");
}

#[test]
fn the_public_ci_compiles_what_users_build_with_the_oldest_rust() {
    let (workflow, manifest) = (read(".github/workflows/ci.yml"), read("Cargo.toml"));
    let oldest = manifest.lines().find_map(|line| line.strip_prefix("rust-version = ")).expect("a version");
    let (_, job) = workflow.split_once("\n  oldest-rust:\n").expect("a job for the oldest Rust");
    let image = format!("image: docker.io/library/rust:{}-bookworm\n", oldest.trim_matches('"'));
    assert!(job.contains(&image), "the job must use {image}");
    let line = job.lines().find_map(|line| line.trim().strip_prefix("for package in ")).expect("packages");
    let compiled: BTreeSet<&str> = line.trim_end_matches("; do").split(' ').collect();
    let is_built = |folder: &Path| {
        let name = folder.strip_prefix(root()).expect("a folder of the workspace");
        !name.starts_with("tests")
    };
    let all = packages();
    let built: BTreeSet<&str> =
        all.iter().filter(|(_, folder)| is_built(folder)).map(|(name, _)| name.as_str()).collect();
    assert_eq!(compiled, built);
}
