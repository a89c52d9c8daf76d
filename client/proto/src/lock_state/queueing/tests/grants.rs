//! Grants: which of them count, when their leases begin, and what the client claims.

use super::*;

#[test]
fn pushed_grants_make_a_majority() {
    let (mut lock, _) = queued_everywhere();
    assert!(lock.on_grant(0, grant(7, 100, 499), at(500)).is_none());
    assert!(lock.on_grant(3, grant(7, 100, 499), at(500)).is_none());
    assert_held(lock.on_grant(4, grant(7, 100, 499), at(501)), 7);
    // Sent at 0, queued for 499 ms less 1 %, held for 100 ms less 1 % and 2 ms.
    assert_eq!(lock.valid_until(), Some(Moment::on_one_clock(591_010_000)));
    let (claim, to) = lock.on_claim(at(501)).expect("the grants are unclaimed");
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 3, 4]));
    assert!(lock.on_claim(at(501)).is_none(), "the client claims once");
    // The client claims a later grant at once.
    let (late, to) = sent(lock.on_grant(1, grant(7, 100, 499), at(502)));
    assert_eq!(nodes(to), [1]);
    for node in [0, 3, 4] {
        lock.on_reply(node, &claim, LockReply::Number(7), at(502));
    }
    lock.on_reply(1, &late, LockReply::Number(7), at(503));
    let until = lock.valid_until().unwrap();
    assert_eq!(at(501).until(until), Drift::default().lease(TTL));
}

#[test]
fn a_grant_that_arrives_after_the_lock_expired_does_not_revive_it() {
    let (mut lock, _) = queued_everywhere();
    for node in [0, 3] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(500)).is_none());
    }
    assert_held(lock.on_grant(4, grant(7, 100, 499), at(501)), 7);
    // The client does not claim. The push of another node arrives when the lock has expired.
    let until = lock.valid_until().unwrap();
    let late = Grant { claim: Duration::from_secs(60), ..grant(7, 100, 499) };
    let lost = lock.on_grant(1, late, until);
    assert!(matches!(lost, Some(LockOutput::Event(Event::Lost(_)))), "{lost:?}");
    assert_eq!((lock.fence(), lock.valid_until()), (None, Some(until)));
    // One more push does not revive it either, though these two and one of the first three would be a
    // majority.
    assert!(lock.on_grant(2, late, until).is_none());
    assert_eq!((lock.fence(), lock.valid_until()), (None, Some(until)));
    assert!(lock.on_claim(until).is_none());
    assert_eq!(lock.on_extend(TTL, until).unwrap_err(), crate::lock_state::LockEnded);
    assert_eq!(nodes(lock.on_release(until).1), [0, 1, 2, 3, 4], "the release goes to every node");
}

#[test]
fn a_grant_with_an_expired_lease_is_claimed_first() {
    let (mut lock, _) = queued_everywhere();
    // After twenty seconds in the queue, a drift of 1 % is longer than the claim window.
    for node in [0, 1] {
        lock.on_grant(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = lock.on_grant(2, grant(7, 100, 20_000), at(20_000));
    let (claim, to) = sent(asked);
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 1, 2]));
    lock.on_reply(0, &claim, LockReply::Number(7), at(20_001));
    lock.on_reply(1, &claim, LockReply::Number(7), at(20_001));
    assert_held(lock.on_reply(2, &claim, LockReply::Number(7), at(20_001)), 7);
    assert!(lock.on_claim(at(20_001)).is_none(), "the raise has claimed them");
}

#[test]
fn a_grant_with_the_stamp_of_another_attempt_is_ignored() {
    let (mut lock, _) = queued_everywhere();
    for stamp in [99, 101, u64::MAX] {
        for node in 0..5 {
            assert!(lock.on_grant(node, grant(7, stamp, 0), at(2)).is_none());
        }
    }
    assert_eq!(lock.ballot().granted(), 0);
    lock.on_release(at(3));
    for node in 0..5 {
        assert!(lock.on_grant(node, grant(7, 100, 0), at(4)).is_none(), "the attempt is over");
    }
    assert_eq!(lock.fence(), None);
}

#[test]
fn a_refusal_that_arrives_after_its_grant_is_ignored() {
    let (mut lock, first) = queued_everywhere();
    for node in 0..3 {
        lock.on_grant(node, grant(7, 100, 9), at(10));
    }
    let until = lock.valid_until();
    assert!(lock.on_reply(0, &first, queued(40), at(11)).is_none());
    assert_eq!((lock.valid_until(), lock.fence()), (until, Some(7)));
}

#[test]
fn the_lease_of_a_grant_counts_from_its_own_round() {
    let (mut lock, _) = queued_everywhere();
    let (again, to) = sent(lock.on_timeout(at(2_000)));
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    assert!(matches!(
        again.ask,
        Ask::Wait { queue: QueueRequest { stamp: 101, ticket: OWN_TICKET, .. }, .. }
    ));
    // Two nodes grant the first request before the second arrives, one node grants the second.
    lock.on_grant(0, grant(7, 100, 2_000), at(2_001));
    lock.on_grant(1, grant(7, 100, 2_000), at(2_001));
    assert!(matches!(
        lock.on_grant(2, grant(7, 101, 0), at(2_001)),
        Some(LockOutput::Event(Event::Held { .. }))
    ));
    let counted_on = |until: Moment| until.nanoseconds().0 / 1_000_000;
    assert_eq!(lock.valid_until().map(counted_on), Some(2_000 - 20 + 97));
}

#[test]
fn a_client_with_a_long_round_trip_asks_for_a_longer_claim_window() {
    let (mut lock, request) = start_queueing(3, at(0), at(60_000));
    lock.on_reply(0, &request, queued(40), at(1));
    assert_eq!(lock.poll_timeout(), Some(at(2_000)), "the default claim window is long enough");
    // Another node has a longer round trip.
    let asked = lock.on_reply(1, &request, queued(40), at(60));
    let (again, to) = sent(asked);
    assert_eq!(nodes(to), [0, 1, 2]);
    assert!(
        matches!(again.ask, Ask::Wait { queue: QueueRequest { claim: Some(claim), .. }, .. } if claim == ms(480))
    );
    for node in 0..3 {
        assert!(lock.on_reply(node, &again, queued(40), at(120)).is_none(), "the client asks once");
    }
}

#[test]
fn a_claim_window_that_is_too_short_is_widened() {
    let (mut lock, request) = start_queueing(3, at(0), at(60_000));
    for node in 0..3 {
        assert!(
            lock.on_reply(node, &request, queued(40), at(8)).is_none(),
            "the default claim window is long enough"
        );
    }
    let short = Grant { claim: ms(5), ..grant(7, 100, 492) };
    let asked = lock.on_grant(0, short, at(500));
    let (again, to) = sent(asked);
    assert_eq!(nodes(to), [1, 2]);
    assert!(
        matches!(again.ask, Ask::Wait { queue: QueueRequest { claim: Some(claim), .. }, .. } if claim == ms(64))
    );
    let asked = lock.on_grant(1, Grant { stamp: 101, waited: ms(0), ..short }, at(501));
    assert!(
        matches!(
            asked,
            Some(LockOutput::Transmit(Transmit { request: Request { ask: Ask::RaiseFence { .. }, .. }, .. }))
        ),
        "{asked:?}"
    );
}

#[test]
fn a_grant_that_was_not_claimed_in_time_is_dropped() {
    let (mut lock, _) = queued_everywhere();
    lock.on_grant(0, grant(7, 100, 9), at(10));
    let mut asked = None;
    while lock.ballot().granted() > 0 {
        let due = lock.poll_timeout().unwrap();
        asked = lock.on_timeout(due);
        assert!(!due.has_reached(at(111)), "pushed at 10 ms with a window of 100 ms");
    }
    let (_, to) = sent(asked);
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
}

#[test]
fn a_push_that_arrives_after_a_newer_grant_is_ignored() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // The node granted 7 meanwhile and took it back, and the push is late; then it granted 9.
    lock.on_reply(0, &again, LockReply::Number(9), at(2_001));
    for node in [1, 2] {
        lock.on_grant(node, grant(7, 100, 2_000), at(2_001));
    }
    assert!(lock.on_grant(0, grant(7, 100, 1_000), at(2_002)).is_none());
    assert_eq!((lock.ballot().vote(0).fence(), lock.fence()), (Some(9), None));
}

#[test]
fn a_push_that_arrives_after_a_newer_refusal_is_ignored() {
    for refusal in [queued(40), LockReply::Nil] {
        let (mut lock, _) = queued_everywhere();
        let (again, _) = sent(lock.on_timeout(at(2_000)));
        // The node granted meanwhile and took the lock back, and the push is late. Then another client holds
        // it.
        for node in 0..3 {
            assert!(lock.on_reply(node, &again, refusal.clone(), at(2_001)).is_none());
            assert!(lock.on_grant(node, grant(7, 100, 1_000), at(2_002)).is_none());
            assert_eq!(lock.ballot().vote(node).fence(), None, "{refusal:?}");
        }
        // A later grant counts. The release also goes to nodes that do not hold the lock: they have the
        // client queued.
        lock.on_grant(0, grant(8, 101, 10), at(2_020));
        assert_eq!(lock.ballot().vote(0).fence(), Some(8));
        assert_eq!(nodes(lock.on_release(at(2_030)).1), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn a_claim_in_flight_sets_no_timeout() {
    let (mut lock, _) = queued_everywhere();
    lock.on_grant(0, grant(7, 100, 59_000), at(59_950));
    lock.on_grant(1, grant(7, 100, 59_000), at(59_950));
    let claim = lock.on_grant(2, grant(7, 100, 59_000), at(59_950));
    let (claim, _) = sent(claim);
    assert_eq!(lock.poll_timeout(), None);
    assert_failed(lock.on_reply(0, &claim, LockReply::Nil, at(60_100)), Refusal::Contended);
}

#[test]
fn fences_of_locks_that_were_passed_on_make_no_majority() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // Two nodes granted long ago, and their pushes are late. Another client has held the lock since, with
    // fence 8.
    for node in [0, 1] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(2_001)).is_none());
    }
    let (claim, to) = sent(lock.on_reply(2, &again, LockReply::Number(7), at(2_001)));
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 1]));
    // Now three nodes hold the lock for this client, and three have answered 7, but not the same three.
    for node in [3, 4] {
        let event = lock.on_reply(node, &again, LockReply::Number(9), at(2_002));
        assert!(event.is_none(), "{event:?}");
    }
    assert_held(lock.on_reply(0, &claim, LockReply::Number(9), at(2_003)), 9);
}

#[test]
fn a_lease_that_is_nearly_over_is_renewed_before_the_lock_is_held() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // One node grants early. The others grant when its lease is nearly over.
    assert!(lock.on_reply(0, &again, LockReply::Number(7), at(2_001)).is_none());
    let mut later = again;
    while later.sent.nanoseconds() < at(11_000).nanoseconds() {
        let due = lock.poll_timeout().expect("the client queues");
        if let Some(LockOutput::Transmit(Transmit { request, .. })) = lock.on_timeout(due) {
            later = request;
        }
    }
    assert!(lock.on_reply(1, &later, LockReply::Number(7), at(11_897)).is_none());
    let almost_over = Moment::on_one_clock(11_897_500_000);
    let (more, to) = sent(lock.on_reply(2, &later, LockReply::Number(7), almost_over));
    assert_eq!((more.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0]));
    assert_held(lock.on_reply(0, &more, LockReply::Number(7), at(11_898)), 7);
}

#[test]
fn a_short_lock_is_held_for_the_time_that_the_round_trip_leaves() {
    // Less than a millisecond is left of a lock of 3 ms, and of one whose replies took nearly a second.
    for (ttl, answered_us) in [(3, 0), (1_000, 987_500)] {
        let quorum = Quorum::of(3).unwrap();
        let (lock, _) = LockState::begin(quorum, Drift::default(), ms(ttl), None, at(0));
        let (mut lock, request) = lock.begin_queueing(queue_request(), at(60_000));
        let now = Moment::on_one_clock(answered_us * 1_000);
        assert!(lock.on_reply(0, &request, LockReply::Number(1), now).is_none());
        let held = lock.on_reply(1, &request, LockReply::Number(1), now);
        assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 1 }))), "{ttl} ms: {held:?}");
    }
}

#[test]
fn a_time_to_live_shorter_than_the_round_trip_expires() {
    let quorum = Quorum::of(3).unwrap();
    let begin = || {
        let (lock, _) = LockState::begin(quorum, Drift::default(), ms(100), None, at(0));
        lock.begin_queueing(queue_request(), at(60_000))
    };
    // Granted at once, and expired when the replies arrive.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, LockReply::Number(1), at(98)).is_none());
    assert_failed(lock.on_reply(1, &request, LockReply::Number(1), at(98)), Refusal::Expired);
    // Handed over, and the replies to the claim take as long.
    let (mut lock, request) = begin();
    for node in 0..3 {
        lock.on_reply(node, &request, queued(40), at(98));
    }
    lock.on_grant(0, grant(7, 100, 20_000), at(20_000));
    let claim = lock.on_grant(1, grant(7, 100, 20_000), at(20_000));
    let (claim, _) = sent(claim);
    assert_failed(lock.on_reply(0, &claim, LockReply::Number(7), at(20_098)), Refusal::Expired);
    // A late reply costs nothing if the other nodes are a majority.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, LockReply::Number(1), at(50)).is_none());
    assert_held(lock.on_reply(1, &request, LockReply::Number(1), at(50)), 1);
}
