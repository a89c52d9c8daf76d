//! The pages about tests name tests, files and planted bugs that exist.

use crate::links::files;
use crate::page::{read, root};
use std::collections::BTreeSet;

/// The pages. In the tables of `BUGS.md`, only the last column is about the present.
const PAGES: [&str; 4] = ["tests/BUGS.md", "tests/FAULTS.md", "tests/EVIDENCE.md", "tests/MUTANTS.md"];

/// The tree that the pages are about.
struct Tree {
    /// The names of all functions.
    functions: BTreeSet<String>,
    /// The paths of all Rust files.
    files: Vec<String>,
    /// The names of the planted bugs.
    planted: BTreeSet<String>,
}

/// The names of the functions that a source defines.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let is_of_a_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let after = source.split("fn ").skip(1);
    after.map(move |rest| rest.split(|c| !is_of_a_name(c)).next().unwrap_or_default())
}

impl Tree {
    fn read() -> Self {
        let files = files(".rs");
        let functions =
            files.iter().flat_map(|path| functions(&read(path)).map(str::to_owned).collect::<Vec<_>>());
        let folder = std::fs::read_dir(root().join("tests/mutants/planted")).expect("the planted bugs");
        let names = folder.map(|entry| entry.expect("a readable entry").path());
        let planted = names.filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned())).collect();
        Self { functions: functions.collect(), files, planted }
    }

    /// Whether a word between backticks is right: the name of a function, the end of the path of a file, a planted bug,
    /// or something that this test does not know.
    fn has(&self, word: &str) -> bool {
        let is_path = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_/.-".contains(&byte));
        if let Some(bug) = word.strip_prefix("scripts/mutants ").filter(|bug| !bug.starts_with('-')) {
            return self.planted.contains(bug);
        }
        if is_path && word.ends_with(".rs") {
            return self.files.iter().any(|path| *path == word || path.ends_with(&format!("/{word}")));
        }
        // Fields of `INFO redlock` look like names of tests.
        if !is_snake_case(word.trim_end_matches('*')) || word.starts_with("redlock_") {
            return true;
        }
        match word.strip_suffix('*') {
            Some(prefix) => self.functions.iter().any(|name| name.starts_with(prefix)),
            None => self.functions.contains(word),
        }
    }

    /// The words in a page that name something that does not exist.
    fn missing<'a>(&self, page: &'a str, is_last_column_only: bool) -> Vec<&'a str> {
        let mut is_code = false;
        let lines = page.lines().filter(move |line| {
            let is_fence = line.starts_with("```");
            is_code ^= is_fence;
            !is_fence && !is_code
        });
        let text = lines.filter_map(|line| match line.trim_end().strip_suffix('|') {
            Some(row) if is_last_column_only => row.rsplit('|').next(),
            None if is_last_column_only => None,
            _ => Some(line),
        });
        let words = text.flat_map(|text| text.split('`').skip(1).step_by(2));
        words.filter(|word| !self.has(word)).collect()
    }
}

fn is_snake_case(word: &str) -> bool {
    let is_of_a_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    word.contains('_') && word.bytes().all(is_of_a_name)
}

#[test]
fn every_test_that_a_page_names_exists() {
    let tree = Tree::read();
    assert!(tree.functions.len() > 1_000 && tree.planted.len() > 50);
    for path in PAGES {
        let page = read(path);
        assert_eq!(tree.missing(&page, path.ends_with("BUGS.md")), [""; 0], "{path}");
    }
}

#[test]
fn a_name_of_something_that_does_not_exist_is_detected() {
    let tree = Tree {
        functions: functions("fn one_test() {}\nasync fn two_tests<T>(x: T) {}").map(str::to_owned).collect(),
        files: vec!["tests/sim/src/world/fault.rs".to_owned()],
        planted: ["a-bug".to_owned()].into(),
    };
    let page = "`no_test` | `one_test`, `two_*`, `no_*`, `world/fault.rs`, `fault.rs`, `ault.rs`,\n\
                `scripts/mutants a-bug`, `scripts/mutants no-bug`, `scripts/mutants --quick`, `redlock_grants`, `WAIT`\n\
                ```bash\ncargo test `not_read`\n```\n\
                | `no_column` | `no_last` |\n";
    let missing = ["no_test", "no_*", "ault.rs", "scripts/mutants no-bug", "no_column", "no_last"];
    assert_eq!(tree.missing(page, false), missing);
    assert_eq!(tree.missing(page, true), ["no_last"]);
}
