//! Many tasks and one lock: hand-offs per second, their cost, and fairness.
//!
//! A task holds the lock for a millisecond and requests it again at once. The upper bound is a FIFO queue within one
//! process before an uncontended lock. A hand-off passes the lock to another task than the last holder: a task that
//! reacquires the lock before the others wake up makes progress while the others starve.

mod methods;
mod rounds;
mod window;
mod worker;

use std::time::{Duration, Instant};

use redlock_tests::Server;
pub(crate) use worker::{MODE as CONTEND, serve};

use crate::client::delay::Delays;
use crate::client::nodes::{ServerSets, url};
use crate::peers::foreign::ForeignLibrary;
use crate::report::{Bars, Chart, Report, figure, median, ratio_of};
use methods::LockMethod;
use rounds::{Contenders, ContentionRound, fairness, run_interleaved};

const NODES: usize = 5;
const TIME: Duration = Duration::from_secs(1);
const ROUNDS: usize = 7;
/// The pauses between attempts, in milliseconds, of which the bench finds the best for `rslock`.
const PAUSES_MS: [u64; 5] = [1, 2, 4, 8, 16];
/// The delay of replies in the last part.
const DELAY: Duration = Duration::from_millis(1);

pub(crate) const PIECES: [&str; 2] = ["handoffs", "window"];

/// Measures the named pieces, or both.
pub(crate) fn measure(report: &mut Report, pieces: &[String]) {
    let wanted = |piece: &str| pieces.is_empty() || pieces.iter().any(|one| one == piece);
    if wanted("handoffs") {
        // One more node, which the bench kills.
        let mut nodes = ServerSets::start(NODES + 1);
        one_and_four(report, &nodes);
        nodes.both(NODES).into_iter().for_each(Server::kill);
        one_dead(report, &nodes);
        across_a_network(report, &nodes);
    }
    if wanted("window") {
        window::measure(report);
    }
}

fn crowd<'a>(nodes: &'a ServerSets, name: &str, way: LockMethod, processes: usize) -> Contenders<'a> {
    let servers: Vec<&Server> =
        if way.with_module() { nodes.with_module() } else { nodes.plain() }.iter().take(NODES).collect();
    let urls: Vec<String> = servers.iter().map(|server| server.url()).collect();
    Contenders::start(name, way, processes, &urls, servers)
}

/// Finds the pause between attempts, in milliseconds, with which `rslock` has the most hand-offs.
fn best_pause(nodes: &ServerSets, processes: usize) -> u64 {
    let rate = |pause_ms: u64| {
        let mut crowd = crowd(nodes, "", LockMethod::Rslock { pause_ms: Some(pause_ms) }, processes);
        crowd.round(TIME);
        median(&[0, 1, 2].map(|_| crowd.round(TIME).handoffs_per_s))
    };
    let rates = PAUSES_MS.map(|pause_ms| (rate(pause_ms), pause_ms));
    rates.into_iter().max_by(|one, other| one.0.total_cmp(&other.0)).map_or(1, |(_, pause_ms)| pause_ms)
}

/// Tasks in one process, and in four.
fn one_and_four(report: &mut Report, nodes: &ServerSets) {
    let [best_of_one, best_of_four] = [1, 4].map(|processes| best_pause(nodes, processes));
    let pausing = |pause_ms: u64| LockMethod::Rslock { pause_ms: Some(pause_ms) };
    let default = LockMethod::Rslock { pause_ms: None };
    let mut crowds = vec![
        crowd(nodes, "FIFO in one process", LockMethod::Fifo, 1),
        crowd(nodes, "redlock, one process", LockMethod::InLine, 1),
        crowd(nodes, "redlock, four processes", LockMethod::InLine, 4),
        crowd(nodes, "rslock at its best, one", pausing(best_of_one), 1),
        crowd(nodes, "rslock at its best, four", pausing(best_of_four), 4),
        crowd(nodes, "rslock's defaults, one", default, 1),
        crowd(nodes, "rslock's defaults, four", default, 4),
    ];
    let foreign = ForeignLibrary::installed().into_iter();
    crowds.extend(foreign.map(|foreign| crowd(nodes, foreign.name(), LockMethod::Foreign(foreign), 1)));
    let all = run_interleaved("contention", &mut crowds, ROUNDS, TIME);
    report.section(
        "handoffs",
        format!(
            "{} tasks want one lock on five nodes and work for 1 ms under it; {}",
            rounds::TASKS,
            rhythm()
        ),
    );
    tell(report, &crowds, &all);
    report.remark(format!(
        "rslock at its best: pauses of at most {best_of_one} ms in one process and {best_of_four} ms in four, of {PAUSES_MS:?} tried."
    ));
    let bars = crowds.iter().zip(&all);
    let chart = Bars {
        title: format!("{} tasks and one lock, 1 ms of work under it", rounds::TASKS),
        unit: "hand-offs a second, more is better".into(),
        bars: bars
            .map(|(crowd, of)| (crowd.name.clone(), typical(of, |round| round.handoffs_per_s)))
            .collect(),
        ours: "redlock",
    };
    report.chart("handoffs", &Chart::Bars(chart));
    let rate = |round: &ContentionRound| round.handoffs_per_s;
    let cpu = |round: &ContentionRound| round.client_cpu_us + round.server_cpu_us;
    let [fifo, one, four, best_one, best_four, default_one, default_four, foreign @ ..] = &all[..] else {
        return;
    };
    report.at_least("hand-offs in one process against the FIFO", ratio_of(one, fifo, rate), 0.9);
    report.at_least("hand-offs over four processes against the FIFO", ratio_of(four, fifo, rate), 0.9);
    report.at_least("against rslock's defaults, one process", ratio_of(one, default_one, rate), 10.0);
    report.at_least("against rslock's defaults, four processes", ratio_of(four, default_four, rate), 10.0);
    report.at_least("against rslock at its best, one process", ratio_of(one, best_one, rate), 1.0);
    report.at_least("against rslock at its best, four processes", ratio_of(four, best_four, rate), 1.0);
    report.at_most("CPU against rslock at its best, one process", ratio_of(one, best_one, cpu), 1.0 / 3.0);
    report.at_most(
        "CPU against rslock at its best, four processes",
        ratio_of(four, best_four, cpu),
        1.0 / 3.0,
    );
    for (crowd, of) in crowds[7..].iter().zip(foreign) {
        report.at_least(format!("against {}, one process", crowd.name), ratio_of(one, of, rate), 1.0);
    }
    for (name, of) in [("one process", one), ("four processes", four)] {
        let messages = typical(of, |round| round.messages) / NODES as f64;
        report.at_most(format!("messages a node and hand-off, {name}"), messages, 3.0);
        report.at_least(format!("fewest turns of a task against the most, {name}"), fairness(of), 0.8);
        let again = typical(of, |round| round.asked) - 1.0;
        report.at_most(format!("asked again, as after a split vote, {name}"), again, 0.01);
    }
}

/// One of the five nodes is dead.
fn one_dead(report: &mut Report, nodes: &ServerSets) {
    let servers = nodes.with_module();
    let urls = |numbers: [usize; NODES]| numbers.map(|number| servers[number].url());
    let awake = |numbers: &[usize]| numbers.iter().map(|number| &servers[*number]).collect();
    let (well, sick) = ([0, 1, 2, 3, 4], [0, 1, 2, 3, NODES]);
    let mut crowds = [
        Contenders::start("all five", LockMethod::InLine, 1, &urls(well), awake(&well)),
        Contenders::start("one dead", LockMethod::InLine, 1, &urls(sick), awake(&sick[..4])),
        Contenders::start("all five, four processes", LockMethod::InLine, 4, &urls(well), awake(&well)),
        Contenders::start("one dead, four processes", LockMethod::InLine, 4, &urls(sick), awake(&sick[..4])),
    ];
    let all = run_interleaved("a dead node", &mut crowds, ROUNDS, TIME);
    report.section("dead", format!("One of the five nodes is dead; {}", rhythm()));
    tell(report, &crowds, &all);
    let rate = |round: &ContentionRound| round.handoffs_per_s;
    report.at_least("one node dead, one process, against all five", ratio_of(&all[1], &all[0], rate), 0.8);
    report.at_least("one node dead, four processes, against all five", ratio_of(&all[3], &all[2], rate), 0.8);
}

/// Replies arrive a millisecond later.
fn across_a_network(report: &mut Report, nodes: &ServerSets) {
    let servers: Vec<&Server> = nodes.with_module().iter().take(NODES).collect();
    let ways: Vec<_> = (0..NODES).map(|number| (DELAY, nodes.ports(number)[1])).collect();
    let delays = Delays::start(&ways);
    let urls: Vec<String> = delays.ports.iter().map(|port| url(*port)).collect();
    let start =
        |name, processes| Contenders::start(name, LockMethod::InLine, processes, &urls, servers.clone());
    let mut crowds = [start("one process", 1), start("four processes", 4)];
    let all = run_interleaved("a network", &mut crowds, ROUNDS, TIME);
    let round_trip_us = round_trip_us(delays.ports[0]);
    report.section(
        "network",
        format!(
            "Replies arrive {} ms later; a round trip takes {round_trip_us:.0} us; {}",
            DELAY.as_millis(),
            rhythm()
        ),
    );
    tell(report, &crowds, &all);
    for (crowd, rounds) in crowds.iter().zip(&all) {
        let gap = typical(rounds, |round| round.gap_us) / round_trip_us;
        report.at_most(format!("from release to the next holder, in round trips, {}", crowd.name), gap, 1.5);
    }
}

/// The median time of a round trip over this port, in microseconds.
fn round_trip_us(port: u16) -> f64 {
    let mut connection = redis::Client::open(url(port))
        .and_then(|client| client.get_connection())
        .expect("a connection to the node");
    let ping = |_| {
        let start = Instant::now();
        redis::cmd("PING").exec(&mut connection).expect("a node that answers");
        start.elapsed().as_secs_f64() * 1e6
    };
    median(&(0..101).map(ping).collect::<Vec<_>>())
}

fn typical(rounds: &[ContentionRound], figure: fn(&ContentionRound) -> f64) -> f64 {
    median(&rounds.iter().map(figure).collect::<Vec<_>>())
}

fn rhythm() -> String {
    format!("{ROUNDS} rounds of {} s", TIME.as_secs())
}

fn tell(report: &mut Report, crowds: &[Contenders<'_>], all: &[Vec<ContentionRound>]) {
    let head = [
        "",
        "locks/s",
        "hand-offs/s",
        "gap us",
        "client CPU us",
        "server CPU us",
        "messages",
        "asked a node",
        "fewest/most turns",
        "lapsed",
    ];
    let rows: Vec<_> = crowds
        .iter()
        .zip(all)
        .map(|(crowd, rounds)| {
            vec![
                crowd.name.clone().into(),
                figure(typical(rounds, |round| round.locks_per_s), 0),
                figure(typical(rounds, |round| round.handoffs_per_s), 0),
                figure(typical(rounds, |round| round.gap_us), 0),
                figure(typical(rounds, |round| round.client_cpu_us), 0),
                figure(typical(rounds, |round| round.server_cpu_us), 0),
                figure(typical(rounds, |round| round.messages), 1),
                figure(typical(rounds, |round| round.asked), 3),
                figure(fairness(rounds), 2),
                rounds.iter().map(|round| round.lapsed).sum::<usize>().into(),
            ]
        })
        .collect();
    report.table(&head, &rows);
}
