//! `redlock run`: a command under a lock.
//!
//! | file | subject |
//! |---|---|
//! | `deadline.rs` | when a command must be told to end, and when it must be ended |
//! | `command.rs` | the command's processes |
//! | `signals.rs` | signals that are passed on |
//! | `terminal.rs` | whose turn it is at the terminal |
//! | `watchdog.rs` | who ends the command if this process cannot |
//! | `supervisor.rs` | all of it together |

mod command;
mod deadline;
pub(crate) mod signals;
mod supervisor;
mod terminal;
pub(crate) mod watchdog;

use crate::args::{CommonArgs, RunArgs};
use crate::config::{Config, FOREVER};
use crate::exit::{Code, ExitError};
use crate::obtain::{Obtained, obtain};
use crate::output::Printer;
use command::ChildCommand;
use deadline::Deadline;
use redlock_client::Guard;
use signals::Interrupts;
use supervisor::{Ending, Supervisor};
use watchdog::Watchdog;

pub(crate) fn main(common: &CommonArgs, args: &RunArgs, output: &Printer) -> Result<Code, ExitError> {
    // On this thread alone: the kernel kills the command when the thread that started it is gone.
    crate::block_on(run(common, args, output))
}

async fn run(common: &CommonArgs, args: &RunArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ttl = config.ttl(args.ttl);
    let deadline = Deadline::new(ttl, args.kill_after).map_err(ExitError::usage)?;
    let locks = config.locker(args.label.as_deref(), args.wait)?;
    let mut interrupts = Interrupts::listen()?;
    let obtained = obtain(&locks, &args.resource, ttl, args.wait, &mut interrupts).await;
    let guard = match obtained.map_err(|failure| failure.with_conflict_code(args.conflict_exit_code))? {
        Obtained::Lock(guard) => guard,
        Obtained::Interrupted(code) => return Ok(code),
    };
    let outcome = guarded(guard, args, deadline, interrupts, output).await;
    // Nodes that were slow to free it are given their time.
    locks.flush().await;
    outcome
}

/// Starts the command, watched from its first moment on.
fn start(
    guard: &mut Guard,
    args: &RunArgs,
    deadline: Deadline,
) -> Result<(ChildCommand, Watchdog), ExitError> {
    let mut watchdog = Watchdog::start()?;
    guard.keep_alive(FOREVER)?;
    watchdog.allow(deadline.last_moment(guard.remaining()));
    match ChildCommand::start(args, guard, &watchdog) {
        Ok(command) => Ok((command, watchdog)),
        Err(failure) => {
            watchdog.dismiss();
            Err(failure)
        }
    }
}

/// Runs the command under a lock that is held, and frees it whatever happens.
async fn guarded(
    mut guard: Guard,
    args: &RunArgs,
    deadline: Deadline,
    mut interrupts: Interrupts,
    output: &Printer,
) -> Result<Code, ExitError> {
    // Before the command runs: it may tell somebody at once that it is there.
    let started = interrupts.listen_to_all().and_then(|()| start(&mut guard, args, deadline));
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
    let fence = guard.fence();
    guard.release().await;
    match ending {
        Ending::Status(code) => Ok(Code::Given(code)),
        Ending::Interrupted => {
            signals::die_of_interrupt();
            Ok(Code::Given(130))
        }
        Ending::Lost(why) => {
            let resource = &args.resource;
            Err(ExitError::lost(format!(
                "{resource} is no longer held ({why}, fence {fence}); the command was stopped"
            )))
        }
        Ending::FoundLost(why) => {
            let resource = &args.resource;
            Err(ExitError::lost(format!(
                "{resource} was no longer held when the command ended ({why}, fence {fence})"
            )))
        }
    }
}
