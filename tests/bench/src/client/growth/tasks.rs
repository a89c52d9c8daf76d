//! One to 1,024 tasks on five nodes, each with its own lock.

use super::GrowthSeries;
use crate::client::nodes::ServerSets;
use crate::client::round::{RoundPlan, run_interleaved};
use crate::client::runtime::BenchRuntime;
use crate::client::{FIVE, Pair, SHORT};
use crate::report::Report;

const COUNTS: [usize; 6] = [1, 4, 16, 64, 256, 1_024];
const RHYTHM: RoundPlan = RoundPlan { rounds: 15, ..SHORT };

pub(super) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let pair = Pair::connect(stage, nodes, &FIVE);
    let turns: Vec<_> = COUNTS.iter().flat_map(|count| pair.turns(stage, nodes, *count, &FIVE)).collect();
    let rounds = run_interleaved("one to 1,024 tasks", &turns, RHYTHM);
    report.section("growth-tasks", format!("A cycle over the number of tasks, five nodes; {RHYTHM}"));
    let grown = GrowthSeries { over: "tasks", steps: &COUNTS, rounds: &rounds };
    grown.table(report);
    grown.judge(report);
    grown.chart(
        report,
        "growth-tasks",
        "Five nodes: locks a second over the number of tasks",
        "cycles/s",
        |round| round.cycles_per_s,
    );
}
