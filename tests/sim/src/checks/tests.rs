//! Each invariant alone: a history that breaks only this one, and a similar history that does not.

use super::*;

/// The violations of a history whose clocks keep their rates, or do not.
fn found(clocks_hold: bool, history: impl FnOnce(&mut Checks)) -> Vec<Violation> {
    let mut checks = Checks::new(clocks_hold);
    history(&mut checks);
    checks.violations
}

#[test]
fn two_believers_are_seen_unless_clocks_are_off() {
    let history = |checks: &mut Checks| {
        checks.began(1, &[0]);
        checks.held(1, &[0], 1, &[]);
        checks.began(2, &[0, 1]);
        checks.held(2, &[0, 1], 2, &[(1, 0)]);
    };
    assert_eq!(found(true, history), [Violation::Overlap { key: 0, holder: 1, newcomer: 2 }]);
    assert_eq!(found(false, history), []);
}

#[test]
fn numbers_grow_whatever_the_clocks_do() {
    let history = |first: u64, second: u64, is_after: bool| {
        found(false, |checks| {
            checks.began(1, &[0]);
            if !is_after {
                checks.began(2, &[0]);
            }
            checks.held(1, &[0], first, &[]);
            checks.ended(1);
            if is_after {
                checks.began(2, &[0]);
            }
            checks.held(2, &[0], second, &[]);
        })
    };
    assert_eq!(history(5, 6, true), []);
    assert_eq!(history(5, 4, true), [Violation::FenceNotLarger { key: 0, fence: 4, before: 5 }]);
    assert_eq!(history(5, 4, false), [], "concurrent attempts may get their fences in either order");
    assert_eq!(history(5, 5, false), [Violation::FenceRepeated { key: 0, fence: 5 }]);
}

#[test]
fn readers_overlap_with_readers_only() {
    let history = |readers: &'static [SessionId]| {
        found(true, move |checks| {
            readers.iter().for_each(|session| checks.shares(*session));
            checks.began(1, &[0]);
            checks.began(2, &[0]);
            checks.held(1, &[0], 1, &[]);
            checks.held(2, &[0], 2, &[(1, 0)]);
        })
    };
    let overlap = [Violation::Overlap { key: 0, holder: 1, newcomer: 2 }];
    assert_eq!(history(&[1, 2]), []);
    assert_eq!(history(&[1]), overlap);
    assert_eq!(history(&[2]), overlap);
}

/// Sessions 1 and 2 hold the lock one after the other.
fn one_after_the_other(readers: &'static [SessionId], first: u64, second: u64) -> Vec<Violation> {
    found(false, move |checks| {
        readers.iter().for_each(|session| checks.shares(*session));
        checks.began(1, &[0]);
        checks.held(1, &[0], first, &[]);
        checks.ended(1);
        checks.began(2, &[0]);
        checks.held(2, &[0], second, &[]);
    })
}

#[test]
fn fences_order_readers_and_writers_but_not_readers_among_themselves() {
    let not_larger = |fence, before| Violation::FenceNotLarger { key: 0, fence, before };
    let repeated = |fence| Violation::FenceRepeated { key: 0, fence };
    assert_eq!(one_after_the_other(&[1, 2], 5, 5), []);
    assert_eq!(one_after_the_other(&[1, 2], 5, 4), []);
    for readers in [&[1][..], &[2]] {
        assert_eq!(one_after_the_other(readers, 5, 6), []);
        assert_eq!(one_after_the_other(readers, 5, 4), [not_larger(4, 5)]);
        assert_eq!(one_after_the_other(readers, 5, 5), [not_larger(5, 5), repeated(5)]);
    }
}

#[test]
fn a_reader_must_see_the_newest_write() {
    let stale = |checks: &mut Checks| {
        checks.wrote(0, 2, true, true);
        checks.read(0, 1, true, true);
    };
    assert_eq!(found(false, stale), [Violation::StaleWrite { key: 0, fence: 1, newest: 2 }]);
    let rejected = |checks: &mut Checks| {
        checks.wrote(0, 2, true, true);
        checks.read(0, 3, false, true);
    };
    assert_eq!(found(true, rejected), [Violation::ValidWriteRefused { key: 0, fence: 3, newest: 2 }]);
    assert_eq!(found(false, rejected), []);
}

#[test]
fn a_reader_may_overtake_a_reader_but_no_writer() {
    let history = |readers: &'static [SessionId]| {
        found(true, move |checks| {
            readers.iter().for_each(|session| checks.shares(*session));
            checks.queued(1, 0, 10);
            checks.takes_its_turn(2, 0, 11);
            checks.held_after_waiting(2);
        })
    };
    assert_eq!(history(&[1, 2]), []);
    assert_eq!(history(&[2]), [Violation::Overtaken { session: 1, by: 2 }]);
    assert_eq!(history(&[1]), [Violation::Overtaken { session: 1, by: 2 }]);
}

#[test]
fn keys_have_separate_fences() {
    let history = |checks: &mut Checks| {
        checks.began(1, &[0]);
        checks.held(1, &[0], 5, &[]);
        checks.began(2, &[1]);
        checks.held(2, &[1], 5, &[]);
    };
    assert_eq!(found(true, history), []);
}

#[test]
fn stale_writes_and_valid_ones_turned_away_are_seen() {
    let stale = |checks: &mut Checks| {
        checks.wrote(0, 2, true, true);
        checks.wrote(0, 1, true, false);
    };
    for clocks_hold in [true, false] {
        assert_eq!(found(clocks_hold, stale), [Violation::StaleWrite { key: 0, fence: 1, newest: 2 }]);
    }
    let refused = |was_valid: bool| {
        move |checks: &mut Checks| {
            checks.wrote(0, 2, true, true);
            checks.wrote(0, 2, true, true);
            checks.wrote(0, 1, false, was_valid);
        }
    };
    assert_eq!(found(true, refused(false)), []);
    assert_eq!(found(true, refused(true)), [Violation::ValidWriteRefused { key: 0, fence: 1, newest: 2 }]);
    assert_eq!(found(false, refused(true)), []);
}

#[test]
fn what_is_over_does_not_come_back() {
    let held = |checks: &mut Checks| {
        checks.began(1, &[0]);
        checks.ended(1);
        checks.held(1, &[0], 1, &[]);
    };
    assert_eq!(found(false, held), [Violation::Revived { session: 1 }]);
    let extended = |checks: &mut Checks| {
        checks.began(1, &[0]);
        checks.held(1, &[0], 1, &[]);
        checks.extended(1);
        checks.ended(1);
        checks.extended(1);
    };
    assert_eq!(found(false, extended), [Violation::Revived { session: 1 }]);
}

#[test]
fn a_later_holder_has_the_larger_fence() {
    let late = |clocks_hold, fence| {
        found(clocks_hold, |checks| {
            checks.began(1, &[0]);
            checks.began(2, &[0]);
            checks.held(2, &[0], 8, &[]);
            checks.holds_from_now(1, &[0], fence);
        })
    };
    assert_eq!(late(true, 7), [Violation::FenceNotLarger { key: 0, fence: 7, before: 8 }]);
    assert_eq!(late(true, 9), []);
    assert_eq!(late(false, 7), [], "with bad clocks it may believe in a lock that has expired");
}

#[test]
fn who_relies_on_a_lock_past_its_end_was_told_too_late() {
    let stopped = |clocks_hold, has_lapsed, was_asleep| {
        found(clocks_hold, |checks| checks.stopped(1, has_lapsed, was_asleep))
    };
    assert_eq!(stopped(true, true, false), [Violation::LossToldLate { session: 1 }]);
    assert_eq!(stopped(true, false, false), []);
    assert_eq!(stopped(true, true, true), [], "a sleeping holder cannot be notified");
    assert_eq!(stopped(false, true, false), []);
}

/// Session 1 waits for key 0 with ticket 10; session 2 comes with a ticket for a key, and is served after
/// `meanwhile`.
fn served(ticket: u64, key: usize, meanwhile: impl FnOnce(&mut Checks)) -> (Vec<Violation>, u64) {
    let mut checks = Checks::new(true);
    checks.queued(1, 0, 10);
    checks.takes_its_turn(2, key, ticket);
    meanwhile(&mut checks);
    checks.held_after_waiting(2);
    (checks.violations, checks.turns)
}

#[test]
fn who_is_served_before_an_older_one_is_seen() {
    let overtaken = vec![Violation::Overtaken { session: 1, by: 2 }];
    assert_eq!(served(11, 0, |_| {}), (overtaken, 1));
    assert_eq!(
        served(11, 0, |checks| checks.held_after_waiting(1)),
        (vec![], 1),
        "session 1 was served first"
    );
    assert_eq!(served(11, 0, |checks| checks.ended(1)), (vec![], 1), "session 1 gave up");
    assert_eq!(
        served(11, 0, |checks| checks.leaves_queue(1)),
        (vec![], 1),
        "the time limit of session 1 has passed"
    );
    assert_eq!(served(9, 0, |_| {}), (vec![], 0), "session 2 has the smaller ticket");
    assert_eq!(served(11, 1, |_| {}), (vec![], 0), "another queue");
}

#[test]
fn what_is_left_when_all_is_quiet_is_seen() {
    let ghost = |is_held| found(false, |checks| checks.after_its_time(3, 1, is_held));
    assert_eq!(ghost(true), [Violation::Ghost { node: 3, key: 1 }]);
    assert_eq!(ghost(false), []);
}

#[test]
fn what_cannot_be_had_again_or_takes_too_long_is_seen() {
    let asked = |requests, is_first| found(false, |checks| checks.asked_in_peace(1, requests, 3, is_first));
    assert_eq!(asked(None, true), [Violation::NotFreeAgain { key: 1 }]);
    assert_eq!(asked(None, false), [Violation::NotFreeAgain { key: 1 }]);
    assert_eq!(asked(Some(4), false), [Violation::MoreThanOneRound { requests: 4, nodes: 3 }]);
    assert_eq!(asked(Some(4), true), [], "the first acquire may need a second round");
    assert_eq!(asked(Some(3), false), []);
}

#[test]
fn a_state_file_that_cannot_be_read_is_seen() {
    assert_eq!(found(false, |checks| checks.cannot_start(2)), [Violation::CannotStart { node: 2 }]);
}
