//! Five nodes in good health: one task, and many on keys of their own.

use super::contender::Contender;
use super::nodes::Nodes;
use super::ours::Ours;
use super::quorum_loop::QuorumLoop;
use super::round::{ratio, take_turns};
use super::stage::Stage;
use super::{FIVE, Pair, SHORT, head, row};
use crate::figures::{table, verdict, verdict_at_least};

pub(crate) const MANY: usize = 64;

pub(crate) fn measure(stage: &Stage, nodes: &Nodes) {
    let pair = Pair::connect(stage, nodes, &FIVE);
    println!("\nOne cycle, acquire and release, five nodes; runtime: {}; {SHORT}", stage.name);
    let mut rows = Vec::new();
    let mut seen = Vec::new();
    for tasks in [1, MANY] {
        let what = format!("{}, tasks: {tasks}", stage.name);
        let rounds = take_turns(&what, &pair.turns(stage, nodes, tasks, &FIVE), SHORT);
        for (name, of) in [QuorumLoop::NAME, Ours::NAME].into_iter().zip(&rounds) {
            rows.push(row(&format!("{name}, tasks: {tasks}"), of, &rounds[0]));
        }
        seen.push(rounds);
    }
    table(&head("p50 x loop"), &rows);
    let [one, many] = [&seen[0], &seen[1]];
    verdict("one task: p50 against the loop", ratio(&one[1], &one[0], |round| round.p50_us), 0.95);
    let throughput = ratio(&many[1], &many[0], |round| round.cycles_per_s);
    verdict_at_least("64 tasks: throughput against the loop", throughput, 1.5);
    let cpu = ratio(&many[1], &many[0], |round| round.client_cpu_us);
    verdict("64 tasks: client CPU of a cycle against the loop", cpu, 0.6);
}
