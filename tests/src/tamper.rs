//! A disk that fails or dawdles: system calls of a running server are tampered with from outside, by `strace`.

use crate::server::Server;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// System calls of a server are tampered with until this is dropped.
#[derive(Debug)]
pub struct Tampered {
    strace: Child,
}

impl Tampered {
    /// Does to these system calls what `how` says in the words of `strace --inject`, `error=EIO` for one.
    /// `None` where strace is missing or may not.
    ///
    /// # Panics
    /// When strace says nothing at all.
    #[must_use]
    pub fn with(server: &Server, calls: &str, how: &str) -> Option<Self> {
        let mut command = Command::new("strace");
        command.args(["--follow-forks", "--output=/dev/null", "--attach", &server.pid().to_string()]);
        command.args([format!("--trace={calls}"), format!("--inject={calls}:{how}")]);
        let strace = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut tampered = Self { strace: strace.ok()? };
        let said = BufReader::new(tampered.strace.stderr.take().expect("a pipe was asked for"));
        // It says so when it has the server in its hands; what it cannot do ends it.
        let is_attached = said.lines().map_while(Result::ok).any(|line| line.contains(" attached"));
        is_attached.then_some(tampered)
    }
}

impl Drop for Tampered {
    fn drop(&mut self) {
        // The kernel lets the server go on. Asked politely, strace may wait for ever for one that has died while its
        // call was delayed.
        let _ = self.strace.kill();
        let _ = self.strace.wait();
    }
}
