//! `tests/MUTANTS.md`: every planted bug has a row, with the sentence of its file.

use crate::page::{read, root};

/// The name of each planted bug, and what is wrong.
fn planted() -> Vec<(String, String)> {
    let folder = std::fs::read_dir(root().join("tests/mutants/planted")).expect("the planted bugs");
    let paths = folder.map(|entry| entry.expect("a readable entry").path());
    let bug = |path: std::path::PathBuf| {
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).expect("a planted bug");
        let wrong = text.lines().find_map(|line| line.strip_prefix("wrong: ")).expect("what is wrong");
        (name, wrong.to_owned())
    };
    paths.map(bug).collect()
}

/// The planted bugs without a row in a page.
fn missing<'a>(page: &str, bugs: &'a [(String, String)]) -> Vec<&'a str> {
    let has_row =
        |name: &str, wrong: &str| page.lines().any(|line| line.starts_with(&format!("| {name} | {wrong} |")));
    bugs.iter().filter(|(name, wrong)| !has_row(name, wrong)).map(|(name, _)| name.as_str()).collect()
}

#[test]
fn every_planted_bug_has_a_row() {
    let (page, bugs) = (read("tests/MUTANTS.md"), planted());
    assert!(bugs.len() > 50, "{bugs:?}");
    assert_eq!(missing(&page, &bugs), [""; 0], "each needs a row `| name | what is wrong |`");
    let count = format!("has {} bugs", bugs.len());
    assert!(page.contains(&count) && read("tests/EVIDENCE.md").contains(&count), "both pages: {count:?}");
}

#[test]
fn a_planted_bug_without_a_row_is_detected() {
    let bug = |name: &str, wrong: &str| (name.to_owned(), wrong.to_owned());
    let bugs = [bug("one", "It fails."), bug("two", "It waits.")];
    assert_eq!(missing("| one | It fails. |\n| two | It waits. | 3 tests |\n", &bugs), [""; 0]);
    assert_eq!(missing("| one | It fails. |\n| two | Another sentence. |\n", &bugs), ["two"]);
}
