//! Asks the operator for confirmation on the terminal.

use crate::exit::{Code, ExitError};
use crate::output::Printer;
use std::io::{BufRead, IsTerminal, Write};

/// Asks a question that only `yes` confirms. Returns an error without a terminal or with `--json`: `command`
/// then needs `--yes`. `reason` is the machine-readable error code for any answer but `yes`.
pub(crate) fn confirm(
    question: &str,
    command: &str,
    reason: &'static str,
    output: Printer,
) -> Result<(), ExitError> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if output.is_json || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(ExitError::usage(format!(
            "nothing was done: without a terminal, and with --json, {command} needs --yes"
        )));
    }
    let _ = write!(stderr, "{question}: ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    Err(ExitError::new(Code::Usage, reason, "nothing was done: the answer was not yes"))
}
