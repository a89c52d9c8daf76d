//! All states within small bounds: the rules hold, and if a rule is disabled, the model finds a path that
//! breaks it.

#![allow(clippy::panic)]

use redlock_sim::Violation;
use redlock_sim::model::{Bounds, Counterexample, Laws, Mistake, Report, explore};
use std::io::Write;
use std::time::Instant;

fn is_long() -> bool {
    std::env::var_os("REDLOCK_LONG").is_some()
}

fn explored(bounds: &Bounds) -> Report {
    let start = Instant::now();
    let report = explore(bounds);
    // Past the test runner, which hides what a passing test prints: the size of the exploration belongs in
    // the log.
    let _ = writeln!(std::io::stderr(), "model: {report}; {:.1} s", start.elapsed().as_secs_f64());
    report
}

/// Explores all states within some bounds. There must be at least `least_states`, and a step of each kind
/// that the bounds allow: a broken exploration finds no violation either.
fn holds(bounds: Bounds, least_states: usize) {
    let report = explored(&bounds);
    if let Some(counterexample) = &report.counterexample {
        panic!("{bounds}\n{counterexample}");
    }
    assert!(report.is_complete, "the exploration is not complete: {report}");
    assert!(report.states >= least_states, "fewer states than expected: {report}");
    assert!(report.held_states > 0 && report.taken_again > 0 && report.audited > 0, "{report}");
    let steps = |kind| report.kinds.iter().find(|(name, _)| *name == kind).map_or(0, |(_, count)| *count);
    let expected = [
        ("begin", true),
        ("deliver", true),
        ("hear", true),
        ("release", true),
        ("tick", true),
        ("crash", bounds.crashes > 0),
        ("extend", bounds.extensions > 0),
        ("silence", bounds.silences > 0),
        ("break", bounds.breaks > 0),
        ("copy", bounds.copies > 0),
        ("deliver late", bounds.breaks > 0 || bounds.copies > 0),
    ];
    for (kind, is_expected) in expected {
        assert_eq!(steps(kind) > 0, is_expected, "{kind}: {:?}", report.kinds);
    }
}

/// Disables a rule. The exploration must find the shortest path that breaks an invariant.
fn found(bounds: Bounds, mistake: Mistake, laws: Laws) -> Counterexample {
    let report = explored(&bounds.with(mistake, laws));
    let counterexample = report.counterexample.unwrap_or_else(|| panic!("{mistake:?} was not noticed"));
    println!("{mistake:?}: {counterexample}");
    counterexample
}

/// Nodes that have granted the lock 0, 1 and 2 times before: no two replies agree without a second round.
const ALL_DIFFERENT: [u8; 3] = [0, 1, 2];
/// One node has seen a grant that the others have not.
const ONE_AHEAD: [u8; 3] = [0, 0, 1];

#[test]
fn a_node_that_loses_its_memory_breaks_no_rule() {
    let silences = u8::from(is_long());
    holds(Bounds { crashes: 1, silences, ..Bounds::of(3, 2) }, 700_000);
}

#[test]
fn second_rounds_break_no_rule() {
    holds(Bounds { earlier: ALL_DIFFERENT, hints: true, ..Bounds::of(3, 2) }, 900_000);
}

#[test]
fn extensions_break_no_rule() {
    holds(Bounds { extensions: 1, gives_up: is_long(), ..Bounds::of(3, 2) }, 1_800_000);
}

#[test]
fn slow_replies_to_raises_revive_no_lock() {
    holds(Bounds { earlier: ALL_DIFFERENT, silences: 1, extensions: 1, ..Bounds::of(3, 1) }, 30_000);
}

#[test]
fn broken_connections_break_no_rule() {
    holds(Bounds { extensions: 1, silences: 1, breaks: 1, ..Bounds::of(2, 2) }, 1_300_000);
}

#[test]
fn requests_that_arrive_twice_break_no_rule() {
    let bounds = if is_long() {
        Bounds { ttl_ticks: 1, earlier: ONE_AHEAD, gives_up: false, ..Bounds::of(3, 2) }
    } else {
        Bounds::of(2, 2)
    };
    holds(Bounds { copies: 1, ..bounds }, 300_000);
}

#[test]
fn three_clients_break_no_rule() {
    let bounds = if is_long() {
        Bounds { ttl_ticks: 1, ..Bounds::of(3, 3) }
    } else {
        Bounds { crashes: 1, ..Bounds::of(2, 3) }
    };
    holds(Bounds { gives_up: false, ..bounds }, 1_900_000);
}

#[test]
fn longer_locks_break_no_rule() {
    let crashes = u8::from(is_long());
    holds(Bounds { ttl_ticks: 3, crashes, ..Bounds::of(3, 2) }, 250_000);
}

#[test]
fn the_largest_fence_without_a_majority_is_wrong() {
    let bounds = Bounds { earlier: ONE_AHEAD, ..Bounds::of(3, 2) };
    let found = found(bounds, Mistake::LargestFenceTaken, Laws::Fences);
    assert!(matches!(found.violation, Violation::FenceRepeated { .. } | Violation::FenceNotLarger { .. }));
}

#[test]
fn without_quarantine_two_hold_one_lock() {
    let bounds = Bounds { crashes: 1, ..Bounds::of(3, 2) };
    let found = found(bounds, Mistake::NoQuarantine, Laws::Exclusion);
    assert!(matches!(found.violation, Violation::Overlap { .. }));
}

#[test]
fn a_quarantine_one_tick_too_short_is_none() {
    let bounds = Bounds { crashes: 1, ..Bounds::of(3, 2) };
    let found = found(bounds, Mistake::QuarantineTooShort, Laws::Exclusion);
    assert!(matches!(found.violation, Violation::Overlap { .. }));
}

#[test]
fn with_forgotten_counters_fences_go_back() {
    let bounds = Bounds { crashes: 1, ..Bounds::of(3, 2) };
    let found = found(bounds, Mistake::FencesForgotten, Laws::Fences);
    assert!(matches!(found.violation, Violation::FenceRepeated { .. } | Violation::FenceNotLarger { .. }));
}

#[test]
fn counted_from_the_answer_validity_is_too_long() {
    let found = found(Bounds::of(3, 2), Mistake::ValidityFromAnswer, Laws::Exclusion);
    assert!(matches!(found.violation, Violation::Overlap { .. }));
}

#[test]
fn half_of_the_nodes_are_not_enough() {
    for nodes in [2, 3] {
        let found = found(Bounds::of(nodes, 2), Mistake::HalfIsEnough, Laws::Exclusion);
        assert!(matches!(found.violation, Violation::Overlap { .. }), "{nodes} nodes");
    }
}

#[test]
fn a_search_that_is_cut_off_says_so() {
    let report = explored(&Bounds { most_states: 1_000, ..Bounds::of(3, 2) });
    assert!(!report.is_complete && report.counterexample.is_none(), "{report}");
}
