//! Many clients, each with its own connection.

use std::time::Instant;

use redlock_tests::{Server, Wire};

use crate::client::cpu;
use crate::names::{key, owner};
use crate::report::{Report, TerminalBar, figure, median};

const COUNTS: [usize; 4] = [1, 10, 100, 1_000];
/// Pairs of acquire and release in a round, over all connections together.
const PAIRS: usize = 20_000;
const ROUNDS: usize = 5;

pub(crate) fn measure(report: &mut Report) {
    let server = Server::start();
    let mut crowds: Vec<Vec<Wire>> =
        COUNTS.iter().map(|count| (0..*count).map(|_| server.connect()).collect()).collect();
    let mut seen = vec![(Vec::new(), Vec::new()); COUNTS.len()];
    let progress = TerminalBar::of("connections", ROUNDS + 1);
    for round in 0..=ROUNDS {
        for turn in 0..COUNTS.len() {
            let which = (turn + round) % COUNTS.len();
            let (cpu_us, per_s) = one_round(&server, &mut crowds[which]);
            if round > 0 {
                seen[which].0.push(cpu_us);
                seen[which].1.push(per_s);
            }
        }
        progress.step();
    }
    drop(progress);
    report.section(
        "connections",
        format!(
            "Acquire and release, one command in flight on each connection, {ROUNDS} rounds of {PAIRS} pairs"
        ),
    );
    let rows: Vec<_> = COUNTS
        .iter()
        .zip(&seen)
        .map(|(count, (cpu_us, per_s))| {
            vec![(*count).into(), figure(median(cpu_us), 2), figure(median(per_s), 0)]
        })
        .collect();
    report.table(&["connections", "server CPU us a pair", "pairs/s"], &rows);
    let last = median(&seen[COUNTS.len() - 1].0);
    report.at_most("server CPU with 1,000 connections against 10", last / median(&seen[1].0), 1.5);
}

/// CPU time of the server for a pair in microseconds, and pairs per second.
fn one_round(server: &Server, wires: &mut [Wire]) -> (f64, f64) {
    let before_us = cpu::server_us(server);
    let start = Instant::now();
    for round in 0..PAIRS / wires.len() {
        for verb in ["REDLOCK.ACQUIRE", "REDLOCK.RELEASE"] {
            for (number, wire) in wires.iter_mut().enumerate() {
                let (key, owner) = (key(number), owner(round));
                let mut words = vec![verb, &key, &owner];
                words.extend((verb == "REDLOCK.ACQUIRE").then_some("30000"));
                wire.send(&words).expect("a server that lives");
            }
            for wire in wires.iter_mut() {
                wire.receive().expect("a server that lives");
            }
        }
    }
    let pairs = (PAIRS / wires.len() * wires.len()) as f64;
    ((cpu::server_us(server) - before_us) / pairs, pairs / start.elapsed().as_secs_f64())
}
