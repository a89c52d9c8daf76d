//! More nodes: one to nine of them, one task.

use std::time::Duration;

use super::Grown;
use crate::client::nodes::Nodes;
use crate::client::round::{Rhythm, take_turns};
use crate::client::stage::Stage;
use crate::client::{Pair, SHORT};
use crate::report::{Report, median};

const COUNTS: [usize; 5] = [1, 3, 5, 7, 9];
const RHYTHM: Rhythm = Rhythm { time: Duration::from_millis(150), ..SHORT };

pub(super) fn measure(report: &mut Report, stage: &Stage, nodes: &Nodes) {
    let turns: Vec<_> = COUNTS
        .iter()
        .flat_map(|count| {
            let choice: Vec<usize> = (0..*count).collect();
            Pair::connect(stage, nodes, &choice).turns(stage, nodes, 1, &choice)
        })
        .collect();
    let rounds = take_turns("one to nine nodes", &turns, RHYTHM);
    report.section("growth-nodes", format!("One cycle of one task over the number of nodes; {RHYTHM}"));
    let grown = Grown { over: "nodes", steps: &COUNTS, rounds: &rounds };
    grown.table(report);
    grown.judge(report);
    for (step, count) in COUNTS.iter().enumerate().skip(1) {
        let [[by_hand, ours], [first_by_hand, first_ours]] = [grown.pair(step), grown.pair(0)];
        let relative: Vec<f64> = (0..RHYTHM.rounds)
            .map(|round| {
                let growth = ours[round].p50_us / first_ours[round].p50_us;
                growth / (by_hand[round].p50_us / first_by_hand[round].p50_us)
            })
            .collect();
        let what = format!("{count} nodes: growth of the p50 from one node, against the loop's");
        report.at_most(what, median(&relative), 1.0);
    }
    grown.chart(report, "growth-nodes", "One task: a cycle over the number of nodes", "p50 us", |round| {
        round.p50_us
    });
}
