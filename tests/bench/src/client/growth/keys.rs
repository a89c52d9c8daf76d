//! Keys of 8 to 1,024 bytes, 16 tasks.

use super::GrowthSeries;
use crate::client::lock_client::TaskKeys;
use crate::client::nodes::ServerSets;
use crate::client::round::{RoundPlan, run_interleaved};
use crate::client::runtime::BenchRuntime;
use crate::client::{FIVE, Pair, SHORT};
use crate::report::Report;

const LENGTHS: [usize; 5] = [8, 32, 128, 512, 1_024];
const TASKS: usize = 16;
const RHYTHM: RoundPlan = RoundPlan { rounds: 15, ..SHORT };

pub(super) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let mut pair = Pair::connect(stage, nodes, &FIVE);
    let mut turns = Vec::new();
    for length in LENGTHS {
        pair.keys = TaskKeys::unused_of_length(length);
        turns.extend(pair.turns(stage, nodes, TASKS, &FIVE));
    }
    let rounds = run_interleaved("keys of 8 to 1,024 bytes", &turns, RHYTHM);
    report.section(
        "growth-keys",
        format!("A cycle over the length of the key, {TASKS} tasks, five nodes; {RHYTHM}"),
    );
    let grown = GrowthSeries { over: "bytes of a key", steps: &LENGTHS, rounds: &rounds };
    grown.table(report);
    grown.judge(report);
    grown.chart(
        report,
        "growth-keys",
        "Five nodes, 16 tasks: a cycle over the length of the key",
        "CPU us of client and servers",
        |round| round.client_cpu_us + round.server_cpu_us,
    );
}
