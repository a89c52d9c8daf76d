//! Histories on virtual time, by the thousand: the rules hold, and where one is left out it shows.

#![allow(clippy::expect_used, clippy::panic)]

use redlock_sim::{self as sim, Outcome, Plan, Violation, Weakness};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where the seeds of a run begin: `REDLOCK_SEED`, or always the same.
fn first_seed() -> u64 {
    std::env::var("REDLOCK_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

fn histories() -> u64 {
    if std::env::var_os("REDLOCK_LONG").is_some() { 10_000_000 } else { 100_000 }
}

/// Runs plans on all cores until one goes wrong; returns it with all that was counted.
fn search(count: u64, plan: impl Fn(u64) -> Plan + Sync) -> (Option<Plan>, Outcome) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let worker = || {
        let mut total = Outcome::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return (None, total);
            }
            let plan = plan(first_seed().wrapping_add(number));
            let outcome = sim::run(&plan);
            total.add(&outcome);
            if !outcome.violations.is_empty() {
                next.store(count, Ordering::Relaxed);
                return (Some(plan), total);
            }
        }
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut total = Outcome::default();
    let mut failed = None;
    for (plan, outcome) in results {
        failed = failed.or(plan);
        total.add(&outcome);
    }
    (failed, total)
}

#[test]
fn no_history_breaks_a_rule() {
    let count = histories();
    let (failed, total) = search(count, Plan::of);
    if let Some(plan) = failed {
        let (simplest, outcome) = sim::shrink(&plan);
        let (_, lines) = sim::trace(&simplest);
        panic!(
            "{plan}\nsimplest: {simplest}\n{:?}\nreplay: scripts/sim {}\n{}",
            outcome.violations,
            plan.seed,
            lines.join("\n")
        );
    }
    println!("{count} histories: {total:?}");
    // Histories in which nothing happens would prove nothing.
    assert!(total.holds > count && total.promotions > count / 10, "{total:?}");
    assert!(total.extensions > count / 10 && total.turned_away > 0, "{total:?}");
    assert!(total.handoffs > count / 10 && total.yields > 0, "{total:?}");
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..50 {
        let plan = Plan::of(seed);
        let (one, other) = (sim::trace(&plan).1, sim::trace(&plan).1);
        assert_eq!(one, other, "seed {seed}");
    }
}

/// Leaves a rule out until a check notices, and returns what it noticed.
fn noticed(weakness: Weakness) -> Vec<Violation> {
    let (failed, total) = search(200_000, |seed| Plan::of(seed).with(weakness));
    let plan = failed.unwrap_or_else(|| panic!("{weakness:?} went unnoticed: {total:?}"));
    let outcome = sim::run(&plan);
    println!("{weakness:?}: {:?} in {plan}", outcome.violations);
    outcome.violations
}

fn is_about_fences(violation: &Violation) -> bool {
    matches!(violation, Violation::FenceRepeated { .. } | Violation::FenceNotLarger { .. })
}

#[test]
fn without_quarantine_two_hold_one_lock() {
    assert!(matches!(noticed(Weakness::NoQuarantine)[..], [Violation::Overlap { .. }, ..]));
}

#[test]
fn with_forgotten_counters_fences_go_back() {
    let violations = noticed(Weakness::FencesForgotten);
    assert!(violations.iter().any(is_about_fences), "{violations:?}");
}

#[test]
fn counted_from_the_answer_validity_is_too_long() {
    assert!(matches!(noticed(Weakness::ValidityFromAnswer)[..], [Violation::Overlap { .. }, ..]));
}

#[test]
fn without_an_allowance_for_drift_two_hold_one_lock() {
    assert!(matches!(noticed(Weakness::DriftIgnored)[..], [Violation::Overlap { .. }, ..]));
}

#[test]
fn the_largest_number_is_not_a_fence() {
    let violations = noticed(Weakness::LargestFenceTaken);
    assert!(violations.iter().any(is_about_fences), "{violations:?}");
}

#[test]
fn a_grant_does_not_count_from_its_news() {
    assert!(matches!(noticed(Weakness::GrantFromItsNews)[..], [Violation::Overlap { .. }, ..]));
}

#[test]
fn what_was_handed_on_must_not_be_taken_back_at_once() {
    assert!(matches!(noticed(Weakness::TakenBackAtOnce)[..], [Violation::Overlap { .. }, ..]));
}

#[test]
fn news_for_an_attempt_that_is_over_are_nobodys() {
    let violations = noticed(Weakness::StampsUnchecked);
    assert!(!violations.is_empty());
}

#[test]
fn a_storage_that_does_not_check_takes_stale_writes() {
    assert!(matches!(noticed(Weakness::FencesUnchecked)[..], [Violation::StaleWrite { .. }, ..]));
}
