//! A disk that fails or dawdles: system calls of a running server are tampered with from outside, by `strace`.

use crate::server::Server;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use tempfile::NamedTempFile;

/// System calls of a server are tampered with until this is dropped.
#[derive(Debug)]
pub struct SyscallFault {
    strace: Child,
}

impl SyscallFault {
    /// Does to these system calls what `how` says in the words of `strace --inject`, `error=EIO` for one.
    /// `None` where strace is missing or may not.
    ///
    /// # Panics
    /// When strace says nothing at all.
    #[must_use]
    pub fn inject(server: &Server, calls: &str, how: &str) -> Option<Self> {
        let options = [format!("--trace={calls}"), format!("--inject={calls}:{how}")];
        attach(server, Path::new("/dev/null"), &options).map(|strace| Self { strace })
    }
}

/// Attaches strace to a server. `None` where strace is missing or may not.
fn attach(server: &Server, output: &Path, options: &[String]) -> Option<Child> {
    let mut command = Command::new("strace");
    command
        .args(["--follow-forks", "--attach", &server.pid().to_string(), "--output"])
        .arg(output)
        .args(options);
    let mut strace =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()?;
    let said = BufReader::new(strace.stderr.take().expect("a pipe was asked for"));
    // It says so when it has the server in its hands; what it cannot do ends it.
    let is_attached = said.lines().map_while(Result::ok).any(|line| line.contains(" attached"));
    is_attached.then_some(strace)
}

/// System calls of a server are written down until this is dropped.
#[derive(Debug)]
pub struct SyscallTrace {
    _strace: SyscallFault,
    output: NamedTempFile,
}

impl SyscallTrace {
    /// Writes these system calls down, with the names of the files. `None` where strace is missing or may not.
    ///
    /// # Panics
    /// When there is no room for a file.
    #[must_use]
    pub fn start(server: &Server, calls: &str) -> Option<Self> {
        let output = NamedTempFile::new().expect("a file for the trace");
        let options = [format!("--trace={calls}"), "--decode-fds=path".to_owned()];
        let strace = attach(server, output.path(), &options)?;
        Some(Self { _strace: SyscallFault { strace }, output })
    }

    /// The calls that strace has written down so far, one a line, in their order. It may be a little behind the server.
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
        // The kernel lets the server go on. Asked politely, strace may wait for ever for one that has died while its
        // call was delayed.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}
