//! How many requests one lock needs, by the servers' own count.

use std::sync::Arc;

use redlock_tests::{SOON, Server, within};

use super::healthy::MANY;
use super::lock_client::{LockClient, TaskKeys};
use super::nodes::ServerSets;
use super::quorum_loop::QuorumLoop;
use super::redlock_client_loop::RedlockClient;
use super::runtime::BenchRuntime;
use super::{FIVE, Pair};
use crate::report::{Report, figure, spread};

/// How many cycles the bench counts, over all tasks.
const CYCLES: usize = 6_400;

pub(crate) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let pair = Pair::connect(stage, nodes, &FIVE);
    let mut rows = Vec::new();
    let mut extremes = Vec::new();
    for tasks in [1, MANY] {
        for (name, each) in [
            (QuorumLoop::NAME, counted(stage, nodes, &pair.by_hand, pair.keys, tasks).requests()),
            (RedlockClient::NAME, counted(stage, nodes, &pair.ours, pair.keys, tasks).requests()),
        ] {
            let (low, high) = spread(&each);
            rows.push(vec![format!("{name}, tasks: {tasks}").into(), figure(low, 4), figure(high, 4)]);
            if name == RedlockClient::NAME {
                extremes.push((tasks, low, high));
            }
        }
    }
    report.section(
        "requests",
        format!("Requests to a node for one lock, {CYCLES} locks, by INFO commandstats"),
    );
    report.table(&["", "fewest", "most"], &rows);
    for (tasks, fewest, most) in extremes {
        report.at_most(format!("requests to a node per acquire, tasks: {tasks}, most"), most, 1.0);
        report.at_least(format!("requests to a node per acquire, tasks: {tasks}, fewest"), fewest, 1.0);
    }
}

fn counted<'a, C: LockClient>(
    stage: &'a BenchRuntime,
    nodes: &'a ServerSets,
    contender: &'a Arc<C>,
    keys: TaskKeys,
    tasks: usize,
) -> RequestCount<'a, C> {
    RequestCount { stage, servers: &nodes.of::<C>()[..FIVE.len()], contender, keys, tasks }
}

/// One contender and its number of tasks.
struct RequestCount<'a, C> {
    stage: &'a BenchRuntime,
    servers: &'a [Server],
    contender: &'a Arc<C>,
    keys: TaskKeys,
    tasks: usize,
}

impl<C: LockClient> RequestCount<'_, C> {
    /// Requests to each node for one acquired lock, with the rounds that raise a fence.
    fn requests(&self) -> Vec<f64> {
        // The first cycles open the connections and bring the fence counters of the nodes together.
        self.run_and_settle(10 * MANY);
        let asked = || self.servers.iter().map(|server| calls(server, C::ACQUIRES)).collect::<Vec<_>>();
        let before = asked();
        self.run_and_settle(CYCLES);
        asked().iter().zip(before).map(|(after, before)| (after - before) / CYCLES as f64).collect()
    }

    /// Runs some cycles and waits until the last release has reached every node, because the contender continues
    /// at a majority. If a node gets no release, the wait times out, and the counts show it.
    fn run_and_settle(&self, count: usize) {
        let freed = |server: &Server| calls(server, &[C::RELEASES]);
        let goals: Vec<f64> = self.servers.iter().map(|server| freed(server) + count as f64).collect();
        self.stage.run(cycles(Arc::clone(self.contender), self.keys, self.tasks, count));
        let _ = within(SOON, || {
            self.servers.iter().zip(&goals).all(|(server, goal)| freed(server) >= *goal).then_some(())
        });
    }
}

async fn cycles<C: LockClient>(contender: Arc<C>, keys: TaskKeys, tasks: usize, cycles: usize) {
    let one_task = |task: usize| {
        let contender = Arc::clone(&contender);
        tokio::spawn(async move {
            let key = keys.of_task(task);
            for _ in 0..cycles / tasks {
                assert!(contender.cycle(&key).await, "{}: an uncontended lock was not acquired", C::NAME);
            }
        })
    };
    let running: Vec<_> = (0..tasks).map(one_task).collect();
    for task in running {
        task.await.expect("a task that does not panic");
    }
}

/// How often a server has executed these commands.
fn calls(server: &Server, commands: &[&str]) -> f64 {
    commands.iter().map(|command| server.calls(command) as f64).sum()
}
