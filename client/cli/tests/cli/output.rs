//! Results that cannot be written.

use crate::program::{INTERNAL, Launcher, PATH};
use redlock_tests::Fleet;
use std::process::{Command, Stdio};

/// A result that was lost must not look like one that was delivered.
#[test]
fn a_full_disk_is_noticed_by_every_command() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lines: [&[&str]; 12] = [
        &["status"],
        &["status", "--prometheus"],
        &["inspect", "job"],
        &["top", "--once"],
        &["doctor"],
        &["bench", "--duration", "10ms"],
        &["acquire", "job"],
        &["exporter", "--listen", "127.0.0.1:0"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ];
    for line in lines {
        let said = redlock.run_in_vain(line).exits(INTERNAL);
        assert!(said.stderr.contains("cannot be written"), "{line:?}: {said:?}");
    }
    assert!(fleet.is_free("job"), "a lock that could not be handed over is freed");
    for line in [&["--json", "status"][..], &["--json", "inspect", "job"], &["--json", "doctor"]] {
        let said = redlock.run_in_vain(line).exits(INTERNAL);
        assert_eq!(said.json_error()["reason"], "internal", "{line:?}");
    }
    redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    redlock.run_in_vain(&["extend", "--owner-file", "lock", "job"]).exits(INTERNAL);
    redlock.run_in_vain(&["release", "--owner-file", "lock", "job"]).exits(INTERNAL);
    assert!(fleet.is_free("job"), "done all the same");
}

/// `redlock … | head -n 1`: whoever has seen enough is no reason to complain.
#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    for line in ["status --prometheus", "top --once", "completions zsh", "--help"] {
        let mut command = Command::new("bash");
        let script = format!("set -o pipefail; '{PATH}' {line} | true");
        let prepared = redlock.command(&[]);
        for (name, value) in prepared.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.args(["-c", &script]).stdin(Stdio::null());
        let said = redlock.finish(command).succeeds();
        assert!(said.stderr.is_empty(), "{line}: {said:?}");
    }
}
