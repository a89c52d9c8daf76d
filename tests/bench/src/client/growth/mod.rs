//! How the cost of a cycle scales with the number of nodes, tasks and groups, and with the length of the key.
//!
//! The aim: no cost grows faster than linearly.

mod groups;
mod keys;
mod nodes;
mod tasks;

use super::lock_client::LockClient;
use super::nodes::ServerSets;
use super::quorum_loop::QuorumLoop;
use super::redlock_client_loop::RedlockClient;
use super::round::{Round, typical};
use super::runtime::BenchRuntime;
use crate::report::{Chart, Lines, Report, Series, figure, ratio_of};

pub(crate) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    nodes::measure(report, stage, nodes);
    tasks::measure(report, stage, nodes);
    keys::measure(report, stage, nodes);
    groups::measure(report, stage, nodes);
}

/// One figure of a round.
type Figure = fn(&Round) -> f64;

/// Rounds of the loop and of the client for each value of a parameter.
struct GrowthSeries<'a> {
    /// The name of the parameter.
    over: &'a str,
    steps: &'a [usize],
    /// The loop's and the client's rounds alternate, a pair for each step.
    rounds: &'a [Vec<Round>],
}

impl GrowthSeries<'_> {
    /// The rounds of one step, the loop's first.
    fn pair(&self, step: usize) -> [&[Round]; 2] {
        [&self.rounds[2 * step], &self.rounds[2 * step + 1]]
    }

    fn last(&self) -> usize {
        self.steps.len() - 1
    }

    fn table(&self, report: &mut Report) {
        let rows: Vec<_> = (0..self.steps.len())
            .map(|step| {
                let [by_hand, ours] = self.pair(step);
                let p50 = |rounds: &[Round]| figure(typical(rounds, |round| round.p50_us), 1);
                let sleeps = |rounds: &[Round]| figure(typical(rounds, |round| round.sleeps), 1);
                let rate = |rounds: &[Round]| figure(typical(rounds, |round| round.cycles_per_s), 0);
                let cpu = |rounds: &[Round]| {
                    figure(typical(rounds, |round| round.client_cpu_us + round.server_cpu_us), 1)
                };
                vec![
                    self.steps[step].into(),
                    p50(by_hand),
                    p50(ours),
                    rate(by_hand),
                    rate(ours),
                    cpu(by_hand),
                    cpu(ours),
                    sleeps(by_hand),
                    sleeps(ours),
                    figure(self.growth(step, 1, |round| round.p50_us), 2),
                ]
            })
            .collect();
        let head = [
            self.over,
            "loop p50 us",
            "redlock p50 us",
            "loop cycles/s",
            "redlock cycles/s",
            "loop CPU us",
            "redlock CPU us",
            "loop sleeps",
            "redlock sleeps",
            "growth of redlock's p50",
        ];
        report.table(&head, &rows);
    }

    /// The ratio of a figure of the loop (0) or of the client (1) to that of the first step.
    fn growth(&self, step: usize, who: usize, figure: Figure) -> f64 {
        ratio_of(self.pair(step)[who], self.pair(0)[who], figure)
    }

    /// Checks that the time and the CPU time of a cycle grow no faster than the parameter.
    fn judge(&self, report: &mut Report) {
        let steps = self.steps[self.last()] as f64 / self.steps[0] as f64;
        let of: [(&str, Figure); 2] =
            [("p50", |round| round.p50_us), ("CPU", |round| round.client_cpu_us + round.server_cpu_us)];
        for (name, figure) in of {
            let growth = self.growth(self.last(), 1, figure) / steps;
            report.at_most(
                format!("{name} of a cycle, growth against that of the {}", self.over),
                growth,
                1.0,
            );
        }
    }

    fn chart(&self, report: &mut Report, name: &str, title: &str, y: &str, shown: Figure) {
        let series = |who: usize, name: &str| Series {
            name: name.to_owned(),
            points: (0..self.steps.len())
                .map(|step| (self.steps[step] as f64, typical(self.pair(step)[who], shown)))
                .collect(),
            is_ours: who == 1,
        };
        let lines = Lines {
            title: title.to_owned(),
            x: self.over.to_owned(),
            y: y.to_owned(),
            series: vec![series(1, RedlockClient::NAME), series(0, QuorumLoop::NAME)],
            by_factors: true,
            with_linear: true,
        };
        report.chart(name, &Chart::Lines(lines));
    }
}
