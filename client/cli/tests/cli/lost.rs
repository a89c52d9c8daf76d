//! A lost lock, and a killed `redlock`.
//!
//! The command must end before another client can hold the lock. The command of these tests has a heartbeat: a process
//! that writes the time to a file. Another client can hold the lock at the earliest one time to live after the last
//! extension, so the last heartbeat must be earlier than that.

use crate::processes::{
    SIGCONT, SIGKILL, SIGSTOP, command_and_watchdog, hundredths, is_alive, until_gone, until_lines,
    until_pids, uptime,
};
use crate::program::{LOST, Launcher, Running};
use redlock_tests::{Fleet, SOON, eventually, signal};
use std::path::PathBuf;

/// The time to live of these locks: as an option, and in hundredths of a second.
const TTL: (&str, u64) = ("3s", 300);

/// A command that ignores SIGTERM, with a heartbeat in a second process.
struct HeartbeatCommand {
    running: Running,
    beats: PathBuf,
    /// The process ids of the command and of its heartbeat.
    pids: Vec<u32>,
}

impl HeartbeatCommand {
    fn start(redlock: &Launcher, resource: &str) -> Self {
        let heart = "trap '' TERM; echo $$ >> pids; while :; do cat /proc/uptime >> beats; done";
        std::fs::write(redlock.path().join("heart"), heart).expect("a script");
        let script = "trap '' TERM; echo $$ >> pids; sh heart & wait; wait; wait";
        let running = redlock.start(&["run", "--ttl", TTL.0, resource, "--", "sh", "-c", script]);
        let beats = redlock.path().join("beats");
        let pids = until_pids(&redlock.path().join("pids"), 2);
        until_lines(&beats, 1);
        Self { running, beats, pids }
    }

    fn last_beat(&self) -> u64 {
        let beats = std::fs::read_to_string(&self.beats).expect("a file with heartbeats");
        let whole = &beats[..beats.rfind('\n').expect("a whole line")];
        hundredths(whole.lines().last().expect("a beat"))
    }

    /// Waits until all processes are gone, and returns the time of the last heartbeat.
    fn until_gone(&self) -> u64 {
        until_gone(&self.pids);
        self.last_beat()
    }
}

#[test]
fn the_command_ends_before_the_validity_of_its_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let command = HeartbeatCommand::start(&redlock, "job");
    fleet[0].kill();
    fleet[1].kill();
    let last_extension = uptime();
    let last_beat = command.until_gone();
    assert!(
        last_beat < last_extension + TTL.1,
        "last heartbeat at {last_beat}, last extension before {last_extension}"
    );
    let said = command.running.finish().exits(LOST);
    assert!(said.stderr.contains("job is no longer held"), "{said:?}");
}

#[test]
fn the_command_gets_sigterm_before_sigkill() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "trap 'echo term; exit 0' TERM; echo runs; while :; do sleep 0.01; done";
    let mut running = redlock.start(&[
        "--json",
        "run",
        "--ttl",
        TTL.0,
        "--kill-after",
        "1s",
        "job",
        "--",
        "sh",
        "-c",
        script,
    ]);
    assert_eq!(running.line(), "runs");
    fleet[1].kill();
    fleet[2].kill();
    assert_eq!(running.line(), "term");
    let error = running.finish().exits(LOST).json_error();
    assert_eq!((&error["reason"], &error["exit_code"]), (&"lost".into(), &LOST.into()));
}

#[test]
fn a_lock_that_the_nodes_deleted_stops_the_command() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let command = HeartbeatCommand::start(&redlock, "job");
    for node in fleet.iter() {
        node.connect().call(&["DEL", "job"]);
    }
    command.until_gone();
    let said = command.running.finish().exits(LOST);
    assert!(said.stderr.contains("a majority of the nodes no longer holds it"), "{said:?}");
}

#[test]
fn the_loss_of_a_minority_does_not_stop_the_command() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut command =
        redlock.command(&["run", "--ttl", "3s", "job", "--", "sh", "-c", "echo runs; read word; exit 5"]);
    command.stdin(std::process::Stdio::piped());
    let mut running = redlock.start_command(command);
    assert_eq!(running.line(), "runs");
    fleet[1].kill();
    let extensions = |fleet: &mut Fleet| {
        fleet.locks("job").iter().flatten().map(|lock| lock.extensions).min().unwrap_or(0)
    };
    let before = extensions(&mut fleet);
    eventually("the other nodes have extended the lock beyond its time to live", SOON, || {
        (extensions(&mut fleet) >= before + 4).then_some(())
    });
    running.say("enough\n");
    running.finish().exits(5);
}

#[test]
fn the_command_dies_when_redlock_is_killed() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let command = HeartbeatCommand::start(&redlock, "job");
    let (_, watchdogs) = command_and_watchdog(command.running.pid());
    command.running.signal(SIGKILL);
    command.until_gone();
    until_gone(&watchdogs);
}

#[test]
fn the_command_dies_when_redlock_is_killed_and_its_watchdog_is_stopped() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let running = redlock.start(&["run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let pids = until_pids(&redlock.path().join("pid"), 1);
    let (_, watchdogs) = command_and_watchdog(running.pid());
    // The stopped watchdog cannot kill the command; the kernel does.
    signal(watchdogs[0], SIGSTOP);
    running.signal(SIGKILL);
    until_gone(&pids);
    signal(watchdogs[0], SIGCONT);
    until_gone(&watchdogs);
}

#[test]
fn the_watchdog_kills_the_command_of_a_stopped_redlock() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let command = HeartbeatCommand::start(&redlock, "job");
    command.running.signal(SIGSTOP);
    let last_extension = uptime();
    let last_beat = command.until_gone();
    assert!(
        last_beat < last_extension + TTL.1,
        "last heartbeat at {last_beat}, last extension before {last_extension}"
    );
    command.running.signal(SIGCONT);
    // The watchdog has killed the command. The program sees that the validity has ended.
    assert_eq!(command.running.status().code(), Some(LOST));
}

/// Control: if `redlock` and its watchdog are stopped, the command outlives its lock.
#[test]
fn without_redlock_and_watchdog_the_command_outlives_its_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let command = HeartbeatCommand::start(&redlock, "job");
    let (_, watchdogs) = command_and_watchdog(command.running.pid());
    signal(watchdogs[0], SIGSTOP);
    command.running.signal(SIGSTOP);
    let last_extension = uptime();
    eventually("the lock has expired", SOON, || fleet.is_free("job").then_some(()));
    eventually("a heartbeat after the end of the lock", SOON, || {
        (command.last_beat() > last_extension + TTL.1).then_some(())
    });
    assert!(command.pids.iter().all(|pid| is_alive(*pid)));
    signal(watchdogs[0], SIGCONT);
    command.until_gone();
    command.running.signal(SIGKILL);
}
