//! `scripts/bench peers`: other lock libraries, and bare sockets as the upper bound.
//!
//! Each acquires and releases uncontended locks on five nodes, with one task and with many; then one node hangs. Each
//! is used as its documentation shows, with its default settings. `scripts/bench contention` measures contended locks.
//!
//! | file | subject |
//! |---|---|
//! | `peer.rs` | all contenders |
//! | `sockets.rs`, `rslock.rs`, `foreign.rs` | the contenders of this part alone |

pub(crate) mod foreign;
mod peer;
mod rslock;
mod sockets;

pub(crate) use peer::{MODE as CYCLE, serve};

use std::time::Duration;

use peer::Peer;
use redlock_tests::Server;

use crate::client::nodes::{ServerSets, url};
use crate::client::round::{Round, RoundPlan, typical};
use crate::client::{cpu, head, row};
use crate::report::{Bars, Cell, Chart, Report, TerminalBar, ratio_of};
use crate::worker::Worker;

const NODES: usize = 5;
const MANY: usize = 64;
const HEALTHY: RoundPlan =
    RoundPlan { warm_up: Duration::from_millis(800), rounds: 15, time: Duration::from_millis(300) };
/// The warm-up covers the first second.
const HUNG: RoundPlan =
    RoundPlan { warm_up: Duration::from_millis(1_100), rounds: 5, time: Duration::from_secs(1) };
/// How long after the end of a round the bench waits for a client.
const PATIENCE: Duration = Duration::from_secs(8);

pub(crate) const PIECES: [&str; 2] = ["healthy", "hung"];

/// Measures the named pieces, or both.
pub(crate) fn measure(report: &mut Report, pieces: &[String]) {
    let wanted = |piece: &str| pieces.is_empty() || pieces.iter().any(|one| one == piece);
    // The last node is the one that hangs.
    let mut nodes = ServerSets::start(NODES + 1);
    if wanted("healthy") {
        for (section, tasks) in [("one", 1), ("many", MANY)] {
            healthy(report, &nodes, section, tasks);
        }
    }
    if wanted("hung") {
        hung(report, &mut nodes);
    }
}

/// A running client and its nodes.
struct RunningPeer<'a> {
    entrant: Peer,
    /// `None` if it did not answer in time.
    worker: Option<Worker>,
    awake: Vec<&'a Server>,
    rounds: Vec<Round>,
}

impl<'a> RunningPeer<'a> {
    fn start(entrant: Peer, tasks: usize, nodes: &[usize], servers: &'a [Server]) -> Self {
        let awake: Vec<&Server> = nodes.iter().map(|number| &servers[*number]).collect();
        let urls: Vec<String> =
            awake.iter().map(|server| url(server.port().expect("a server with a port"))).collect();
        Self { entrant, worker: Some(entrant.start(tasks, &urls)), awake, rounds: Vec::new() }
    }

    /// Runs one round on fresh keys. `None` if the client does not answer in time.
    fn round(&mut self, time: Duration) -> Option<Round> {
        let server_us = |awake: &[&Server]| awake.iter().map(|server| cpu::server_us(server)).sum::<f64>();
        let worker = self.worker.as_mut()?;
        let before_us = server_us(&self.awake);
        worker.send(&format!("peers:{:016x}", fastrand::u64(..)), time);
        let Some(told) = worker.receive_within(time + PATIENCE) else {
            self.worker = None;
            return None;
        };
        Some(Round::of(&told, server_us(&self.awake) - before_us))
    }
}

fn servers(nodes: &ServerSets, entrant: Peer) -> &[Server] {
    if entrant.with_module() { nodes.with_module() } else { nodes.plain() }
}

/// Runs rounds in which every client has a turn, in a rotating order; the first round does not count.
fn run_interleaved(what: &str, seats: &mut [RunningPeer<'_>], rhythm: RoundPlan) {
    let progress = TerminalBar::of(what, rhythm.rounds + 1);
    for round in 0..=rhythm.rounds {
        for turn in 0..seats.len() {
            let which = (turn + round) % seats.len();
            let outcome = seats[which].round(if round == 0 { rhythm.warm_up } else { rhythm.time });
            if round > 0 {
                seats[which].rounds.extend(outcome);
            }
        }
        progress.step();
    }
}

fn healthy(report: &mut Report, nodes: &ServerSets, section: &str, tasks: usize) {
    let start = |entrant| RunningPeer::start(entrant, tasks, &[0, 1, 2, 3, 4], servers(nodes, entrant));
    let mut seats: Vec<RunningPeer<'_>> = Peer::all().into_iter().map(start).collect();
    run_interleaved(&format!("peers, tasks: {tasks}"), &mut seats, HEALTHY);
    let noun = if tasks == 1 { "One task".to_owned() } else { format!("{tasks} tasks") };
    report.section(
        section,
        format!("{noun}, five nodes, acquire and release of locks that nobody else wants; {HEALTHY}"),
    );
    tell(report, &seats);
    judge(report, &noun, &seats);
    let bars = seats
        .iter()
        .map(|seat| (seat.entrant.name().to_owned(), typical(&seat.rounds, |round| round.cycles_per_s)));
    let chart = Bars {
        title: format!("{noun} on five nodes, a lock for each"),
        unit: "acquire and release a second, more is better".into(),
        bars: bars.collect(),
        ours: Peer::Ours.name(),
    };
    report.chart(section, &Chart::Bars(chart));
}

fn hung(report: &mut Report, nodes: &mut ServerSets) {
    // The bare sockets have no timeout, so they cannot take part.
    let entrants = || Peer::all().into_iter().filter(|entrant| *entrant != Peer::Sockets);
    // All clients work on healthy nodes first, so that the fault hits clients with open connections.
    let workers: Vec<(Peer, Worker)> = entrants()
        .map(|entrant| {
            let mut seat = RunningPeer::start(entrant, 1, &[NODES, 0, 1, 2, 3], servers(nodes, entrant));
            seat.round(HEALTHY.warm_up);
            (entrant, seat.worker.take().expect("a client of healthy nodes"))
        })
        .collect();
    nodes.both(NODES).into_iter().for_each(|server| server.pause());
    let mut seats: Vec<RunningPeer<'_>> = workers
        .into_iter()
        .map(|(entrant, worker)| {
            let awake = servers(nodes, entrant)[..NODES - 1].iter().collect();
            RunningPeer { entrant, worker: Some(worker), awake, rounds: Vec::new() }
        })
        .collect();
    run_interleaved("peers, a hung node", &mut seats, HUNG);
    report.section(
        "hung",
        format!("One task, five nodes of which one hangs (SIGSTOP), after the first second; {HUNG}"),
    );
    tell(report, &seats);
    for seat in seats.iter().filter(|seat| seat.worker.is_none()) {
        report.remark(format!("{}: did not come back within {} s.", seat.entrant.name(), PATIENCE.as_secs()));
    }
    judge(report, "One node hung", &seats);
}

fn tell(report: &mut Report, seats: &[RunningPeer<'_>]) {
    let ours = &redlock_peer(seats).rounds;
    let rows: Vec<Vec<Cell>> =
        seats.iter().map(|seat| row(seat.entrant.name(), &seat.rounds, ours)).collect();
    report.table(&head("p50 x redlock-client"), &rows);
    let versions: Vec<&str> =
        seats.iter().filter_map(|seat| seat.worker.as_ref()).map(|worker| worker.is.as_str()).collect();
    for version in versions.into_iter().filter(|version| !version.is_empty()) {
        report.remark(format!("With {version}."));
    }
}

fn redlock_peer<'a, 'b>(seats: &'a [RunningPeer<'b>]) -> &'a RunningPeer<'b> {
    seats.iter().find(|seat| seat.entrant == Peer::Ours).expect("redlock-client always takes part")
}

/// Checks that redlock-client has more cycles per second than every library.
fn judge(report: &mut Report, what: &str, seats: &[RunningPeer<'_>]) {
    let ours = &redlock_peer(seats).rounds;
    for seat in seats.iter().filter(|seat| seat.entrant.is_library() && !seat.rounds.is_empty()) {
        let ratio = ratio_of(ours, &seat.rounds, |round| round.cycles_per_s);
        report.at_least(format!("{what}: cycles a second against {}", seat.entrant.name()), ratio, 1.0);
    }
}
