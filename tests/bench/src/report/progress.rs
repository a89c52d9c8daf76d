//! Progress bars.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar, shown only on a terminal.
pub(crate) struct TerminalBar {
    bar: ProgressBar,
}

impl TerminalBar {
    pub(crate) fn of(what: &str, steps: usize) -> Self {
        let bar = ProgressBar::new(steps as u64).with_message(what.to_owned());
        let style = ProgressStyle::with_template("{msg:32!} {wide_bar} {pos}/{len}  {eta} left");
        bar.set_style(style.expect("a valid template"));
        Self { bar }
    }

    pub(crate) fn step(&self) {
        self.bar.inc(1);
    }
}

impl Drop for TerminalBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
