//! Splits, and the end of a wait.

use super::*;

#[test]
fn a_client_yields_to_an_older_ticket_that_lacks_a_majority() {
    let holders_seen = |holders: [u64; 3]| {
        let (mut lock, _) = queued_everywhere();
        lock.on_grant(0, grant(7, 100, 9), at(10));
        lock.on_grant(1, grant(7, 100, 9), at(10));
        let probe_at = lock.poll_timeout().unwrap();
        assert_eq!(probe_at, at(20), "longer than the nodes of one hand-off are apart");
        let (probe, to) = sent(lock.on_timeout(probe_at));
        assert_eq!(nodes(to), [2, 3, 4]);
        let mut last = None;
        for (node, holder) in (2..5).zip(holders) {
            last = lock.on_reply(node, &probe, queued(holder), at(21));
        }
        matches!(last, Some(LockOutput::Event(Event::Failed(Refusal::Yielded))))
    };
    assert!(holders_seen([40, 40, 60]), "40 came first and has two");
    assert!(holders_seen([60, 40, 60]));
    assert!(!holders_seen([40, 40, 40]), "40 has a majority and needs nothing from us");
    assert!(!holders_seen([60, 60, 70]), "we came first");
    assert!(!holders_seen([0, 0, 60]), "who has no ticket waits for nobody");
}

/// One of three nodes is down, and somebody who came first has died with another one.
#[test]
fn a_client_probes_later_after_every_yield() {
    let yields_after = |times: u32| {
        let (lock, request) = start_queueing(3, at(0), at(60_000));
        let mut lock = lock.after_yields(times);
        lock.on_reply(0, &request, queued(40), at(1));
        lock.on_reply(1, &request, Reply::Number(7), at(1));
        lock.on_reply(2, &request, failed(FailureKind::Down), at(1));
        let probe_at = lock.poll_timeout().unwrap();
        let (probe, to) = sent(lock.on_timeout(probe_at));
        assert_eq!(nodes(to), [0, 2]);
        lock.on_reply(2, &probe, failed(FailureKind::Down), probe_at);
        let end = lock.on_reply(0, &probe, queued(40), probe_at);
        assert!(matches!(end, Some(LockOutput::Event(Event::Failed(Refusal::Yielded)))), "{end:?}");
        at(1).until(probe_at)
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 1_000].map(yields_after), [10, 20, 40, 80, 160, 160, 160].map(ms));
}

#[test]
fn a_probe_counts_only_replies_to_its_own_round() {
    let (mut lock, first) = queued_everywhere();
    lock.on_grant(0, grant(7, 100, 9), at(10));
    let (probe, _) = sent(lock.on_timeout(at(20)));
    // An answer to the first request names the holder of that time.
    assert!(lock.on_reply(1, &first, queued(1), at(21)).is_none());
    for node in 1..5 {
        assert!(lock.on_reply(node, &probe, queued(60), at(22)).is_none());
    }
}

#[test]
fn an_attempt_fails_at_its_deadline() {
    let (mut lock, _) = queued_everywhere();
    let over = lock.on_timeout(at(60_000));
    assert!(matches!(over, Some(LockOutput::Event(Event::Failed(Refusal::Contended)))), "{over:?}");
    assert_eq!(nodes(lock.on_release(at(60_000)).1), [0, 1, 2, 3, 4], "every line is left");
}

#[test]
fn no_timeout_is_repeated() {
    let (mut lock, _) = queued_everywhere();
    for ms in (0..70_000).step_by(7) {
        let now = at(ms);
        while let Some(due) = lock.poll_timeout().filter(|due| now.has_reached(*due)) {
            lock.on_timeout(now);
            assert_ne!(lock.poll_timeout(), Some(due), "woken in vain at {ms} ms");
        }
    }
    assert_eq!(lock.poll_timeout(), None);
}

#[test]
fn the_last_request_gets_its_replies_after_the_deadline() {
    let begin = || start_queueing(3, at(50), at(50));
    let (mut lock, request) = begin();
    assert!(lock.on_timeout(at(50)).is_none(), "nobody has answered yet");
    assert_eq!(lock.poll_timeout(), None, "and nothing else is to be done");
    assert!(lock.on_reply(0, &request, Reply::Number(1), at(51)).is_none());
    assert!(matches!(
        lock.on_reply(1, &request, Reply::Number(1), at(51)),
        Some(LockOutput::Event(Event::Held { fence: 1 }))
    ));
    // Somebody else holds it: there is no time to wait for that.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, queued(40), at(51)).is_none());
    let over = lock.on_reply(1, &request, queued(40), at(51));
    assert!(matches!(over, Some(LockOutput::Event(Event::Failed(Refusal::Contended)))), "{over:?}");
}

#[test]
fn a_client_that_gets_no_pushes_leaves_the_queue() {
    let (mut lock, _) = queued_everywhere();
    let left = lock.on_stop_queueing(at(500));
    assert!(matches!(left, Some(LockOutput::Event(Event::Failed(Refusal::Yielded)))), "{left:?}");
    assert_eq!(nodes(lock.on_release(at(500)).1), [0, 1, 2, 3, 4], "every node has it in line");
    assert!(lock.on_stop_queueing(at(501)).is_none(), "once");

    // Too few have granted, and nobody hears of the others.
    let (mut lock, _) = queued_everywhere();
    for node in [0, 1] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(500)).is_none());
    }
    let left = lock.on_stop_queueing(at(501));
    assert!(matches!(left, Some(LockOutput::Event(Event::Failed(Refusal::Yielded)))), "{left:?}");
}

#[test]
fn a_client_that_leaves_waits_for_replies_in_flight() {
    let begun = || start_queueing(5, at(0), at(60_000));
    // A lock that is free is had.
    let (mut lock, request) = begun();
    assert!(lock.on_stop_queueing(at(1)).is_none(), "nobody has answered yet");
    for node in [0, 1] {
        assert!(lock.on_reply(node, &request, Reply::Number(7), at(2)).is_none());
    }
    let held = lock.on_reply(2, &request, Reply::Number(7), at(2));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");
    assert!(lock.on_stop_queueing(at(3)).is_none(), "what is held stays held");
    assert_eq!(lock.fence(), Some(7));

    // One that is held is not waited for.
    let (mut lock, request) = begun();
    assert!(lock.on_stop_queueing(at(1)).is_none());
    for node in [0, 1] {
        assert!(lock.on_reply(node, &request, queued(40), at(2)).is_none(), "it may still be had");
    }
    let left = lock.on_reply(2, &request, queued(40), at(2));
    assert!(matches!(left, Some(LockOutput::Event(Event::Failed(Refusal::Yielded)))), "{left:?}");
}

#[test]
fn a_client_that_leaves_keeps_a_majority_that_is_being_raised() {
    let (mut lock, _) = queued_everywhere();
    for node in [0, 1] {
        lock.on_grant(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = lock.on_grant(2, grant(7, 100, 20_000), at(20_000));
    let (claim, _) = sent(asked);
    assert!(lock.on_stop_queueing(at(20_000)).is_none());
    for node in [0, 1] {
        lock.on_reply(node, &claim, Reply::Number(7), at(20_001));
    }
    let held = lock.on_reply(2, &claim, Reply::Number(7), at(20_001));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");

    // If it comes to nothing, there is nothing to stay for.
    let (mut lock, _) = queued_everywhere();
    for node in [0, 1] {
        lock.on_grant(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = lock.on_grant(2, grant(7, 100, 20_000), at(20_000));
    let (claim, _) = sent(asked);
    assert!(lock.on_stop_queueing(at(20_000)).is_none());
    let answers: Vec<_> = (0..3).map(|node| lock.on_reply(node, &claim, Reply::Nil, at(20_200))).collect();
    assert!(
        answers.iter().any(|event| matches!(event, Some(LockOutput::Event(Event::Failed(Refusal::Yielded))))),
        "{answers:?}"
    );
}

/// Two of three nodes hand the lock over under different numbers, while the third hangs; meanwhile both take it back
/// and give it to the next in line.
#[test]
fn a_majority_that_is_gone_sets_no_timeout() {
    let (mut lock, request) = start_queueing(3, at(0), at(60_000));
    for node in 0..2 {
        lock.on_reply(node, &request, queued(40), at(1));
    }
    assert!(lock.on_grant(0, grant(5, 100, 129), at(130)).is_none());
    let mut asked = lock.on_grant(1, grant(6, 100, 129), at(130));
    assert!(
        matches!(&asked, Some(LockOutput::Transmit(Transmit { request: Request { ask: Ask::RaiseFence { fence: 6 }, .. }, to })) if to.contains(0)),
        "what was handed over is claimed at once, not left to run out: {asked:?}"
    );
    for ms in 131..=600 {
        // Whatever they are asked: somebody else has it now.
        if let Some(LockOutput::Transmit(Transmit { request, to })) = asked.take() {
            for node in to.iter().filter(|node| *node < 2) {
                let reply = if matches!(request.ask, Ask::Wait { .. }) { queued(60) } else { Reply::Nil };
                asked = lock.on_reply(node, &request, reply, at(ms)).or(asked);
            }
        }
        let mut woken = 0;
        while lock.poll_timeout().is_some_and(|moment| at(ms).has_reached(moment)) {
            asked = lock.on_timeout(at(ms)).or(asked);
            woken += 1;
            assert!(woken < 10, "woken again and again at {ms} ms");
        }
    }
}
