//! A client process, which ends with the value that stands for it.

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
    /// How it is counted, from 0 in the order of the starts.
    pub(super) number: u64,
    child: Child,
    is_paused: Cell<bool>,
    /// As long as it is open the process goes on.
    stdin: Option<ChildStdin>,
    reader: Option<JoinHandle<()>>,
    stderr: Option<JoinHandle<String>>,
}

impl Process {
    /// Starts a process whose lines go into `log`.
    pub(super) fn start(number: u64, mut command: Command, log: &Arc<EventLog>) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawn::spawn(command).expect("a client process can be started");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let mut errors = child.stderr.take().expect("its complaints");
        let log = Arc::clone(log);
        let read = move || {
            for line in lines.map_while(Result::ok) {
                // The last line of a process that was killed may be a part of one.
                if let Ok(event) = line.parse::<CampaignEvent>() {
                    log.record(event);
                }
            }
        };
        let complain = move || {
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
            stderr: Some(thread::spawn(complain)),
        }
    }

    /// Stops the process where it stands, until [`Process::resume`].
    pub fn pause(&self) {
        spawn::signal(self.child.id(), libc::SIGSTOP);
        self.is_paused.set(true);
    }

    /// Lets a paused process go on.
    pub fn resume(&self) {
        spawn::signal(self.child.id(), libc::SIGCONT);
        self.is_paused.set(false);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Ends the process as a crash does: nothing is released.
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

    /// Asks the process to end in order, and waits until it has.
    pub(super) fn stop(&mut self) {
        self.stdin = None;
        let status = eventually("a client process has ended", SOON * 3, || {
            self.child.try_wait().expect("a child can be waited for")
        });
        let complaints = self.read_to_end();
        assert!(status.success(), "a client process ended with {status}:\n{complaints}");
    }

    /// Reads what an ended process has left to say; hands over what it said to people.
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
