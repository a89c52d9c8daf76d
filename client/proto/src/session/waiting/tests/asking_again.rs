//! What may have been lost is asked for again, and what that leaves behind.

use super::*;

#[test]
fn a_node_that_is_down_is_not_waited_for() {
    let (mut session, request) = waiting(5, at(0), at(60_000));
    let down = || Reply::Failed(Failure::new(FailureKind::Down, ""));
    session.answered(0, &request, down(), at(0));
    session.answered(1, &request, down(), at(0));
    for node in 2..5 {
        assert!(session.answered(node, &request, queued(40), at(1)).is_none());
    }
    session.pushed(2, grant(7, 100, 1), at(2));
    session.pushed(3, grant(7, 100, 1), at(2));
    assert!(matches!(session.pushed(4, grant(7, 100, 1), at(2)), Some(Event::Held { .. })));
}

#[test]
fn a_broken_connection_is_queued_on_again_soon() {
    let (mut session, _) = in_line();
    let cut = || Failure::new(FailureKind::Cut, "");
    assert!(session.cut(2, cut(), at(50)).is_none());
    assert_eq!(session.wake_at(), Some(at(70)));
    assert!(matches!(session.woken(at(70)), Some(Event::Promote(..))));
    // Without a majority to wait at there is nothing to wait for.
    session.cut(0, cut(), at(80));
    let over = session.cut(1, cut(), at(80));
    assert!(matches!(over, Some(Event::Failed(Refusal::NoQuorum))), "{over:?}");
}

#[test]
fn whoever_was_not_listening_asks_again_soon_and_keeps_its_place() {
    let (mut session, _) = in_line();
    session.missed_news(at(50));
    session.missed_news(at(60));
    assert_eq!(session.wake_at(), Some(at(70)), "once for all nodes that are back");
    let Some(Event::Promote(again, to)) = session.woken(at(70)) else { panic!("it asks again") };
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    // Two nodes had given us the lock and were not heard.
    session.answered(0, &again, Reply::Number(7), at(71));
    session.answered(1, &again, Reply::Number(7), at(71));
    let held = session.pushed(2, grant(7, 101, 0), at(71));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");
}

/// A session that asks all five nodes, and again after two of them have said nothing of use; with the second request.
fn asked_twice(first: [Reply; 2]) -> (Session, Request) {
    let (mut session, request) = waiting(5, at(0), at(60_000));
    for node in 0..3 {
        assert!(session.answered(node, &request, queued(40), at(1)).is_none());
    }
    for (node, reply) in (3..5).zip(first) {
        assert!(session.answered(node, &request, reply, at(10)).is_none());
    }
    let Some(Event::Promote(again, to)) = session.woken(at(2_000)) else { panic!("it asks again") };
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    (session, again)
}

#[test]
fn a_second_request_that_was_not_sent_says_nothing_of_the_first() {
    use FailureKind::{Cut, Down, Rejected, Silent};
    for unknown in [Silent, Cut] {
        for second in [Down, Rejected] {
            let (mut session, again) = asked_twice([failed(unknown), queued(40)]);
            for node in 3..5 {
                session.answered(node, &again, failed(second), at(2_001));
            }
            let (_, to) = session.release(at(3_000));
            assert_eq!(nodes(to), [0, 1, 2, 3, 4], "{unknown:?}, in line, and then {second:?}");
        }
    }
}

#[test]
fn a_node_that_was_down_at_first_may_hold_what_it_is_asked_later() {
    use FailureKind::{Down, Silent};
    let (mut session, again) = asked_twice([failed(Down), failed(Down)]);
    session.answered(3, &again, failed(Silent), at(2_050));
    session.answered(4, &again, failed(Down), at(2_050));
    let (_, to) = session.release(at(2_060));
    assert_eq!(nodes(to), [0, 1, 2, 3], "4 was never sent anything");
    // Nor is it known before anything has come back.
    let (mut session, _) = asked_twice([failed(Down), failed(Down)]);
    assert_eq!(nodes(session.release(at(2_001)).1), [0, 1, 2, 3, 4]);
}

#[test]
fn those_who_ask_again_and_again_do_not_do_so_together() {
    let pauses = |ticket: u64| {
        let (session, _) = Session::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(0));
        let (mut session, mut request) = session.waiting(Line { ticket, ..line() }, at(60_000));
        let mut pauses = Vec::new();
        let mut now = at(0);
        for _ in 0..20 {
            for node in 0..3 {
                assert!(session.answered(node, &request, Reply::Nil, now).is_none(), "it goes on");
            }
            let due = session.wake_at().unwrap();
            pauses.push(now.until(due));
            let Some(Event::Promote(again, _)) = session.woken(due) else { panic!("it asks again") };
            (request, now) = (again, due);
        }
        // The first is the usual one: lines are full only if nodes say so.
        pauses.split_off(1)
    };
    let (one, other) = (pauses(1_700_000_000_000), pauses(1_700_000_000_001));
    for pause in one.iter().chain(&other) {
        assert!((ms(125)..ms(375)).contains(pause), "{pause:?}");
    }
    let together = one.iter().zip(&other).filter(|(one, other)| one.abs_diff(**other) < ms(2)).count();
    assert!(together < 5, "{one:?} {other:?}");
}

#[test]
fn a_request_of_which_nobody_knows_may_be_granted_late() {
    let (mut session, request) = waiting(5, at(0), at(60_000));
    for node in 1..4 {
        assert!(session.answered(node, &request, queued(40), at(1)).is_none());
    }
    // Nothing was sent to the last one, and nobody knows what became of the request to the first.
    session.answered(4, &request, failed(FailureKind::Down), at(1));
    session.answered(0, &request, failed(FailureKind::Cut), at(1));
    let late =
        |session: &Session| (0..5).filter(|node| session.may_be_granted_late(*node)).collect::<Vec<_>>();
    assert_eq!(late(&session), [0]);
    let asked = (2..3_000).find_map(|ms| session.woken(at(ms)));
    let Some(Event::Promote(again, to)) = asked else { panic!("it is not asked again") };
    assert!(to.contains(0) && matches!(again.ask, Ask::Wait { .. }));
    session.answered(0, &again, Reply::Number(3), at(3_001));
    assert_eq!(late(&session), [0], "an answer to the second request does not tell");
    session.release(at(3_002));
    assert_eq!(late(&session), [0]);
}
