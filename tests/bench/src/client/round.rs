//! One round of one contender, and contenders that take turns.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redlock_tests::Server;

use super::contender::{Contender, Keys};
use super::cpu;
use super::stage::Stage;
use crate::report::{Progress, median};

/// What one round showed.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cycles_per_s: f64,
    /// CPU time of one cycle, of this process and of all its nodes together.
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
    pub(crate) refused: usize,
}

/// A contender that is ready to run for a while.
pub(crate) type Turn<'a> = Box<dyn Fn(Duration) -> Round + 'a>;

/// Prepares rounds of `tasks` tasks that cycle without a pause, each on a key of its own.
pub(crate) fn turn<'a, C: Contender>(
    stage: &'a Stage,
    contender: &Arc<C>,
    tasks: usize,
    keys: Keys,
    servers: Vec<&'a Server>,
) -> Turn<'a> {
    let contender = Arc::clone(contender);
    Box::new(move |time| {
        let server_us = || servers.iter().map(|server| cpu::server_us(server)).sum::<f64>();
        let before = (server_us(), cpu::own_us());
        let start = Instant::now();
        let (mut latencies_ns, refused) =
            stage.run(all_tasks(Arc::clone(&contender), tasks, keys, start + time));
        let wall_s = start.elapsed().as_secs_f64();
        let (client_us, server_us) = (cpu::own_us() - before.1, server_us() - before.0);
        let cycles = latencies_ns.len() as f64;
        latencies_ns.sort_unstable();
        Round {
            p50_us: quantile_us(&latencies_ns, 0.5),
            p99_us: quantile_us(&latencies_ns, 0.99),
            cycles_per_s: cycles / wall_s,
            client_cpu_us: client_us / cycles,
            server_cpu_us: server_us / cycles,
            refused,
        }
    })
}

/// How long every cycle took that was granted, and how many were not.
async fn all_tasks<C: Contender>(
    contender: Arc<C>,
    tasks: usize,
    keys: Keys,
    end: Instant,
) -> (Vec<u64>, usize) {
    let running: Vec<_> = (0..tasks)
        .map(|task| tokio::spawn(one_task(Arc::clone(&contender), keys.of_task(task), end)))
        .collect();
    let (mut all, mut refused) = (Vec::new(), 0);
    for task in running {
        let (latencies_ns, no) = task.await.expect("a task that does not panic");
        all.extend(latencies_ns);
        refused += no;
    }
    (all, refused)
}

async fn one_task<C: Contender>(contender: Arc<C>, key: String, end: Instant) -> (Vec<u64>, usize) {
    let (mut latencies_ns, mut refused) = (Vec::with_capacity(1 << 13), 0);
    let mut start = Instant::now();
    while start < end {
        let granted = contender.cycle(&key).await;
        let now = Instant::now();
        if granted {
            latencies_ns.push(u64::try_from((now - start).as_nanos()).unwrap_or(u64::MAX));
        } else {
            refused += 1;
        }
        start = now;
    }
    (latencies_ns, refused)
}

fn quantile_us(sorted_ns: &[u64], share: f64) -> f64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a length")]
    let index = (sorted_ns.len() as f64 * share) as usize;
    sorted_ns.get(index).map_or(f64::NAN, |ns| *ns as f64 / 1e3)
}

/// How often everybody has a turn, and how long.
#[derive(Clone, Copy)]
pub(crate) struct Rhythm {
    /// The first turn does not count.
    pub(crate) warm_up: Duration,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

impl fmt::Display for Rhythm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds of {} ms", self.rounds, self.time.as_millis())
    }
}

/// Rounds in which everybody has a turn, in an order that rotates.
pub(crate) fn take_turns(what: &str, turns: &[Turn<'_>], rhythm: Rhythm) -> Vec<Vec<Round>> {
    let Rhythm { warm_up, rounds, time } = rhythm;
    let mut all: Vec<Vec<Round>> = turns.iter().map(|_| Vec::new()).collect();
    let progress = Progress::of(what, rounds + 1);
    for round in 0..=rounds {
        for turn in 0..turns.len() {
            let which = (turn + round) % turns.len();
            let outcome = turns[which](if round == 0 { warm_up } else { time });
            if round > 0 {
                all[which].push(outcome);
            }
        }
        progress.step();
    }
    all
}

/// The median of one figure over rounds.
pub(crate) fn typical(rounds: &[Round], figure: fn(&Round) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}
