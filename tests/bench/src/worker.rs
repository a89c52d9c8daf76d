//! Client processes, and what they tell.
//!
//! A client has a process of its own, so that its CPU time is that of a client and of nobody else, so that several
//! of them can contend, and so that it may be written in another language. It says `ready` and what it is when it is
//! connected, reads orders, `KEY MILLISECONDS` each on a line, and tells what came of each:
//!
//! ```text
//! turn TASK FROM-NS TO-NS VALID    for every lock that was had; VALID is false where it was over before its end
//! refused COUNT                    if there were any that were not had
//! cpu MICROSECONDS                 CPU time of the process for the order; the last line
//! ```

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// Nobody who works needs longer than this beyond the time of an order.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lock that a task had, by the clock that all processes of a machine share.
#[derive(Clone, Copy)]
pub(crate) struct HeldSpan {
    /// Which task of its process it was.
    pub(crate) task: usize,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Whether the lock was still valid then. On a machine that is too busy to claim it in time it may not be.
    pub(crate) to_the_end: bool,
}

/// What came of one order.
#[derive(Default)]
pub(crate) struct WorkerReport {
    pub(crate) turns: Vec<HeldSpan>,
    pub(crate) refused: usize,
    pub(crate) cpu_us: f64,
    /// How often it fell asleep; not told by client processes.
    pub(crate) sleeps: f64,
}

impl WorkerReport {
    /// Tells it, on behalf of a client process.
    pub(crate) fn print_report(&self) {
        let mut out = std::io::stdout().lock();
        for HeldSpan { task, from_ns, to_ns, to_the_end } in &self.turns {
            writeln!(out, "turn {task} {from_ns} {to_ns} {to_the_end}").expect("somebody listens");
        }
        if self.refused > 0 {
            writeln!(out, "refused {}", self.refused).expect("somebody listens");
        }
        writeln!(out, "cpu {}", self.cpu_us).expect("somebody listens");
    }
}

/// Reads orders until there are no more, on behalf of a client process.
pub(crate) fn read_requests() -> impl Iterator<Item = (String, Duration)> {
    std::io::stdin().lines().map_while(Result::ok).map(|order| {
        let (key, ms) = order.split_once(' ').expect("key and milliseconds");
        (key.to_owned(), Duration::from_millis(ms.parse().expect("milliseconds")))
    })
}

/// A client process, as seen from here.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    /// What it says it is; empty if it says nothing.
    pub(crate) is: String,
}

impl Worker {
    /// Starts a process and waits until it is connected to all nodes.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{:?} cannot be started: {error}", command.get_program()))?;
        let orders = child.stdin.take().expect("a pipe was asked for");
        let told = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        // A reader of its own: a client may never answer, and a pipe cannot be asked with patience.
        let (line, lines) = channel();
        std::thread::spawn(move || told.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        let mut worker = Self { child, orders, lines, is: String::new() };
        let first = worker.lines.recv_timeout(PATIENCE).map_err(|error| format!("a client: {error}"))?;
        let is = first.strip_prefix("ready").ok_or_else(|| format!("a client said: {first}"))?;
        is.trim().clone_into(&mut worker.is);
        Ok(worker)
    }

    /// This program, in another mode.
    pub(crate) fn start_self(mode: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("a program knows where it is"));
        command.arg(mode);
        command
    }

    /// Lets its tasks take locks for a while.
    pub(crate) fn send(&mut self, key: &str, time: Duration) {
        writeln!(self.orders, "{key} {}", time.as_millis()).expect("a client that lives");
    }

    /// Waits for what came of an order.
    pub(crate) fn receive(&mut self) -> WorkerReport {
        self.receive_within(PATIENCE).expect("a client that answers")
    }

    /// Waits for what came of an order, but not longer than this for any line of it.
    pub(crate) fn receive_within(&mut self, patience: Duration) -> Option<WorkerReport> {
        let mut told = WorkerReport::default();
        loop {
            let line = match self.lines.recv_timeout(patience) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("a client has died"),
            };
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["turn", task, from, to, to_the_end] => {
                    let ns = |word: &str| word.parse().expect("a moment");
                    told.turns.push(HeldSpan {
                        task: task.parse().expect("a task"),
                        from_ns: ns(from),
                        to_ns: ns(to),
                        to_the_end: to_the_end.parse().expect("true or false"),
                    });
                }
                ["refused", count] => told.refused = count.parse().expect("a count"),
                ["cpu", us] => {
                    told.cpu_us = us.parse().expect("a figure");
                    return Some(told);
                }
                _ => panic!("a client said: {line}"),
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
