//! Client processes, and the lines that they exchange with the bench.
//!
//! A client runs in its own process: its CPU time is measured alone, several clients can contend, and a client can be
//! written in another language. When it is connected, it prints `ready` and its version. Then it reads orders, one
//! `KEY MILLISECONDS` on each line, and prints the result of each order:
//!
//! ```text
//! turn TASK FROM-NS TO-NS VALID    for every lock that it held; VALID is false if the lock expired before TO-NS
//! refused COUNT                    attempts that got no lock, if there were any
//! cpu MICROSECONDS                 CPU time of the process for the order; the last line
//! ```

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// How long the bench waits for a line of a client before it gives up.
const PATIENCE: Duration = Duration::from_secs(30);

/// A lock that a task held, in nanoseconds of the clock that all processes of a machine share.
#[derive(Clone, Copy)]
pub(crate) struct HeldSpan {
    /// The number of the task in its process.
    pub(crate) task: usize,
    pub(crate) from_ns: u64,
    pub(crate) to_ns: u64,
    /// Whether the lock was still valid at `to_ns`. On a busy machine a client may claim a lock too late.
    pub(crate) to_the_end: bool,
}

/// The result of one order.
#[derive(Default)]
pub(crate) struct WorkerReport {
    pub(crate) turns: Vec<HeldSpan>,
    pub(crate) refused: usize,
    pub(crate) cpu_us: f64,
    /// How often threads of the process fell asleep. Client processes do not report it.
    pub(crate) sleeps: f64,
}

impl WorkerReport {
    /// Prints the report; called in a client process.
    pub(crate) fn print_report(&self) {
        let mut out = std::io::stdout().lock();
        for HeldSpan { task, from_ns, to_ns, to_the_end } in &self.turns {
            writeln!(out, "turn {task} {from_ns} {to_ns} {to_the_end}").expect("the bench reads");
        }
        if self.refused > 0 {
            writeln!(out, "refused {}", self.refused).expect("the bench reads");
        }
        writeln!(out, "cpu {}", self.cpu_us).expect("the bench reads");
    }
}

/// Reads orders until the input ends; called in a client process.
pub(crate) fn read_requests() -> impl Iterator<Item = (String, Duration)> {
    std::io::stdin().lines().map_while(Result::ok).map(|order| {
        let (key, ms) = order.split_once(' ').expect("key and milliseconds");
        (key.to_owned(), Duration::from_millis(ms.parse().expect("milliseconds")))
    })
}

/// A client process, as the bench sees it.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    lines: Receiver<String>,
    /// The version that the client printed after `ready`; may be empty.
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
        // A separate thread reads, because reads from a pipe have no timeout and a client may never answer.
        let (line, lines) = channel();
        std::thread::spawn(move || told.lines().map_while(Result::ok).try_for_each(|text| line.send(text)));
        let mut worker = Self { child, orders, lines, is: String::new() };
        let first = worker.lines.recv_timeout(PATIENCE).map_err(|error| format!("a client: {error}"))?;
        let is = first.strip_prefix("ready").ok_or_else(|| format!("a client said: {first}"))?;
        is.trim().clone_into(&mut worker.is);
        Ok(worker)
    }

    /// A command that starts this program in another mode.
    pub(crate) fn start_self(mode: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
        command.arg(mode);
        command
    }

    /// Sends an order: its tasks acquire locks for this long.
    pub(crate) fn send(&mut self, key: &str, time: Duration) {
        writeln!(self.orders, "{key} {}", time.as_millis()).expect("the client runs");
    }

    /// Waits for the result of an order.
    pub(crate) fn receive(&mut self) -> WorkerReport {
        self.receive_within(PATIENCE).expect("the client answers in time")
    }

    /// Waits for the result of an order. `None` if the client prints no line for `patience`.
    pub(crate) fn receive_within(&mut self, patience: Duration) -> Option<WorkerReport> {
        let mut told = WorkerReport::default();
        loop {
            let line = match self.lines.recv_timeout(patience) {
                Ok(line) => line,
                Err(RecvTimeoutError::Timeout) => return None,
                Err(RecvTimeoutError::Disconnected) => panic!("a client process has ended"),
            };
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["turn", task, from, to, to_the_end] => {
                    let ns = |word: &str| word.parse().expect("nanoseconds");
                    told.turns.push(HeldSpan {
                        task: task.parse().expect("the number of a task"),
                        from_ns: ns(from),
                        to_ns: ns(to),
                        to_the_end: to_the_end.parse().expect("true or false"),
                    });
                }
                ["refused", count] => told.refused = count.parse().expect("a count"),
                ["cpu", us] => {
                    told.cpu_us = us.parse().expect("microseconds");
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
