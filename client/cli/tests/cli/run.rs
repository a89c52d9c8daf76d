//! `redlock run`: status, signals, waiting.

use crate::processes::{
    SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGSTOP, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, command_and_watchdog,
    is_stopped, until_gone, until_lines, until_pids,
};
use crate::program::{Launcher, NO_QUORUM, NOT_ACQUIRED, Running, USAGE};
use redlock_tests::{Fleet, SOON, eventually, signal};
use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

/// Runs a command that holds the lock until a signal ends it. Returns when the command runs.
fn hold(redlock: &Launcher, resource: &str) -> Running {
    let mut running = redlock.start(&["run", resource, "--", "sh", "-c", "echo runs; exec sleep 600"]);
    assert_eq!(running.line(), "runs");
    running
}

#[test]
fn the_status_of_the_command_is_passed_on() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    for code in [0, 1, 7, 110, 255] {
        redlock.run(&["run", "job", "--", "sh", "-c", &format!("exit {code}")]).exits(code);
    }
    redlock.run(&["run", "job", "--", "sh", "-c", "kill -TERM $$"]).exits(143);
    redlock.run(&["run", "job", "--", "sh", "-c", "kill -KILL $$"]).exits(137);
    assert!(fleet.is_free("job"), "the lock is released each time");
}

#[test]
fn the_command_gets_its_arguments_its_streams_and_its_environment() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = r#"echo "$REDLOCK_RESOURCE $REDLOCK_FENCE $REDLOCK_TTL_MS $1"; echo to stderr >&2"#;
    let said = redlock.run(&["run", "--ttl", "20s", "a job", "--", "sh", "-c", script, "name", "$HOME; *"]);
    let said = said.succeeds();
    assert_eq!(said.stdout, "a job 1 20000 $HOME; *\n");
    assert_eq!(said.stderr, "to stderr\n");
}

#[test]
fn several_resources_are_locked_together_or_not_at_all() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "echo \"$REDLOCK_RESOURCE\"; exec sleep 600";
    let mut running = redlock.start(&["run", "b", "a", "--", "sh", "-c", script]);
    assert_eq!((running.line(), running.line()), ("b".to_owned(), "a".to_owned()), "one name on each line");
    for name in ["a", "b"] {
        redlock.run(&["run", name, "--", "true"]).exits(NOT_ACQUIRED);
    }
    let error = redlock.run(&["--json", "run", "b", "c", "--", "true"]).exits(NOT_ACQUIRED).json_error();
    assert_eq!(error["resource"], "b, c");
    for node in error["nodes"].as_array().expect("nodes") {
        let names_holder =
            node["label"].as_str().is_some_and(|label| !label.is_empty()) && node["left_ms"].is_u64();
        assert!(
            node["resource"] == "b" && names_holder,
            "the resource that is held, and its holder: {error}"
        );
    }
    let said = redlock.run(&["run", "b", "c", "--", "true"]).exits(NOT_ACQUIRED);
    assert!(said.stderr.contains("held by another client: b, \""), "{said:?}");
    assert!(fleet.is_free("c"), "all or none");
    running.signal(SIGTERM);
    running.finish().exits(143);
    assert!(fleet.is_free("a") && fleet.is_free("b"));
}

/// As flock, consul and etcdctl take it.
#[test]
fn the_command_may_follow_the_resource_without_dashes() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said =
        redlock.run(&["run", "--ttl", "20s", "job", "sh", "-c", "echo $0 $REDLOCK_TTL_MS; exit 7", "--json"]);
    assert_eq!(said.exits(7).stdout, "--json 20000\n");
    assert!(fleet.is_free("job"));
    let said = redlock.run(&["run", "job"]).exits(USAGE);
    assert!(said.stderr.contains("redlock run [OPTIONS] <RESOURCE>... -- <COMMAND>..."), "{said:?}");
    assert!(said.stderr.contains("redlock run [OPTIONS] <RESOURCE> <COMMAND>..."), "{said:?}");
}

/// A hung node gets the release when it continues. The program does not wait for it.
#[test]
fn a_hung_node_does_not_delay_the_end() {
    let fleet = Fleet::start(3);
    let mut redlock = Launcher::of(&fleet);
    redlock.timeouts = Some("60s");
    let soon = Duration::from_secs(20);
    fleet[2].pause();
    let began = Instant::now();
    redlock.run(&["run", "job", "--", "true"]).succeeds();
    assert!(began.elapsed() < soon, "a node without a connection: {:?}", began.elapsed());
    fleet[2].resume();
    let mut running = redlock.start(&["run", "job", "--", "sh", "-c", "echo runs; exec sleep 600"]);
    assert_eq!(running.line(), "runs");
    eventually("all nodes hold the lock", SOON, || {
        fleet.iter().all(|node| node.connect().inspect("job").is_some()).then_some(())
    });
    fleet[2].pause();
    let began = Instant::now();
    running.signal(SIGTERM);
    running.finish().exits(143);
    assert!(began.elapsed() < soon, "a node with a connection: {:?}", began.elapsed());
    fleet[2].resume();
    eventually("the node reads the release", SOON, || {
        fleet[2].connect().inspect("job").is_none().then_some(())
    });
}

#[test]
fn the_lock_is_held_while_the_command_runs() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let running = redlock.start(&["run", "--label", "night shift", "job", "--", "sleep", "600"]);
    eventually("all nodes hold the lock", SOON, || {
        fleet.locks("job").iter().all(Option::is_some).then_some(())
    });
    let inspected = redlock.run(&["--json", "inspect", "job"]).succeeds().json();
    assert_eq!(inspected["lock"]["label"], "night shift");
    redlock.run(&["run", "job", "--", "true"]).exits(NOT_ACQUIRED);
    redlock.run(&["run", "-E", "9", "job", "--", "true"]).exits(9);
    redlock.run(&["run", "other", "--", "true"]).succeeds();
    let (_, watchdogs) = command_and_watchdog(running.pid());
    assert_eq!(watchdogs.len(), 1);
    running.signal(SIGTERM);
    running.finish().exits(143);
    assert!(fleet.is_free("job"));
    until_gone(&watchdogs);
}

#[test]
fn a_lock_with_a_short_time_to_live_is_extended() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let running = redlock.start(&["run", "--ttl", "2s", "job", "--", "sleep", "600"]);
    eventually("the lock is extended beyond its first time to live", SOON, || {
        let locks = fleet.locks("job");
        let extended = locks.iter().flatten().filter(|lock| lock.extensions >= 4).count();
        (extended >= 2).then_some(())
    });
    running.signal(SIGINT);
    running.finish().exits(130);
    assert!(fleet.is_free("job"));
}

#[test]
fn a_command_that_cannot_be_started_leaves_no_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let said = redlock.run(&["run", "job", "--", "no-such-command"]).exits(127);
    assert!(said.stderr.contains("no-such-command: command not found"), "{said:?}");
    std::fs::write(redlock.path().join("data"), "no program").expect("a file");
    let said = redlock.run(&["--json", "run", "job", "--", "./data"]).exits(126);
    assert_eq!(said.json_error()["reason"], "command_not_executable");
    assert!(fleet.is_free("job"));
}

#[test]
fn signals_reach_the_command() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "trap 'echo usr1' USR1; trap 'echo usr2' USR2; trap 'echo winch' WINCH; trap 'echo hup' HUP; \
                  trap 'echo quit' QUIT; trap 'echo int' INT; trap 'echo term; exit 3' TERM; \
                  echo runs; while :; do sleep 0.01; done";
    let mut running = redlock.start(&["run", "job", "--", "sh", "-c", script]);
    assert_eq!(running.line(), "runs");
    let table = [
        (SIGUSR1, "usr1"),
        (SIGUSR2, "usr2"),
        (SIGWINCH, "winch"),
        (SIGHUP, "hup"),
        (SIGQUIT, "quit"),
        (SIGINT, "int"),
        (SIGTERM, "term"),
    ];
    for (number, word) in table {
        running.signal(number);
        assert_eq!(running.line(), word);
    }
    running.finish().exits(3);
}

#[test]
fn sigterm_reaches_all_processes_of_the_command() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "sleep 600 & echo $! > pids; sh -c 'sleep 600 & echo $! >> ../pids; wait' & wait; wait";
    std::fs::create_dir(redlock.path().join("sub")).expect("a folder");
    let script = format!("cd sub; {}", script.replace("> pids", "> ../pids"));
    let running = redlock.start(&["run", "job", "--", "sh", "-c", &script]);
    let pids = until_pids(&redlock.path().join("pids"), 2);
    running.signal(SIGTERM);
    assert_eq!(running.status().code(), Some(143));
    until_gone(&pids);
    assert!(fleet.is_free("job"));
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // The shell ignores the signal before it starts the program, as nohup does.
    let script = "trap '' HUP; exec \"$@\"";
    let mut command = std::process::Command::new("sh");
    let program = redlock.command(&["run", "job", "--", "sh", "-c", "echo runs; read word; echo $word"]);
    command.args(["-c", script, "sh"]).arg(program.get_program()).args(program.get_args());
    for (name, value) in program.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.current_dir(redlock.path()).stdin(std::process::Stdio::piped());
    let mut running = redlock.start_command(command);
    assert_eq!(running.line(), "runs");
    running.signal(SIGHUP);
    let (commands, _) = command_and_watchdog(running.pid());
    signal(commands[0], SIGHUP);
    running.say("still here\n");
    assert_eq!(running.line(), "still here");
    running.finish().succeeds();
}

#[test]
fn a_stopped_command_keeps_its_lock() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let mut running =
        redlock.start(&["run", "--ttl", "2s", "job", "--", "sh", "-c", "echo runs; exec sleep 600"]);
    assert_eq!(running.line(), "runs");
    let (commands, _) = command_and_watchdog(running.pid());
    signal(commands[0], SIGSTOP);
    eventually("the command is stopped", SOON, || is_stopped(commands[0]).then_some(()));
    let extensions =
        |fleet: &mut Fleet| fleet.locks("job").iter().flatten().map(|lock| lock.extensions).max();
    let before = extensions(&mut fleet).expect("a lock");
    eventually("the lock of the stopped command is extended", SOON, || {
        (extensions(&mut fleet)? >= before + 4).then_some(())
    });
    signal(commands[0], SIGCONT);
    eventually("the command continues", SOON, || (!is_stopped(commands[0])).then_some(()));
    running.signal(SIGTERM);
    running.finish().exits(143);
}

#[test]
fn a_waiter_gets_the_lock_after_the_release() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    for wait in ["30s", "forever"] {
        let first = hold(&redlock, "job");
        let second =
            redlock.start(&["run", "--wait", wait, "job", "--", "sh", "-c", "echo $REDLOCK_FENCE > fence"]);
        eventually("a client waits", SOON, || {
            let waiters: u64 = fleet.iter().map(waiters).sum();
            (waiters > 0).then_some(())
        });
        first.signal(SIGTERM);
        first.finish().exits(143);
        second.finish().succeeds();
        until_lines(&redlock.path().join("fence"), 1);
    }
    assert!(fleet.is_free("job"));
}

fn waiters(node: &redlock_tests::Server) -> u64 {
    node.info("redlock", "redlock_waiters").and_then(|count| count.parse().ok()).expect("a count")
}

#[test]
fn a_wait_ends_after_its_limit() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let _first = hold(&redlock, "job");
    let said = redlock.run(&["--json", "run", "--wait", "200ms", "job", "--", "true"]).exits(NOT_ACQUIRED);
    let error = said.json_error();
    assert_eq!((&error["reason"], &error["exit_code"]), (&"timeout".into(), &NOT_ACQUIRED.into()));
    assert_eq!(error["resource"], "job");
    assert_eq!(error["nodes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn a_wait_that_a_signal_ends_leaves_nothing_on_the_nodes() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let first = hold(&redlock, "job");
    for (number, code) in [(SIGINT, 130), (SIGTERM, 143)] {
        let waiting = redlock.start(&["run", "--wait", "forever", "job", "--", "touch", "ran"]);
        eventually("every node has one waiter", SOON, || {
            fleet.iter().all(|node| waiters(node) == 1).then_some(())
        });
        waiting.signal(number);
        waiting.finish().exits(code);
        eventually("no node has a waiter", SOON, || {
            fleet.iter().all(|node| waiters(node) == 0).then_some(())
        });
    }
    first.signal(SIGTERM);
    first.finish().exits(143);
    eventually("the lock is free", SOON, || fleet.is_free("job").then_some(()));
    assert!(!redlock.path().join("ran").exists());
}

#[test]
fn without_a_majority_the_command_does_not_run() {
    let mut fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    fleet[0].kill();
    redlock.run(&["run", "job", "--", "true"]).succeeds();
    fleet[1].kill();
    redlock.run(&["run", "job", "--", "touch", "ran"]).exits(NO_QUORUM);
    redlock.run(&["run", "--wait", "300ms", "job", "--", "touch", "ran"]).exits(NO_QUORUM);
    assert!(!redlock.path().join("ran").exists());
    eventually("the grant of the third node is released", SOON, || fleet.is_free("job").then_some(()));
}

#[test]
fn invalid_arguments_are_reported_and_send_no_acquire() {
    let fleet = Fleet::start(1);
    let redlock = Launcher::of(&fleet);
    fleet.reset_calls();
    let table: [&[&str]; 8] = [
        &["run", "job"],
        &["run", "--ttl", "30", "job", "--", "true"],
        &["run", "--ttl", "1ms", "job", "--", "true"],
        &["run", "--ttl", "2s", "--kill-after", "3s", "job", "--", "true"],
        &["run", "--wait", "long", "job", "--", "true"],
        &["run", "", "--", "true"],
        &["run", "--no-such-option", "job", "--", "true"],
        &["no-such-command"],
    ];
    for arguments in table {
        let said = redlock.run(arguments).exits(USAGE);
        assert!(said.stdout.is_empty() && !said.stderr.is_empty(), "{said:?}");
        let mut with_json = vec!["--json"];
        with_json.extend(arguments);
        let error = redlock.run(&with_json).exits(USAGE).json_error();
        assert_eq!(error["exit_code"], USAGE, "{arguments:?}");
    }
    assert_eq!(fleet.calls("redlock.acquire"), [0]);
}

#[test]
fn without_a_terminal_an_interrupted_command_gives_an_exit_code() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    // Without a terminal, redlock exits with 130 and does not die of the signal.
    let running = hold(&redlock, "job");
    running.signal(SIGINT);
    let said = running.finish();
    assert_eq!((said.status.code(), said.status.signal()), (Some(130), None));
}
