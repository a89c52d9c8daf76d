//! Output as text or JSON, with or without colour. Results go to stdout, notes and errors to stderr.

use crate::args::Color;
use crate::exit::ExitError;
use serde_json::{Value, json};
use std::io::{ErrorKind, IsTerminal, Write};
use unicode_width::UnicodeWidthStr;

/// Prints results, notes and errors in the chosen format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Printer {
    pub(crate) is_json: bool,
    colors: Colors,
}

/// Whether to use colour, for each stream.
#[derive(Clone, Copy, Debug)]
struct Colors {
    stdout: bool,
    stderr: bool,
}

/// The meaning of a text, which decides its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Doubtful,
    Strong,
    Faint,
}

impl Tone {
    fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Doubtful => "33",
            Self::Strong => "1",
            Self::Faint => "2",
        }
    }
}

impl Printer {
    pub(crate) fn new(is_json: bool, color: Color) -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let on = |is_terminal: bool| match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => is_terminal && !unwanted && !dumb,
        };
        let colors = Colors {
            stdout: on(std::io::stdout().is_terminal()),
            stderr: on(std::io::stderr().is_terminal()),
        };
        Self { is_json, colors }
    }

    /// Whether stdout gets colours.
    pub(crate) fn is_colored(self) -> bool {
        self.colors.stdout
    }

    /// Colours a text for stdout.
    pub(crate) fn paint(self, tone: Tone, text: &str) -> String {
        painted(self.colors.stdout, tone, text)
    }

    /// Colours a text for stderr.
    pub(crate) fn paint_aside(self, tone: Tone, text: &str) -> String {
        painted(self.colors.stderr, tone, text)
    }

    /// Prints one line of the result. A closed pipe is no error: the reader, such as `head`, has seen enough. Any other
    /// failure, such as a full disk, is an error.
    pub(crate) fn line(self, text: &str) -> Result<(), ExitError> {
        match write_out(text) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(unwritable(&error)),
            _ => Ok(()),
        }
    }

    /// Prints lines of the result.
    pub(crate) fn lines(self, lines: &[String]) -> Result<(), ExitError> {
        lines.iter().try_for_each(|line| self.line(line))
    }

    /// Prints a result that must arrive: even a closed pipe is an error.
    pub(crate) fn deliver(self, text: &str) -> Result<(), ExitError> {
        write_out(text).map_err(|error| unwritable(&error))
    }

    /// Prints a result as one JSON document on one line.
    pub(crate) fn json(self, value: &Value) -> Result<(), ExitError> {
        self.line(&value.to_string())
    }

    /// Prints a note for people to stderr; nothing with `--json`.
    pub(crate) fn note(self, text: &str) {
        if !self.is_json {
            let text = self.paint_aside(Tone::Faint, text);
            let _ = writeln!(std::io::stderr().lock(), "redlock: {text}");
        }
    }

    /// Prints an error to stderr.
    pub(crate) fn failure(self, failure: &ExitError) {
        let mut stderr = std::io::stderr().lock();
        if self.is_json {
            let _ = writeln!(stderr, "{}", failure.json());
        } else {
            let name = self.paint_aside(Tone::Bad, "redlock:");
            let _ = writeln!(stderr, "{name} {}", failure.message);
        }
    }
}

fn write_out(text: &str) -> std::io::Result<()> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush())
}

/// The error for a result that could not be written.
pub(crate) fn unwritable(error: &std::io::Error) -> ExitError {
    ExitError::internal(format!("cannot write the result to stdout: {error}"))
}

fn painted(on: bool, tone: Tone, text: &str) -> String {
    if on { format!("\x1b[{}m{text}\x1b[0m", tone.code()) } else { text.to_owned() }
}

/// Makes text from a node or a label safe for a terminal: replaces control characters, which could move the cursor.
pub(crate) fn tame(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// Makes the bytes of a key safe for a terminal and for JSON: escapes them if they are not printable text.
pub(crate) fn tame_bytes(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => bytes.escape_ascii().to_string(),
    }
}

/// `1 lock`, `2 locks`.
pub(crate) fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A table for people. Each column is as wide on a terminal as its widest cell. The first row is the heading.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<(String, Option<Tone>)>>,
    remarks: Vec<String>,
}

impl Table {
    pub(crate) fn new(heading: &[&str]) -> Self {
        let heading = heading.iter().map(|name| ((*name).to_owned(), Some(Tone::Strong))).collect();
        Self { rows: vec![heading], remarks: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<(String, Option<Tone>)>) {
        self.rows.push(cells);
    }

    /// A row with one word, and the failure below the table: in a column, its long text would push the other columns
    /// out of sight.
    pub(crate) fn failed_row(&mut self, name: &str, word: &str, failure: &redlock_client::Failure) {
        self.row(vec![cell(name), toned(Tone::Bad, word)]);
        self.remark(name, &failure.to_string());
    }

    /// Adds a remark about a row, below the table.
    pub(crate) fn remark(&mut self, name: &str, text: &str) {
        self.remarks.push(format!("{name}: {}", tame(text)));
    }

    pub(crate) fn lines(&self, output: Printer) -> Vec<String> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            cells.map(|(text, _): &(String, _)| text.width()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let line = |row: &Vec<(String, Option<Tone>)>| {
            let mut line = String::new();
            for (column, (text, tone)) in row.iter().enumerate() {
                let gap = widths.get(column).map_or(0, |width| width.saturating_sub(text.width()));
                line.push_str(&tone.map_or_else(|| text.clone(), |tone| output.paint(tone, text)));
                if column + 1 < row.len() {
                    line.push_str(&" ".repeat(gap + 2));
                }
            }
            line
        };
        self.rows.iter().map(line).chain(self.remarks.iter().cloned()).collect()
    }
}

/// A cell without a tone.
pub(crate) fn cell(text: impl Into<String>) -> (String, Option<Tone>) {
    (text.into(), None)
}

/// A cell with a tone.
pub(crate) fn toned(tone: Tone, text: impl Into<String>) -> (String, Option<Tone>) {
    (text.into(), Some(tone))
}

/// The failure of a node as JSON.
pub(crate) fn failure_json(failure: &redlock_client::Failure) -> Value {
    json!(failure.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colour_codes_do_not_count_as_width() {
        let plain = Printer::new(false, Color::Never);
        let mut table = Table::new(&["node", "state"]);
        table.row(vec![cell("10.0.0.1:6379"), toned(Tone::Good, "up")]);
        assert_eq!(table.lines(plain), ["node           state", "10.0.0.1:6379  up"]);
        let colored = Printer::new(false, Color::Always);
        assert_eq!(table.lines(colored)[1], "10.0.0.1:6379  \u{1b}[32mup\u{1b}[0m");
    }

    #[test]
    fn wide_and_combining_characters_are_aligned() {
        let plain = Printer::new(false, Color::Never);
        let mut table = Table::new(&["node", "state", "label"]);
        table.row(vec![cell("a:1"), cell("held"), cell("x")]);
        table.row(vec![cell("作業:1"), cell("e\u{301}"), cell("y")]);
        let long = "unreachable: a long story that would be wider than all the rest";
        let failure = redlock_client::Failure::new(redlock_client::FailureKind::Down, long);
        table.failed_row("b:2", "down", &failure);
        let lines = table.lines(plain);
        assert_eq!(lines[0], "node    state  label");
        assert_eq!(lines[1], "a:1     held   x");
        assert_eq!(lines[2], "作業:1  e\u{301}      y", "the width on a terminal counts");
        assert_eq!(lines[3], "b:2     down");
        assert!(lines[4].starts_with("b:2: ") && lines[4].ends_with(long), "{lines:?}");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        assert_eq!(tame("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(tame_bytes(b"jobs:7"), "jobs:7");
        assert_eq!(tame_bytes(b"jobs\x1b\xff"), "jobs\\x1b\\xff");
        assert_eq!(tame_bytes("Aufträge".as_bytes()), "Aufträge");
    }
}
