//! A client's machine that is suspended with a lock in its hands: time passes for everybody else.

#![allow(clippy::expect_used, reason = "helpers of tests")]

use redlock_client::LockManager;
use redlock_tests::{FakeClock, Fleet, SOON, eventually, skip};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Longer than the sleeper's lock lasts.
const ASLEEP: Duration = Duration::from_secs(700);

/// A process in a time namespace, which lasts as long as it does.
struct Sleeper(Child);

impl Sleeper {
    /// Nothing if this machine has no time namespaces, or none for us.
    fn start() -> Option<Self> {
        let mut unshare = Command::new("unshare");
        // The child of the process that asks for it is the first inside.
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
        format!("/proc/{}/ns/time", children.expect("the kernel tells the children").trim())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        // The one inside ends with its input.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// The next line of a process; nothing once it has ended.
fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a process can be read from");
    line.trim_end().to_owned()
}

#[test]
fn a_holder_whose_machine_was_suspended_knows_that_its_lock_is_over() {
    let Some(keeper) = Sleeper::start() else {
        return skip("there are no time namespaces to be had here (needs root)");
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
    let fence: u64 = held.strip_prefix("held ").and_then(|fence| fence.parse().ok()).expect("a lock");

    // While it sleeps, its lock runs out on the nodes and goes to somebody else.
    clock.advance_module(ASLEEP);
    let locks = LockManager::builder().nodes(fleet.urls()).build_blocking().expect("addresses");
    let other = locks.acquire_timeout("lock", ASLEEP, SOON).expect("a lock that has run out");
    assert!(other.fence() > fence);

    sleeper.stdin.take().expect("its input").write_all(b"go on\n").expect("it waits");
    assert_eq!(line(&mut says), "before: valid", "or its end would have another reason");
    assert_eq!(line(&mut says), "after: over");
    // The control: whoever counts on the usual clock believes in two holders now.
    assert_eq!(line(&mut says), "by a clock that does not count sleep: valid");
    assert_eq!(line(&mut says), "extended: over");
    let status = eventually("the sleeper has ended", SOON, || sleeper.try_wait().expect("a child"));
    assert!(status.success());
    other.release();
}
