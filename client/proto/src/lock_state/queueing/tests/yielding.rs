//! Yielding, the deadline, and leaving the queue.

use super::*;

#[test]
fn a_client_yields_to_an_older_ticket_that_lacks_a_majority() {
    let holders_seen = |holders: [u64; 3]| {
        let (mut lock, _) = queued_everywhere();
        lock.on_grant(0, grant(7, 100, 9), at(10));
        lock.on_grant(1, grant(7, 100, 9), at(10));
        let probe_at = lock.poll_timeout().unwrap();
        assert_eq!(probe_at, at(20), "later than the grants of one hand-off are apart");
        let (probe, to) = sent(lock.on_timeout(probe_at));
        assert_eq!(nodes(to), [2, 3, 4]);
        let mut last = None;
        for (node, holder) in (2..5).zip(holders) {
            last = lock.on_reply(node, &probe, queued(holder), at(21));
        }
        matches!(last, Some(LockOutput::Event(Event::Failed(Refusal::Yielded))))
    };
    assert!(holders_seen([40, 40, 60]), "ticket 40 is older and has two nodes");
    assert!(holders_seen([60, 40, 60]));
    assert!(!holders_seen([40, 40, 40]), "ticket 40 has a majority and needs no node of this client");
    assert!(!holders_seen([60, 60, 70]), "the own ticket is the oldest");
    assert!(!holders_seen([0, 0, 60]), "a holder without a ticket does not queue");
}

/// One of three nodes is down, and the holder of another one, with an older ticket, is gone.
#[test]
fn a_client_probes_later_after_every_yield() {
    let yields_after = |times: u32| {
        let (lock, request) = start_queueing(3, at(0), at(60_000));
        let mut lock = lock.after_yields(times);
        lock.on_reply(0, &request, queued(40), at(1));
        lock.on_reply(1, &request, LockReply::Number(7), at(1));
        lock.on_reply(2, &request, failed(FailureKind::Down), at(1));
        let probe_at = lock.poll_timeout().unwrap();
        let (probe, to) = sent(lock.on_timeout(probe_at));
        assert_eq!(nodes(to), [0, 2]);
        lock.on_reply(2, &probe, failed(FailureKind::Down), probe_at);
        assert_failed(lock.on_reply(0, &probe, queued(40), probe_at), Refusal::Yielded);
        at(1).until(probe_at)
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 1_000].map(yields_after), [10, 20, 40, 80, 160, 160, 160].map(ms));
}

#[test]
fn a_probe_counts_only_replies_to_its_own_round() {
    let (mut lock, first) = queued_everywhere();
    lock.on_grant(0, grant(7, 100, 9), at(10));
    let (probe, _) = sent(lock.on_timeout(at(20)));
    // A reply to the first request names the holder of that time.
    assert!(lock.on_reply(1, &first, queued(1), at(21)).is_none());
    for node in 1..5 {
        assert!(lock.on_reply(node, &probe, queued(60), at(22)).is_none());
    }
}

#[test]
fn an_attempt_fails_at_its_deadline() {
    let (mut lock, _) = queued_everywhere();
    assert_failed(lock.on_timeout(at(60_000)), Refusal::Contended);
    assert_eq!(nodes(lock.on_release(at(60_000)).1), [0, 1, 2, 3, 4], "the client leaves every queue");
}

#[test]
fn no_timeout_is_repeated() {
    let (mut lock, _) = queued_everywhere();
    for ms in (0..70_000).step_by(7) {
        let now = at(ms);
        while let Some(due) = lock.poll_timeout().filter(|due| now.has_reached(*due)) {
            lock.on_timeout(now);
            assert_ne!(lock.poll_timeout(), Some(due), "the same timeout again at {ms} ms");
        }
    }
    assert_eq!(lock.poll_timeout(), None);
}

#[test]
fn the_last_request_gets_its_replies_after_the_deadline() {
    let begin = || start_queueing(3, at(50), at(50));
    let (mut lock, request) = begin();
    assert!(lock.on_timeout(at(50)).is_none(), "no node has replied");
    assert_eq!(lock.poll_timeout(), None, "only the replies are left to wait for");
    assert!(lock.on_reply(0, &request, LockReply::Number(1), at(51)).is_none());
    assert_held(lock.on_reply(1, &request, LockReply::Number(1), at(51)), 1);
    // Another client holds the lock, and no time is left to queue.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, queued(40), at(51)).is_none());
    assert_failed(lock.on_reply(1, &request, queued(40), at(51)), Refusal::Contended);
}

#[test]
fn a_client_that_gets_no_pushes_leaves_the_queue() {
    let (mut lock, _) = queued_everywhere();
    assert_failed(lock.on_stop_queueing(at(500)), Refusal::Yielded);
    assert_eq!(nodes(lock.on_release(at(500)).1), [0, 1, 2, 3, 4], "every node has the client queued");
    assert!(lock.on_stop_queueing(at(501)).is_none(), "the attempt fails once");

    // A minority has granted, and the pushes of the other nodes cannot arrive.
    let (mut lock, _) = queued_everywhere();
    for node in [0, 1] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(500)).is_none());
    }
    assert_failed(lock.on_stop_queueing(at(501)), Refusal::Yielded);
}

#[test]
fn a_client_that_leaves_waits_for_replies_in_flight() {
    let begun = || start_queueing(5, at(0), at(60_000));
    // The lock is free.
    let (mut lock, request) = begun();
    assert!(lock.on_stop_queueing(at(1)).is_none(), "no node has replied");
    for node in [0, 1] {
        assert!(lock.on_reply(node, &request, LockReply::Number(7), at(2)).is_none());
    }
    assert_held(lock.on_reply(2, &request, LockReply::Number(7), at(2)), 7);
    assert!(lock.on_stop_queueing(at(3)).is_none(), "the client keeps a lock that it holds");
    assert_eq!(lock.fence(), Some(7));

    // Another client holds the lock.
    let (mut lock, request) = begun();
    assert!(lock.on_stop_queueing(at(1)).is_none());
    for node in [0, 1] {
        assert!(lock.on_reply(node, &request, queued(40), at(2)).is_none(), "a majority may still grant");
    }
    assert_failed(lock.on_reply(2, &request, queued(40), at(2)), Refusal::Yielded);
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
        lock.on_reply(node, &claim, LockReply::Number(7), at(20_001));
    }
    assert_held(lock.on_reply(2, &claim, LockReply::Number(7), at(20_001)), 7);

    // If the nodes do not hold the lock any more, the client leaves.
    let (mut lock, _) = queued_everywhere();
    for node in [0, 1] {
        lock.on_grant(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = lock.on_grant(2, grant(7, 100, 20_000), at(20_000));
    let (claim, _) = sent(asked);
    assert!(lock.on_stop_queueing(at(20_000)).is_none());
    let answers: Vec<_> =
        (0..3).map(|node| lock.on_reply(node, &claim, LockReply::Nil, at(20_200))).collect();
    assert!(
        answers.iter().any(|event| matches!(event, Some(LockOutput::Event(Event::Failed(Refusal::Yielded))))),
        "{answers:?}"
    );
}

/// Two of three nodes hand the lock over with different fences, while the third does not reply. Then both
/// take it back and hand it to the next waiter.
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
        "the client claims at once, before the claim window ends: {asked:?}"
    );
    for ms in 131..=600 {
        // Whatever the request is: another client holds the lock now.
        if let Some(LockOutput::Transmit(Transmit { request, to })) = asked.take() {
            for node in to.iter().filter(|node| *node < 2) {
                let reply = if matches!(request.ask, Ask::Wait { .. }) { queued(60) } else { LockReply::Nil };
                asked = lock.on_reply(node, &request, reply, at(ms)).or(asked);
            }
        }
        let mut timeouts = 0;
        while lock.poll_timeout().is_some_and(|moment| at(ms).has_reached(moment)) {
            asked = lock.on_timeout(at(ms)).or(asked);
            timeouts += 1;
            assert!(timeouts < 10, "timeouts again and again at {ms} ms");
        }
    }
}
