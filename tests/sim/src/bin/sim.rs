//! Replays one simulated history and tells it, line by line; or runs many, until one breaks a rule.

use redlock_sim::{self as sim, Plan};
use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str = "usage: sim SEED [--simplest]    --simplest looks for less trouble that still goes wrong
       sim --count N           runs the histories 1 to N, until one goes wrong";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let wish = match words[..] {
        ["--count", count] => count.parse().ok().map(run_many),
        [seed] => seed.parse().ok().map(|seed| replay(Plan::of(seed))),
        [seed, "--simplest"] => seed.parse().ok().map(|seed| replay(simplest(Plan::of(seed)))),
        _ => None,
    };
    wish.unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}

/// The plan itself, or if it goes wrong one with less trouble that still does.
fn simplest(plan: Plan) -> Plan {
    if sim::run(&plan).violations.is_empty() { plan } else { sim::shrink(&plan).0 }
}

fn replay(plan: Plan) -> ExitCode {
    println!("{plan}\n");
    let (outcome, lines) = sim::trace(&plan);
    lines.iter().for_each(|line| println!("{line}"));
    println!(
        "\n{} steps, {} attempts, {} holds, {} second rounds, {} extensions, {} stale writes turned away",
        outcome.steps,
        outcome.attempts,
        outcome.holds,
        outcome.promotions,
        outcome.extensions,
        outcome.turned_away
    );
    if outcome.violations.is_empty() {
        println!("Every rule was kept.");
        return ExitCode::SUCCESS;
    }
    outcome.violations.iter().for_each(|violation| println!("BROKEN: {violation}"));
    ExitCode::FAILURE
}

fn run_many(count: u64) -> ExitCode {
    let Some(plan) = first_that_breaks(count) else {
        println!("{count} histories: every rule was kept.");
        return ExitCode::SUCCESS;
    };
    println!("{plan}");
    sim::run(&plan).violations.iter().for_each(|violation| println!("BROKEN: {violation}"));
    ExitCode::FAILURE
}

/// The first history that breaks a rule, on all cores and yet always the same one: seeds are given out in
/// order, and whoever has been given one finishes it.
fn first_that_breaks(count: u64) -> Option<Plan> {
    let next = AtomicU64::new(1);
    let worker = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed > count {
                return None;
            }
            let plan = Plan::of(seed);
            if !sim::run(&plan).violations.is_empty() {
                next.store(count + 1, Ordering::Relaxed);
                return Some(plan);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        // A panic in a history is a finding as well: it goes on here.
        let found = workers
            .into_iter()
            .filter_map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        found.min_by_key(|plan| plan.seed)
    })
}
