//! Compares `tests/FAULTS.md` with the tests that exist.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(folder().join("FAULTS.md")).expect("tests/FAULTS.md exists")
}

/// The rows of the matrix, each as a list of cells.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let mut lines = page.lines().skip_while(|line| !line.starts_with("| # |"));
    lines.next().expect("the page has a matrix");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The names of functions in a cell: words in backticks, in snake case.
fn names(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2).filter(|word| {
        let is_usual = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
        word.contains('_') && word.chars().all(is_usual)
    })
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of tests").flatten() {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// Whether a file contains campaigns. This file does not.
fn is_campaign(file: &Path) -> bool {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    name.starts_with("faults_") && name != "faults_matrix"
}

/// The names of all tests, and the names of the campaigns.
fn tests() -> (BTreeSet<String>, BTreeSet<String>) {
    let mut files = Vec::new();
    sources(&folder().join("tests"), &mut files);
    sources(&folder().join("sim/tests"), &mut files);
    let (mut all, mut campaigns) = (BTreeSet::new(), BTreeSet::new());
    for file in files {
        let text = fs::read_to_string(&file).expect("a file of tests");
        let is_campaign = is_campaign(&file);
        let mut lines = text.lines();
        while lines.any(|line| line.starts_with("#[test]") || line.starts_with("#[tokio::test")) {
            let name = lines.find_map(|line| line.split("fn ").nth(1)?.split('(').next());
            let name = name.unwrap_or_else(|| panic!("a test without a name in {}", file.display()));
            all.insert(name.to_owned());
            if is_campaign {
                campaigns.insert(name.to_owned());
            }
        }
    }
    (all, campaigns)
}

#[test]
fn every_test_that_the_page_names_exists() {
    let (all, _) = tests();
    let page = page();
    // A name that ends with `_` stands for several tests.
    let named = names(&page).filter(|name| !name.ends_with('_'));
    let unknown: Vec<&str> = named.filter(|name| !all.contains(*name)).collect();
    assert_eq!(unknown, [] as [&str; 0]);
}

#[test]
fn every_campaign_has_its_place_on_the_page() {
    let page = page();
    let named: BTreeSet<&str> = rows(&page).into_iter().flatten().flat_map(names).collect();
    let (_, campaigns) = tests();
    assert!(campaigns.len() > 30, "too few campaigns found: {campaigns:?}");
    let missing: Vec<&String> = campaigns.iter().filter(|name| !named.contains(name.as_str())).collect();
    assert_eq!(missing, [] as [&String; 0]);
}

/// Whether a cell names an existing test that shows that the checks of its row detect the fault.
fn is_control(cell: &str, all: &BTreeSet<String>) -> bool {
    names(cell).any(|name| all.contains(name))
}

#[test]
fn every_row_is_there_with_a_test_and_its_control() {
    let page = page();
    let (all, _) = tests();
    let mut tested = BTreeMap::<&str, usize>::new();
    for row in rows(&page) {
        let [number, fault, tests, control] = row[..] else { panic!("a row must have four cells: {row:?}") };
        assert!(is_control(control, &all), "{fault} has no control: {control}");
        *tested.entry(number).or_default() += names(tests).count();
    }
    for number in 1..=24 {
        assert!(tested.get(number.to_string().as_str()).is_some_and(|count| *count > 0), "row {number}");
    }
}

#[test]
fn words_alone_are_no_control() {
    let all = BTreeSet::from(["a_test".to_owned()]);
    for cell in ["`a_test`", "`a_test`: in the same test"] {
        assert!(is_control(cell, &all), "{cell}");
    }
    for cell in ["", "liveness only", "`another_test`", "none: nothing could be turned off", "a_test"] {
        assert!(!is_control(cell, &all), "{cell}");
    }
}
