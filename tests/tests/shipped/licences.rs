//! `deny.toml`: every dependency must have an allowed licence and come from crates.io.
//!
//! `cargo deny` checks more, but it must be installed, and it needs the network for its list of known
//! vulnerabilities. These tests need only cargo and the crates that it has fetched, so the gate always rejects a
//! licence that is not allowed.

use crate::page::{read, root};
use crate::program::{describe, run};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// The deadline of a command. Another cargo process may hold the lock on the fetched crates.
const LONG: Duration = Duration::from_secs(60);

/// The only source of crates.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The strings of a list `name = [...]` in `deny.toml`.
fn listed(name: &str) -> BTreeSet<String> {
    let text = read("deny.toml");
    let (_, rest) =
        text.split_once(&format!("\n{name} = [")).unwrap_or_else(|| panic!("deny.toml lists no {name}"));
    let (list, _) = rest.split_once(']').expect("the list has an end");
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words: BTreeSet<String> = lines
        .flat_map(|line| line.split(','))
        .map(|word| word.trim().trim_matches('"').to_string())
        .collect();
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// Whether a licence expression is allowed: at least one part of an OR, and all parts of an AND.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    // Older crates write a slash for OR.
    let parsed = Expression::parse_mode(expression, ParseMode::LAX).map_err(|error| error.to_string())?;
    Ok(parsed.evaluate(|part: &LicenseReq| allowed.contains(&part.to_string())))
}

/// All crates that the workspace depends on, on this machine, without its own members.
fn packages() -> Vec<Value> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = run(Command::new(rustc).arg("-vV"), LONG);
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_string();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &host]);
    let output = run(command.current_dir(root()), LONG);
    assert!(output.status.success(), "cargo metadata: {}", describe(&output));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let all = metadata["packages"].as_array().expect("packages").iter();
    all.filter(|package| !package["source"].is_null()).cloned().collect()
}

#[test]
fn every_crate_has_an_allowed_licence_and_comes_from_crates_io() {
    let allowed = listed("allow");
    let packages = packages();
    assert!(packages.len() > 50, "only {} crates", packages.len());
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        assert_eq!(package["source"].as_str(), Some(CRATES_IO), "{name}");
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        let verdict =
            is_allowed(licence, &allowed).unwrap_or_else(|error| panic!("{name}: {licence}: {error}"));
        assert!(verdict, "{name} is under {licence}; deny.toml allows {allowed:?}");
    }
}

#[test]
fn a_licence_that_is_not_allowed_is_detected() {
    let allowed = listed("allow");
    let cases = [
        ("MIT", true),
        ("MIT/Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only", false),
        ("MIT AND AGPL-3.0-only", false),
        ("SSPL-1.0", false),
    ];
    for (expression, expected) in cases {
        assert_eq!(is_allowed(expression, &allowed), Ok(expected), "{expression}");
    }
    assert!(is_allowed("ask me", &allowed).is_err());
}

#[test]
fn the_project_itself_has_the_licence_that_its_manifest_names() {
    let manifest = read("Cargo.toml");
    let licence = manifest.lines().find_map(|line| line.strip_prefix("license = ")).expect("a licence");
    assert!(listed("allow").contains(licence.trim_matches('"')));
    assert!(read("LICENSE").contains("Redistribution and use in source and binary forms"));
}

/// The folders of the crates that go to crates.io.
fn published() -> Vec<String> {
    let manifest = read("Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).expect("the members");
    let folders =
        members.trim_end_matches(']').split(',').map(|folder| folder.trim().trim_matches('"').to_owned());
    let goes_out = |folder: &String| {
        !read(&format!("{folder}/Cargo.toml")).lines().any(|line| line == "publish = false")
    };
    folders.filter(goes_out).collect()
}

/// What crates.io shows about a crate, and by which people find it.
#[test]
fn every_published_crate_has_keywords_categories_and_documentation() {
    for folder in published() {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let value = |name: &str| {
            let found = manifest.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            found.unwrap_or_else(|| panic!("{folder} has no {name}"))
        };
        let list = |name: &str| {
            let items = value(name).trim_start_matches('[').trim_end_matches(']').split(", ");
            items.map(|item| item.trim_matches('"').to_owned()).collect::<Vec<_>>()
        };
        // crates.io accepts at most five of each, and a keyword of at most twenty characters.
        let keywords = list("keywords");
        assert!((1..=5).contains(&keywords.len()), "{folder}: {keywords:?}");
        let starts_well = |word: &String| word.starts_with(|first: char| first.is_ascii_alphanumeric());
        let is_known = |letter: char| letter.is_ascii_alphanumeric() || "_-+".contains(letter);
        let is_keyword = |word: &String| word.len() <= 20 && starts_well(word) && word.chars().all(is_known);
        assert!(keywords.iter().all(is_keyword), "{folder}: {keywords:?}");
        assert!(["redis", "lock"].iter().all(|word| keywords.iter().any(|known| known == word)), "{folder}");
        assert!((1..=5).contains(&list("categories").len()), "{folder}");
        // A program has no documentation of its own on docs.rs; its manifest names that of the client.
        let name = value("name").trim_matches('"');
        let documented = if name == "redlock-cli" { "redlock-client" } else { name };
        assert_eq!(value("documentation"), format!("\"https://docs.rs/{documented}\""), "{folder}");
        assert!(value("description").len() > 30, "{folder}");
    }
}

/// A package contains the files of its own folder only, so each crate needs a copy, and the copy must be the text.
#[test]
fn every_published_crate_contains_the_licence_and_its_own_readme() {
    let licence = read("LICENSE");
    let crates = published();
    assert_eq!(crates.len(), 5, "{crates:?}");
    for folder in crates {
        assert_eq!(read(&format!("{folder}/LICENSE")), licence, "{folder}");
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let line = |name: &str| manifest.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        assert_eq!(line("readme = "), "readme = \"README.md\"", "{folder}");
        for file in ["LICENSE", "README.md"] {
            assert!(line("include = ").contains(&format!("\"{file}\"")), "{folder} leaves out {file}");
        }
        assert!(read(&format!("{folder}/README.md")).contains("Licence: BSD-3-Clause."), "{folder}");
    }
}
