//! Starts the program and collects its output.

use redlock_tests::{Fleet, SOON, eventually, signal};
use serde_json::Value;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use tempfile::TempDir;

pub(crate) const USAGE: i32 = 110;
pub(crate) const NOT_ACQUIRED: i32 = 111;
pub(crate) const LOST: i32 = 112;
pub(crate) const NO_QUORUM: i32 = 113;
pub(crate) const REJECTED: i32 = 118;
pub(crate) const QUARANTINED: i32 = 114;
pub(crate) const INTERNAL: i32 = 115;
pub(crate) const DOCTOR_WARNINGS: i32 = 116;
pub(crate) const DOCTOR_ERRORS: i32 = 117;

/// The path of the program.
pub(crate) const PATH: &str = env!("CARGO_BIN_EXE_redlock");

/// Starts the program in a folder of its own, without the settings of the user who runs the tests.
pub(crate) struct Launcher {
    pub(crate) folder: TempDir,
    nodes: Option<String>,
    /// The node timeout and the connect timeout; `None`: long ones, so that a busy machine does not fail a test.
    pub(crate) timeouts: Option<&'static str>,
}

impl Launcher {
    /// For the nodes of a fleet, in `REDLOCK_NODES`.
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self { nodes: Some(fleet.urls().join(",")), ..Self::without_nodes() }
    }

    /// For these URLs, in `REDLOCK_NODES`.
    pub(crate) fn at<U: AsRef<str>>(urls: &[U]) -> Self {
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        Self { nodes: Some(urls.join(",")), ..Self::without_nodes() }
    }

    pub(crate) fn without_nodes() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), nodes: None, timeouts: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Prepares the program with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PATH);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REDLOCK_") || name == "NO_COLOR" {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.path()).env("XDG_CONFIG_HOME", self.path().join("config"));
        let (node, connect) = self.timeouts.map_or(("3s", "10s"), |timeout| (timeout, timeout));
        command.env("REDLOCK_NODE_TIMEOUT", node).env("REDLOCK_CONNECT_TIMEOUT", connect);
        if let Some(nodes) = &self.nodes {
            command.env("REDLOCK_NODES", nodes);
        }
        command.args(arguments).current_dir(self.path()).stdin(Stdio::null());
        command
    }

    /// Runs the program to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> ProgramOutput {
        self.finish(self.command(arguments))
    }

    /// Runs a command to its end.
    pub(crate) fn finish(&self, command: Command) -> ProgramOutput {
        self.start_command(command).finish()
    }

    /// Starts the program and does not wait for its end.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_command(self.command(arguments))
    }

    pub(crate) fn start_command(&self, mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        self.start_with_stdout(command)
    }

    /// Runs the program to its end. Every write to its stdout fails: the disk is full.
    pub(crate) fn run_with_full_disk(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = self.command(arguments);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
        command.stdout(full);
        self.start_with_stdout(command).finish()
    }

    /// Starts a command whose stdout is already set.
    fn start_with_stdout(&self, mut command: Command) -> Running {
        command.stderr(Stdio::piped());
        Running { child: Some(redlock_tests::spawn(command).expect("the program starts")) }
    }
}

/// A running program. Dropping this kills it.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("a program that was not waited for")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("a program that was not waited for").id()
    }

    pub(crate) fn signal(&self, number: i32) {
        signal(self.pid(), number);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("a child can be waited for").is_none()
    }

    /// Writes to its stdin, which must be a pipe.
    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.child().stdin.as_mut().expect("a pipe to stdin");
        stdin.write_all(text.as_bytes()).expect("a program that reads");
    }

    /// Reads the next line of its stdout.
    pub(crate) fn line(&mut self) -> String {
        let stdout = self.child().stdout.as_mut().expect("a pipe from stdout");
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("stdout is readable") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    }

    /// Waits until the program has ended, and returns its output.
    pub(crate) fn finish(mut self) -> ProgramOutput {
        eventually("the program has ended", SOON * 3, || (!self.is_running()).then_some(()));
        let child = self.child.take().expect("a program that was not waited for");
        ProgramOutput::new(child.wait_with_output().expect("a child can be waited for"))
    }

    /// Waits until the program has ended, without its output: other processes may still have its stdout open.
    pub(crate) fn status(mut self) -> ExitStatus {
        eventually("the program has ended", SOON * 3, || (!self.is_running()).then_some(()));
        self.child
            .take()
            .expect("a program that was not waited for")
            .wait()
            .expect("a child can be waited for")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The exit status and the output of the program.
#[derive(Debug)]
pub(crate) struct ProgramOutput {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl ProgramOutput {
    fn new(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        Self { status: output.status, stdout: text(output.stdout), stderr: text(output.stderr) }
    }

    pub(crate) fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Asserts this exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        self.exits(0)
    }

    /// The result as JSON. Asserts that it is one document on one line.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.stdout.lines().count(), 1, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The error as JSON: the last line of stderr.
    #[track_caller]
    pub(crate) fn json_error(&self) -> Value {
        let line = self.stderr.lines().last().unwrap_or_default();
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        value["error"].clone()
    }

    pub(crate) fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

/// The names of the fields of a JSON object, sorted.
pub(crate) fn names(value: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = value.as_object().expect("an object").keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}
