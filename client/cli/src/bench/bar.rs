//! The progress bar, for people at a terminal. Nothing is drawn for programs and files.
//!
//! The cursor stays in the first column of the bar. So what the terminal prints by itself, such as `^C`, appears on the
//! bar and disappears with it.

use crate::output::{Printer, Tone};
use std::io::{IsTerminal, Write};
use std::time::Duration;

/// The length of the whole bar, in columns.
const WIDTH: usize = 40;
/// The width of a terminal that does not report it.
const USUAL_WIDTH: u16 = 80;

/// The bar on the terminal.
pub(super) struct Bar {
    output: Printer,
    total: Duration,
    is_watched: bool,
    /// How many columns the bar and its text use now.
    drawn: usize,
}

impl Bar {
    pub(super) fn new(total: Duration, output: Printer) -> Self {
        let is_watched = !output.is_json && std::io::stderr().is_terminal();
        Self { output, total, is_watched, drawn: 0 }
    }

    pub(super) fn show(&mut self, elapsed: Duration, cycles: u64) {
        if self.is_watched {
            let width = crossterm::terminal::size().map_or(USUAL_WIDTH, |(columns, _)| columns);
            let (bar, text) = drawing(elapsed, self.total, cycles, usize::from(width));
            let now = bar.chars().count() + text.chars().count();
            let rest = " ".repeat(self.drawn.saturating_sub(now));
            self.drawn = now;
            write(&format!("\r{}{text}{rest}\r", self.output.paint_aside(Tone::Good, &bar)));
        }
    }
}

/// Clears the line.
impl Drop for Bar {
    fn drop(&mut self) {
        if self.drawn > 0 {
            write(&format!("\r{}\r", " ".repeat(self.drawn)));
        }
    }
}

/// Writes to stderr. Ignores errors, because the bar is not essential.
fn write(text: &str) {
    let mut stderr = std::io::stderr().lock();
    let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
}

/// The bar and the text after it. They leave the last column free, because there a terminal may wrap to the next line.
fn drawing(elapsed: Duration, total: Duration, cycles: u64, width: usize) -> (String, String) {
    let room = width.saturating_sub(1);
    let done = WIDTH as u128 * elapsed.min(total).as_nanos() / total.as_nanos().max(1);
    let done = usize::try_from(done).unwrap_or(WIDTH);
    let bar = "█".repeat(done) + &"░".repeat(WIDTH.saturating_sub(done));
    let bar: String = bar.chars().take(room).collect();
    let text = format!(" {cycles} cycles").chars().take(room.saturating_sub(WIDTH)).collect();
    (bar, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64, of_ms: u64, width: usize) -> String {
        let (bar, text) = drawing(Duration::from_millis(ms), Duration::from_millis(of_ms), 12, width);
        bar + &text
    }

    #[test]
    fn the_bar_grows_with_the_time() {
        assert_eq!(at(0, 1000, 80), format!("{} 12 cycles", "░".repeat(40)));
        assert_eq!(at(250, 1000, 80), format!("{}{} 12 cycles", "█".repeat(10), "░".repeat(30)));
        assert_eq!(at(1000, 1000, 80), format!("{} 12 cycles", "█".repeat(40)));
        assert_eq!(at(1001, 1000, 80), at(1000, 1000, 80), "the bar stays full after the end");
        assert_eq!(at(0, 0, 80), at(0, 1000, 80), "a duration of 0");
    }

    #[test]
    fn bar_and_text_are_cut_to_the_width_of_the_terminal() {
        for width in 0..60 {
            let shown = at(500, 1000, width);
            assert!(shown.chars().count() <= width.saturating_sub(1), "{width}: {shown:?}");
            assert!(at(500, 1000, 80).starts_with(&shown), "{width}: {shown:?}");
        }
    }
}
