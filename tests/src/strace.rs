//! System calls of a running server that fail or are slow, injected with `strace`; and traces of them.

use crate::server::Server;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::NamedTempFile;

/// An injected fault in system calls of a server, until this value is dropped.
#[derive(Debug)]
pub struct SyscallFault {
    strace: Child,
}

impl SyscallFault {
    /// Injects `how` into these system calls, in the syntax of `strace --inject`, such as `error=EIO`.
    /// `None` if strace is missing or not permitted.
    ///
    /// # Panics
    /// When strace has no standard error.
    #[must_use]
    pub fn inject(server: &Server, calls: &str, how: &str) -> Option<Self> {
        let options = [format!("--trace={calls}"), format!("--inject={calls}:{how}")];
        attach(server, Path::new("/dev/null"), &options).map(|strace| Self { strace })
    }
}

/// Attaches strace to a server. `None` if strace is missing or not permitted.
fn attach(server: &Server, output: &Path, options: &[String]) -> Option<Child> {
    let mut command = Command::new("strace");
    command
        .args(["--follow-forks", "--attach", &server.pid().to_string(), "--output"])
        .arg(output)
        .args(options);
    let mut strace =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
    let messages = BufReader::new(strace.stderr.take().expect("a pipe"));
    // strace reports when it is attached, and ends if it cannot attach.
    let is_attached = messages.lines().map_while(Result::ok).any(|line| line.contains(" attached"));
    is_attached.then_some(strace)
}

/// A trace of system calls of a server, until this value is dropped.
#[derive(Debug)]
pub struct SyscallTrace {
    _strace: SyscallFault,
    output: NamedTempFile,
}

impl SyscallTrace {
    /// Traces these system calls, with the names of their files. `None` if strace is missing or not permitted.
    ///
    /// # Panics
    /// When the trace file cannot be created.
    #[must_use]
    pub fn start(server: &Server, calls: &str) -> Option<Self> {
        let output = NamedTempFile::new().expect("a file for the trace");
        let options = [format!("--trace={calls}"), "--decode-fds=path".to_owned()];
        let strace = attach(server, output.path(), &options)?;
        Some(Self { _strace: SyscallFault { strace }, output })
    }

    /// The calls that strace has written so far, in order. strace may be a little behind the server.
    ///
    /// # Panics
    /// When the file cannot be read.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.output.path()).expect("a readable file");
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for SyscallFault {
    fn drop(&mut self) {
        // After SIGKILL to strace, the kernel resumes the server. With SIGTERM, strace may wait for ever for a server
        // that died during a delayed call.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}
