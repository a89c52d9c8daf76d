//! `deny.toml`: what may be built upon, held against what is.
//!
//! `cargo deny` looks at more and wants to be installed, and the net for its list of known holes; this works with
//! nothing but cargo and what it has fetched, so that the gate can always say no to a licence nobody agreed to.

use crate::page::{read, root};
use crate::program::{run, told};
use serde_json::Value;
use spdx::{Expression, LicenseReq, ParseMode};
use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

/// Another cargo may have the lock on what was fetched.
const LONG: Duration = Duration::from_secs(60);

/// The only place that crates come from.
const CRATES_IO: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// The strings of a list `name = [...]` in `deny.toml`.
fn listed(name: &str) -> BTreeSet<String> {
    let text = read("deny.toml");
    let (_, rest) =
        text.split_once(&format!("\n{name} = [")).unwrap_or_else(|| panic!("deny.toml lists no {name}"));
    let (list, _) = rest.split_once(']').expect("a list ends");
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or_default());
    let words: BTreeSet<String> = lines
        .flat_map(|line| line.split(','))
        .map(|word| word.trim().trim_matches('"').to_string())
        .collect();
    words.into_iter().filter(|word| !word.is_empty()).collect()
}

/// Whether those who offer a choice offer one that is agreed to, and all of what comes together is.
fn agreed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    // Older crates write a slash where an OR is meant.
    let parsed = Expression::parse_mode(expression, ParseMode::LAX).map_err(|error| error.to_string())?;
    Ok(parsed.evaluate(|part: &LicenseReq| allowed.contains(&part.to_string())))
}

/// Every crate that the workspace is built from on this machine, its own members left out.
fn packages() -> Vec<Value> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = run(Command::new(rustc).arg("-vV"), LONG);
    let text = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_string();
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", &host]);
    let output = run(command.current_dir(root()), LONG);
    assert!(output.status.success(), "cargo metadata: {}", told(&output));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata is JSON");
    let all = metadata["packages"].as_array().expect("packages").iter();
    all.filter(|package| !package["source"].is_null()).cloned().collect()
}

#[test]
fn every_crate_has_a_licence_that_was_agreed_to_and_comes_from_crates_io() {
    let allowed = listed("allow");
    let packages = packages();
    assert!(packages.len() > 50, "only {} crates", packages.len());
    for package in packages {
        let name = format!("{} {}", package["name"], package["version"]);
        assert_eq!(package["source"].as_str(), Some(CRATES_IO), "{name}");
        let licence = package["license"].as_str().unwrap_or_else(|| panic!("{name} names no licence"));
        let verdict = agreed(licence, &allowed).unwrap_or_else(|error| panic!("{name}: {licence}: {error}"));
        assert!(verdict, "{name} is under {licence}; deny.toml allows {allowed:?}");
    }
}

#[test]
fn a_licence_that_nobody_agreed_to_is_noticed() {
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
        assert_eq!(agreed(expression, &allowed), Ok(expected), "{expression}");
    }
    assert!(agreed("ask me", &allowed).is_err());
}

#[test]
fn the_project_itself_is_under_the_licence_that_it_says() {
    let manifest = read("Cargo.toml");
    let licence = manifest.lines().find_map(|line| line.strip_prefix("license = ")).expect("a licence");
    assert!(listed("allow").contains(licence.trim_matches('"')));
    assert!(read("LICENSE").contains("Redistribution and use in source and binary forms"));
}
