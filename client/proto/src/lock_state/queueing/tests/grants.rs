//! Locks that are handed to us: what counts, from when, and what must be claimed.

use super::*;

#[test]
fn pushed_grants_make_a_majority() {
    let (mut lock, _) = queued_everywhere();
    assert!(lock.on_grant(0, grant(7, 100, 499), at(500)).is_none());
    assert!(lock.on_grant(3, grant(7, 100, 499), at(500)).is_none());
    let held = lock.on_grant(4, grant(7, 100, 499), at(501));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");
    // Sent at 0, waited 499 ms less a hundredth, kept for 100 ms less a hundredth and two.
    assert_eq!(lock.valid_until(), Some(Moment::on_one_clock(591_010_000)));
    let (claim, to) = lock.on_claim(at(501)).expect("they are to be claimed");
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 3, 4]));
    assert!(lock.on_claim(at(501)).is_none(), "once");
    // One that comes later is claimed as it comes.
    let (late, to) = sent(lock.on_grant(1, grant(7, 100, 499), at(502)));
    assert_eq!(nodes(to), [1]);
    for node in [0, 3, 4] {
        lock.on_reply(node, &claim, Reply::Number(7), at(502));
    }
    lock.on_reply(1, &late, Reply::Number(7), at(503));
    let until = lock.valid_until().unwrap();
    assert_eq!(at(501).until(until), Drift::default().lease(TTL));
}

#[test]
fn a_grant_that_arrives_after_the_lock_expired_does_not_revive_it() {
    let (mut lock, _) = queued_everywhere();
    for node in [0, 3] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(500)).is_none());
    }
    let held = lock.on_grant(4, grant(7, 100, 499), at(501));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");
    // Nobody claims it. A push of another node was held up on its way until the hold was over.
    let until = lock.valid_until().unwrap();
    let late = Grant { claim: Duration::from_secs(60), ..grant(7, 100, 499) };
    let lost = lock.on_grant(1, late, until);
    assert!(matches!(lost, Some(LockOutput::Event(Event::Lost(_)))), "{lost:?}");
    assert_eq!((lock.fence(), lock.valid_until()), (None, Some(until)));
    // Nor does one more, though these two and one of the first three would be a majority.
    assert!(lock.on_grant(2, late, until).is_none());
    assert_eq!((lock.fence(), lock.valid_until()), (None, Some(until)));
    assert!(lock.on_claim(until).is_none());
    assert_eq!(lock.on_extend(TTL, until).unwrap_err(), crate::lock_state::Over);
    assert_eq!(nodes(lock.on_release(until).1), [0, 1, 2, 3, 4], "all of it is given back");
}

#[test]
fn a_grant_with_an_expired_lease_is_claimed_first() {
    let (mut lock, _) = queued_everywhere();
    // After twenty seconds in line a hundredth is more than the claim window.
    for node in [0, 1] {
        lock.on_grant(node, grant(7, 100, 20_000), at(20_000));
    }
    let asked = lock.on_grant(2, grant(7, 100, 20_000), at(20_000));
    let (claim, to) = sent(asked);
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 1, 2]));
    lock.on_reply(0, &claim, Reply::Number(7), at(20_001));
    lock.on_reply(1, &claim, Reply::Number(7), at(20_001));
    let held = lock.on_reply(2, &claim, Reply::Number(7), at(20_001));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");
    assert!(lock.on_claim(at(20_001)).is_none(), "they have been");
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
        assert!(lock.on_grant(node, grant(7, 100, 0), at(4)).is_none(), "it is over");
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
    assert!(matches!(again.ask, Ask::Wait { queue: QueueRequest { stamp: 101, ticket: OWN, .. }, .. }));
    // Two nodes have served the first request before the second came, one the second.
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
    assert_eq!(lock.poll_timeout(), Some(at(2_000)), "near enough");
    // Another node is farther.
    let asked = lock.on_reply(1, &request, queued(40), at(60));
    let (again, to) = sent(asked);
    assert_eq!(nodes(to), [0, 1, 2]);
    assert!(
        matches!(again.ask, Ask::Wait { queue: QueueRequest { claim: Some(claim), .. }, .. } if claim == ms(480))
    );
    for node in 0..3 {
        assert!(lock.on_reply(node, &again, queued(40), at(120)).is_none(), "once is enough");
    }
}

#[test]
fn a_claim_window_that_is_too_short_is_widened() {
    let (mut lock, request) = start_queueing(3, at(0), at(60_000));
    for node in 0..3 {
        assert!(
            lock.on_reply(node, &request, queued(40), at(8)).is_none(),
            "near enough for the usual window"
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
        assert!(!due.has_reached(at(111)), "heard of at 10 and kept for 100");
    }
    let (_, to) = sent(asked);
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
}

#[test]
fn a_push_that_arrives_after_a_newer_grant_is_ignored() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // Granted in between under 7, unheard and taken back; granted anew under 9.
    lock.on_reply(0, &again, Reply::Number(9), at(2_001));
    for node in [1, 2] {
        lock.on_grant(node, grant(7, 100, 2_000), at(2_001));
    }
    assert!(lock.on_grant(0, grant(7, 100, 1_000), at(2_002)).is_none());
    assert_eq!((lock.ballot().vote(0).fence(), lock.fence()), (Some(9), None));
}

#[test]
fn a_push_that_arrives_after_a_newer_refusal_is_ignored() {
    for refusal in [queued(40), Reply::Nil] {
        let (mut lock, _) = queued_everywhere();
        let (again, _) = sent(lock.on_timeout(at(2_000)));
        // Granted in between, unheard and taken back: somebody else has it by the time that it is asked for again.
        for node in 0..3 {
            assert!(lock.on_reply(node, &again, refusal.clone(), at(2_001)).is_none());
            assert!(lock.on_grant(node, grant(7, 100, 1_000), at(2_002)).is_none());
            assert_eq!(lock.ballot().vote(node).fence(), None, "{refusal:?}");
        }
        // What is granted after that counts, and a node that does not hold it is still asked to forget us.
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
    let over = lock.on_reply(0, &claim, Reply::Nil, at(60_100));
    assert!(matches!(over, Some(LockOutput::Event(Event::Failed(Refusal::Contended)))), "{over:?}");
}

#[test]
fn fences_of_locks_that_were_passed_on_make_no_majority() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // Two nodes gave us the lock long ago, and nobody heard. Others have held it since, under 8.
    for node in [0, 1] {
        assert!(lock.on_grant(node, grant(7, 100, 499), at(2_001)).is_none());
    }
    let (claim, to) = sent(lock.on_reply(2, &again, Reply::Number(7), at(2_001)));
    assert_eq!((claim.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0, 1]));
    // Now three nodes hold the lock for us, and three have said 7: these are not the same.
    for node in [3, 4] {
        let event = lock.on_reply(node, &again, Reply::Number(9), at(2_002));
        assert!(event.is_none(), "{event:?}");
    }
    let held = lock.on_reply(0, &claim, Reply::Number(9), at(2_003));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 9 }))), "{held:?}");
}

#[test]
fn a_lease_that_is_nearly_over_is_renewed_before_the_lock_is_held() {
    let (mut lock, _) = queued_everywhere();
    let (again, _) = sent(lock.on_timeout(at(2_000)));
    // One node holds the lock for us for a while; the others follow when that is nearly over.
    assert!(lock.on_reply(0, &again, Reply::Number(7), at(2_001)).is_none());
    let mut later = again;
    while later.sent.nanoseconds() < at(11_000).nanoseconds() {
        let due = lock.poll_timeout().expect("it waits");
        if let Some(LockOutput::Transmit(Transmit { request, .. })) = lock.on_timeout(due) {
            later = request;
        }
    }
    assert!(lock.on_reply(1, &later, Reply::Number(7), at(11_897)).is_none());
    let almost_over = Moment::on_one_clock(11_897_500_000);
    let (more, to) = sent(lock.on_reply(2, &later, Reply::Number(7), almost_over));
    assert_eq!((more.ask, nodes(to)), (Ask::RaiseFence { fence: 7 }, vec![0]));
    let held = lock.on_reply(0, &more, Reply::Number(7), at(11_898));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence: 7 }))), "{held:?}");
}

#[test]
fn a_short_lock_is_held_for_the_time_that_the_round_trip_leaves() {
    // What is left is less than a millisecond, of a lock of 3 ms and of one that took nearly a second to get.
    for (ttl, answered_us) in [(3, 0), (1_000, 987_500)] {
        let quorum = Quorum::of(3).unwrap();
        let (lock, _) = LockState::begin(quorum, Drift::default(), ms(ttl), None, at(0));
        let (mut lock, request) = lock.begin_queueing(queue_request(), at(60_000));
        let now = Moment::on_one_clock(answered_us * 1_000);
        assert!(lock.on_reply(0, &request, Reply::Number(1), now).is_none());
        let held = lock.on_reply(1, &request, Reply::Number(1), now);
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
    // Granted at once, and heard of when nothing was left.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, Reply::Number(1), at(98)).is_none());
    let over = lock.on_reply(1, &request, Reply::Number(1), at(98));
    assert!(matches!(over, Some(LockOutput::Event(Event::Failed(Refusal::Expired)))), "{over:?}");
    // Handed on, and the claim takes as long.
    let (mut lock, request) = begin();
    for node in 0..3 {
        lock.on_reply(node, &request, queued(40), at(98));
    }
    lock.on_grant(0, grant(7, 100, 20_000), at(20_000));
    let claim = lock.on_grant(1, grant(7, 100, 20_000), at(20_000));
    let (claim, _) = sent(claim);
    let over = lock.on_reply(0, &claim, Reply::Number(7), at(20_098));
    assert!(matches!(over, Some(LockOutput::Event(Event::Failed(Refusal::Expired)))), "{over:?}");
    // One answer that was held up on its way costs nothing if the others are a majority.
    let (mut lock, request) = begin();
    assert!(lock.on_reply(0, &request, Reply::Number(1), at(50)).is_none());
    assert!(matches!(
        lock.on_reply(1, &request, Reply::Number(1), at(50)),
        Some(LockOutput::Event(Event::Held { fence: 1 }))
    ));
}
