//! Plain English: no retired phrase in a Markdown page, a comment, a string literal or a shell script, and no line of
//! prose over [`COLUMNS`] columns in a Markdown page.
//!
//! The check skips this file, because it names the phrases. In a shell script it reads the commands as well.

use crate::links::{files, pages};
use crate::page::{read, root};

/// Phrases that a reader must decode. The check ignores case, and finds a phrase over a line break too.
const RETIRED: [&str; 19] = [
    "whoever",
    "in vain",
    "came to nothing",
    "is none",
    "so many",
    "for whom",
    "who wants to go",
    "stands in line",
    "stand in line",
    "has the right",
    "gets on",
    "lets nobody",
    "is told",
    "those who",
    "somebody who",
    "nobody who",
    ", please",
    "was not had",
    "is owed",
];

const THIS_FILE: &str = "tests/tests/shipped/language.rs";

/// The longest line of prose in a Markdown page.
const COLUMNS: usize = 110;

/// Stands for code in the output of [`rust_text`], so that no phrase reaches over code.
const CODE: char = '\0';

/// The comments and string literals of a Rust source file. Line breaks stay where they are.
fn rust_text(source: &str) -> String {
    let mut text = String::new();
    let mut at = 0;
    while let Some(next) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = if rest.starts_with("//") {
            let comment = rest.lines().next().unwrap_or_default();
            text.push_str(comment.trim_start_matches(['/', '!']));
            comment.len()
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            text.push_str(&rest[..length]);
            length
        } else if next == '"' {
            let literal = string_literal(&source[..at], rest);
            text.push(CODE);
            push_unescaped(&mut text, literal);
            text.push(CODE);
            literal.len()
        } else {
            let length = if next == '\'' { tick_length(rest) } else { next.len_utf8() };
            text.push(if next.is_whitespace() { next } else { CODE });
            length
        };
        at += length;
    }
    text
}

/// The string literal at the start of `rest`, with its quotes and, if it is a raw one, the hashes at its end.
fn string_literal<'a>(before: &str, rest: &'a str) -> &'a str {
    let prefix = before.trim_end_matches('#');
    let length = if prefix.ends_with('r') {
        let end = format!("\"{}", "#".repeat(before.len() - prefix.len()));
        rest[1..].find(&end).map(|length| 1 + length + end.len())
    } else {
        let mut is_escaped = false;
        let end = rest[1..].find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        end.map(|length| length + 2)
    };
    &rest[..length.unwrap_or(rest.len())]
}

/// Appends a string literal. The escape of a white-space character becomes a blank.
fn push_unescaped(text: &mut String, literal: &str) {
    let mut chars = literal.chars();
    while let Some(c) = chars.next() {
        match (c, if c == '\\' { chars.next() } else { None }) {
            (_, Some('n' | 'r' | 't')) => text.push(' '),
            (_, Some('\n')) => text.push('\n'),
            (_, Some(_)) => text.push(CODE),
            (c, None) => text.push(c),
        }
    }
}

/// The length of the character literal at the start of `rest`, or of the tick if it begins a lifetime.
fn tick_length(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match (chars.next(), chars.next()) {
        (Some((_, '\\')), Some((at, escaped))) => {
            let at = at + escaped.len_utf8();
            rest[at..].find('\'').map_or(1, |end| at + end + 1)
        }
        (Some(_), Some((at, '\''))) => at + 1,
        _ => 1,
    }
}

/// The words and punctuation marks of a text, each with its line, counted from 1. An empty line is an empty token.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        // The marks of shell comments and Markdown quotations, which each line of a paragraph repeats.
        let mut rest = line.trim().trim_start_matches(['#', '>']).trim_start();
        if rest.is_empty() {
            found.push((index + 1, ""));
        }
        while let Some(first) = rest.chars().next() {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            let (token, after) = rest.split_at(end.max(first.len_utf8()));
            found.push((index + 1, token));
            rest = after.trim_start();
        }
    }
    found
}

/// The retired phrases in a text, each with its line.
fn retired(text: &str) -> Vec<(usize, &'static str)> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    for phrase in RETIRED {
        let words: Vec<&str> = self::tokens(phrase).into_iter().map(|(_, word)| word).collect();
        for (index, window) in tokens.windows(words.len()).enumerate() {
            // `None` is a value of Rust and Python.
            let is_same = window
                .iter()
                .zip(&words)
                .all(|((_, is), word)| is.eq_ignore_ascii_case(word) && *is != "None");
            // "It failed, so many of them wait": a conjunction.
            let follows_a_comma = index.checked_sub(1).is_some_and(|before| tokens[before].1 == ",");
            if is_same && !(phrase == "so many" && follows_a_comma) {
                found.push((window[0].0, phrase));
            }
        }
    }
    found.sort_unstable();
    found
}

/// The lines of prose of a page that are longer than [`COLUMNS`], each with its length. The bench writes the text
/// between `<!-- bench: PART -->` and `<!-- /bench -->`, in lines as long as its titles.
fn long_lines(page: &str) -> Vec<(usize, usize)> {
    let mut is_block = false;
    let mut found = Vec::new();
    for (index, line) in page.lines().enumerate() {
        let (columns, content) = (line.chars().count(), line.trim_start());
        let is_edge = content.starts_with("```")
            || content.starts_with("<!-- bench: ")
            || content.starts_with("<!-- /bench -->");
        is_block ^= is_edge;
        let is_prose = !is_block && !is_edge && !content.starts_with(['#', '|']) && !is_only_links(content);
        if is_prose && columns > COLUMNS {
            found.push((index + 1, columns));
        }
    }
    found
}

/// Whether a line has no words besides links and images.
fn is_only_links(line: &str) -> bool {
    let mut rest = line;
    while let Some((before, link)) = rest.split_once('[') {
        if has_words(before) {
            return false;
        }
        let Some((_, target)) = link.split_once("](") else { return false };
        let Some((_, after)) = target.split_once(')') else { return false };
        rest = after;
    }
    !has_words(rest)
}

fn has_words(text: &str) -> bool {
    text.contains(char::is_alphanumeric)
}

/// The shell scripts of the project, by their paths from the root.
fn scripts() -> Vec<String> {
    let is_script = |path: &String| {
        let content = std::fs::read(root().join(path)).expect("a file of the project");
        let first = content.split(|byte| *byte == b'\n').next().unwrap_or_default();
        path.ends_with(".sh") || (first.starts_with(b"#!") && first.ends_with(b"sh"))
    };
    files("").into_iter().filter(is_script).collect()
}

#[test]
fn no_text_has_a_retired_phrase() {
    let (pages, sources, scripts) = (pages(), files(".rs"), scripts());
    assert!(pages.len() > 5 && sources.len() > 100 && scripts.len() > 5, "{pages:?} {scripts:?}");
    let mut found = Vec::new();
    for path in pages.iter().chain(&sources).chain(&scripts).filter(|path| *path != THIS_FILE) {
        let source = read(path);
        let hits = retired(&if path.ends_with(".rs") { rust_text(&source) } else { source });
        found.extend(hits.into_iter().map(|(line, phrase)| format!("{path}:{line}: {phrase}")));
    }
    assert!(found.is_empty(), "{} retired phrases:\n{}", found.len(), found.join("\n"));
}

#[test]
fn no_line_of_prose_is_too_long() {
    let mut found = Vec::new();
    for path in pages() {
        let lines = long_lines(&read(&path)).into_iter();
        found.extend(lines.map(|(line, columns)| format!("{path}:{line}: {columns} columns")));
    }
    assert!(found.is_empty(), "{} lines are longer than {COLUMNS}:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_retired_phrase_is_found_in_each_kind_of_text() {
    let page = "# Title\n\nSome text. Whoever reads it came\nto nothing.\n\n> It is\n> told.\n";
    assert_eq!(retired(page), [(3, "came to nothing"), (3, "whoever"), (6, "is told")]);
    let script = "#!/bin/sh\n# The caller waits in\n# vain.\necho 'a lock, please'\n";
    assert_eq!(retired(script), [(2, "in vain"), (4, ", please")]);
    for (line, source) in [
        (1, "//! Whoever."),
        (2, "fn f() {\n    /// It is for\n    /// whom\n}"),
        (1, "f(1); // for whom"),
        (1, "/* a 'b */ /* for whom */"),
        (1, r#"f("\\", "for whom")"#),
        (1, r#"f("a \" for whom")"#),
        (1, "f(r\"\\\", \"for whom\")"),
        (1, "f(r#\" \" for whom\"#)"),
        (2, "f(\"\n for \\\n    whom\")"),
        (1, "f('\"', '\\'', 'ä', \"for whom\")"),
        (1, "fn f<'a>(a: &'a str) { g(\"for\\nwhom\") }"),
    ] {
        let found = retired(&rust_text(source));
        assert!(matches!(found[..], [(at, "for whom" | "whoever")] if at == line), "{source}: {found:?}");
    }
}

#[test]
fn plain_text_has_no_retired_phrase() {
    for page in [
        "The client queues on the nodes. A release hands the lock to the first waiter.\n",
        "It says what it is. None of them is.\n\nIt is\n\nnone of them; it fails, so many wait.\n",
        "```python\nwhile lock is None:\n```\n",
        "main nodes, in vaingloriousness, whoever_it_is\n",
    ] {
        assert_eq!(retired(page), [], "{page}");
    }
    for source in [
        "fn whoever(for_whom: bool) { let whoever = 'w'; }",
        "f(\"for\", \"whom\"); g(\"for\") // whom",
        "// It is for\n\n// whom\n//\n// for\nfn f() {}\n// whom\n",
    ] {
        assert_eq!(retired(&rust_text(source)), [], "{source}");
    }
}

#[test]
fn a_long_line_of_prose_is_found() {
    let words = "word ".repeat(30);
    let link = format!("- [{words}](page.md), ![{words}](image.svg).");
    let others = format!("# {words}\n| {words} |\n```\n{words}\n```\n{link}\n{}\n", "ä".repeat(COLUMNS));
    let bench = format!("<!-- bench: part -->\n{words}\n<!-- /bench -->\n");
    assert_eq!(long_lines(&bench), []);
    assert_eq!(long_lines(&others), []);
    assert_eq!(long_lines(&format!("{others}See {link}\n- {words}")), [(8, 334), (9, 152)]);
}
