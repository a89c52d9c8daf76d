//! A lock that is lost, and a `redlock` that is killed.
//!
//! The promise is about time: the command is gone before anybody else can hold the lock. A heart beats in the command
//! and writes down when; nobody can have had the lock before it stopped, because from the last moment at which it can
//! have been extended until then less than its time to live has passed.

use crate::processes::{
    SIGCONT, SIGKILL, SIGSTOP, command_and_watchdog, hundredths, is_alive, until_gone, until_lines,
    until_pids, uptime,
};
use crate::program::{LOST, Launcher, Running};
use redlock_tests::{Fleet, SOON, eventually, signal};
use std::path::PathBuf;

/// The time to live of these locks, for the program and in hundredths of a second.
const TTL: (&str, u64) = ("3s", 300);

/// A command with a beating heart, in a process of its own, and deaf to SIGTERM.
struct Patient {
    running: Running,
    beats: PathBuf,
    /// The command and the process in which the heart beats.
    pids: Vec<u32>,
}

impl Patient {
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
        let beats = std::fs::read_to_string(&self.beats).expect("a heart that has beaten");
        let whole = &beats[..beats.rfind('\n').expect("a whole line")];
        hundredths(whole.lines().last().expect("a beat"))
    }

    /// Waits until all processes are gone, and says when the heart has beaten last.
    fn until_gone(&self) -> u64 {
        until_gone(&self.pids);
        self.last_beat()
    }
}

#[test]
fn a_command_is_gone_before_its_lock_is() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let patient = Patient::start(&redlock, "job");
    fleet[0].kill();
    fleet[1].kill();
    let last_extension = uptime();
    let last_beat = patient.until_gone();
    assert!(last_beat < last_extension + TTL.1, "beat until {last_beat}, extended until {last_extension}");
    let said = patient.running.finish().exits(LOST);
    assert!(said.stderr.contains("job is no longer held"), "{said:?}");
}

#[test]
fn a_command_that_listens_is_told_first() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "trap 'echo told; exit 0' TERM; echo runs; while :; do sleep 0.01; done";
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
    assert_eq!(running.line(), "told");
    let error = running.finish().exits(LOST).json_error();
    assert_eq!((&error["reason"], &error["exit_code"]), (&"lost".into(), &LOST.into()));
}

#[test]
fn a_lock_that_is_taken_away_stops_the_command() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let patient = Patient::start(&redlock, "job");
    for node in fleet.iter() {
        node.connect().call(&["DEL", "job"]);
    }
    patient.until_gone();
    let said = patient.running.finish().exits(LOST);
    assert!(said.stderr.contains("a majority of the nodes no longer has it"), "{said:?}");
}

#[test]
fn the_loss_of_a_minority_costs_nothing() {
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
    eventually("the others have extended it for longer than it lasts", SOON, || {
        (extensions(&mut fleet) >= before + 4).then_some(())
    });
    running.say("enough\n");
    running.finish().exits(5);
}

#[test]
fn a_redlock_that_is_killed_takes_its_command_with_it() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let patient = Patient::start(&redlock, "job");
    let (_, watchdogs) = command_and_watchdog(patient.running.pid());
    patient.running.signal(SIGKILL);
    patient.until_gone();
    until_gone(&watchdogs);
}

#[test]
fn a_command_dies_with_redlock_and_its_watchdog() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let running = redlock.start(&["run", "job", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let pids = until_pids(&redlock.path().join("pid"), 1);
    let (_, watchdogs) = command_and_watchdog(running.pid());
    // The watchdog cannot do anything any more; the kernel can.
    signal(watchdogs[0], SIGSTOP);
    running.signal(SIGKILL);
    until_gone(&pids);
    signal(watchdogs[0], SIGCONT);
    until_gone(&watchdogs);
}

#[test]
fn a_redlock_that_stands_still_does_not_leave_its_command_unguarded() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let patient = Patient::start(&redlock, "job");
    patient.running.signal(SIGSTOP);
    let last_extension = uptime();
    let last_beat = patient.until_gone();
    assert!(last_beat < last_extension + TTL.1, "beat until {last_beat}, extended until {last_extension}");
    patient.running.signal(SIGCONT);
    // It was the watchdog that killed the command; all the program sees is that the lock's time is up.
    assert_eq!(patient.running.status().code(), Some(LOST));
}

/// What the heart is there for: with nobody to guard the command, it beats on after the lock has run out.
#[test]
fn an_unguarded_command_outlives_its_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let patient = Patient::start(&redlock, "job");
    let (_, watchdogs) = command_and_watchdog(patient.running.pid());
    signal(watchdogs[0], SIGSTOP);
    patient.running.signal(SIGSTOP);
    let last_extension = uptime();
    eventually("the lock has run out", SOON, || fleet.is_free("job").then_some(()));
    eventually("the heart has beaten since", SOON, || {
        (patient.last_beat() > last_extension + TTL.1).then_some(())
    });
    assert!(patient.pids.iter().all(|pid| is_alive(*pid)));
    signal(watchdogs[0], SIGCONT);
    patient.until_gone();
    patient.running.signal(SIGKILL);
}
