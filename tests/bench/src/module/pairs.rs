//! Server CPU time of one acquire and release.

use std::time::Instant;

use redlock_tests::{Answer, Wire};

use super::Servers;
use super::lock_commands::{self, DEL, DELIFEQ, LUA, LockCommands};
use crate::names;
use crate::report::{Bars, Chart, Report, TerminalBar, figure, median, ratio_of, spread};

/// Many short rounds: other load on the machine affects few of them, and neighbours equally.
const ROUNDS: usize = 41;
const PAIRS_PER_ROUND: usize = 6_000;
/// Commands in flight on each connection.
const PIPELINE: usize = 16;
/// Enough connections to keep the server busy, so that the bench measures its work and not its sleep.
const CONNECTIONS: usize = 16;
/// How many keys the locks cycle over.
const KEYS: usize = 10_000;

pub(super) fn measure(report: &mut Report, servers: &Servers) {
    let contenders = lock_commands::all(&mut servers.plain.connect());
    let connect = |contender: &LockCommands| -> Vec<Wire> {
        (0..CONNECTIONS).map(|_| servers.get(contender.on).connect()).collect()
    };
    let mut wires: Vec<Vec<Wire>> = contenders.iter().map(connect).collect();
    let mut cpu_us: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    let mut wall_us = cpu_us.clone();
    let progress = TerminalBar::of("acquire and release", ROUNDS + 1);
    // The first round is a warm-up and does not count.
    for round in 0..=ROUNDS {
        for turn in 0..contenders.len() {
            let which = (turn + round) % contenders.len();
            let (cpu, wall) = one_round(&mut wires[which], &contenders[which]);
            if round > 0 {
                cpu_us[which].push(cpu);
                wall_us[which].push(wall);
            }
        }
        progress.step();
    }
    drop(progress);
    tell(report, &contenders, &cpu_us, &wall_us);
    let told = |field: &str| servers.locks.info("redlock", field).unwrap_or_default();
    report.remark(format!(
        "The state file was written {} times for {} grants, its creation included.",
        told("redlock_state_writes"),
        told("redlock_grants")
    ));
}

fn tell(report: &mut Report, contenders: &[LockCommands], cpu_us: &[Vec<f64>], wall_us: &[Vec<f64>]) {
    let ratio = |of: usize, to: &str| {
        let to = contenders.iter().position(|contender| contender.name == to)?;
        Some(ratio_of(&cpu_us[of], &cpu_us[to], |us| *us))
    };
    let rows: Vec<_> = contenders
        .iter()
        .enumerate()
        .map(|(which, contender)| {
            let (low, high) = spread(&cpu_us[which]);
            vec![
                contender.name.into(),
                figure(median(&cpu_us[which]), 2),
                format!("{low:.2}-{high:.2}").into(),
                figure(ratio(which, LUA).unwrap_or(f64::NAN), 2),
                figure(ratio(which, DEL).unwrap_or(f64::NAN), 2),
                figure(median(&wall_us[which]), 2),
            ]
        })
        .collect();
    report.section(
        "pairs",
        format!(
            "One acquire and release: {ROUNDS} rounds of {PAIRS_PER_ROUND} pairs, {CONNECTIONS} connections, {PIPELINE} commands in flight on each, medians"
        ),
    );
    report.table(&["", "server CPU us", "min-max", "x Lua", "x DEL", "wall us"], &rows);
    let module = contenders.len() - 1;
    for (name, words, bound) in
        [(LUA, "the Lua way", 0.5), (DEL, "SET + DEL", 0.85), (DELIFEQ, "SET + DELIFEQ", 1.0)]
    {
        if let Some(ratio) = ratio(module, name) {
            report.at_most(format!("server CPU against {words}"), ratio, bound);
        }
    }
    let bars = contenders.iter().zip(cpu_us).map(|(contender, us)| (contender.name.to_owned(), median(us)));
    let chart = Bars {
        title: "Server CPU time of one acquire and release".into(),
        unit: "microseconds, less is better".into(),
        bars: bars.collect(),
        ours: "REDLOCK",
    };
    report.chart("pairs", &Chart::Bars(chart));
}

/// CPU time and wall time of one pair in microseconds.
fn one_round(wires: &mut [Wire], contender: &LockCommands) -> (f64, f64) {
    let batches: Vec<Vec<Vec<String>>> = (0..PAIRS_PER_ROUND)
        .map(|pair| (names::key(pair % KEYS), names::owner(pair)))
        .map(|(key, owner)| [(contender.acquire)(&key, &owner), (contender.release)(&key, &owner)])
        .collect::<Vec<_>>()
        .chunks(PIPELINE / 2)
        .map(|pairs| pairs.concat())
        .collect();
    let before = cpu_us(&mut wires[0]);
    let start = Instant::now();
    for turn in batches.chunks(wires.len()) {
        for (wire, batch) in wires.iter_mut().zip(turn) {
            wire.send_all(batch).expect("the server reads");
        }
        for (wire, batch) in wires.iter_mut().zip(turn) {
            for _ in 0..batch.len() / 2 {
                let answers = [0, 1].map(|_| wire.receive().expect("the server answers"));
                // Only pairs that acquire and release a lock count.
                let granted = matches!(&answers[0], Answer::Int(1..) | Answer::Status(_));
                assert!(granted && answers[1] == Answer::Int(1), "{}: {answers:?}", contender.name);
            }
        }
    }
    let wall = start.elapsed().as_secs_f64() * 1e6;
    let pairs = PAIRS_PER_ROUND as f64;
    ((cpu_us(&mut wires[0]) - before) / pairs, wall / pairs)
}

/// CPU time that the server has used so far.
fn cpu_us(wire: &mut Wire) -> f64 {
    let info = wire.call(&["INFO", "cpu"]).string();
    let of = |name: &str| -> f64 {
        let line = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|value| value.trim().parse().ok()).expect("INFO cpu has its fields")
    };
    (of("used_cpu_sys") + of("used_cpu_user")) * 1e6
}
