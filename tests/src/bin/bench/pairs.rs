//! Server CPU time of one acquire and release.

use std::time::Instant;

use redlock_tests::{Answer, Server, Wire};

use crate::contenders::{self, Contender, DEL, LUA};
use crate::figures::{median, spread, table, verdict};

/// Many short rounds: whatever disturbs the machine hits a few of them, and neighbours alike.
const ROUNDS: usize = 41;
const PAIRS_PER_ROUND: usize = 6_000;
/// Commands in flight at a time on a connection.
const PIPELINE: usize = 16;
/// So many connections keep the server at work: it is the server that is measured, not its naps.
const CONNECTIONS: usize = 16;
/// Locks cycle over so many keys.
const KEYS: usize = 10_000;

pub(crate) fn measure(plain: &Server, locks: &Server) {
    let connect = |server: &Server| -> Vec<Wire> { (0..CONNECTIONS).map(|_| server.connect()).collect() };
    let (mut to_plain, mut to_locks) = (connect(plain), connect(locks));
    let contenders = contenders::all(&mut to_plain[0]);
    let mut cpu_us: Vec<Vec<f64>> = contenders.iter().map(|_| Vec::new()).collect();
    let mut wall_us = cpu_us.clone();
    // The first round warms up and does not count.
    for round in 0..=ROUNDS {
        for turn in 0..contenders.len() {
            let which = (turn + round) % contenders.len();
            let contender = &contenders[which];
            let wires = if contender.with_module { &mut to_locks } else { &mut to_plain };
            let (cpu, wall) = one_round(wires, contender);
            if round > 0 {
                cpu_us[which].push(cpu);
                wall_us[which].push(wall);
            }
        }
        eprint!("\rround {round} of {ROUNDS} ");
    }
    eprintln!();
    report(&contenders, &cpu_us, &wall_us);
    let told = |field: &str| locks.info("redlock", field).unwrap_or_default();
    println!(
        "the ledger was written {} times for {} grants, its creation included",
        told("redlock_ledger_writes"),
        told("redlock_grants")
    );
}

fn report(contenders: &[Contender], cpu_us: &[Vec<f64>], wall_us: &[Vec<f64>]) {
    // A ratio compares neighbours within a round; its median is over rounds.
    let ratio = |of: usize, to: &str| {
        let Some(to) = contenders.iter().position(|contender| contender.name == to) else { return f64::NAN };
        let rounds: Vec<f64> = cpu_us[of].iter().zip(&cpu_us[to]).map(|(of, to)| of / to).collect();
        median(&rounds)
    };
    let rows: Vec<Vec<String>> = contenders
        .iter()
        .enumerate()
        .map(|(which, contender)| {
            let (low, high) = spread(&cpu_us[which]);
            vec![
                contender.name.to_owned(),
                format!("{:.2}", median(&cpu_us[which])),
                format!("{low:.2}-{high:.2}"),
                format!("{:.2}", ratio(which, LUA)),
                format!("{:.2}", ratio(which, DEL)),
                format!("{:.2}", median(&wall_us[which])),
            ]
        })
        .collect();
    println!(
        "One acquire and release: {ROUNDS} rounds of {PAIRS_PER_ROUND} pairs, {CONNECTIONS} connections, {PIPELINE} commands in flight on each, medians"
    );
    table(&["", "server CPU us", "min-max", "x Lua", "x DEL", "wall us"], &rows);
    let module = contenders.len() - 1;
    verdict("server CPU against the Lua way", ratio(module, LUA), 0.55);
    verdict("server CPU against SET + DEL", ratio(module, DEL), 1.0);
}

/// CPU time and wall time of one pair in microseconds.
fn one_round(wires: &mut [Wire], contender: &Contender) -> (f64, f64) {
    let batches: Vec<Vec<Vec<String>>> = (0..PAIRS_PER_ROUND)
        .map(|pair| (contenders::key(pair % KEYS), contenders::owner(pair)))
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
                // A measurement of refusals would be worth nothing.
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
