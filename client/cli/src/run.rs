//! `redlock run`: runs a command while holding a lock.
//!
//! | file | subject |
//! |---|---|
//! | `deadline.rs` | when the command gets SIGTERM and SIGKILL |
//! | `command.rs` | the command's processes |
//! | `signals.rs` | signals that this process passes on to the command |
//! | `terminal.rs` | which process group is in the foreground of the terminal |
//! | `watchdog.rs` | the process that kills the command if this process cannot |
//! | `supervisor.rs` | the main loop, which connects these parts |

mod command;
mod deadline;
pub(crate) mod signals;
mod supervisor;
mod terminal;
pub(crate) mod watchdog;

use crate::args::{CommonArgs, RunArgs};
use crate::config::{Config, FOREVER};
use crate::exit::{Code, ExitError};
use crate::obtain::{Obtained, Wanted, obtain, settle};
use crate::output::{Printer, tame};
use command::ChildCommand;
pub(crate) use command::ChildSpec;
pub(crate) use deadline::Deadline;
use redlock_client::Guard;
use signals::Interrupts;
pub(crate) use supervisor::Ending;
use supervisor::Supervisor;
use watchdog::Watchdog;

pub(crate) fn main(common: &CommonArgs, args: &RunArgs, output: &Printer) -> Result<Code, ExitError> {
    // On the main thread only: the kernel kills the command when the thread that started it ends.
    crate::block_on(run(common, args, output))
}

async fn run(common: &CommonArgs, args: &RunArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ttl = config.ttl(args.ttl);
    let wanted = Wanted::new(&args.resources, args.shared)?;
    let deadline = Deadline::new(ttl, args.kill_after).map_err(ExitError::usage)?;
    let locks = config.locker(args.label.as_deref(), args.wait)?;
    let mut interrupts = Interrupts::listen()?;
    let obtained = obtain(&locks, wanted, ttl, args.wait, &mut interrupts).await;
    let guard = match obtained.map_err(|failure| failure.with_conflict_code(args.conflict_exit_code))? {
        Obtained::Lock(guard) => guard,
        Obtained::Interrupted(code) => return Ok(code),
    };
    let child = ChildSpec {
        command: &args.command,
        resources: &args.resources,
        fence_variables: &["REDLOCK_FENCE"],
        secrets: config.secret_variables(),
    };
    let fence = guard.fence();
    let outcome = run_locked(guard, &child, deadline, &mut interrupts, output).await;
    settle(&locks).await;
    let names = tame(&args.resources.join(", "));
    match outcome? {
        Ending::Lost(why) => Err(ExitError::lost(format!(
            "{names} is no longer held ({why}, fence {fence}); the command was stopped"
        ))),
        Ending::FoundLost { why, .. } => Err(ExitError::lost(format!(
            "{names} was no longer held when the command ended ({why}, fence {fence})"
        ))),
        ending => Ok(ending.code()),
    }
}

/// Starts the command. The watchdog watches it from the start.
fn start(
    guard: &mut Guard,
    child: &ChildSpec<'_>,
    deadline: Deadline,
) -> Result<(ChildCommand, Watchdog), ExitError> {
    let mut watchdog = Watchdog::start()?;
    guard.keep_alive(FOREVER)?;
    watchdog.allow(deadline.last_moment(guard.remaining()));
    match ChildCommand::start(child, guard, &watchdog) {
        Ok(command) => Ok((command, watchdog)),
        Err(failure) => {
            watchdog.dismiss();
            Err(failure)
        }
    }
}

/// Runs the command under the held lock, and releases the lock in every case.
pub(crate) async fn run_locked(
    mut guard: Guard,
    child: &ChildSpec<'_>,
    deadline: Deadline,
    interrupts: &mut Interrupts,
    output: &Printer,
) -> Result<Ending, ExitError> {
    // Listen before the command runs: as soon as it runs, another process may send signals for it.
    let started = interrupts.listen_to_all().and_then(|()| start(&mut guard, child, deadline));
    let ending = match started {
        Ok((command, watchdog)) => {
            let supervisor = Supervisor::new(command, watchdog, deadline, interrupts, *output);
            supervisor.watch(&guard).await
        }
        Err(failure) => {
            guard.release().await;
            return Err(failure);
        }
    };
    guard.release().await;
    Ok(ending)
}
