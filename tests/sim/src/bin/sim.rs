//! Replays one simulated history and tells it, line by line.

use redlock_sim::{self as sim, Plan};
use std::process::ExitCode;

const USAGE: &str = "usage: sim SEED [--simplest]    --simplest looks for less trouble that still goes wrong";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let wants_simplest = arguments.iter().any(|argument| argument == "--simplest");
    let Some(seed) = arguments.first().and_then(|seed| seed.parse().ok()) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let mut plan = Plan::of(seed);
    if wants_simplest && !sim::run(&plan).violations.is_empty() {
        plan = sim::shrink(&plan).0;
    }
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
