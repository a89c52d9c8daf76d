//! Who ends the command if this process cannot: because it was killed, or stopped, or does not get on.
//!
//! The watchdog is this program once more, in a session of its own. It is told over a socket which process group to
//! watch and until when it may live, again and again. If the socket closes or the time comes, it kills the group.

use super::command::before_exec;
use crate::exit::{Code, ExitError};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{Pid, setsid};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often to look at the clock: the one that is slept on stands still while the machine does.
const LOOK: Duration = Duration::from_millis(250);

/// What this program is told when it is to be a watchdog.
pub(crate) const NAME: &str = "__watchdog";

/// The word that ends the watch.
const DONE: &str = "done";

/// A watchdog, as the process that it watches sees it.
pub(super) struct Watchdog {
    line: UnixStream,
    told: Duration,
}

impl Watchdog {
    pub(super) fn start() -> Result<Self, ExitError> {
        let failed =
            |error: std::io::Error| ExitError::internal(format!("the watchdog did not start: {error}"));
        let (line, far_end) = UnixStream::pair().map_err(failed)?;
        // A watchdog that does not listen must not hold us up.
        line.set_nonblocking(true).map_err(failed)?;
        let mut command = Command::new(our_program().map_err(failed)?);
        command.arg(NAME).env_clear();
        command.stdin(Stdio::from(std::os::fd::OwnedFd::from(far_end)));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // Away from the terminal and from all signals that are sent to our group, before anything else: a Ctrl-Z that
        // stops a process on its way to exec would leave us waiting for it.
        before_exec(&mut command, || setsid().map(|_| ()));
        command.spawn().map_err(failed)?;
        Ok(Self { line, told: Duration::ZERO })
    }

    /// Has a command tell its process group by itself, before it becomes the program that it is started for: so it never
    /// runs unwatched.
    pub(super) fn watch(&self, command: &mut Command) -> Result<(), ExitError> {
        let line = self.line.try_clone();
        let line =
            line.map_err(|error| ExitError::internal(format!("the watchdog cannot be reached: {error}")))?;
        before_exec(command, move || {
            // On the stack: there is no allocating here.
            let mut word = [0_u8; 32];
            let mut rest = word.as_mut_slice();
            let written = writeln!(rest, "group {}", Pid::this()).map(|()| rest.len());
            let unused = written.map_err(|_| Errno::EOVERFLOW)?;
            let used = word.get(..word.len() - unused).unwrap_or_default();
            (&line).write_all(used).map_err(|_| Errno::EPIPE)
        });
        Ok(())
    }

    /// How long the group may live, from now on.
    pub(super) fn allow(&mut self, left: Duration) {
        let until = now() + left;
        // Not worth a word while it is the same moment, seen twice.
        if until.abs_diff(self.told) > Duration::from_millis(1) {
            self.told = until;
            let _ = writeln!(self.line, "until {}", until.as_nanos());
        }
    }

    /// Nothing is left to be watched.
    pub(super) fn dismiss(mut self) {
        let _ = writeln!(self.line, "{DONE}");
    }
}

/// This program, even if its file was replaced meanwhile.
fn our_program() -> std::io::Result<std::path::PathBuf> {
    let running = std::path::Path::new("/proc/self/exe");
    if running.exists() { Ok(running.to_owned()) } else { std::env::current_exe() }
}

/// The time since the machine was started, sleep included.
fn now() -> Duration {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let clock = ClockId::CLOCK_BOOTTIME;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let clock = ClockId::CLOCK_MONOTONIC;
    clock_gettime(clock).map(Duration::from).unwrap_or_default()
}

/// What the watchdog was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchdogMessage {
    Group(Pid),
    Until(Duration),
    Done,
}

fn word(line: &str) -> Option<WatchdogMessage> {
    if line == DONE {
        return Some(WatchdogMessage::Done);
    }
    match line.split_once(' ')? {
        // The groups 0 and 1 would be our own and everybody's.
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

/// The watchdog itself.
pub(crate) fn main() -> Code {
    let (tell, words) = channel();
    let listener = thread::Builder::new().spawn(move || {
        for line in BufReader::new(std::io::stdin()).lines() {
            let Some(word) = line.ok().and_then(|line| word(&line)) else { return };
            if tell.send(word).is_err() {
                return;
            }
        }
    });
    if listener.is_ok()
        && let Some(group) = guard(&words, now)
    {
        let _ = killpg(group, Signal::SIGKILL);
    }
    Code::Success
}

/// Listens until nothing is left to be watched, or until a group has to be killed: that one.
fn guard(words: &Receiver<WatchdogMessage>, now: impl Fn() -> Duration) -> Option<Pid> {
    let mut group = None;
    let mut until = None;
    loop {
        let due = until.filter(|_| group.is_some());
        let left = due.map_or(LOOK, |until: Duration| until.saturating_sub(now()));
        match words.recv_timeout(left.min(LOOK)) {
            Ok(WatchdogMessage::Group(told)) => group = Some(told),
            Ok(WatchdogMessage::Until(told)) => until = Some(told),
            Ok(WatchdogMessage::Done) => return None,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return group,
        }
        // A watchdog that comes late may hear of the time before it hears of the group.
        if group.is_some() && until.is_some_and(|until| now() >= until) {
            return group;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: Pid = Pid::from_raw(4711);

    /// What becomes of a group after these words, at this time.
    fn told(words: &[&str], now: u64) -> Option<Pid> {
        let (tell, heard) = channel();
        words.iter().filter_map(|line| word(line)).for_each(|word| tell.send(word).expect("a listener"));
        drop(tell);
        guard(&heard, || Duration::from_nanos(now))
    }

    #[test]
    fn whoever_is_gone_leaves_no_command_behind() {
        assert_eq!(told(&["group 4711"], 0), Some(GROUP));
        assert_eq!(told(&["group 4711", "until 50"], 10), Some(GROUP));
        assert_eq!(told(&["group 4711", "until 50", "done"], 10), None);
        assert_eq!(told(&["done"], 0), None);
        assert_eq!(told(&[], 0), None, "nothing was started yet");
    }

    #[test]
    fn the_time_comes_even_if_somebody_is_there() {
        let (tell, heard) = channel();
        for word in [WatchdogMessage::Group(GROUP), WatchdogMessage::Until(Duration::from_nanos(50))] {
            tell.send(word).expect("a listener");
        }
        assert_eq!(guard(&heard, || Duration::from_nanos(50)), Some(GROUP));
        drop(tell);
    }

    #[test]
    fn a_watchdog_that_comes_late_hears_all() {
        let (tell, heard) = channel();
        for word in [WatchdogMessage::Until(Duration::from_nanos(50)), WatchdogMessage::Group(GROUP)] {
            tell.send(word).expect("a listener");
        }
        assert_eq!(guard(&heard, || Duration::from_nanos(99)), Some(GROUP));
        drop(tell);
    }

    #[test]
    fn nobody_elses_group_is_ever_meant() {
        for line in ["group 0", "group 1", "group -5", "group x", "until", "gruop 5", ""] {
            assert_eq!(word(line), None, "{line}");
        }
    }
}
