//! Five healthy nodes: one task, and many tasks with a key each.

use super::lock_client::LockClient;
use super::nodes::ServerSets;
use super::quorum_loop::QuorumLoop;
use super::redlock_client_loop::RedlockClient;
use super::round::{run_interleaved, typical};
use super::runtime::BenchRuntime;
use super::{FIVE, Pair, SHORT, head, row};
use crate::report::{Bars, Chart, Report, ratio_of};

pub(crate) const MANY: usize = 64;

pub(crate) fn measure(report: &mut Report, section: &str, stage: &BenchRuntime, nodes: &ServerSets) {
    let pair = Pair::connect(stage, nodes, &FIVE);
    let title = format!("One cycle, acquire and release, five nodes; runtime: {}; {SHORT}", stage.name);
    let mut rows = Vec::new();
    let mut seen = Vec::new();
    for tasks in [1, MANY] {
        let what = format!("{}, tasks: {tasks}", stage.name);
        let rounds = run_interleaved(&what, &pair.turns(stage, nodes, tasks, &FIVE), SHORT);
        for (name, of) in [QuorumLoop::NAME, RedlockClient::NAME].into_iter().zip(&rounds) {
            rows.push(row(&format!("{name}, tasks: {tasks}"), of, &rounds[0]));
        }
        seen.push(rounds);
    }
    report.section(section, title);
    report.table(&head("p50 x loop"), &rows);
    let [one, many] = [&seen[0], &seen[1]];
    report.at_most("one task: p50 against the loop", ratio_of(&one[1], &one[0], |round| round.p50_us), 0.95);
    let throughput = ratio_of(&many[1], &many[0], |round| round.cycles_per_s);
    report.at_least("64 tasks: throughput against the loop", throughput, 2.0);
    let cpu = ratio_of(&many[1], &many[0], |round| round.client_cpu_us);
    report.at_most("64 tasks: client CPU of a cycle against the loop", cpu, 0.6);
    let bars = [QuorumLoop::NAME, RedlockClient::NAME].iter().zip(many);
    let chart = Bars {
        title: format!("{MANY} tasks on five nodes, each with a lock of its own"),
        unit: "acquire and release a second, more is better".into(),
        bars: bars.map(|(name, of)| ((*name).to_owned(), typical(of, |round| round.cycles_per_s))).collect(),
        ours: RedlockClient::NAME,
    };
    report.chart(section, &Chart::Bars(chart));
}
