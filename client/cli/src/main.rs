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
//! | `survey.rs` | what all nodes say of themselves |
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
mod inspect;
mod man;
mod obtain;
mod output;
mod prometheus;
mod release;
mod run;
mod status;
mod survey;
mod ticket;
mod top;

use args::{Args, Command};
use clap::Parser;
use exit::{Code, Failure};
use output::Output;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    // Not a command of the command line, which help, completions and manual pages are made of: `run` starts it for
    // itself.
    if std::env::args_os().skip(1).eq([run::watchdog::NAME]) {
        return ExitCode::from(run::watchdog::main().number());
    }
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    let output = Output::new(args.common.json, args.common.color);
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
                Output::new(false, args::Color::Auto).failure(&failure);
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
        let failure = Failure::usage(words.join(" "));
        Output::new(true, args::Color::Never).failure(&failure);
    } else {
        let _ = error.print();
    }
    ExitCode::from(Code::Usage.number())
}

fn dispatch(args: Args, output: &Output) -> Result<Code, Failure> {
    let common = args.common;
    match args.command {
        Command::Run(run) => run::main(&common, &run, output),
        Command::Acquire(acquire) => block_on(acquire::main(&common, &acquire, output)),
        Command::Extend(extend) => block_on(extend::main(&common, &extend, output)),
        Command::Release(release) => block_on(release::main(&common, &release, output)),
        Command::Inspect(inspect) => block_on(inspect::main(&common, &inspect, output)),
        Command::Status(status) => block_on(status::main(&common, &status, output)),
        Command::Exporter(exporter) => block_on(exporter::main(&common, &exporter, output)),
        Command::Top(top) => block_on(top::main(&common, &top, output)),
        Command::Bench(bench) => bench::main(&common, &bench, output),
        Command::Doctor => block_on(doctor::main(&common, output)),
        Command::Admit(admit) => block_on(admit::main(&common, &admit, output)),
        Command::Completions(completions) => completions::main(&completions, output),
        Command::Man(man) => man::main(&man, output),
    }
}

/// One thread is enough for a command that mostly waits for the nodes.
fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| Failure::internal(format!("no runtime: {error}")))?.block_on(work)
}
