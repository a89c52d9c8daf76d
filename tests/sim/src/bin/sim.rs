//! Replays one simulated history and prints its events, or runs many histories until one breaks a rule.

use redlock_sim::{self as sim, Plan};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

const USAGE: &str =
    "usage: sim SEED [--simplest]    prints one history; --simplest removes faults while it still fails
       sim --count N [--from SEED]    runs N histories, the first is 1 or SEED, until one breaks a rule";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let wish = match words[..] {
        ["--count", count] => count.parse().ok().map(|count| run_many(1, count)),
        ["--count", count, "--from", seed] => {
            seed.parse().ok().zip(count.parse().ok()).map(|(from, count)| run_many(from, count))
        }
        [seed] => seed.parse().ok().map(|seed| replay(Plan::of(seed))),
        [seed, "--simplest"] => seed.parse().ok().map(|seed| replay(simplest(Plan::of(seed)))),
        _ => None,
    };
    wish.unwrap_or_else(|| {
        eprintln!("{USAGE}");
        ExitCode::from(2)
    })
}

/// The plan itself, or if it breaks a rule, one with fewer faults that still does.
fn simplest(plan: Plan) -> Plan {
    if sim::run(&plan).violations.is_empty() { plan } else { sim::shrink(&plan).0 }
}

fn replay(plan: Plan) -> ExitCode {
    println!("{plan}\n");
    let (outcome, lines) = sim::trace(&plan);
    lines.iter().for_each(|line| println!("{line}"));
    println!(
        "\n{} steps, {} attempts, {} holds, {} second rounds, {} extensions, {} stale writes rejected",
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

fn run_many(from: u64, count: u64) -> ExitCode {
    let plan = match first_that_breaks(from..from.saturating_add(count)) {
        Ok(Some(plan)) => plan,
        Ok(None) => {
            println!("{count} histories: every rule was kept.");
            return ExitCode::SUCCESS;
        }
        // A panic in a history is a finding as well.
        Err(panic) => {
            println!("{panic}");
            return ExitCode::FAILURE;
        }
    };
    println!("{plan}");
    sim::run(&plan).violations.iter().for_each(|violation| println!("BROKEN: {violation}"));
    ExitCode::FAILURE
}

/// The first history that breaks a rule. All cores work, yet the result is always the same: seeds are handed
/// out in order, and each worker finishes its seed.
fn first_that_breaks(seeds: Range<u64>) -> Result<Option<Plan>, String> {
    let next = AtomicU64::new(seeds.start);
    let worker = || -> Result<Option<Plan>, String> {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return Ok(None);
            }
            let plan = Plan::of(seed);
            let outcome = sim::survive(&plan).inspect_err(|_| next.store(seeds.end, Ordering::Relaxed))?;
            if !outcome.violations.is_empty() {
                next.store(seeds.end, Ordering::Relaxed);
                return Ok(Some(plan));
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let mut found = Vec::new();
        for worker in workers {
            found.extend(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok(found.into_iter().min_by_key(|plan| plan.seed))
    })
}
