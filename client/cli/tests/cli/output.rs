//! Results that cannot be written.

use crate::program::{INTERNAL, Launcher, PATH};
use redlock_tests::Fleet;
use std::process::{Command, Stdio};

/// A command whose result was not written must not exit with 0.
#[test]
fn every_command_fails_if_the_disk_is_full() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let lines: [&[&str]; 13] = [
        &["status"],
        &["status", "--prometheus"],
        &["inspect", "job"],
        &["top", "--once"],
        &["doctor"],
        &["bench", "--duration", "10ms"],
        &["acquire", "job"],
        &["exporter", "--listen", "127.0.0.1:0"],
        &["ui", "--listen", "127.0.0.1:0"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
        &["--version"],
    ];
    for line in lines {
        let said = redlock.run_with_full_disk(line).exits(INTERNAL);
        assert!(said.stderr.contains("cannot write the result"), "{line:?}: {said:?}");
    }
    assert!(fleet.is_free("job"), "acquire releases a lock that it could not hand over");
    for line in [&["--json", "status"][..], &["--json", "inspect", "job"], &["--json", "doctor"]] {
        let said = redlock.run_with_full_disk(line).exits(INTERNAL);
        assert_eq!(said.json_error()["reason"], "internal", "{line:?}");
    }
    redlock.run(&["acquire", "--owner-file", "lock", "job"]).succeeds();
    redlock.run_with_full_disk(&["extend", "--owner-file", "lock", "job"]).exits(INTERNAL);
    redlock.run_with_full_disk(&["release", "--owner-file", "lock", "job"]).exits(INTERNAL);
    assert!(fleet.is_free("job"), "release frees the lock although its result is lost");
}

/// `redlock … | head -n 1`: a closed pipe is no error.
#[test]
fn a_closed_pipe_is_no_failure() {
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
