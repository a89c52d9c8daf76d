//! `redlock run` in a terminal: Ctrl-C, Ctrl-Z and reading from the terminal.

use crate::program::Launcher;
use crate::tmux::Tmux;
use redlock_tests::{Fleet, SOON, eventually};

#[test]
fn ctrl_c_ends_the_command_and_frees_the_lock() {
    let mut fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock run job -- sh -c 'echo ru''ns; exec sleep 600'; echo code=$?");
    tmux.until("runs");
    tmux.key("C-c");
    tmux.until_prompt();
    // The program died of the signal, as sleep would, so the shell does not run the rest of the line.
    tmux.line("echo code=$?");
    tmux.until("code=130");
    eventually("the lock is free", SOON, || fleet.is_free("job").then_some(()));
}

#[test]
fn a_script_stops_at_ctrl_c() {
    let fleet = Fleet::start(3);
    let redlock = Launcher::of(&fleet);
    let script = "#!/bin/bash\n$1 run job -- bash -c 'echo ru\"\"ns; exec sleep 600'\necho went on\n";
    std::fs::write(redlock.path().join("script"), script).expect("a script");
    let Some(tmux) = Tmux::start(redlock) else { return };
    tmux.line("bash script redlock");
    tmux.until("runs");
    tmux.key("C-c");
    tmux.until_prompt();
    tmux.line("echo code=$?");
    let screen = tmux.until("code=130");
    assert!(!screen.contains("went on"), "{screen}");
}

#[test]
fn the_command_can_read_from_the_terminal() {
    let fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock run job -- sh -c 'echo ru''ns; read word; echo heard $word; exit 6'; echo code=$?");
    tmux.until("runs");
    tmux.line("hello");
    tmux.until("heard hello");
    tmux.until("code=6");
    // The shell has the terminal again.
    tmux.line("echo back $((1 + 1))");
    tmux.until("back 2");
}

#[test]
fn ctrl_z_and_fg_work_as_with_any_command() {
    let mut fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    // One command that does not read the terminal, and one that reads it and so has it.
    for (command, proof) in [("sleep 600", None), ("cat", Some("echoed"))] {
        tmux.line(&format!("clear; redlock run --ttl 60s job -- {command}"));
        eventually("the lock is held", SOON, || (!fleet.is_free("job")).then_some(()));
        if let Some(word) = proof {
            tmux.line(word);
            tmux.until_times(word, 2);
        }
        tmux.key("C-z");
        tmux.until("Stopped");
        tmux.line("echo shell $((1 + 1))");
        tmux.until("shell 2");
        tmux.line("fg");
        // The shell prints the command that it continues. Input before that goes to the shell.
        tmux.until_times("run --ttl 60s job", 2);
        if proof.is_some() {
            tmux.line("again");
            tmux.until_times("again", 2);
        }
        assert!(!fleet.is_free("job"), "the lock stays held during the stop");
        tmux.key("C-c");
        tmux.until_prompt();
        tmux.line("echo code=$?");
        tmux.until("code=130");
        eventually("the lock is free", SOON, || fleet.is_free("job").then_some(()));
    }
}

#[test]
fn a_command_does_not_continue_if_its_lock_expired_during_the_stop() {
    let mut fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    tmux.line("redlock run --ttl 3s job -- sh -c 'echo ru''ns; sleep 600; echo went o''n'");
    tmux.until("runs");
    tmux.key("C-z");
    tmux.until("Stopped");
    eventually("the lock has expired", SOON, || fleet.is_free("job").then_some(()));
    tmux.line("fg");
    tmux.until("ready> fg");
    tmux.until_prompt();
    tmux.line("echo code=$?");
    let screen = tmux.until("code=112");
    assert!(!screen.contains("went on"), "{screen}");
}

#[test]
fn a_pipeline_keeps_the_terminal() {
    let fleet = Fleet::start(3);
    let Some(tmux) = Tmux::start(Launcher::of(&fleet)) else { return };
    // The reader of the pipe also reads from the terminal, as a pager does.
    tmux.line("redlock run job -- echo pip''ed | (cat; read word < /dev/tty; echo heard $word)");
    tmux.until("piped");
    tmux.line("key");
    tmux.until("heard key");
}
