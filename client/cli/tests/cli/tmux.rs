//! A real terminal, in tmux.

use crate::program::{Launcher, PATH};
use redlock_tests::{SOON, skip, within};
use std::path::Path;
use std::process::Command;

/// A terminal with a shell. Dropping this ends it.
pub(crate) struct Tmux {
    socket: String,
    /// The environment and the temporary folder of the shell.
    redlock: Launcher,
}

impl Tmux {
    /// Starts a shell with the environment of `redlock`. Without tmux it reports a skip and returns `None`.
    pub(crate) fn start(redlock: Launcher) -> Option<Self> {
        if Command::new("tmux").arg("-V").output().is_err() {
            skip("tmux is not installed");
            return None;
        }
        let socket = redlock.path().join("tmux").display().to_string();
        let prepared = redlock.command(&[]);
        let mut command = Command::new("tmux");
        command.args(["-S", &socket, "-f", "/dev/null", "new-session", "-d", "-x", "110", "-y", "30"]);
        command.args(["bash", "--norc", "--noprofile", "-i"]);
        for (name, value) in prepared.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .env("PS1", "ready> ")
            .env("TERM", "xterm-256color")
            .env_remove("TMUX")
            .current_dir(redlock.path());
        assert!(command.status().expect("tmux starts").success());
        let tmux = Self { socket, redlock };
        tmux.until("ready>");
        Some(tmux)
    }

    /// The working directory of the shell.
    pub(crate) fn path(&self) -> &Path {
        self.redlock.path()
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").args(["-S", &self.socket]).args(arguments).output();
        String::from_utf8_lossy(&output.expect("tmux answers").stdout).into_owned()
    }

    /// Types a line. Replaces `redlock` by the path of the program under test.
    pub(crate) fn line(&self, line: &str) {
        self.tmux(&["send-keys", "-l", &line.replace("redlock", PATH)]);
        self.key("Enter");
    }

    /// Presses a key by its name in tmux, such as C-c.
    pub(crate) fn key(&self, key: &str) {
        self.tmux(&["send-keys", key]);
    }

    /// Types letters.
    pub(crate) fn letters(&self, letters: &str) {
        self.tmux(&["send-keys", "-l", letters]);
    }

    /// The text on the screen.
    pub(crate) fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    /// The screen and the running processes, for the message of a failed test.
    fn state(&self) -> String {
        let tty = self.tmux(&["display-message", "-p", "#{pane_tty}"]);
        let columns = "pid,ppid,pgid,tpgid,stat,wchan:20,args";
        let running = Command::new("ps").args(["-o", columns, "-t", tty.trim()]).output();
        let running = running.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        format!("{}\n{}", self.screen().trim_end(), running.unwrap_or_default())
    }

    /// The text on the screen, with colour codes.
    pub(crate) fn colored_screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e"])
    }

    /// Whether the alternate screen is on, as in a full-screen program.
    pub(crate) fn is_alternate(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{alternate_on}"]).trim() == "1"
    }

    /// Whether the cursor is visible.
    pub(crate) fn has_cursor(&self) -> bool {
        self.tmux(&["display-message", "-p", "#{cursor_flag}"]).trim() == "1"
    }

    /// Whether the terminal is in its normal mode: it reads whole lines and echoes the input.
    pub(crate) fn is_cooked(&self) -> bool {
        let tty = self.tmux(&["display-message", "-p", "#{pane_tty}"]);
        let state = Command::new("stty").args(["-a", "-F", tty.trim()]).output().expect("stty");
        let state = String::from_utf8_lossy(&state.stdout).into_owned();
        state.contains(" icanon") && state.contains(" echo ")
    }

    /// Waits for the prompt of the shell. After a Ctrl-C, the shell may discard earlier input.
    #[track_caller]
    pub(crate) fn until_prompt(&self) {
        let is_ready = || self.screen().trim_end().lines().last() == Some("ready>");
        within(SOON, || is_ready().then_some(()))
            .unwrap_or_else(|| panic!("the shell is not ready:\n{}", self.state()));
    }

    /// Waits until the screen contains this text at least `times` times.
    #[track_caller]
    pub(crate) fn until_times(&self, what: &str, times: usize) {
        let seen = within(SOON, || (self.screen().matches(what).count() >= times).then_some(()));
        seen.unwrap_or_else(|| panic!("{what:?} was not seen {times} times:\n{}", self.state()));
    }

    /// Waits until the screen contains this text, and returns the screen.
    #[track_caller]
    pub(crate) fn until(&self, what: &str) -> String {
        let seen = within(SOON, || Some(self.screen()).filter(|screen| screen.contains(what)));
        seen.unwrap_or_else(|| panic!("{what:?} was not seen:\n{}", self.state()))
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
