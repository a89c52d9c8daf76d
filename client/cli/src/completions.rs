//! `redlock completions`: for shells.

use crate::args::{Args, Completions};
use crate::exit::{Code, Failure};
use crate::output::Output;
use clap::CommandFactory;

pub(crate) fn main(args: &Completions, output: &Output) -> Result<Code, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "redlock", &mut script);
    output.line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(Code::Success)
}
