//! Sessions in line, driven by hand: each line of a history is an answer or news.

use super::*;
use crate::{Drift, Failure, FailureKind, Quorum};

const TTL: Duration = Duration::from_secs(10);
const OWN: u64 = 50;

fn at(ms: u64) -> Moment {
    Moment::on_one_clock(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn line() -> Line {
    Line { ticket: OWN, stamp: 100, wait: Duration::ZERO, channel: [b'c'; 16], claim: None }
}

fn queued(ticket: u64) -> Reply {
    Reply::Queued { position: 1, ticket }
}

fn grant(fence: u64, stamp: u64, waited_ms: u64) -> Grant {
    Grant { fence, stamp, waited: ms(waited_ms), claim: ms(100) }
}

/// Five nodes, all of which have us in line behind a holder with ticket 40; a round trip takes a millisecond.
fn in_line() -> (Session, Request) {
    let quorum = Quorum::of(5).unwrap();
    let (session, _) = Session::begin(quorum, Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
    for node in 0..5 {
        assert!(session.answered(node, &request, queued(40), at(1)).is_none());
    }
    (session, request)
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

#[test]
fn grants_that_come_by_themselves_make_a_majority() {
    let (mut session, _) = in_line();
    assert!(session.pushed(0, grant(7, 100, 499), at(500)).is_none());
    assert!(session.pushed(3, grant(7, 100, 499), at(500)).is_none());
    let held = session.pushed(4, grant(7, 100, 499), at(501));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");
    // Sent at 0, waited 499 ms less a hundredth, kept for 100 ms less a hundredth and two.
    assert_eq!(session.valid_until(), Some(Moment::on_one_clock(591_010_000)));
    let (claim, to) = session.claim(at(501)).expect("they are to be claimed");
    assert_eq!((claim.ask, nodes(to)), (Ask::Promote { fence: 7 }, vec![0, 3, 4]));
    assert!(session.claim(at(501)).is_none(), "once");
    // One that comes later is claimed as it comes.
    let Some(Event::Promote(late, to)) = session.pushed(1, grant(7, 100, 499), at(502)) else {
        panic!("it is claimed")
    };
    assert_eq!(nodes(to), [1]);
    for node in [0, 3, 4] {
        session.answered(node, &claim, Reply::Number(7), at(502));
    }
    session.answered(1, &late, Reply::Number(7), at(503));
    let until = session.valid_until().unwrap();
    assert_eq!(at(501).until(until), Drift::default().lease(TTL));
}

#[test]
fn a_grant_that_is_too_old_to_count_on_is_claimed_first() {
    let (mut session, _) = in_line();
    // After twenty seconds in line a hundredth is more than the claim window.
    for node in [0, 1] {
        session.pushed(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = session.pushed(2, grant(7, 100, 20_000), at(20_000));
    let Some(Event::Promote(claim, to)) = asked else { panic!("not held yet: {asked:?}") };
    assert_eq!((claim.ask, nodes(to)), (Ask::Promote { fence: 7 }, vec![0, 1, 2]));
    session.answered(0, &claim, Reply::Number(7), at(20_001));
    session.answered(1, &claim, Reply::Number(7), at(20_001));
    let held = session.answered(2, &claim, Reply::Number(7), at(20_001));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");
    assert!(session.claim(at(20_001)).is_none(), "they have been");
}

#[test]
fn a_stamp_of_another_session_is_nobodys_grant() {
    let (mut session, _) = in_line();
    for stamp in [99, 101, u64::MAX] {
        for node in 0..5 {
            assert!(session.pushed(node, grant(7, stamp, 0), at(2)).is_none());
        }
    }
    assert_eq!(session.ballot().granted(), 0);
    session.release(at(3));
    for node in 0..5 {
        assert!(session.pushed(node, grant(7, 100, 0), at(4)).is_none(), "it is over");
    }
    assert_eq!(session.fence(), None);
}

#[test]
fn a_refusal_that_was_overtaken_by_a_grant_is_old_news() {
    let (mut session, first) = in_line();
    for node in 0..3 {
        session.pushed(node, grant(7, 100, 9), at(10));
    }
    let until = session.valid_until();
    assert!(session.answered(0, &first, queued(40), at(11)).is_none());
    assert_eq!((session.valid_until(), session.fence()), (until, Some(7)));
}

#[test]
fn a_repeated_request_measures_from_its_own_time() {
    let (mut session, _) = in_line();
    let Some(Event::Promote(again, to)) = session.woken(at(2_000)) else { panic!("it asks again") };
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    assert!(matches!(again.ask, Ask::Wait { line: Line { stamp: 101, ticket: OWN, .. }, .. }));
    // Two nodes have served the first request before the second came, one the second.
    session.pushed(0, grant(7, 100, 2_000), at(2_001));
    session.pushed(1, grant(7, 100, 2_000), at(2_001));
    assert!(matches!(session.pushed(2, grant(7, 101, 0), at(2_001)), Some(Event::Held { .. })));
    let counted_on = |until: Moment| until.nanoseconds().0 / 1_000_000;
    assert_eq!(session.valid_until().map(counted_on), Some(2_000 - 20 + 97));
}

#[test]
fn whoever_is_far_away_asks_for_more_time_to_claim() {
    let quorum = Quorum::of(3).unwrap();
    let (session, _) = Session::begin(quorum, Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
    session.answered(0, &request, queued(40), at(1));
    assert_eq!(session.wake_at(), Some(at(2_000)), "near enough");
    // Another node is farther.
    let asked = session.answered(1, &request, queued(40), at(60));
    let Some(Event::Promote(again, to)) = asked else { panic!("it asks again: {asked:?}") };
    assert_eq!(nodes(to), [0, 1, 2]);
    assert!(matches!(again.ask, Ask::Wait { line: Line { claim: Some(claim), .. }, .. } if claim == ms(480)));
    for node in 0..3 {
        assert!(session.answered(node, &again, queued(40), at(120)).is_none(), "once is enough");
    }
}

#[test]
fn a_grant_that_was_not_claimed_in_time_is_none() {
    let (mut session, _) = in_line();
    session.pushed(0, grant(7, 100, 9), at(10));
    let mut asked = None;
    while session.ballot().granted() > 0 {
        let due = session.wake_at().unwrap();
        asked = session.woken(due);
        assert!(!due.has_reached(at(111)), "heard of at 10 and kept for 100");
    }
    let Some(Event::Promote(_, to)) = asked else { panic!("it asks for its place again") };
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
}

#[test]
fn whoever_came_later_yields() {
    let holders_seen = |holders: [u64; 3]| {
        let (mut session, _) = in_line();
        session.pushed(0, grant(7, 100, 9), at(10));
        session.pushed(1, grant(7, 100, 9), at(10));
        let probe_at = session.wake_at().unwrap();
        assert_eq!(probe_at, at(20), "longer than the nodes of one hand-off are apart");
        let Some(Event::Promote(probe, to)) = session.woken(probe_at) else { panic!("it asks around") };
        assert_eq!(nodes(to), [2, 3, 4]);
        let mut last = None;
        for (node, holder) in (2..5).zip(holders) {
            last = session.answered(node, &probe, queued(holder), at(21));
        }
        matches!(last, Some(Event::Failed(Refusal::Yielded)))
    };
    assert!(holders_seen([40, 40, 60]), "40 came first and has two");
    assert!(holders_seen([60, 40, 60]));
    assert!(!holders_seen([40, 40, 40]), "40 has a majority and needs nothing from us");
    assert!(!holders_seen([60, 60, 70]), "we came first");
    assert!(!holders_seen([0, 0, 60]), "who has no ticket waits for nobody");
}

#[test]
fn only_answers_of_the_same_round_are_judged() {
    let (mut session, first) = in_line();
    session.pushed(0, grant(7, 100, 9), at(10));
    let Some(Event::Promote(probe, _)) = session.woken(at(20)) else { panic!("it asks around") };
    // An answer to the first request names the holder of that time.
    assert!(session.answered(1, &first, queued(1), at(21)).is_none());
    for node in 1..5 {
        assert!(session.answered(node, &probe, queued(60), at(22)).is_none());
    }
}

#[test]
fn a_node_that_is_down_is_not_waited_for() {
    let quorum = Quorum::of(5).unwrap();
    let (session, _) = Session::begin(quorum, Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
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

#[test]
fn news_that_an_answer_has_overtaken_change_nothing() {
    let (mut session, _) = in_line();
    let Some(Event::Promote(again, _)) = session.woken(at(2_000)) else { panic!("it asks again") };
    // Granted in between under 7, unheard and taken back; granted anew under 9.
    session.answered(0, &again, Reply::Number(9), at(2_001));
    for node in [1, 2] {
        session.pushed(node, grant(7, 100, 2_000), at(2_001));
    }
    assert!(session.pushed(0, grant(7, 100, 1_000), at(2_002)).is_none());
    assert_eq!((session.ballot().vote(0).fence(), session.fence()), (Some(9), None));
}

#[test]
fn news_that_a_refusal_has_overtaken_change_nothing() {
    for refusal in [queued(40), Reply::Nil] {
        let (mut session, _) = in_line();
        let Some(Event::Promote(again, _)) = session.woken(at(2_000)) else { panic!("it asks again") };
        // Granted in between, unheard and taken back: somebody else has it by the time that it is asked for again.
        for node in 0..3 {
            assert!(session.answered(node, &again, refusal.clone(), at(2_001)).is_none());
            assert!(session.pushed(node, grant(7, 100, 1_000), at(2_002)).is_none());
            assert_eq!(session.ballot().vote(node).fence(), None, "{refusal:?}");
        }
        // What is granted after that counts, and a node that does not hold it is still asked to forget us.
        session.pushed(0, grant(8, 101, 10), at(2_020));
        assert_eq!(session.ballot().vote(0).fence(), Some(8));
        assert_eq!(nodes(session.release(at(2_030)).1), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn time_is_up_at_its_end() {
    let (mut session, _) = in_line();
    let over = session.woken(at(60_000));
    assert!(matches!(over, Some(Event::Failed(Refusal::Contended))), "{over:?}");
    assert_eq!(nodes(session.release(at(60_000)).1), [0, 1, 2, 3, 4], "every line is left");
}

#[test]
fn a_claim_under_way_wakes_nobody() {
    let (mut session, _) = in_line();
    session.pushed(0, grant(7, 100, 59_000), at(59_950));
    session.pushed(1, grant(7, 100, 59_000), at(59_950));
    let claim = session.pushed(2, grant(7, 100, 59_000), at(59_950));
    let Some(Event::Promote(claim, _)) = claim else { panic!("too old to count on: {claim:?}") };
    assert_eq!(session.wake_at(), None);
    let over = session.answered(0, &claim, Reply::Nil, at(60_100));
    assert!(matches!(over, Some(Event::Failed(Refusal::Contended))), "{over:?}");
}

#[test]
fn what_is_spent_wakes_nobody() {
    let (mut session, _) = in_line();
    for ms in (0..70_000).step_by(7) {
        let now = at(ms);
        while let Some(due) = session.wake_at().filter(|due| now.has_reached(*due)) {
            session.woken(now);
            assert_ne!(session.wake_at(), Some(due), "woken in vain at {ms} ms");
        }
    }
    assert_eq!(session.wake_at(), None);
}

fn failed(kind: FailureKind) -> Reply {
    Reply::Failed(Failure::new(kind, ""))
}

/// A session that asks all five nodes, and again after two of them have said nothing of use; with the second request.
fn asked_twice(first: [Reply; 2]) -> (Session, Request) {
    let quorum = Quorum::of(5).unwrap();
    let (session, _) = Session::begin(quorum, Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
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
fn a_time_to_live_shorter_than_the_way_there_has_expired() {
    let quorum = Quorum::of(3).unwrap();
    let begin = || {
        let (session, _) = Session::begin(quorum, Drift::default(), ms(100), None, at(0));
        session.waiting(line(), at(60_000))
    };
    // Granted at once, and heard of when nothing was left.
    let (mut session, request) = begin();
    assert!(session.answered(0, &request, Reply::Number(1), at(98)).is_none());
    let over = session.answered(1, &request, Reply::Number(1), at(98));
    assert!(matches!(over, Some(Event::Failed(Refusal::Expired))), "{over:?}");
    // Handed on, and the claim takes as long.
    let (mut session, request) = begin();
    for node in 0..3 {
        session.answered(node, &request, queued(40), at(98));
    }
    session.pushed(0, grant(7, 100, 20_000), at(20_000));
    let claim = session.pushed(1, grant(7, 100, 20_000), at(20_000));
    let Some(Event::Promote(claim, _)) = claim else { panic!("it is claimed: {claim:?}") };
    let over = session.answered(0, &claim, Reply::Number(7), at(20_098));
    assert!(matches!(over, Some(Event::Failed(Refusal::Expired))), "{over:?}");
    // One answer that was held up on its way costs nothing if the others are a majority.
    let (mut session, request) = begin();
    assert!(session.answered(0, &request, Reply::Number(1), at(50)).is_none());
    assert!(matches!(
        session.answered(1, &request, Reply::Number(1), at(50)),
        Some(Event::Held { fence: 1 })
    ));
}

#[test]
fn a_claim_window_that_is_too_short_is_widened() {
    let quorum = Quorum::of(3).unwrap();
    let (session, _) = Session::begin(quorum, Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
    for node in 0..3 {
        assert!(
            session.answered(node, &request, queued(40), at(8)).is_none(),
            "near enough for the usual window"
        );
    }
    let short = Grant { claim: ms(5), ..grant(7, 100, 492) };
    let asked = session.pushed(0, short, at(500));
    let Some(Event::Promote(again, to)) = asked else { panic!("it asks for more time: {asked:?}") };
    assert_eq!(nodes(to), [1, 2]);
    assert!(matches!(again.ask, Ask::Wait { line: Line { claim: Some(claim), .. }, .. } if claim == ms(64)));
    let asked = session.pushed(1, Grant { stamp: 101, waited: ms(0), ..short }, at(501));
    assert!(matches!(asked, Some(Event::Promote(Request { ask: Ask::Promote { .. }, .. }, _))), "{asked:?}");
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
fn whoever_asks_for_the_last_time_gets_an_answer() {
    let begin = || {
        let (session, _) = Session::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(50));
        session.waiting(line(), at(50))
    };
    let (mut session, request) = begin();
    assert!(session.woken(at(50)).is_none(), "nobody has answered yet");
    assert_eq!(session.wake_at(), None, "and nothing else is to be done");
    assert!(session.answered(0, &request, Reply::Number(1), at(51)).is_none());
    assert!(matches!(
        session.answered(1, &request, Reply::Number(1), at(51)),
        Some(Event::Held { fence: 1 })
    ));
    // Somebody else holds it: there is no time to wait for that.
    let (mut session, request) = begin();
    assert!(session.answered(0, &request, queued(40), at(51)).is_none());
    let over = session.answered(1, &request, queued(40), at(51));
    assert!(matches!(over, Some(Event::Failed(Refusal::Contended))), "{over:?}");
}

#[test]
fn numbers_of_locks_that_have_gone_on_make_no_majority() {
    let (mut session, _) = in_line();
    let Some(Event::Promote(again, _)) = session.woken(at(2_000)) else { panic!("it asks again") };
    // Two nodes gave us the lock long ago, and nobody heard. Others have held it since, under 8.
    for node in [0, 1] {
        assert!(session.pushed(node, grant(7, 100, 499), at(2_001)).is_none());
    }
    let Some(Event::Promote(claim, to)) = session.answered(2, &again, Reply::Number(7), at(2_001)) else {
        panic!("what was given too long ago is asked for again")
    };
    assert_eq!((claim.ask, nodes(to)), (Ask::Promote { fence: 7 }, vec![0, 1]));
    // Now three nodes hold the lock for us, and three have said 7: these are not the same.
    for node in [3, 4] {
        let event = session.answered(node, &again, Reply::Number(9), at(2_002));
        assert!(event.is_none(), "{event:?}");
    }
    let held = session.answered(0, &claim, Reply::Number(9), at(2_003));
    assert!(matches!(held, Some(Event::Held { fence: 9 })), "{held:?}");
}

#[test]
fn what_is_over_in_a_moment_is_asked_for_again() {
    let (mut session, _) = in_line();
    let Some(Event::Promote(again, _)) = session.woken(at(2_000)) else { panic!("it asks again") };
    // One node holds the lock for us for a while; the others follow when that is nearly over.
    assert!(session.answered(0, &again, Reply::Number(7), at(2_001)).is_none());
    let mut later = again;
    while later.sent.nanoseconds() < at(11_000).nanoseconds() {
        let due = session.wake_at().expect("it waits");
        if let Some(Event::Promote(request, _)) = session.woken(due) {
            later = request;
        }
    }
    assert!(session.answered(1, &later, Reply::Number(7), at(11_897)).is_none());
    let almost_over = Moment::on_one_clock(11_897_500_000);
    let Some(Event::Promote(more, to)) = session.answered(2, &later, Reply::Number(7), almost_over) else {
        panic!("nobody could be told in time")
    };
    assert_eq!((more.ask, nodes(to)), (Ask::Promote { fence: 7 }, vec![0]));
    let held = session.answered(0, &more, Reply::Number(7), at(11_898));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");
}

#[test]
fn whoever_would_not_hear_of_its_turn_leaves_the_line() {
    let (mut session, _) = in_line();
    let left = session.leave_line(at(500));
    assert!(matches!(left, Some(Event::Failed(Refusal::Yielded))), "{left:?}");
    assert_eq!(nodes(session.release(at(500)).1), [0, 1, 2, 3, 4], "every node has it in line");
    assert!(session.leave_line(at(501)).is_none(), "once");

    // Too few have granted, and nobody hears of the others.
    let (mut session, _) = in_line();
    for node in [0, 1] {
        assert!(session.pushed(node, grant(7, 100, 499), at(500)).is_none());
    }
    let left = session.leave_line(at(501));
    assert!(matches!(left, Some(Event::Failed(Refusal::Yielded))), "{left:?}");
}

#[test]
fn what_was_asked_is_still_waited_for_by_whoever_leaves_the_line() {
    let begun = || {
        let (session, _) = Session::begin(Quorum::of(5).unwrap(), Drift::default(), TTL, None, at(0));
        session.waiting(line(), at(60_000))
    };
    // A lock that is free is had.
    let (mut session, request) = begun();
    assert!(session.leave_line(at(1)).is_none(), "nobody has answered yet");
    for node in [0, 1] {
        assert!(session.answered(node, &request, Reply::Number(7), at(2)).is_none());
    }
    let held = session.answered(2, &request, Reply::Number(7), at(2));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");
    assert!(session.leave_line(at(3)).is_none(), "what is held stays held");
    assert_eq!(session.fence(), Some(7));

    // One that is held is not waited for.
    let (mut session, request) = begun();
    assert!(session.leave_line(at(1)).is_none());
    for node in [0, 1] {
        assert!(session.answered(node, &request, queued(40), at(2)).is_none(), "it may still be had");
    }
    let left = session.answered(2, &request, queued(40), at(2));
    assert!(matches!(left, Some(Event::Failed(Refusal::Yielded))), "{left:?}");
}

#[test]
fn a_majority_that_is_being_raised_is_not_given_away_with_the_place() {
    let (mut session, _) = in_line();
    for node in [0, 1] {
        session.pushed(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = session.pushed(2, grant(7, 100, 20_000), at(20_000));
    let Some(Event::Promote(claim, _)) = asked else { panic!("to be claimed first: {asked:?}") };
    assert!(session.leave_line(at(20_000)).is_none());
    for node in [0, 1] {
        session.answered(node, &claim, Reply::Number(7), at(20_001));
    }
    let held = session.answered(2, &claim, Reply::Number(7), at(20_001));
    assert!(matches!(held, Some(Event::Held { fence: 7 })), "{held:?}");

    // If it comes to nothing, there is nothing to stay for.
    let (mut session, _) = in_line();
    for node in [0, 1] {
        session.pushed(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = session.pushed(2, grant(7, 100, 20_000), at(20_000));
    let Some(Event::Promote(claim, _)) = asked else { panic!("to be claimed first: {asked:?}") };
    assert!(session.leave_line(at(20_000)).is_none());
    let answers: Vec<_> = (0..3).map(|node| session.answered(node, &claim, Reply::Nil, at(20_200))).collect();
    assert!(
        answers.iter().any(|event| matches!(event, Some(Event::Failed(Refusal::Yielded)))),
        "{answers:?}"
    );
}

#[test]
fn short_locks_far_away_are_held_for_what_is_left() {
    // What is left is less than a millisecond, of a lock of 3 ms and of one that took nearly a second to get.
    for (ttl, answered_us) in [(3, 0), (1_000, 987_500)] {
        let quorum = Quorum::of(3).unwrap();
        let (session, _) = Session::begin(quorum, Drift::default(), ms(ttl), None, at(0));
        let (mut session, request) = session.waiting(line(), at(60_000));
        let now = Moment::on_one_clock(answered_us * 1_000);
        assert!(session.answered(0, &request, Reply::Number(1), now).is_none());
        let held = session.answered(1, &request, Reply::Number(1), now);
        assert!(matches!(held, Some(Event::Held { fence: 1 })), "{ttl} ms: {held:?}");
    }
}

/// Two of three nodes hand the lock over under different numbers, while the third hangs; meanwhile both take it back
/// and give it to the next in line.
#[test]
fn a_majority_that_is_gone_wakes_nobody() {
    let (session, _) = Session::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
    for node in 0..2 {
        session.answered(node, &request, queued(40), at(1));
    }
    assert!(session.pushed(0, grant(5, 100, 129), at(130)).is_none());
    let mut asked = session.pushed(1, grant(6, 100, 129), at(130));
    assert!(
        matches!(&asked, Some(Event::Promote(Request { ask: Ask::Promote { fence: 6 }, .. }, to)) if to.contains(0)),
        "what was handed over is claimed at once, not left to run out: {asked:?}"
    );
    for ms in 131..=600 {
        // Whatever they are asked: somebody else has it now.
        if let Some(Event::Promote(request, to)) = asked.take() {
            for node in to.iter().filter(|node| *node < 2) {
                let reply = if matches!(request.ask, Ask::Wait { .. }) { queued(60) } else { Reply::Nil };
                asked = session.answered(node, &request, reply, at(ms)).or(asked);
            }
        }
        let mut woken = 0;
        while session.wake_at().is_some_and(|moment| at(ms).has_reached(moment)) {
            asked = session.woken(at(ms)).or(asked);
            woken += 1;
            assert!(woken < 10, "woken again and again at {ms} ms");
        }
    }
}

#[test]
fn a_request_of_which_nobody_knows_may_be_granted_late() {
    let (session, _) = Session::begin(Quorum::of(5).unwrap(), Drift::default(), TTL, None, at(0));
    let (mut session, request) = session.waiting(line(), at(60_000));
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
