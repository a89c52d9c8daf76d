//! One to three groups of three nodes each.
//!
//! If every node has its own machine, the CPU time of the nodes limits a group: each lock costs each node some CPU
//! time, and a second has one second of it. With more groups, a node gets only its share of the locks. The CPU time
//! of the busiest node shows this on one machine too; the locks per second here are limited by the cores of this
//! machine.

use std::sync::Arc;

use redlock_client::{LockManager, ShardedLocks};
use redlock_tests::Server;

use crate::client::SHORT;
use crate::client::cpu;
use crate::client::lock_client::{LockClient, TTL, TaskKeys};
use crate::client::nodes::{ServerSets, url};
use crate::client::round::{Measurement, Round, RoundPlan, run_interleaved, turn, typical};
use crate::client::runtime::BenchRuntime;
use crate::report::{Chart, Lines, Report, Series, figure, median, ratio_of, spread};

const COUNTS: [usize; 3] = [1, 2, 3];
const IN_A_GROUP: usize = 3;
/// Tasks for each group. It is constant, because a node with fewer commands in flight spends more on each.
const TASKS: usize = 64;
const RHYTHM: RoundPlan = RoundPlan { rounds: 15, ..SHORT };

/// The client over groups of three nodes, used as its documentation shows.
struct GroupedClient {
    locks: ShardedLocks,
}

impl LockClient for GroupedClient {
    const NAME: &'static str = "groups";
    const WITH_MODULE: bool = true;
    const ACQUIRES: &'static [&'static str] = &["redlock.acquire", "redlock.extend"];
    const RELEASES: &'static str = "redlock.release";

    async fn connect(urls: Vec<String>) -> Self {
        let group = |nodes: &[String]| {
            LockManager::builder().nodes(nodes).build().expect("addresses of the bench itself")
        };
        let shards = urls.chunks(IN_A_GROUP).enumerate();
        let shards = shards.map(|(number, nodes)| (format!("group-{number}"), group(nodes)));
        Self { locks: ShardedLocks::new(shards).expect("shards that share nothing") }
    }

    async fn cycle(&self, key: &str) -> bool {
        let Ok(guard) = self.locks.try_acquire(key, TTL).await else { return false };
        guard.release().await.is_free_on_a_majority()
    }
}

pub(super) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    // CPU time of the busiest node per lock, by the number of groups.
    let busiest = std::cell::RefCell::new(vec![Vec::new(); COUNTS.len()]);
    let turns: Vec<Measurement<'_>> = COUNTS
        .iter()
        .enumerate()
        .map(|(place, count)| {
            let servers: Vec<&Server> = nodes.of::<GroupedClient>().iter().take(count * IN_A_GROUP).collect();
            let urls = servers.iter().map(|server| url(server.port().expect("a server with a port")));
            let grouped = Arc::new(stage.run(GroupedClient::connect(urls.collect())));
            let round = turn(stage, &grouped, count * TASKS, TaskKeys::unused(), servers.clone());
            let busiest = &busiest;
            Box::new(move |time| {
                let used = || servers.iter().map(|server| cpu::server_us(server)).collect::<Vec<_>>();
                let before = used();
                let outcome: Round = round(time);
                let each: Vec<f64> =
                    used().iter().zip(before).map(|(after, before)| after - before).collect();
                let share = spread(&each).1 / each.iter().sum::<f64>();
                busiest.borrow_mut()[place].push(outcome.server_cpu_us * share);
                outcome
            }) as Measurement<'_>
        })
        .collect();
    let rounds = run_interleaved("one to three groups", &turns, RHYTHM);
    drop(turns);
    // The first round of each is the warm-up.
    let busiest: Vec<f64> = busiest.into_inner().iter().map(|us| median(&us[1..])).collect();
    tell(report, &rounds, &busiest);
}

fn tell(report: &mut Report, rounds: &[Vec<Round>], busiest: &[f64]) {
    report.section(
        "growth-groups",
        format!("Groups of {IN_A_GROUP} nodes, {TASKS} tasks for each group, each task with a lock of its own; {RHYTHM}"),
    );
    let first = busiest[0];
    let rows: Vec<_> = COUNTS
        .iter()
        .zip(rounds)
        .zip(busiest)
        .map(|((count, rounds), busiest)| {
            vec![
                (*count).into(),
                figure(typical(rounds, |round| round.cycles_per_s), 0),
                figure(typical(rounds, |round| round.client_cpu_us), 2),
                figure(typical(rounds, |round| round.server_cpu_us), 2),
                figure(*busiest, 2),
                figure(1e6 / busiest, 0),
                figure(first / busiest, 2),
            ]
        })
        .collect();
    let head = [
        "groups",
        "cycles/s here",
        "client CPU us",
        "server CPU us",
        "of the busiest node",
        "cycles/s until it is full",
        "growth",
    ];
    report.table(&head, &rows);
    for (count, us) in COUNTS.iter().zip(busiest).skip(1) {
        let share = busiest[0] / us / *count as f64;
        report.at_least(
            format!("{count} groups: what they can take, against {count} times one group"),
            share,
            0.8,
        );
    }
    let client = ratio_of(&rounds[COUNTS.len() - 1], &rounds[0], |round| round.client_cpu_us);
    report.at_most("three groups: client CPU of a cycle against one group", client, 1.5);
    let points = COUNTS.iter().zip(busiest).map(|(count, us)| (*count as f64, 1e6 / us / 1e3)).collect();
    let lines = Lines {
        title: "Locks a second until the busiest node is full".into(),
        x: "groups of three nodes".into(),
        y: "thousand cycles/s".into(),
        series: vec![Series { name: "redlock-client".into(), points, is_ours: true }],
        by_factors: false,
        with_linear: true,
    };
    report.chart("growth-groups", &Chart::Lines(lines));
}
