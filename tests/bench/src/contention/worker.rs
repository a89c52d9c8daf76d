//! A process whose tasks all want the same lock: this same program in another mode.
//!
//! A process of its own, so that its CPU time is that of a client and of nobody else, and so that several of
//! them can contend. It reads orders, a line each, and tells what came of them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_tests::campaign::now_ns;

use super::ways::{Way, WayName};
use crate::client::cpu;

/// The mode of this program, as its first argument.
pub(crate) const MODE: &str = "contend";

/// What is done under the lock: nothing, for so long.
const WORK: Duration = Duration::from_millis(1);

/// A lock that a task has held, by the clock that all processes share.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Which task of its process it was.
    pub(crate) task: usize,
    pub(crate) from_ns: u64,
    /// When its release was asked for.
    pub(crate) to_ns: u64,
    /// Whether the lock was still valid then. On a machine that is too busy to claim it in time it may not be.
    pub(crate) to_the_end: bool,
}

/// What came of one order.
pub(crate) struct Told {
    pub(crate) turns: Vec<Turn>,
    pub(crate) cpu_us: f64,
}

/// Another process, as this one sees it.
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    told: BufReader<ChildStdout>,
}

impl Worker {
    /// Starts a process and waits until it is connected to all nodes.
    pub(crate) fn start(way: WayName, tasks: usize, urls: &[String]) -> Self {
        let program = std::env::current_exe().expect("a program knows where it is");
        let mut command = Command::new(program);
        command.arg(MODE).arg(way.to_string()).arg(tasks.to_string()).args(urls);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("this program");
        let orders = child.stdin.take().expect("a pipe was asked for");
        let told = BufReader::new(child.stdout.take().expect("a pipe was asked for"));
        let mut worker = Self { child, orders, told };
        assert_eq!(worker.line(), "ready");
        worker
    }

    /// Lets its tasks contend for `key` for a while.
    pub(crate) fn order(&mut self, key: &str, time: Duration) {
        writeln!(self.orders, "{key} {}", time.as_millis()).expect("a worker that lives");
    }

    /// Waits for what came of the order.
    pub(crate) fn told(&mut self) -> Told {
        let mut turns = Vec::new();
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["turn", task, from, to, to_the_end] => {
                    let ns = |word: &str| word.parse().expect("a moment");
                    turns.push(Turn {
                        task: task.parse().expect("a task"),
                        from_ns: ns(from),
                        to_ns: ns(to),
                        to_the_end: to_the_end.parse().expect("true or false"),
                    });
                }
                ["cpu", us] => return Told { turns, cpu_us: us.parse().expect("a figure") },
                _ => panic!("a worker said: {line}"),
            }
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a worker that lives");
        line.trim_end().to_owned()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the other process does.
pub(crate) fn serve(arguments: &[String]) {
    let [way, tasks, urls @ ..] = arguments else { panic!("way, tasks, addresses") };
    let tasks: usize = tasks.parse().expect("how many tasks");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let way = Arc::new(runtime.block_on(Way::connect(way.parse().expect("a known way"), urls.to_vec())));
    println!("ready");
    for order in std::io::stdin().lock().lines().map_while(Result::ok) {
        let (key, ms) = order.split_once(' ').expect("key and milliseconds");
        let time = Duration::from_millis(ms.parse().expect("milliseconds"));
        let before_us = cpu::own_us();
        let turns = runtime.block_on(contend(&way, tasks, key, Instant::now() + time));
        let cpu_us = cpu::own_us() - before_us;
        let mut out = std::io::stdout().lock();
        for Turn { task, from_ns, to_ns, to_the_end } in turns {
            writeln!(out, "turn {task} {from_ns} {to_ns} {to_the_end}").expect("somebody listens");
        }
        writeln!(out, "cpu {cpu_us}").expect("somebody listens");
    }
}

async fn contend(way: &Arc<Way>, tasks: usize, key: &str, end: Instant) -> Vec<Turn> {
    let running: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(one_task(Arc::clone(way), task, key.to_owned(), end))).collect();
    let mut turns = Vec::new();
    for task in running {
        turns.extend(task.await.expect("a task that does not panic"));
    }
    turns
}

async fn one_task(way: Arc<Way>, task: usize, key: String, end: Instant) -> Vec<Turn> {
    let mut turns = Vec::new();
    // Whoever still waits at the end gets its turn: a call that ends in vain would cost others their figures.
    while Instant::now() < end {
        let held = way.acquire(&key).await;
        let from_ns = now_ns();
        // The runtime's own timer has ticks of a millisecond, so that a wait of one takes up to two.
        tokio::task::spawn_blocking(|| std::thread::sleep(WORK)).await.expect("a sleep");
        let to_ns = now_ns();
        turns.push(Turn { task, from_ns, to_ns, to_the_end: held.is_valid() });
        way.release(held).await;
    }
    turns
}
