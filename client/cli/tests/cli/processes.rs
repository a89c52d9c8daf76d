//! Whether processes are there, and what they do.

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

/// The state letter of a process, and its parent; `None` if it is gone, or only waits to be collected.
fn stat(pid: u32) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may have anything in it, and ends at the last parenthesis.
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

/// The processes whose parent this is.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").expect("a list of processes").flatten();
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    numbers.filter(|child| stat(*child).is_some_and(|(_, parent)| parent == pid)).collect()
}

/// The child of a `redlock run` that is not its watchdog, and the watchdog.
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

/// Waits until a file has so many lines at least, and returns them.
pub(crate) fn until_lines(path: &Path, count: usize) -> Vec<String> {
    eventually("the file has been written", SOON, || {
        let text = fs::read_to_string(path).ok()?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let lines: Vec<String> = whole.lines().map(str::to_owned).collect();
        (lines.len() >= count).then_some(lines)
    })
}

/// The numbers of processes that a script has written to a file, one a line.
pub(crate) fn until_pids(path: &Path, count: usize) -> Vec<u32> {
    until_lines(path, count).iter().map(|line| line.trim().parse().expect("a number of a process")).collect()
}

/// How long the machine has been up, in hundredths of a second, as `/proc/uptime` tells it to scripts as well.
pub(crate) fn uptime() -> u64 {
    hundredths(&fs::read_to_string("/proc/uptime").expect("an uptime"))
}

/// The first number of a line of `/proc/uptime`.
pub(crate) fn hundredths(line: &str) -> u64 {
    let number = line.split_whitespace().next().expect("a number");
    number.replace('.', "").parse().expect("hundredths of a second")
}
