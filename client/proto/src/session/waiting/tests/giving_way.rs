//! Splits, and the end of a wait.

use super::*;

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

/// One of three nodes is down, and somebody who came first has died with another one.
#[test]
fn whoever_gives_way_in_vain_does_so_less_often() {
    let yields_after = |times: u32| {
        let (session, request) = waiting(3, at(0), at(60_000));
        let mut session = session.having_yielded(times);
        session.answered(0, &request, queued(40), at(1));
        session.answered(1, &request, Reply::Number(7), at(1));
        session.answered(2, &request, failed(FailureKind::Down), at(1));
        let probe_at = session.wake_at().unwrap();
        let Some(Event::Promote(probe, to)) = session.woken(probe_at) else { panic!("it asks around") };
        assert_eq!(nodes(to), [0, 2]);
        session.answered(2, &probe, failed(FailureKind::Down), probe_at);
        let end = session.answered(0, &probe, queued(40), probe_at);
        assert!(matches!(end, Some(Event::Failed(Refusal::Yielded))), "{end:?}");
        at(1).until(probe_at)
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 1_000].map(yields_after), [10, 20, 40, 80, 160, 160, 160].map(ms));
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
fn time_is_up_at_its_end() {
    let (mut session, _) = in_line();
    let over = session.woken(at(60_000));
    assert!(matches!(over, Some(Event::Failed(Refusal::Contended))), "{over:?}");
    assert_eq!(nodes(session.release(at(60_000)).1), [0, 1, 2, 3, 4], "every line is left");
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

#[test]
fn whoever_asks_for_the_last_time_gets_an_answer() {
    let begin = || waiting(3, at(50), at(50));
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
    let begun = || waiting(5, at(0), at(60_000));
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

/// Two of three nodes hand the lock over under different numbers, while the third hangs; meanwhile both take it back
/// and give it to the next in line.
#[test]
fn a_majority_that_is_gone_wakes_nobody() {
    let (mut session, request) = waiting(3, at(0), at(60_000));
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
