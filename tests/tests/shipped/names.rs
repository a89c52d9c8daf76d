//! Type names: no two types of the production crates have the same name, and no type of the test crates has the name
//! of a production type.

use crate::links::files;
use crate::page::read;
use std::collections::BTreeMap;

/// Names that two types may have, and why.
const ALLOWED: [(&str, &str); 6] = [
    ("LockManager", "`blocking::LockManager` is the same API for programs without an async runtime"),
    ("Guard", "`blocking::Guard`, likewise"),
    ("Election", "`blocking::Election`, likewise"),
    ("Leadership", "`blocking::Leadership`, likewise"),
    ("Tls", "`without_tls.rs` replaces `tls.rs` in a build without the feature `tls`"),
    ("TlsSettings", "likewise"),
];

/// The name of the type that a line of Rust defines, if it does. An indented alias is an associated type and does not
/// count.
fn defined(line: &str) -> Option<&str> {
    let is_indented = line.starts_with(' ');
    let mut rest = line.trim_start();
    if let Some(after) = rest.strip_prefix("pub") {
        rest = match after.strip_prefix('(') {
            Some(scope) => scope.split_once(')')?.1,
            None => after,
        };
        rest = rest.trim_start();
    }
    let (keyword, rest) = rest.split_once(' ')?;
    match keyword {
        "struct" | "enum" | "trait" | "union" => {}
        "type" if !is_indented => {}
        _ => return None,
    }
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    rest.get(..end).filter(|name| name.starts_with(|first: char| first.is_ascii_uppercase()))
}

/// The types that a source file defines outside its unit tests.
fn definitions(source: &str) -> impl Iterator<Item = &str> {
    let end = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
    source.get(..end).unwrap_or_default().lines().filter_map(defined)
}

/// The type names with more than one definition in production code, or another one in test code, each with its files.
fn homonyms(sources: &[(String, String)]) -> Vec<String> {
    let mut production: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut tests: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, source) in sources {
        let is_test = path.starts_with("tests/") || path.contains("/tests");
        // Each test and each example is a program of its own.
        if path.contains("/examples/")
            || path.starts_with("tests/tests/")
            || (is_test && !path.starts_with("tests/"))
        {
            continue;
        }
        for name in definitions(source) {
            let names = if is_test { &mut tests } else { &mut production };
            names.entry(name).or_default().push(path);
        }
    }
    let is_allowed = |name: &str| ALLOWED.iter().any(|(allowed, _)| *allowed == name);
    let all = production.into_iter().filter(|(name, _)| !is_allowed(name)).map(|(name, mut files)| {
        files.extend(tests.get(name).into_iter().flatten());
        (name, files)
    });
    all.filter(|(_, files)| files.len() > 1)
        .map(|(name, files)| format!("{name}: {}", files.join(", ")))
        .collect()
}

#[test]
fn no_two_types_have_one_name() {
    let sources: Vec<(String, String)> =
        files(".rs").into_iter().map(|path| (path.clone(), read(&path))).collect();
    assert!(sources.len() > 100, "{}", sources.len());
    let homonyms = homonyms(&sources);
    assert!(homonyms.is_empty(), "{} names are defined twice:\n{}", homonyms.len(), homonyms.join("\n"));
}

#[test]
fn a_type_name_that_is_defined_twice_is_detected() {
    let source = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let one = source("module/src/a.rs", "pub(crate) struct Waiter<'a> {\n");
    let same = source("client/src/b.rs", "    enum Waiter {\n");
    let test = source("tests/src/c.rs", "pub struct Waiter;\n");
    let program = source("tests/tests/d.rs", "struct Waiter;\n");
    let unit = source("client/src/e.rs", "#[cfg(test)]\nmod tests {\n    struct Waiter;\n");
    let alias = source("client/src/f.rs", "    type Waiter = u8;\n// struct Waiter\n");
    for other in [same, test] {
        assert_eq!(homonyms(&[one.clone(), other.clone()]).len(), 1, "{other:?}");
    }
    assert_eq!(homonyms(&[one, program, unit, alias]), Vec::<String>::new());
}
