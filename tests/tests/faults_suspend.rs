//! A client's machine that is suspended while the client holds a lock: time passes on all other machines.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_client::LockManager;
use redlock_tests::{FakeClock, Fleet, SOON, eventually, skip};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than the sleeper's lock lasts.
const ASLEEP: Duration = Duration::from_secs(700);

/// A process that keeps a time namespace alive.
struct Sleeper(Child);

impl Sleeper {
    /// `None` if this machine has no time namespaces, or the test may not create one.
    fn start() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        // The namespace applies to the children of the process that creates it.
        unshare.args([
            "--time",
            "--boottime",
            &ASLEEP.as_secs().to_string(),
            "--fork",
            "--kill-child",
            "cat",
        ]);
        unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut keeper = Self(unshare.spawn().ok()?);
        keeper.0.stdin.as_mut()?.write_all(b".\n").ok()?;
        let mut line = String::new();
        BufReader::new(keeper.0.stdout.as_mut()?).read_line(&mut line).ok()?;
        (line == ".\n").then_some(keeper)
    }

    fn namespace(&self) -> String {
        let pid = self.0.id();
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        format!("/proc/{}/ns/time", children.expect("the kernel lists the children of a process").trim())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // `cat` ends at the end of its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The next line of a process's output; empty once the process has ended.
fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("the process can be read from");
    line.trim_end().to_owned()
}

#[test]
fn a_holder_whose_machine_was_suspended_knows_that_its_lock_is_over() {
    let Some(keeper) = Sleeper::start() else {
        return skip("the test cannot create a time namespace (needs root)");
    };
    let clock = FakeClock::new();
    clock.freeze_module();
    let fleet = Fleet::start_with(5, |_, node| node.clock(&clock));
    let mut sleeper = Command::new(env!("CARGO_BIN_EXE_sleeper"))
        .arg(keeper.namespace())
        .args(fleet.urls())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the sleeper can be started");
    let mut says = BufReader::new(sleeper.stdout.take().expect("its output"));
    let held = line(&mut says);
    let fence: u64 =
        held.strip_prefix("held ").and_then(|fence| fence.parse().ok()).expect("the sleeper holds a lock");

    // During the suspension, the lock expires on the nodes and another client acquires it.
    clock.advance_module(ASLEEP);
    let locks = LockManager::builder().nodes(fleet.urls()).build_blocking().expect("addresses");
    let other = locks.acquire_timeout("lock", ASLEEP, SOON).expect("the lock has expired");
    assert!(other.fence() > fence);

    sleeper.stdin.take().expect("its input").write_all(b"go on\n").expect("the sleeper reads its input");
    assert_eq!(line(&mut says), "before: valid", "the lock must be valid before the suspension");
    assert_eq!(line(&mut says), "after: over");
    // The control: by the usual clock, the lock is still valid, so there would be two holders.
    assert_eq!(line(&mut says), "by a clock that does not count sleep: valid");
    assert_eq!(line(&mut says), "extended: over");
    let status = eventually("the sleeper has ended", SOON, || sleeper.try_wait().expect("a child"));
    assert!(status.success());
    other.release();
}
