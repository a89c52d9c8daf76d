//! One client process. It ends when its value is dropped.

use super::event::CampaignEvent;
use super::log::EventLog;
use crate::spawn;
use crate::{SOON, eventually};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// A running client process. Dropping it kills the process.
#[derive(Debug)]
pub struct Process {
    /// The number of the process: 0 for the first that was started.
    pub(super) number: u64,
    child: Child,
    is_paused: Cell<bool>,
    /// The process works as long as this pipe is open.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    stderr: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts a process whose events go into `log`.
    pub(super) fn start(number: u64, mut command: Command, log: &Arc<EventLog>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn::spawn(command).expect("a client process can be started");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut errors = child.stderr.take().expect("a pipe");
        let log = Arc::clone(log);
        let read = move || {
            for line in lines.map_while(Result::ok) {
                // The last line of a killed process may be incomplete.
                if let Ok(event) = line.parse::<CampaignEvent>() {
                    log.record(event);
                }
            }
        };
        let read_errors = move || {
            let mut text = String::new();
            let _ = errors.read_to_string(&mut text);
            text
        };
        Self {
            number,
            is_paused: Cell::new(false),
            stdin: child.stdin.take(),
            child,
            reader: Some(thread::spawn(read)),
            stderr: Some(thread::spawn(read_errors)),
        }
    }

    /// Suspends the process until [`Process::resume`].
    pub fn pause(&self) {
        spawn::signal(self.child.id(), libc::SIGSTOP);
        self.is_paused.set(true);
    }

    /// Resumes a paused process.
    pub fn resume(&self) {
        spawn::signal(self.child.id(), libc::SIGCONT);
        self.is_paused.set(false);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Kills the process, as a crash does: it releases nothing.
    ///
    /// # Panics
    /// When the kernel does not let it be killed.
    pub fn kill(&mut self) {
        self.child.kill().expect("a child can be killed");
        self.child.wait().expect("a killed child ends");
        self.read_to_end();
    }

    /// Whether the process has ended by itself.
    pub(super) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Closes the input of the process and waits until the process has ended.
    pub(super) fn stop(&mut self) {
        self.stdin = None;
        let status = eventually("a client process has ended", SOON * 3, || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let errors = self.read_to_end();
        assert!(status.success(), "a client process ended with {status}:\n{errors}");
    }

    /// Reads the rest of the output of an ended process. Returns its standard error.
    pub(super) fn read_to_end(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("a reader of lines does not panic");
        }
        self.stderr.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
