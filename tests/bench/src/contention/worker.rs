//! A process whose tasks compete for one lock: this program in another mode.

use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_tests::campaign::now_ns;

use super::methods::{ConnectedLock, LockMethod};
use crate::client::cpu;
use crate::peers::foreign::PeerTask;
use crate::worker::{HeldSpan, Worker, WorkerReport, read_requests};

/// The argument that starts this program in this mode.
pub(crate) const MODE: &str = "contend";

/// How long a task holds the lock; it sleeps meanwhile.
const WORK: Duration = Duration::from_millis(1);

/// The command that starts such a process.
pub(super) fn command(way: LockMethod, tasks: usize, urls: &[String]) -> Command {
    if let LockMethod::Foreign(foreign) = way {
        return foreign.command(PeerTask::Contend, tasks, urls);
    }
    let mut command = Worker::start_self(MODE);
    command.arg(way.to_string()).arg(tasks.to_string()).args(urls);
    command
}

/// Runs the client process: executes orders until the input ends.
pub(crate) fn serve(arguments: &[String]) {
    let [way, tasks, urls @ ..] = arguments else { panic!("way, tasks, addresses") };
    let tasks: usize = tasks.parse().expect("how many tasks");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    let way =
        Arc::new(runtime.block_on(ConnectedLock::connect(way.parse().expect("a known way"), urls.to_vec())));
    println!("ready");
    for (key, time) in read_requests() {
        let before_us = cpu::own_us();
        let turns = runtime.block_on(contend(&way, tasks, &key, Instant::now() + time));
        WorkerReport { turns, cpu_us: cpu::own_us() - before_us, ..WorkerReport::default() }.print_report();
    }
}

async fn contend(way: &Arc<ConnectedLock>, tasks: usize, key: &str, end: Instant) -> Vec<HeldSpan> {
    let running: Vec<_> =
        (0..tasks).map(|task| tokio::spawn(one_task(Arc::clone(way), task, key.to_owned(), end))).collect();
    let mut turns = Vec::new();
    for task in running {
        turns.extend(task.await.expect("a task that does not panic"));
    }
    turns
}

async fn one_task(way: Arc<ConnectedLock>, task: usize, key: String, end: Instant) -> Vec<HeldSpan> {
    let mut turns = Vec::new();
    // A task that still waits at the end gets the lock: an abandoned request would distort the results of others.
    while Instant::now() < end {
        let held = way.acquire(&key).await;
        let from_ns = now_ns();
        // The runtime's timer has a resolution of one millisecond, so its sleep would take up to two.
        tokio::task::spawn_blocking(|| std::thread::sleep(WORK)).await.expect("a sleep");
        let to_ns = now_ns();
        turns.push(HeldSpan { task, from_ns, to_ns, to_the_end: held.is_valid() });
        way.release(held).await;
    }
    turns
}
