//! The command's processes: a process group of its own, which ends with us.

use super::watchdog::Watchdog;
use crate::args::RunArgs;
use crate::duration::millis;
use crate::exit::{Code, ExitError};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};
use redlock_client::Guard;
use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long to look whether the last of a killed group is gone.
const GONE_WITHIN: Duration = Duration::from_millis(500);

/// A command that was started.
pub(super) struct ChildCommand {
    pid: Pid,
    pub(super) events: mpsc::UnboundedReceiver<ChildEvent>,
}

/// What has become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildEvent {
    /// It has ended, with this exit status as a shell has it. Nobody has collected it yet.
    Ended(u8),
    /// It has died of a signal.
    Died(Signal),
    /// It was stopped, and may go on later.
    Stopped(Signal),
}

impl ChildCommand {
    /// Starts the command in a process group of its own.
    pub(super) fn start(args: &RunArgs, guard: &Guard, watchdog: &Watchdog) -> Result<Self, ExitError> {
        let (program, rest) =
            args.command.split_first().ok_or_else(|| ExitError::usage("no command is named"))?;
        let mut command = process::Command::new(program);
        command
            .args(rest)
            .env("REDLOCK_RESOURCE", &args.resource)
            .env("REDLOCK_FENCE", guard.fence().to_string())
            .env("REDLOCK_TTL_MS", millis(guard.ttl()).to_string())
            .process_group(0);
        die_with_us(&mut command);
        watchdog.watch(&mut command)?;
        let child = command.spawn().map_err(|error| unstartable(program, &error))?;
        // Process numbers are positive and small; the kernel gave this one out.
        let pid = Pid::from_raw(
            i32::try_from(child.id()).map_err(|_| ExitError::internal("a process without a number"))?,
        );
        let (tell, events) = mpsc::unbounded_channel();
        let threads = [watch_for_end as fn(_, _), watch_for_stops];
        for watch in threads {
            let tell = tell.clone();
            let watcher = thread::Builder::new().name("wait".into()).spawn(move || watch(pid, tell));
            if let Err(error) = watcher {
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                return Err(ExitError::internal(format!("no thread: {error}")));
            }
        }
        Ok(Self { pid, events })
    }

    /// The number of its process group.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group. As long as the command is not collected, its number is nobody else's.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }

    /// Sends a signal to the command itself.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = nix::sys::signal::kill(self.pid, signal);
    }

    /// Collects the command, which has ended.
    pub(super) fn collect(&self) {
        let _ = waitpid(self.pid, None);
    }

    /// Ends what is left of the group, and waits until it is gone. The command itself has ended and is collected.
    pub(super) async fn end_stragglers(&self) {
        self.signal_group(Signal::SIGKILL);
        self.collect();
        let until = Instant::now() + GONE_WITHIN;
        while Instant::now() < until && killpg(self.pid, None).is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Has the kernel kill the command when this process is gone, even if it was killed itself. The watchdog does the
/// same for the whole group; this is for the case that both are killed.
fn die_with_us(command: &mut process::Command) {
    let parent = Pid::this();
    before_exec(command, move || {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // We may have been killed before the wish was in place; then nobody would fulfil it.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH) }
    });
}

/// Does something in the new process before it becomes the program that it is started for: system calls that are
/// safe between fork and exec, and nothing else.
#[allow(unsafe_code, reason = "the standard library has no safe way to do anything there")]
pub(super) fn before_exec(
    command: &mut process::Command,
    deed: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
) {
    // SAFETY: all callers make a few system calls (prctl and getppid, setsid, write), which may be made after a fork. They
    // neither allocate nor touch a lock that another thread may hold.
    unsafe {
        command.pre_exec(move || Ok(deed()?));
    }
}

/// As shells have it: 127 for a command that is not there, 126 for one that cannot be executed.
fn unstartable(program: &OsStr, error: &io::Error) -> ExitError {
    let program = program.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => {
            ExitError::new(Code::Given(127), "command_not_found", format!("{program}: command not found"))
        }
        _ => ExitError::new(Code::Given(126), "command_not_executable", format!("{program}: {error}")),
    }
}

/// Tells of the end, and leaves the command uncollected: until then its number is its own.
fn watch_for_end(pid: Pid, tell: mpsc::UnboundedSender<ChildEvent>) {
    let event = loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, status)) => {
                break ChildEvent::Ended(u8::try_from(status & 0xff).unwrap_or(1));
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => break ChildEvent::Died(signal),
            Ok(_) | Err(Errno::EINTR) => {}
            // Nobody else collects it, so this cannot be; but to wait for ever would be worse than to be wrong.
            Err(_) => break ChildEvent::Ended(1),
        }
    };
    let _ = tell.send(event);
}

fn watch_for_stops(pid: Pid, tell: mpsc::UnboundedSender<ChildEvent>) {
    loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WSTOPPED) {
            Ok(WaitStatus::Stopped(_, signal)) => {
                if tell.send(ChildEvent::Stopped(signal)).is_err() {
                    return;
                }
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return,
        }
    }
}
