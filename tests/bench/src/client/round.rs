//! One round of one contender, and rounds in which contenders take turns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::campaign::now_ns;

use super::cpu;
use super::lock_client::{LockClient, TaskKeys};
use super::runtime::BenchRuntime;
use crate::report::{TerminalBar, median, quantile};
use crate::worker::{HeldSpan as Cycle, WorkerReport};

/// The results of one round.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) cycles_per_s: f64,
    /// CPU time of one cycle: of the client process, and of all nodes together.
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
    /// How often threads of the client process slept in one cycle.
    pub(crate) sleeps: f64,
    pub(crate) refused: usize,
}

/// Runs one contender for the given time.
pub(crate) type Measurement<'a> = Box<dyn Fn(Duration) -> Round + 'a>;

/// Prepares rounds of `tasks` tasks that acquire and release without a pause, each with its own key.
pub(crate) fn turn<'a, C: LockClient>(
    stage: &'a BenchRuntime,
    contender: &Arc<C>,
    tasks: usize,
    keys: TaskKeys,
    servers: Vec<&'a Server>,
) -> Measurement<'a> {
    let contender = Arc::clone(contender);
    Box::new(move |time| {
        let server_us = || servers.iter().map(|server| cpu::server_us(server)).sum::<f64>();
        let before_us = server_us();
        let told = stage.run(cycles(Arc::clone(&contender), tasks, move |task| keys.of_task(task), time));
        Round::of(&told, server_us() - before_us)
    })
}

impl Round {
    /// Computes the results from the report of a client and the CPU time of its nodes.
    pub(crate) fn of(told: &WorkerReport, server_us: f64) -> Self {
        let mut latencies_us: Vec<f64> =
            told.turns.iter().map(|turn| (turn.to_ns - turn.from_ns) as f64 / 1e3).collect();
        latencies_us.sort_by(f64::total_cmp);
        let first = told.turns.iter().map(|turn| turn.from_ns).min();
        let last = told.turns.iter().map(|turn| turn.to_ns).max();
        let wall_s = first.zip(last).map_or(f64::NAN, |(first, last)| (last - first) as f64 / 1e9);
        let cycles = told.turns.len() as f64;
        Self {
            p50_us: quantile(&latencies_us, 0.5),
            p99_us: quantile(&latencies_us, 0.99),
            cycles_per_s: cycles / wall_s,
            client_cpu_us: told.cpu_us / cycles,
            server_cpu_us: server_us / cycles,
            sleeps: told.sleeps / cycles,
            refused: told.refused,
        }
    }
}

/// Runs `tasks` tasks that acquire and release without a pause, each with its own key.
pub(crate) async fn cycles<C: LockClient>(
    contender: Arc<C>,
    tasks: usize,
    key: impl Fn(usize) -> String,
    time: Duration,
) -> WorkerReport {
    let (before_us, slept) = (cpu::own_us(), cpu::own_sleeps());
    let end_ns = now_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let one = |task| tokio::spawn(one_task(Arc::clone(&contender), task, key(task), end_ns));
    let running: Vec<_> = (0..tasks).map(one).collect();
    let mut told = WorkerReport::default();
    for task in running {
        let (turns, refused) = task.await.expect("a task that does not panic");
        told.turns.extend(turns);
        told.refused += refused;
    }
    told.cpu_us = cpu::own_us() - before_us;
    told.sleeps = cpu::own_sleeps() - slept;
    told
}

/// Runs one task. Returns the cycles that got the lock, and how many did not.
async fn one_task<C: LockClient>(
    contender: Arc<C>,
    task: usize,
    key: String,
    end_ns: u64,
) -> (Vec<Cycle>, usize) {
    let (mut turns, mut refused) = (Vec::with_capacity(1 << 13), 0);
    let mut from_ns = now_ns();
    while from_ns < end_ns {
        let granted = contender.cycle(&key).await;
        let to_ns = now_ns();
        if granted {
            turns.push(Cycle { task, from_ns, to_ns, to_the_end: true });
        } else {
            refused += 1;
        }
        from_ns = to_ns;
    }
    (turns, refused)
}

/// How many rounds each contender runs, and how long.
#[derive(Clone, Copy)]
pub(crate) struct RoundPlan {
    /// The length of the first round, which does not count.
    pub(crate) warm_up: Duration,
    pub(crate) rounds: usize,
    pub(crate) time: Duration,
}

impl fmt::Display for RoundPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} rounds of {} ms", self.rounds, self.time.as_millis())
    }
}

/// Runs rounds in which every contender has a turn, in a rotating order.
pub(crate) fn run_interleaved(what: &str, turns: &[Measurement<'_>], rhythm: RoundPlan) -> Vec<Vec<Round>> {
    let RoundPlan { warm_up, rounds, time } = rhythm;
    let mut all: Vec<Vec<Round>> = turns.iter().map(|_| Vec::new()).collect();
    let progress = TerminalBar::of(what, rounds + 1);
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

/// The median of one figure over all rounds.
pub(crate) fn typical(rounds: &[Round], figure: fn(&Round) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}
