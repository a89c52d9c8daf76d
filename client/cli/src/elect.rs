//! `redlock elect`: runs a command while this candidate leads, and again after a lost term.

use crate::args::{CommonArgs, ElectArgs, WaitLimit};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::obtain::{Obtained, Wanted, obtain, settle};
use crate::output::{Printer, tame};
use crate::run::signals::Interrupts;
use crate::run::{ChildSpec, Deadline, Ending, run_locked};

pub(crate) fn main(common: &CommonArgs, args: &ElectArgs, output: &Printer) -> Result<Code, ExitError> {
    // On the main thread only: the kernel kills the command when the thread that started it ends.
    crate::block_on(elect(common, args, output))
}

async fn elect(common: &CommonArgs, args: &ElectArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ttl = config.ttl(args.ttl);
    let deadline = Deadline::new(ttl, args.kill_after).map_err(ExitError::usage)?;
    let locks = config.locker(args.candidate.as_deref(), WaitLimit::Forever)?;
    let resources = std::slice::from_ref(&args.name);
    let child = ChildSpec {
        command: &args.command,
        resources,
        fence_variables: &["REDLOCK_FENCE", "REDLOCK_TERM"],
        secrets: config.secret_variables(),
    };
    let name = tame(&args.name);
    // One for all terms: a signal between two terms must not get lost.
    let mut interrupts = Interrupts::listen()?;
    loop {
        let wanted = Wanted::Exclusive(resources);
        let guard = match obtain(&locks, wanted, ttl, WaitLimit::Forever, &mut interrupts).await? {
            Obtained::Lock(guard) => guard,
            Obtained::Interrupted(code) => return Ok(code),
        };
        let term = guard.fence();
        output.note(&format!("this candidate leads {name}, term {term}"));
        let outcome = run_locked(guard, &child, deadline, &mut interrupts, output).await;
        settle(&locks).await;
        let why = match outcome? {
            // The command had ended by itself before it could be stopped.
            Ending::FoundLost { status: Some(status), .. } => return Ok(Code::Given(status)),
            Ending::Lost(why) | Ending::FoundLost { why, .. } => why,
            ending => return Ok(ending.code()),
        };
        // The signal was for the command of the lost term, and it ends this program, too.
        if let Some(signal) = interrupts.ending() {
            return Ok(Code::Given(signal.exit_code()));
        }
        output.note(&format!("term {term} of {name} is over ({why}): waiting for the next one"));
    }
}
