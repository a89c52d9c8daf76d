//! `redlock`: a command-line program for locks on a majority of Redis or Valkey nodes.
//!
//! | file | subject |
//! |---|---|
//! | `args.rs` | options and subcommands |
//! | `config.rs`, `config/` | nodes and settings from options, environment and file |
//! | `duration.rs` | `30s`, `500ms`, `2m` |
//! | `exit.rs` | exit codes and errors |
//! | `output.rs` | text or JSON, with or without colour |
//! | `obtain.rs` | acquires a lock; a signal ends the wait |
//! | `run.rs`, `run/` | runs a command under a lock |
//! | `ls.rs`, `snapshot.rs`, `lock_row.rs` | lists the held locks |
//! | `break_lock.rs` | breaks a lock |
//! | `confirm.rs` | asks for confirmation |
//! | `acquire.rs`, `extend.rs`, `release.rs`, `inspect.rs`, `holder.rs` | locks for scripts |
//! | `group_report.rs` | the state of all nodes |
//! | `status.rs`, `prometheus.rs`, `exporter.rs` | shows the state of the nodes to people and to Prometheus |
//! | `activity.rs` | requests per second, and their history |
//! | `top.rs`, `top/` | shows the held locks, live |
//! | `ui.rs`, `web.rs`, `web/` | shows nodes and locks in the browser; the HTTP server |
//! | `bench.rs`, `bench/` | measures how fast locks are on the user's nodes |
//! | `doctor.rs`, `doctor/` | finds problems in the setup |
//! | `admit.rs` | lets a node vote |
//! | `completions.rs`, `man.rs` | shell completions and manual pages |

mod acquire;
mod activity;
mod admit;
mod args;
mod bench;
mod break_lock;
mod completions;
mod config;
mod confirm;
mod doctor;
mod duration;
mod elect;
mod exit;
mod exporter;
mod extend;
mod group_report;
mod holder;
mod inspect;
mod lock_row;
mod ls;
mod man;
mod obtain;
mod output;
mod prometheus;
mod release;
mod run;
mod snapshot;
mod status;
mod top;
mod ui;
mod web;

use args::{Cli, Subcommand};
use exit::{Code, ExitError};
use output::Printer;
use std::io::ErrorKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    // `run` starts the watchdog. Clap does not know it, so help, completions and manual pages do not show it.
    if std::env::args_os().skip(1).eq([run::watchdog::NAME]) {
        return ExitCode::from(run::watchdog::main().number());
    }
    let args = match Cli::read(std::env::args_os().collect()) {
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

/// Prints help or the version with code 0, or a usage error with code 110.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let code = match error.print() {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                let failure = output::unwritable(&error);
                Printer::new(false, args::Color::Auto).failure(&failure);
                failure.code
            }
            // A closed pipe is no error: the reader has seen enough.
            _ => Code::Success,
        };
        return ExitCode::from(code.number());
    }
    // Clap rejected the options, so look for `--json` in the raw arguments.
    let wants_json = std::env::args_os().take_while(|word| word != "--").any(|word| word == "--json");
    if wants_json {
        let text = error.render().to_string();
        let first = text.split("\n\n").next().unwrap_or_default();
        let words: Vec<&str> = first.trim_start_matches("error: ").split_whitespace().collect();
        let failure = ExitError::usage(words.join(" "));
        Printer::new(true, args::Color::Never).failure(&failure);
    } else {
        let _ = error.print();
    }
    ExitCode::from(Code::Usage.number())
}

fn dispatch(args: Cli, output: &Printer) -> Result<Code, ExitError> {
    let common = args.common;
    let resource = args.command.resource();
    let outcome = match args.command {
        Subcommand::Run(run) => run::main(&common, &run, output),
        Subcommand::Elect(elect) => elect::main(&common, &elect, output),
        Subcommand::Acquire(acquire) => block_on(acquire::main(&common, &acquire, output)),
        Subcommand::Extend(extend) => block_on(extend::main(&common, &extend, output)),
        Subcommand::Release(release) => block_on(release::main(&common, &release, output)),
        Subcommand::Inspect(inspect) => block_on(inspect::main(&common, &inspect, output)),
        Subcommand::Ls(ls) => block_on(ls::main(&common, &ls, output)),
        Subcommand::Break(args) => block_on(break_lock::main(&common, &args, output)),
        Subcommand::Status(status) => block_on(status::main(&common, &status, output)),
        Subcommand::Exporter(exporter) => block_on(exporter::main(&common, &exporter, output)),
        Subcommand::Ui(args) => block_on(ui::main(&common, &args, output)),
        Subcommand::Top(top) => block_on(top::main(&common, &top, output)),
        Subcommand::Bench(bench) => bench::main(&common, &bench, output),
        Subcommand::Doctor => block_on(doctor::main(&common, output)),
        Subcommand::Admit(admit) => block_on(admit::main(&common, &admit, output)),
        Subcommand::Completions(completions) => completions::main(&completions, output),
        Subcommand::Man(man) => man::main(&man, output),
    };
    outcome.map_err(|failure| failure.about(resource))
}

/// Runs a command on one thread: most commands only wait for the nodes.
fn block_on<T>(work: impl Future<Output = Result<T, ExitError>>) -> Result<T, ExitError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime
        .map_err(|error| ExitError::internal(format!("cannot start the async runtime: {error}")))?
        .block_on(work)
}
