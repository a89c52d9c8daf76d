//! `redlock completions`: prints completions for a shell.

use crate::args::{Cli, CompletionsArgs};
use crate::exit::{Code, ExitError};
use crate::output::Printer;
use clap::CommandFactory;

pub(crate) fn main(args: &CompletionsArgs, output: &Printer) -> Result<Code, ExitError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "redlock", &mut script);
    output.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Code::Success)
}
