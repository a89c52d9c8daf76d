//! `redlock`: locks over a majority of Redis or Valkey nodes, from the command line.
//!
//! | file | subject |
//! |---|---|
//! | `args.rs` | what can be said on the command line |
//! | `config.rs`, `config/` | nodes and settings: options, environment, file |
//! | `duration.rs` | `30s`, `500ms`, `2m` |
//! | `exit.rs` | exit codes, and what leads to them |
//! | `output.rs` | text or JSON, with or without colour |
//! | `obtain.rs` | taking a lock, until a signal says otherwise |
//! | `run.rs`, `run/` | a command under a lock |
//! | `acquire.rs`, `extend.rs`, `release.rs`, `inspect.rs`, `ticket.rs` | locks for scripts |
//! | `group_report.rs` | what all nodes say of themselves |
//! | `status.rs`, `prometheus.rs`, `exporter.rs` | a look at the nodes, for people and for Prometheus |
//! | `top.rs`, `top/` | the locks that are held, live |
//! | `bench.rs` | how fast the user's own nodes are |
//! | `doctor.rs`, `doctor/` | what would hurt |
//! | `admit.rs` | letting a node vote |
//! | `completions.rs`, `man.rs` | for shells and for `man` |

mod acquire;
mod admit;
mod args;
mod bench;
mod completions;
mod config;
mod doctor;
mod duration;
mod exit;
mod exporter;
mod extend;
mod group_report;
mod inspect;
mod man;
mod obtain;
mod output;
mod prometheus;
mod release;
mod run;
mod status;
mod ticket;
mod top;

use args::{Cli, Subcommand};
use clap::Parser;
use exit::{Code, ExitError};
use output::Printer;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Not a command of the command line, which help, completions and manual pages are made of: `run` starts it for
    // itself.
    if std::env::args_os().skip(1).eq([run::watchdog::NAME]) {
        return ExitCode::from(run::watchdog::main().number());
    }
    let args = match Cli::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let output = Printer::new(args.common.json, args.common.color);
    let code = dispatch(args, &output).unwrap_or_else(|failure| {
        output.failure(&failure);
        failure.code
    });
    ExitCode::from(code.number())
}

/// Help and the version are what was asked for; all else is a mistake of the caller.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let code = match error.print() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                let failure = output::unwritable(&error);
                Printer::new(false, args::Color::Auto).failure(&failure);
                failure.code
            }
            // A reader that has gone away has seen enough.
            _ => Code::Success,
        };
        return ExitCode::from(code.number());
    }
    // The options could not be read, but this one can be seen.
    let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if wants_json {
        let text = error.render().to_string();
        let said = text.split("\n\n").next().unwrap_or_default();
        let words: Vec<&str> = said.trim_start_matches("error: ").split_whitespace().collect();
        let failure = ExitError::usage(words.join(" "));
        Printer::new(true, args::Color::Never).failure(&failure);
    } else {
        let _ = error.print();
    }
    ExitCode::from(Code::Usage.number())
}

fn dispatch(args: Cli, output: &Printer) -> Result<Code, ExitError> {
    let common = args.common;
    match args.command {
        Subcommand::Run(run) => run::main(&common, &run, output),
        Subcommand::Acquire(acquire) => block_on(acquire::main(&common, &acquire, output)),
        Subcommand::Extend(extend) => block_on(extend::main(&common, &extend, output)),
        Subcommand::Release(release) => block_on(release::main(&common, &release, output)),
        Subcommand::Inspect(inspect) => block_on(inspect::main(&common, &inspect, output)),
        Subcommand::Status(status) => block_on(status::main(&common, &status, output)),
        Subcommand::Exporter(exporter) => block_on(exporter::main(&common, &exporter, output)),
        Subcommand::Top(top) => block_on(top::main(&common, &top, output)),
        Subcommand::Bench(bench) => bench::main(&common, &bench, output),
        Subcommand::Doctor => block_on(doctor::main(&common, output)),
        Subcommand::Admit(admit) => block_on(admit::main(&common, &admit, output)),
        Subcommand::Completions(completions) => completions::main(&completions, output),
        Subcommand::Man(man) => man::main(&man, output),
    }
}

/// One thread is enough for a command that mostly waits for the nodes.
fn block_on<T>(work: impl Future<Output = Result<T, ExitError>>) -> Result<T, ExitError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| ExitError::internal(format!("no runtime: {error}")))?.block_on(work)
}
