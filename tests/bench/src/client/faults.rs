//! Five nodes of which some hang, are dead or are slow; one task.
//!
//! Faulty and healthy sets of nodes take turns within one run. The first second, in which the clients detect the
//! faults, does not count.

use std::time::Duration;

use super::busy_cores::run_interleaved_on_busy_cores;
use super::delayed_nodes::{DelayedNodes, NEAR};
use super::lock_client::LockClient;
use super::nodes::ServerSets;
use super::quorum_loop::QuorumLoop;
use super::redlock_client_loop::RedlockClient;
use super::round::{Round, RoundPlan, run_interleaved, typical};
use super::runtime::BenchRuntime;
use super::{FIVE, Pair, head, row};
use crate::report::{Report, figure, ratio_of};

/// How many nodes the bench stops or kills, in addition to the healthy ones.
pub(crate) const VICTIMS: usize = 3;
const HUNG: usize = 9;
const DEAD: [usize; 2] = [10, 11];
/// The warm-up covers the first second. Rounds are longer than elsewhere, because a p99 needs many cycles.
const RHYTHM: RoundPlan =
    RoundPlan { warm_up: Duration::from_millis(1_100), rounds: 15, time: Duration::from_millis(400) };
/// The delay of the slow node: ten times that of the others.
const FAR: Duration = Duration::from_millis(5);

/// One node hung, and two dead, against five healthy ones.
pub(crate) fn hung_and_dead(report: &mut Report, stage: &BenchRuntime, nodes: &mut ServerSets) {
    let with_hung = [HUNG, 0, 1, 2, 3];
    let with_dead = [DEAD[0], 0, DEAD[1], 1, 2];
    let pairs = [FIVE, with_hung, with_dead].map(|choice| Pair::connect(stage, nodes, &choice));
    let distance = DelayedNodes::start(nodes, FIVE.map(|number| (number, NEAR)));
    let far_pairs = [FIVE, with_dead].map(|choice| distance.pair(stage, nodes, &choice));
    {
        let well: Vec<_> = [FIVE, with_hung, with_dead]
            .iter()
            .zip(&pairs)
            .chain([FIVE, with_dead].iter().zip(&far_pairs))
            .flat_map(|(choice, pair)| pair.turns(stage, nodes, 1, choice))
            .collect();
        // All clients work on healthy nodes first, so that the faults hit clients with open connections.
        run_interleaved("before the faults", &well, RoundPlan { rounds: 0, ..RHYTHM });
    }
    nodes.both(HUNG).into_iter().for_each(|server| server.pause());
    for number in DEAD {
        nodes.both(number).into_iter().for_each(redlock_tests::Server::kill);
    }
    let awake: [&[usize]; 3] = [&FIVE, &with_hung[1..], &[0, 1, 2]];
    let turns: Vec<_> =
        awake.iter().zip(&pairs).flat_map(|(awake, pair)| pair.turns(stage, nodes, 1, awake)).collect();
    let usual = run_interleaved("hung and dead nodes", &turns, RHYTHM);
    report.section(
        "down",
        format!("One task, five nodes, some of them hung (SIGSTOP) or dead (SIGKILL), after the first second; {RHYTHM}"),
    );
    let states = ["healthy", "one hung", "two dead"];
    tell(report, &states, &usual);
    // With fewer nodes there is less to do, and cores sleep between two messages. The latency then contains the time
    // to wake cores up, so that a dead node seems to slow down the others, for any client. The second table, with all
    // cores awake, shows what the client itself makes of dead nodes.
    let awake = run_interleaved_on_busy_cores(report, "down-awake", "hung and dead nodes", &turns, RHYTHM);
    if let Some(awake) = &awake {
        tell(report, &states, awake);
    }
    judge(report, awake.as_ref().unwrap_or(&usual));
    let turns: Vec<_> = [&FIVE[..], &[0, 1, 2]]
        .iter()
        .zip(&far_pairs)
        .flat_map(|(awake, pair)| pair.turns(stage, nodes, 1, awake))
        .collect();
    let far = run_interleaved("dead nodes at a distance", &turns, RHYTHM);
    let delay = NEAR.as_micros();
    report.section("dead-far", format!("The same with a delay of {delay} us before every node; {RHYTHM}"));
    tell(report, &["healthy", "two dead"], &far);
    report.at_most(
        "two nodes dead, at a distance: p50 against healthy",
        ratio_of(&far[3], &far[1], |round| round.p50_us),
        1.0,
    );
}

/// Checks the results against the aims.
fn judge(report: &mut Report, rounds: &[Vec<Round>]) {
    let [healthy, hung, dead] = [&rounds[1], &rounds[3], &rounds[5]];
    report.at_most("one node hung: p50 against healthy", ratio_of(hung, healthy, |round| round.p50_us), 1.1);
    report.at_most("one node hung: p99 against healthy", ratio_of(hung, healthy, |round| round.p99_us), 2.0);
    report.at_most("two nodes dead: p50 against healthy", ratio_of(dead, healthy, |round| round.p50_us), 1.0);
}

/// One node with ten times the delay of the others.
pub(crate) fn slow(report: &mut Report, stage: &BenchRuntime, nodes: &ServerSets) {
    let even = DelayedNodes::start(nodes, FIVE.map(|number| (number, NEAR)));
    let uneven =
        DelayedNodes::start(nodes, FIVE.map(|number| (number, if number == 0 { FAR } else { NEAR })));
    let pairs = [&even, &uneven].map(|far| far.pair(stage, nodes, &FIVE));
    let turns: Vec<_> = pairs.iter().flat_map(|pair| pair.turns(stage, nodes, 1, &FIVE)).collect();
    let rounds = run_interleaved("a slow node", &turns, RHYTHM);
    report.section(
        "slow",
        format!(
            "One task, five nodes with a delay of {} us, or one of them {} us, after the first second; {RHYTHM}",
            NEAR.as_micros(),
            FAR.as_micros()
        ),
    );
    tell(report, &["even", "one slow"], &rounds);
    let [even, uneven] = [&rounds[1], &rounds[3]];
    report.at_most(
        "one node 10 x slower: p50 against even",
        ratio_of(uneven, even, |round| round.p50_us),
        1.1,
    );
    report.at_most(
        "one node 10 x slower: p99 against even",
        ratio_of(uneven, even, |round| round.p99_us),
        2.0,
    );
}

/// A row for each state and contender, compared with the first state of the same contender.
fn tell(report: &mut Report, states: &[&str], rounds: &[Vec<Round>]) {
    let rows: Vec<_> = states
        .iter()
        .zip(rounds.chunks(2))
        .flat_map(|(state, pair)| {
            [QuorumLoop::NAME, RedlockClient::NAME].into_iter().enumerate().map(move |(who, name)| {
                let mut row = row(&format!("{name}, {state}"), &pair[who], &rounds[who]);
                row.push(figure(ratio_of(&pair[who], &rounds[who], |round| round.p99_us), 3));
                row.push(figure(typical(&pair[who], |round| round.sleeps), 1));
                row
            })
        })
        .collect();
    let mut head = head("p50 x well");
    head.extend(["p99 x well", "client sleeps"]);
    report.table(&head, &rows);
}
