//! Starting the program, and what came of it.

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
pub(crate) const QUARANTINED: i32 = 114;
pub(crate) const INTERNAL: i32 = 115;
pub(crate) const WARNING: i32 = 116;
pub(crate) const ILL: i32 = 117;

/// Where the program is.
pub(crate) const PATH: &str = env!("CARGO_BIN_EXE_redlock");

/// How the program is started: with a folder of its own, and nothing of the tester's settings.
pub(crate) struct Launcher {
    pub(crate) folder: TempDir,
    nodes: Option<String>,
}

impl Launcher {
    /// For these nodes, named in the environment.
    pub(crate) fn of(fleet: &Fleet) -> Self {
        Self { nodes: Some(fleet.urls().join(",")), ..Self::without_nodes() }
    }

    /// For these addresses, named in the environment.
    pub(crate) fn at<U: AsRef<str>>(urls: &[U]) -> Self {
        let urls: Vec<&str> = urls.iter().map(AsRef::as_ref).collect();
        Self { nodes: Some(urls.join(",")), ..Self::without_nodes() }
    }

    pub(crate) fn without_nodes() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), nodes: None }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The program with these arguments, not started yet.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(PATH);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REDLOCK_") || name == "NO_COLOR" {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.path()).env("XDG_CONFIG_HOME", self.path().join("config"));
        // A busy machine is no reason for a node to be silent.
        command.env("REDLOCK_NODE_TIMEOUT", "3s").env("REDLOCK_CONNECT_TIMEOUT", "10s");
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

    /// Starts the program, to be looked at while it runs.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_command(self.command(arguments))
    }

    pub(crate) fn start_command(&self, mut command: Command) -> Running {
        command.stdout(Stdio::piped());
        self.start_mute(command)
    }

    /// Runs the program to its end, with a disk behind its stdout that is full.
    pub(crate) fn run_in_vain(&self, arguments: &[&str]) -> ProgramOutput {
        let mut command = self.command(arguments);
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a disk that is full");
        command.stdout(full);
        self.start_mute(command).finish()
    }

    /// Starts a command whose stdout is somewhere already.
    fn start_mute(&self, mut command: Command) -> Running {
        command.stderr(Stdio::piped());
        Running { child: Some(redlock_tests::spawn(command).expect("the program starts")) }
    }
}

/// The program while it runs; ends with the test.
pub(crate) struct Running {
    child: Option<Child>,
}

impl Running {
    fn child(&mut self) -> &mut Child {
        self.child.as_mut().expect("it was not waited for")
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it was not waited for").id()
    }

    pub(crate) fn signal(&self, number: i32) {
        signal(self.pid(), number);
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child().try_wait().expect("a child can be waited for").is_none()
    }

    /// Writes to its stdin, which must have been asked for.
    pub(crate) fn say(&mut self, text: &str) {
        let stdin = self.child().stdin.as_mut().expect("stdin is written");
        stdin.write_all(text.as_bytes()).expect("it reads");
    }

    /// What it prints next, up to the end of a line.
    pub(crate) fn line(&mut self) -> String {
        let stdout = self.child().stdout.as_mut().expect("stdout is read");
        let mut line = Vec::new();
        let mut byte = [0];
        while stdout.read(&mut byte).expect("stdout can be read") == 1 && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("text")
    }

    /// Waits until it has ended.
    pub(crate) fn finish(mut self) -> ProgramOutput {
        eventually("the program has ended", SOON * 3, || (!self.is_running()).then_some(()));
        let child = self.child.take().expect("it was not waited for");
        ProgramOutput::new(child.wait_with_output().expect("a child can be waited for"))
    }

    /// Waits until it has ended, and does not ask what it had to say: others may still have its stdout.
    pub(crate) fn status(mut self) -> ExitStatus {
        eventually("the program has ended", SOON * 3, || (!self.is_running()).then_some(()));
        self.child.take().expect("it was not waited for").wait().expect("a child can be waited for")
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

/// What came of it.
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

    /// Expects this exit code, and shows all if it is another.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code(), Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub(crate) fn succeeds(self) -> Self {
        self.exits(0)
    }

    /// The result as JSON, which must be one document on one line.
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
