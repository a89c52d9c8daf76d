//! Rounds in which many tasks, in one or several processes, compete for one lock.

use std::collections::HashMap;
use std::time::Duration;

use redlock_tests::Server;

use super::methods::LockMethod;
use super::worker;
use crate::client::cpu;
use crate::report::TerminalBar;
use crate::worker::{Worker, WorkerReport};

/// How many tasks compete for the lock.
pub(crate) const TASKS: usize = 16;

/// The results of a round.
pub(crate) struct ContentionRound {
    /// Acquired locks per second, also by the task that released the lock last.
    pub(crate) locks_per_s: f64,
    /// How often per second the lock went from one task to another.
    pub(crate) handoffs_per_s: f64,
    /// Median time from the start of a release until the next task holds the lock.
    pub(crate) gap_us: f64,
    /// CPU time of a hand-off: of all client processes, and of all nodes together.
    pub(crate) client_cpu_us: f64,
    pub(crate) server_cpu_us: f64,
    /// Commands that all nodes together received for a hand-off.
    pub(crate) messages: f64,
    /// Requests for the lock to one node for each acquired lock.
    pub(crate) asked: f64,
    /// How many locks expired before their work ended.
    pub(crate) lapsed: usize,
    /// How often each task held the lock, by process and task.
    pub(crate) turns: HashMap<(usize, usize), usize>,
}

/// Client processes that use one method to compete for a lock, and their nodes.
pub(crate) struct Contenders<'a> {
    pub(crate) name: String,
    way: LockMethod,
    workers: Vec<Worker>,
    nodes: Vec<&'a Server>,
}

impl<'a> Contenders<'a> {
    /// Starts the processes. `awake` are the nodes that answer and report their figures.
    pub(crate) fn start(
        name: &str,
        way: LockMethod,
        processes: usize,
        urls: &[String],
        awake: Vec<&'a Server>,
    ) -> Self {
        let worker =
            |_| Worker::start(worker::command(way, TASKS / processes, urls)).expect("a client that connects");
        let workers = (0..processes).map(worker).collect();
        Self { name: name.to_owned(), way, workers, nodes: awake }
    }

    /// Runs all tasks for this long, on a fresh lock.
    pub(crate) fn round(&mut self, time: Duration) -> ContentionRound {
        self.round_on(&fresh_key(), time)
    }

    pub(crate) fn round_on(&mut self, key: &str, time: Duration) -> ContentionRound {
        let before = self.node_figures();
        self.workers.iter_mut().for_each(|worker| worker.send(key, time));
        let told: Vec<WorkerReport> = self.workers.iter_mut().map(Worker::receive).collect();
        let after = self.node_figures();
        let mut turns = HashMap::new();
        let mut all = Vec::new();
        for (process, told) in told.iter().enumerate() {
            for turn in &told.turns {
                *turns.entry((process, turn.task)).or_default() += 1;
                all.push((turn.from_ns, turn.to_ns, (process, turn.task), turn.to_the_end));
            }
        }
        all.sort_unstable();
        // Mutual exclusion: no task holds the lock before the last holder is done or its lock has expired.
        let in_turn = |pair: &[(u64, u64, _, bool)]| pair[0].1 <= pair[1].0 || !pair[0].3;
        assert!(all.windows(2).all(in_turn), "{}: two tasks held the lock at once", self.name);
        let lapsed = all.iter().filter(|turn| !turn.3).count();
        let changes = all.windows(2).filter(|pair| pair[0].2 != pair[1].2);
        let gaps: Vec<f64> = changes.map(|pair| pair[1].0.saturating_sub(pair[0].1) as f64 / 1e3).collect();
        let wall_s =
            all.first().zip(all.last()).map_or(f64::NAN, |(first, last)| (last.1 - first.0) as f64 / 1e9);
        // The first holder counts as a hand-off too.
        let handoffs = gaps.len() as f64 + 1.0;
        let used = |figure: fn(&NodeCounters) -> f64| figure(&after) - figure(&before);
        ContentionRound {
            locks_per_s: all.len() as f64 / wall_s,
            handoffs_per_s: handoffs / wall_s,
            gap_us: crate::report::median(&gaps),
            client_cpu_us: told.iter().map(|told| told.cpu_us).sum::<f64>() / handoffs,
            server_cpu_us: used(|figures| figures.cpu_us) / handoffs,
            messages: used(|figures| figures.messages) / handoffs,
            asked: used(|figures| figures.asked) / (all.len() * self.nodes.len()) as f64,
            lapsed,
            turns,
        }
    }

    fn node_figures(&self) -> NodeCounters {
        let mut figures = NodeCounters::default();
        for node in &self.nodes {
            figures.cpu_us += cpu::server_us(node);
            let calls = |command: &str| node.calls(command) as f64;
            let commands = self.way.commands();
            figures.messages += commands.iter().map(|command| calls(command)).sum::<f64>();
            figures.asked += calls(commands[0]);
        }
        figures
    }
}

/// A key that was never used.
pub(crate) fn fresh_key() -> String {
    format!("contended:{:016x}", fastrand::u64(..))
}

/// Counters of all nodes together.
#[derive(Default)]
struct NodeCounters {
    cpu_us: f64,
    messages: f64,
    asked: f64,
}

/// Runs rounds in which the crowds take turns in a rotating order. The first round of each does not count.
pub(crate) fn run_interleaved(
    what: &str,
    crowds: &mut [Contenders<'_>],
    rounds: usize,
    time: Duration,
) -> Vec<Vec<ContentionRound>> {
    let mut all: Vec<Vec<ContentionRound>> = crowds.iter().map(|_| Vec::new()).collect();
    let progress = TerminalBar::of(what, rounds + 1);
    for round in 0..=rounds {
        for turn in 0..crowds.len() {
            let which = (turn + round) % crowds.len();
            let outcome = crowds[which].round(time);
            if round > 0 {
                all[which].push(outcome);
            }
        }
        progress.step();
    }
    all
}

/// The fewest locks that a task got, divided by the most, over all rounds.
pub(crate) fn fairness(rounds: &[ContentionRound]) -> f64 {
    let mut turns: HashMap<(usize, usize), usize> = HashMap::new();
    for round in rounds {
        for (task, count) in &round.turns {
            *turns.entry(*task).or_default() += count;
        }
    }
    let most = turns.values().max().copied().unwrap_or(1);
    // A task that got no lock is not in the map.
    let fewest = if turns.len() < TASKS { 0 } else { turns.values().min().copied().unwrap_or(0) };
    fewest as f64 / most as f64
}
