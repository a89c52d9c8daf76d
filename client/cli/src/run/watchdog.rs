//! The watchdog kills the command if this process cannot: because it was killed or stopped, or makes no progress.
//!
//! The watchdog is a second process of this program, in a session of its own. This process sends it over a socket which
//! process group to watch and until when the group may run, and keeps that time up to date. If the socket closes or the
//! time comes, the watchdog kills the group.

use super::command::before_exec;
use crate::exit::{Code, ExitError};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, setsid};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often to check the clock. A timer is late if the machine was suspended.
const LOOK: Duration = Duration::from_millis(250);

/// The argument that makes this program a watchdog.
pub(crate) const NAME: &str = "__watchdog";

/// The message that ends the watch.
const DONE: &str = "done";

/// The watchdog, from the side of `redlock run`.
pub(super) struct Watchdog {
    line: UnixStream,
    process: Child,
    sent: Duration,
}

impl Watchdog {
    pub(super) fn start() -> Result<Self, ExitError> {
        let failed =
            |error: std::io::Error| ExitError::internal(format!("the watchdog did not start: {error}"));
        let (line, far_end) = UnixStream::pair().map_err(failed)?;
        // A watchdog that does not read must not block us.
        line.set_nonblocking(true).map_err(failed)?;
        let mut command = Command::new(our_program().map_err(failed)?);
        command.arg(NAME).env_clear();
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(far_end)));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // A session of its own keeps the terminal and the signals of our group away. It must come before exec: if a
        // Ctrl-Z stopped the process before its exec, we would wait for it.
        before_exec(&mut command, || setsid().map(|_| ()));
        let process = command.spawn().map_err(failed)?;
        Ok(Self { line, process, sent: Duration::ZERO })
    }

    /// Makes the command report its process group to the watchdog before its exec, so that it never runs unwatched.
    pub(super) fn watch(&self, command: &mut Command) -> Result<(), ExitError> {
        let line = self.line.try_clone();
        let line =
            line.map_err(|error| ExitError::internal(format!("cannot reach the watchdog: {error}")))?;
        before_exec(command, move || {
            // On the stack: allocating is not allowed here.
            let mut word = [0_u8; 32];
            let mut rest = word.as_mut_slice();
            let written = writeln!(rest, "group {}", Pid::this()).map(|()| rest.len());
            let unused = written.map_err(|_| Errno::EOVERFLOW)?;
            let used = word.get(..word.len() - unused).unwrap_or_default();
            (&line).write_all(used).map_err(|_| Errno::EPIPE)
        });
        Ok(())
    }

    /// Sets how long the group may still run.
    pub(super) fn allow(&mut self, left: Duration) {
        let until = now() + left;
        // Send nothing if the end is still the same, up to rounding.
        if until.abs_diff(self.sent) > Duration::from_millis(1) {
            self.sent = until;
            let _ = writeln!(self.line, "until {}", until.as_nanos());
        }
    }

    /// Ends the watch, because the command has ended.
    pub(super) fn dismiss(mut self) {
        let _ = writeln!(self.line, "{DONE}");
        let mut process = self.process;
        // A process that runs one command after the other must not collect dead watchdogs. Without the thread, this one
        // stays until this process ends.
        let _ = thread::Builder::new().spawn(move || process.wait());
    }
}

/// The path of this program, even if its file was replaced meanwhile.
fn our_program() -> std::io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// The time since the machine started; on Linux with the time that it was suspended.
fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// A message to the watchdog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchdogMessage {
    Group(Pid),
    Until(Duration),
    Done,
}

fn parse(line: &str) -> Option<WatchdogMessage> {
    if line == DONE {
        return Some(WatchdogMessage::Done);
    }
    match line.split_once(' ')? {
        // `killpg` with 0 would mean our own group, and 1 is the group of init.
        ("group", number) => number
            .parse()
            .ok()
            .filter(|group| *group > 1)
            .map(|group| WatchdogMessage::Group(Pid::from_raw(group))),
        ("until", number) => {
            number.parse().ok().map(|until| WatchdogMessage::Until(Duration::from_nanos(until)))
        }
        _ => None,
    }
}

/// The main function of the watchdog process.
pub(crate) fn main() -> Code {
    let (sender, messages) = channel();
    let listener = thread::Builder::new().spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines() {
            let Some(message) = line.ok().and_then(|line| parse(&line)) else { return };
            if sender.send(message).is_err() {
                return;
            }
        }
    });
    if listener.is_ok()
        && let Some(group) = guard(&messages, now)
    {
        let _ = killpg(group, Signal::SIGKILL);
    }
    Code::Success
}

/// Receives messages until the watch ends or a group must be killed. Returns that group.
fn guard(messages: &Receiver<WatchdogMessage>, now: impl Fn() -> Duration) -> Option<Pid> {
    let mut group = None;
    let mut until = None;
    loop {
        let due = until.filter(|_| group.is_some());
        let left = due.map_or(LOOK, |until: Duration| until.saturating_sub(now()));
        match messages.recv_timeout(left.min(LOOK)) {
            Ok(WatchdogMessage::Group(new)) => group = Some(new),
            Ok(WatchdogMessage::Until(new)) => until = Some(new),
            Ok(WatchdogMessage::Done) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return group,
        }
        // A watchdog that starts late may receive the time before the group.
        if group.is_some() && until.is_some_and(|until| now() >= until) {
            return group;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Pid = Pid::from_raw(4711);

    /// The group that the watchdog kills after these messages, at this time in nanoseconds.
    fn killed(lines: &[&str], now: u64) -> Option<Pid> {
        let (sender, messages) = channel();
        lines
            .iter()
            .filter_map(|line| parse(line))
            .for_each(|message| sender.send(message).expect("a receiver"));
        drop(sender);
        guard(&messages, || Duration::from_nanos(now))
    }

    #[test]
    fn a_closed_socket_kills_the_group_unless_the_watch_ended() {
        assert_eq!(killed(&["group 4711"], 0), Some(GROUP));
        assert_eq!(killed(&["group 4711", "until 50"], 10), Some(GROUP));
        assert_eq!(killed(&["group 4711", "until 50", "done"], 10), None);
        assert_eq!(killed(&["done"], 0), None);
        assert_eq!(killed(&[], 0), None, "no command has started yet");
    }

    #[test]
    fn the_group_is_killed_at_its_time_although_the_socket_is_open() {
        let (sender, messages) = channel();
        for message in [WatchdogMessage::Group(GROUP), WatchdogMessage::Until(Duration::from_nanos(50))] {
            sender.send(message).expect("a receiver");
        }
        assert_eq!(guard(&messages, || Duration::from_nanos(50)), Some(GROUP));
        drop(sender);
    }

    #[test]
    fn the_time_may_arrive_before_the_group() {
        let (sender, messages) = channel();
        for message in [WatchdogMessage::Until(Duration::from_nanos(50)), WatchdogMessage::Group(GROUP)] {
            sender.send(message).expect("a receiver");
        }
        assert_eq!(guard(&messages, || Duration::from_nanos(99)), Some(GROUP));
        drop(sender);
    }

    #[test]
    fn malformed_messages_and_groups_0_and_1_are_rejected() {
        for line in ["group 0", "group 1", "group -5", "group x", "until", "gruop 5", ""] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
