//! One to nine nodes, one task.

use std::time::Duration;

use super::GrowthSeries;
use crate::client::busy_cores::run_interleaved_on_busy_cores;
use crate::client::delayed_nodes::{DelayedNodes, NEAR};
use crate::client::nodes::ServerSets;
use crate::client::round::{RoundPlan, run_interleaved};
use crate::client::runtime::BenchRuntime;
use crate::client::{Pair, SHORT};
use crate::report::{Report, median};

const COUNTS: [usize; 5] = [1, 3, 5, 7, 9];
const RHYTHM: RoundPlan = RoundPlan { time: Duration::from_millis(150), ..SHORT };
/// Longer rounds, because a cycle takes longer behind a delay.
const FAR_RHYTHM: RoundPlan = RoundPlan { time: Duration::from_millis(300), ..SHORT };

pub(super) fn measure(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let first = |count: &usize| (0..*count).collect::<Vec<usize>>();
    let turns: Vec<_> = COUNTS
        .iter()
        .map(first)
        .flat_map(|choice| Pair::connect(stage, nodes, &choice).turns(stage, nodes, 1, &choice))
        .collect();
    let what = "one to nine nodes";
    let usual = run_interleaved(what, &turns, RHYTHM);
    report.section("growth-nodes", format!("One cycle of one task over the number of nodes; {RHYTHM}"));
    let as_it_is = GrowthSeries { over: "nodes", steps: &COUNTS, rounds: &usual };
    as_it_is.table(report);
    // With few nodes there is little to do, and cores sleep between two messages: see `faults.rs`.
    let awake = run_interleaved_on_busy_cores(report, "growth-nodes-awake", what, &turns, RHYTHM);
    let grown = GrowthSeries { rounds: awake.as_ref().unwrap_or(&usual), ..as_it_is };
    if awake.is_some() {
        grown.table(report);
    }
    grown.judge(report);
    judge_against_the_loop(report, &grown, "");
    far(report, stage, nodes);
    grown.chart(report, "growth-nodes", "One task: a cycle over the number of nodes", "p50 us", |round| {
        round.p50_us
    });
}

/// The same behind a delay. All cores sleep while messages are in flight, however many nodes there are.
fn far(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let all: Vec<usize> = (0..COUNTS[COUNTS.len() - 1]).collect();
    let distance = DelayedNodes::start(nodes, all.iter().map(|number| (*number, NEAR)));
    let turns: Vec<_> = COUNTS
        .iter()
        .map(|count| &all[..*count])
        .flat_map(|choice| distance.pair(stage, nodes, choice).turns(stage, nodes, 1, choice))
        .collect();
    let rounds = run_interleaved("one to nine nodes at a distance", &turns, FAR_RHYTHM);
    let title = format!("The same with a delay of {} us before every node; {FAR_RHYTHM}", NEAR.as_micros());
    report.section("growth-nodes-far", title);
    let grown = GrowthSeries { over: "nodes", steps: &COUNTS, rounds: &rounds };
    grown.table(report);
    judge_against_the_loop(report, &grown, "at a distance, ");
}

fn judge_against_the_loop(report: &mut Report, grown: &GrowthSeries<'_>, wherever: &str) {
    for (step, count) in COUNTS.iter().enumerate().skip(1) {
        let what = format!("{wherever}{count} nodes: growth of the p50 from one node, against the loop's");
        report.at_most(what, against_the_loop(grown, step), 1.0);
    }
}

/// The growth of the client's p50 since the first step, divided by the growth of the loop's.
fn against_the_loop(grown: &GrowthSeries<'_>, step: usize) -> f64 {
    let [[by_hand, ours], [first_by_hand, first_ours]] = [grown.pair(step), grown.pair(0)];
    let relative: Vec<f64> = (0..RHYTHM.rounds)
        .map(|round| {
            let growth = ours[round].p50_us / first_ours[round].p50_us;
            growth / (by_hand[round].p50_us / first_by_hand[round].p50_us)
        })
        .collect();
    median(&relative)
}
