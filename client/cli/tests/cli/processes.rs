//! Finds processes and their state.

use redlock_tests::{SOON, eventually};
use std::fs;
use std::path::Path;

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGUSR1: i32 = 10;
pub(crate) const SIGUSR2: i32 = 12;
pub(crate) const SIGTERM: i32 = 15;
pub(crate) const SIGCONT: i32 = 18;
pub(crate) const SIGSTOP: i32 = 19;
pub(crate) const SIGWINCH: i32 = 28;

/// The state letter of a process, and its parent; `None` if it is gone or a zombie.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any characters. It ends at the last parenthesis.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    let state = words.next()?.chars().next()?;
    let parent = words.next()?.parse().ok()?;
    (!matches!(state, 'Z' | 'X')).then_some((state, parent))
}

pub(crate) fn is_alive(pid: u32) -> bool {
    stat(pid).is_some()
}

pub(crate) fn is_stopped(pid: u32) -> bool {
    stat(pid).is_some_and(|(state, _)| state == 'T')
}

/// The child processes of a process.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|child| stat(*child).is_some_and(|(_, parent)| parent == pid)).collect()
}

/// The children of a `redlock run`: the command, and the watchdog.
pub(crate) fn command_and_watchdog(redlock: u32) -> (Vec<u32>, Vec<u32>) {
    let is_watchdog = |pid: &u32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).contains("__watchdog")
    };
    let (watchdogs, commands) = children(redlock).into_iter().partition(is_watchdog);
    (commands, watchdogs)
}

pub(crate) fn until_gone(pids: &[u32]) {
    eventually("the processes are gone", SOON, || (!pids.iter().any(|pid| is_alive(*pid))).then_some(()));
}

/// Waits until a file has at least `count` lines, and returns all its lines.
pub(crate) fn until_lines(path: &Path, count: usize) -> Vec<String> {
    eventually("the file has been written", SOON, || {
        let text = fs::read_to_string(path).ok()?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// Waits until a script has written at least `count` process ids to a file, one in each line, and returns them.
pub(crate) fn until_pids(path: &Path, count: usize) -> Vec<u32> {
    until_lines(path, count).iter().map(|line| line.trim().parse().expect("a process id")).collect()
}

/// The uptime of the machine in hundredths of a second, from `/proc/uptime`, which scripts read, too.
pub(crate) fn uptime() -> u64 {
    hundredths(&fs::read_to_string("/proc/uptime").expect("/proc/uptime"))
}

/// The first number of a line of `/proc/uptime`, in hundredths of a second.
pub(crate) fn hundredths(line: &str) -> u64 {
    let number = line.split_whitespace().next().expect("a number");
    number.replace('.', "").parse().expect("hundredths of a second")
}
