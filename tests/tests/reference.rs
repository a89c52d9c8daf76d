//! `module/COMMANDS.md` must agree with what a running server reports in `COMMAND DOCS`.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::{Answer, Server, Wire, skip};
use std::collections::BTreeSet;
use std::path::Path;

/// One `## REDLOCK.X` section of the reference.
struct Section<'a> {
    command: &'a str,
    lines: Vec<&'a str>,
}

impl<'a> Section<'a> {
    /// The first line inside the first code fence.
    fn syntax(&self) -> &'a str {
        let mut lines = self.lines.iter();
        lines
            .find(|line| line.starts_with("```"))
            .unwrap_or_else(|| panic!("no syntax for {}", self.command));
        lines.next().unwrap_or_else(|| panic!("an empty syntax for {}", self.command))
    }

    /// The rest of the line that begins with `name:`.
    fn line(&self, name: &str) -> Option<&'a str> {
        self.lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
    }
}

fn sections(text: &str) -> Vec<Section<'_>> {
    let mut found: Vec<Section<'_>> = Vec::new();
    let mut inside = false;
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            inside = heading.starts_with("REDLOCK.");
            if inside {
                found.push(Section { command: heading.trim(), lines: Vec::new() });
            }
        } else if let Some(section) = found.last_mut().filter(|_| inside) {
            section.lines.push(line);
        }
    }
    found
}

fn reference() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../module/COMMANDS.md");
    std::fs::read_to_string(path).expect("module/COMMANDS.md is readable")
}

fn docs(wire: &mut Wire, command: &str) -> Answer {
    let answer = wire.call(&["COMMAND", "DOCS", command]);
    let (_, doc) = answer.pairs().into_iter().next().unwrap_or_else(|| panic!("{command} is not documented"));
    doc.clone()
}

/// Formats arguments as `redis-cli` shows them: `[TOKEN name]`, `key [key ...]`.
fn render(arguments: &[Answer]) -> String {
    arguments.iter().map(render_one).collect::<Vec<_>>().join(" ")
}

fn render_one(argument: &Answer) -> String {
    let text = |name: &str| argument.field(name).map(Answer::string);
    let members = || argument.field("arguments").map_or(&[][..], Answer::list);
    let flags: Vec<String> =
        argument.field("flags").map_or(&[][..], Answer::list).iter().map(Answer::string).collect();
    let flag = |name: &str| flags.iter().any(|flag| flag == name);

    let token = text("token").map_or(String::new(), |token| token + " ");
    let kind = text("type").expect("an argument has a type");
    let value = match kind.as_str() {
        "pure-token" => String::new(),
        "block" => render(members()),
        "oneof" => members().iter().map(render_one).collect::<Vec<_>>().join(" | "),
        // Before 7.2 an argument has no display text but its name.
        _ => text("display_text").or_else(|| text("name")).expect("an argument has a name"),
    };
    let mut whole = format!("{token}{value}").trim_end().to_string();
    if flag("multiple") {
        let again = if flag("multiple_token") { whole.clone() } else { value };
        whole = format!("{whole} [{again} ...]");
    }
    if flag("optional") { format!("[{whole}]") } else { whole }
}

#[test]
fn the_page_has_a_section_for_every_command_and_no_other() {
    let server = Server::start();
    let listed = server.connect().call_strs("COMMAND LIST FILTERBY MODULE redlock");
    let known: BTreeSet<String> = listed.list().iter().map(|name| name.string().to_uppercase()).collect();
    let text = reference();
    let described: BTreeSet<String> = sections(&text).iter().map(|section| section.command.into()).collect();
    assert_eq!(described, known);
}

#[test]
fn the_page_has_the_syntax_that_the_server_reports() {
    let server = Server::start();
    let mut wire = server.connect();
    for section in sections(&reference()) {
        let doc = docs(&mut wire, section.command);
        let arguments = doc.field("arguments").map_or(&[][..], Answer::list);
        let rendered = format!("{} {}", section.command, render(arguments));
        assert_eq!(section.syntax(), rendered.trim_end());
    }
}

#[test]
fn the_page_has_the_summary_version_and_complexity_that_the_server_reports() {
    let server = Server::start();
    let mut wire = server.connect();
    for section in sections(&reference()) {
        let doc = docs(&mut wire, section.command);
        for (line, field) in [("Summary", "summary"), ("Since", "since"), ("Complexity", "complexity")] {
            let reported = doc.field(field).map(Answer::string);
            assert_eq!(section.line(line), reported.as_deref(), "{line} of {}", section.command);
        }
    }
}

#[test]
fn the_page_has_the_acl_categories_that_the_server_reports() {
    let server = Server::start();
    let flavor = server.flavor();
    if !flavor.at_least(7, 4) {
        skip(&format!("{flavor} does not let a module add an ACL category"));
        return;
    }
    let mut wire = server.connect();
    for section in sections(&reference()) {
        let written = section.line("ACL").unwrap_or_else(|| panic!("no ACL line of {}", section.command));
        let written: BTreeSet<String> =
            written.split(", ").map(|word| word.trim_matches('`').into()).collect();
        let info = wire.call(&["COMMAND", "INFO", section.command]);
        let reported: BTreeSet<String> = info.list()[0].list()[6].list().iter().map(Answer::string).collect();
        assert_eq!(written, reported, "{}", section.command);
    }
}

#[test]
fn render_one_supports_every_kind_of_argument() {
    let text = Answer::text;
    let argument = |fields: &[(&str, Answer)]| {
        Answer::Map(fields.iter().map(|(name, value)| (text(name), value.clone())).collect())
    };
    let flags = |names: &[&str]| ("flags", Answer::List(names.iter().map(|name| text(name)).collect()));
    let word = |name: &str| argument(&[("name", text(name)), ("type", text("string"))]);
    let cases = [
        (word("owner"), "owner"),
        (argument(&[("name", text("key")), ("type", text("key")), flags(&["multiple"])]), "key [key ...]"),
        (
            argument(&[
                ("name", text("floor")),
                ("type", text("integer")),
                ("token", text("FENCE")),
                flags(&["optional"]),
            ]),
            "[FENCE floor]",
        ),
        (
            argument(&[
                ("name", text("x")),
                ("type", text("pure-token")),
                ("token", text("NX")),
                flags(&["optional"]),
            ]),
            "[NX]",
        ),
        (
            argument(&[
                ("name", text("wait")),
                ("type", text("block")),
                ("token", text("WAIT")),
                ("arguments", Answer::List(vec![word("ticket"), word("channel")])),
                flags(&["optional"]),
            ]),
            "[WAIT ticket channel]",
        ),
    ];
    for (answer, expected) in cases {
        assert_eq!(render_one(&answer), expected);
    }
}
