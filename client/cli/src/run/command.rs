//! The command's processes. They have a process group of their own, which does not outlive this process.

use super::watchdog::Watchdog;
use crate::duration::millis;
use crate::exit::{Code, ExitError};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getppid};
use redlock_client::Guard;
use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::process;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How long to wait for the end of a killed process group.
const GONE_WITHIN: Duration = Duration::from_millis(500);

/// The command to start.
pub(crate) struct ChildSpec<'a> {
    /// The program and its arguments.
    pub(crate) command: &'a [OsString],
    /// The names of the locked resources.
    pub(crate) resources: &'a [String],
    /// The variables that contain the fence.
    pub(crate) fence_variables: &'static [&'static str],
    /// The variables that the command must not get, because they contain a password of the nodes.
    pub(crate) secrets: Vec<String>,
}

/// A started command.
pub(super) struct ChildCommand {
    pid: Pid,
    pub(super) events: mpsc::UnboundedReceiver<ChildEvent>,
}

/// A change of the command's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildEvent {
    /// The command has exited with this status. It is not reaped yet.
    Ended(u8),
    /// A signal killed the command. It is not reaped yet.
    Died(Signal),
    /// A signal stopped the command. It may continue later.
    Stopped(Signal),
}

impl ChildCommand {
    /// Starts the command in a process group of its own.
    pub(super) fn start(
        child: &ChildSpec<'_>,
        guard: &Guard,
        watchdog: &Watchdog,
    ) -> Result<Self, ExitError> {
        let (program, rest) = child
            .command
            .split_first()
            .ok_or_else(|| ExitError::usage("no command given: write it after --"))?;
        let mut command = process::Command::new(program);
        command
            .args(rest)
            // One name on each line.
            .env("REDLOCK_RESOURCE", child.resources.join("\n"))
            .env("REDLOCK_TTL_MS", millis(guard.ttl()).to_string())
            .process_group(0);
        for name in child.fence_variables {
            command.env(name, guard.fence().to_string());
        }
        for name in &child.secrets {
            command.env_remove(name);
        }
        die_with_us(&mut command);
        watchdog.watch(&mut command)?;
        let child = command.spawn().map_err(|error| unstartable(program, &error))?;
        // Process ids of the kernel always fit.
        let pid = Pid::from_raw(
            i32::try_from(child.id())
                .map_err(|_| ExitError::internal("the process id of the command is out of range"))?,
        );
        let (tell, events) = mpsc::unbounded_channel();
        let threads = [watch_for_end as fn(_, _), watch_for_stops];
        for watch in threads {
            let tell = tell.clone();
            let watcher = thread::Builder::new().name("wait".into()).spawn(move || watch(pid, tell));
            if let Err(error) = watcher {
                let _ = killpg(pid, Signal::SIGKILL);
                let _ = waitpid(pid, None);
                return Err(ExitError::internal(format!("cannot start a thread: {error}")));
            }
        }
        Ok(Self { pid, events })
    }

    /// The id of the command's process group.
    pub(super) fn group(&self) -> Pid {
        self.pid
    }

    /// Sends a signal to the whole group. The kernel does not reuse the id of the group until the command is reaped.
    pub(super) fn signal_group(&self, signal: Signal) {
        let _ = killpg(self.pid, signal);
    }

    /// Sends a signal to the command itself.
    pub(super) fn signal(&self, signal: Signal) {
        let _ = nix::sys::signal::kill(self.pid, signal);
    }

    /// Reaps the command, which has ended.
    pub(super) fn reap(&self) {
        let _ = waitpid(self.pid, None);
    }

    /// Kills the rest of the group and waits until it is gone. Reaps the command, which has ended.
    pub(super) async fn end_stragglers(&self) {
        self.signal_group(Signal::SIGKILL);
        self.reap();
        let until = Instant::now() + GONE_WITHIN;
        while Instant::now() < until && killpg(self.pid, None).is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Makes the kernel kill the command when this process ends, even if it is killed. The watchdog kills the whole group
/// then; this covers the case that both are killed.
fn die_with_us(command: &mut process::Command) {
    let parent = Pid::this();
    before_exec(command, move || {
        #[cfg(any(target_os = "linux", target_os = "android"))]
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If this process was killed before the call above, the kernel does not send the signal: do not start then.
        if getppid() == parent { Ok(()) } else { Err(Errno::ESRCH) }
    });
}

/// Runs `action` in the new process between fork and exec. It may only make system calls that are safe there.
#[allow(unsafe_code, reason = "the standard library has no safe function for this")]
pub(super) fn before_exec(
    command: &mut process::Command,
    action: impl Fn() -> Result<(), Errno> + Send + Sync + 'static,
) {
    // SAFETY: all callers only make system calls that are allowed after a fork (prctl and getppid, setsid, write). They
    // neither allocate nor touch a lock that another thread may hold.
    unsafe {
        command.pre_exec(move || Ok(action()?));
    }
}

/// The error for a command that did not start. As in a shell, the code is 127 if the command was not found, and 126 if
/// it cannot be executed.
fn unstartable(program: &OsStr, error: &io::Error) -> ExitError {
    let program = program.to_string_lossy();
    match error.kind() {
        ErrorKind::NotFound => {
            ExitError::new(Code::Given(127), "command_not_found", format!("{program}: command not found"))
        }
        _ => ExitError::new(Code::Given(126), "command_not_executable", format!("{program}: {error}")),
    }
}

/// Reports the end of the command and does not reap it, so that the kernel does not reuse its process id.
fn watch_for_end(pid: Pid, tell: mpsc::UnboundedSender<ChildEvent>) {
    let event = loop {
        match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT) {
            Ok(WaitStatus::Exited(_, status)) => {
                break ChildEvent::Ended(u8::try_from(status & 0xff).unwrap_or(1));
            }
            Ok(WaitStatus::Signaled(_, signal, _)) => break ChildEvent::Died(signal),
            Ok(_) | Err(Errno::EINTR) => {}
            // Does not happen: only this process reaps the command. A wrong status is better than an endless wait.
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
