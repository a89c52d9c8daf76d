//! Histories on virtual time, many thousands of them: the rules hold, and if a rule is disabled, a check
//! notices.

#![allow(clippy::expect_used, clippy::panic)]

use redlock_sim::{self as sim, Outcome, Plan, Violation, Weakness};
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// The first seed of a run; each history uses the next one.
fn first_seed() -> u64 {
    sim::seed(1)
}

fn histories() -> u64 {
    if std::env::var_os("REDLOCK_LONG").is_some() { 10_000_000 } else { 100_000 }
}

/// Prints figures past the test runner into the log of every run.
fn report(line: &str) {
    // A closed terminal is no reason to fail.
    let _ = writeln!(std::io::stderr(), "{line}");
}

/// Runs plans on all cores until one breaks the wanted invariant. Returns that plan, and the sum of all
/// counters.
fn search(
    count: u64,
    plan: impl Fn(u64) -> Plan + Sync,
    is_sought: impl Fn(&Violation) -> bool + Sync,
) -> (Option<Plan>, Outcome) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(2, NonZeroUsize::get);
    let worker = || {
        let mut total = Outcome::default();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok((None, total));
            }
            let plan = plan(first_seed().wrapping_add(number));
            let outcome = sim::survive(&plan).inspect_err(|_| next.store(count, Ordering::Relaxed))?;
            total.add(&outcome);
            if outcome.violations.iter().any(&is_sought) {
                next.store(count, Ordering::Relaxed);
                return Ok((Some(plan), total));
            }
        }
    };
    let results: Vec<Result<_, String>> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    let mut total = Outcome::default();
    let mut failed = None;
    for result in results {
        let (plan, outcome) = result.unwrap_or_else(|panic| panic!("{panic}"));
        failed = failed.or(plan);
        total.add(&outcome);
    }
    (failed, total)
}

/// All kinds of faults of a history.
const FAULTS: [&str; 39] = [
    "admission",
    "all files lost",
    "backup",
    "break",
    "client cut off",
    "crash",
    "crash in a store",
    "cut both ways",
    "cut one way",
    "hostile raise",
    "longest lease lowered",
    "machine set back",
    "node cut off",
    "node refused",
    "older data",
    "other port",
    "pause",
    "power failure",
    "promotion after a death",
    "promotion beside the old master",
    "push break",
    "push cut",
    "push lost",
    "push overtaken",
    "replica started as a master",
    "reply lost",
    "request lost",
    "request repeated",
    "restart",
    "shutdown",
    "sleep",
    "stall",
    "state and data copied back",
    "state copied back",
    "state file lost",
    "stray",
    "torn store prepared",
    "wall clock ahead",
    "wall clock back",
];

/// The faults that only some histories can have.
const RARE_FAULTS: [&str; 5] =
    ["all files lost", "machine set back", "older data", "state and data copied back", "state copied back"];

#[test]
fn no_history_breaks_a_rule() {
    let (count, start) = (histories(), Instant::now());
    let (failed, total) = search(count, Plan::of, |_| true);
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
    report(&format!("simulator: {count} histories in {:.0} s, {total:?}", start.elapsed().as_secs_f64()));
    // Histories in which nothing happens would prove nothing.
    assert!(total.holds > count && total.promotions > count / 10, "{total:?}");
    assert!(total.extensions > count / 10 && total.turned_away > 0, "{total:?}");
    assert!(total.handoffs > count / 10 && total.yields > 0, "{total:?}");
    assert!(total.shared_holds > count / 20, "{total:?}");
    // Nor would histories without faults, or without waiters.
    assert!(total.orderly > count / 50 && total.turns > count / 10, "{total:?}");
    let kinds: Vec<&str> = total.faults.keys().copied().collect();
    assert_eq!(kinds, FAULTS);
    let is_rare = |kind: &str| RARE_FAULTS.contains(&kind);
    let least = |kind: &str| if is_rare(kind) { count / 1_000 } else { count / 50 };
    assert!(total.faults.iter().all(|(kind, times)| *times > least(kind)), "{total:?}");
}

#[test]
fn one_seed_is_one_history() {
    for seed in 0..50 {
        let plan = Plan::of(seed);
        let (one, other) = (sim::trace(&plan).1, sim::trace(&plan).1);
        assert_eq!(one, other, "seed {seed}");
    }
}

/// Disables a rule until a check notices the expected violation. Other checks may notice other violations,
/// and the threads decide which history comes first.
#[track_caller]
fn notice(weakness: Weakness, is_sought: impl Fn(&Violation) -> bool + Sync) {
    let (found, total) = search(200_000, |seed| Plan::of(seed).with(weakness), is_sought);
    let plan = found.unwrap_or_else(|| panic!("{weakness:?} was not noticed: {total:?}"));
    let (histories, steps) = (total.histories, total.steps);
    println!(
        "{weakness:?}: {histories} histories, {steps} steps, {:?} in {plan}",
        sim::run(&plan).violations
    );
}

fn is_overlap(violation: &Violation) -> bool {
    matches!(violation, Violation::Overlap { .. })
}

fn is_not_free(violation: &Violation) -> bool {
    matches!(violation, Violation::NotFreeAgain { .. })
}

fn is_about_fences(violation: &Violation) -> bool {
    matches!(violation, Violation::FenceRepeated { .. } | Violation::FenceNotLarger { .. })
}

#[test]
fn without_quarantine_two_hold_one_lock() {
    notice(Weakness::NoQuarantine, is_overlap);
}

#[test]
fn with_forgotten_counters_fences_go_back() {
    notice(Weakness::FencesForgotten, is_about_fences);
}

#[test]
fn counted_from_the_answer_validity_is_too_long() {
    notice(Weakness::ValidityFromAnswer, is_overlap);
}

#[test]
fn without_an_allowance_for_drift_two_hold_one_lock() {
    notice(Weakness::DriftIgnored, is_overlap);
}

#[test]
fn the_largest_fence_without_a_majority_is_wrong() {
    notice(Weakness::LargestFenceTaken, is_about_fences);
}

#[test]
fn a_grant_does_not_count_from_the_arrival_of_its_push() {
    notice(Weakness::GrantFromItsNews, is_overlap);
}

#[test]
fn what_was_handed_on_must_not_be_taken_back_at_once() {
    notice(Weakness::TakenBackAtOnce, is_overlap);
}

#[test]
fn a_push_for_a_finished_attempt_is_ignored() {
    // Two clients may hold one lock, or have one fence.
    notice(Weakness::StampsUnchecked, |violation| {
        matches!(violation, Violation::Overlap { .. }) || is_about_fences(violation)
    });
}

#[test]
fn a_storage_that_does_not_check_takes_stale_writes() {
    notice(Weakness::FencesUnchecked, |violation| matches!(violation, Violation::StaleWrite { .. }));
}

#[test]
fn by_the_wall_clock_two_hold_one_lock() {
    notice(Weakness::WallClockBelieved, is_overlap);
}

#[test]
fn a_lock_that_is_loaded_with_less_time_than_it_had_is_held_twice() {
    notice(Weakness::LoadedTooShort, is_overlap);
}

#[test]
fn a_wait_that_a_crash_cuts_short_lets_two_hold_one_lock() {
    notice(Weakness::WaitForgotten, is_overlap);
}

#[test]
fn a_notice_at_the_end_of_validity_is_too_late() {
    notice(Weakness::NoticeTooLate, |violation| matches!(violation, Violation::LossToldLate { .. }));
}

#[test]
fn serving_the_newest_waiter_first_breaks_the_order() {
    notice(Weakness::LastComeFirstServed, |violation| matches!(violation, Violation::Overtaken { .. }));
}

#[test]
fn a_promoted_replica_that_leaps_gives_fences_out_again() {
    notice(Weakness::LeapAfterPromotion, is_about_fences);
}

#[test]
fn a_promoted_replica_has_not_heard_of_every_lease() {
    notice(Weakness::PromotedWaitsForHeardLeases, is_overlap);
}

#[test]
fn a_promoted_replica_and_the_old_master_are_one_vote() {
    notice(Weakness::OldMasterVotesOn, is_overlap);
}

#[test]
fn a_replica_that_is_started_as_a_master_has_not_heard_of_everything() {
    notice(Weakness::RestartedReplicaVotes, |violation| is_overlap(violation) || is_about_fences(violation));
}

#[test]
fn older_data_is_not_every_lock() {
    notice(Weakness::OlderDataTaken, is_overlap);
}

#[test]
fn on_another_port_a_node_is_the_same() {
    notice(Weakness::OtherPortIsNew, |violation| is_overlap(violation) || is_about_fences(violation));
}

#[test]
fn with_one_high_water_mark_one_key_uses_up_the_fences_of_all() {
    notice(Weakness::OneHighWaterMark, is_not_free);
}

#[test]
fn a_long_lease_does_not_count_for_ever() {
    notice(Weakness::LongestLeaseKept, is_not_free);
}

#[test]
fn a_long_lease_counts_until_it_is_over() {
    notice(Weakness::LongestLeaseLoweredEarly, is_overlap);
}

#[test]
fn a_state_is_stored_before_the_grant() {
    notice(Weakness::StoredAfterGrant, |violation| is_overlap(violation) || is_about_fences(violation));
}

#[test]
fn a_state_file_that_is_not_synced_is_damaged() {
    notice(Weakness::FileNotSynced, |violation| matches!(violation, Violation::CannotStart { .. }));
}

#[test]
fn a_folder_that_is_not_synced_has_an_older_state_file() {
    notice(Weakness::FolderNotSynced, is_overlap);
    notice(Weakness::FolderNotSynced, is_about_fences);
}

#[test]
fn a_copied_state_file_is_an_older_one() {
    notice(Weakness::CopyTaken, is_about_fences);
}

#[test]
fn an_admitted_node_waits_for_leases_that_no_node_knows_of_yet() {
    notice(Weakness::AdmittedAfterKnownLeases, is_overlap);
}

#[test]
fn marks_before_the_wait_lack_the_fences_of_late_holders() {
    notice(Weakness::AdmittedAboveEarlierMarks, is_about_fences);
}

#[test]
fn one_node_does_not_know_every_fence_of_a_lost_node() {
    notice(Weakness::AdmittedAboveOneNode, is_about_fences);
}

#[test]
fn an_admitted_node_and_the_one_that_it_replaces_are_one_vote() {
    notice(Weakness::AdmittedBesideOld, is_overlap);
}

#[test]
fn a_client_that_takes_any_node_counts_one_twice() {
    notice(Weakness::AnyNodeTaken, is_overlap);
    notice(Weakness::AnyNodeTaken, is_about_fences);
}

/// From 2^62 on a node raises a fence by only 2^20 a command. If an admitted node uses the mark of a raised
/// key for all keys, the other nodes cannot follow it.
#[test]
fn an_admission_above_the_highest_mark_carries_a_hostile_raise_to_all_keys() {
    notice(Weakness::AdmittedAboveTheHighest, is_not_free);
    let sound =
        |seed| Plan { weakness: Weakness::None, ..Plan::of(seed).with(Weakness::AdmittedAboveTheHighest) };
    let (found, _) = search(5_000, sound, |_| true);
    assert!(found.is_none(), "with marks by stripe: {:?}", found.map(|plan| plan.to_string()));
}

#[test]
fn locks_that_live_too_long_are_ghosts_and_not_free_again() {
    notice(Weakness::LivesTooLong, |violation| matches!(violation, Violation::Ghost { .. }));
    // If a majority of the nodes keeps locks too long, no client gets the lock.
    let mut outcomes = (1..1_000).map(|seed| sim::run(&Plan::of(seed).with(Weakness::LivesTooLong)));
    assert!(outcomes.any(|outcome| outcome.violations.iter().any(is_not_free)));
}
