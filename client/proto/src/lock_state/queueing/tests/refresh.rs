//! Refreshes: when the client repeats its request, and which nodes it releases afterwards.

use super::*;

#[test]
fn a_majority_without_the_nodes_that_are_down_is_enough() {
    let (mut lock, request) = start_queueing(5, at(0), at(60_000));
    let down = || LockReply::Failed(Failure::new(FailureKind::Down, ""));
    lock.on_reply(0, &request, down(), at(0));
    lock.on_reply(1, &request, down(), at(0));
    for node in 2..5 {
        assert!(lock.on_reply(node, &request, queued(40), at(1)).is_none());
    }
    lock.on_grant(2, grant(7, 100, 1), at(2));
    lock.on_grant(3, grant(7, 100, 1), at(2));
    assert!(matches!(lock.on_grant(4, grant(7, 100, 1), at(2)), Some(LockOutput::Event(Event::Held { .. }))));
}

#[test]
fn a_client_queues_again_soon_after_a_disconnect() {
    let (mut lock, _) = queued_everywhere();
    let cut = || Failure::new(FailureKind::Cut, "");
    assert!(lock.on_disconnect(2, cut(), at(50)).is_none());
    assert_eq!(lock.poll_timeout(), Some(at(70)));
    assert!(matches!(lock.on_timeout(at(70)), Some(LockOutput::Transmit(_))));
    // Queued on fewer than a majority, the client cannot get the lock.
    lock.on_disconnect(0, cut(), at(80));
    assert_failed(lock.on_disconnect(1, cut(), at(80)), Refusal::NoQuorum);
}

#[test]
fn a_refresh_finds_grants_whose_pushes_were_lost() {
    let (mut lock, _) = queued_everywhere();
    let refresh = lock.poll_timeout().expect("a refresh is planned");
    let (again, to) = sent(lock.on_timeout(refresh));
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    // Two nodes had granted.
    lock.on_reply(0, &again, LockReply::Number(7), refresh);
    lock.on_reply(1, &again, LockReply::Number(7), refresh);
    assert_held(lock.on_grant(2, grant(7, 101, 0), refresh), 7);
}

/// A client that is queued on three of five nodes and has sent a second round; `first` is what the other two
/// replied to the first. Returns the second request.
fn asked_twice(first: [LockReply; 2]) -> (LockState, Request) {
    let (mut lock, request) = start_queueing(5, at(0), at(60_000));
    for node in 0..3 {
        assert!(lock.on_reply(node, &request, queued(40), at(1)).is_none());
    }
    for (node, reply) in (3..5).zip(first) {
        assert!(lock.on_reply(node, &request, reply, at(10)).is_none());
    }
    let (again, to) = sent(lock.on_timeout(at(2_000)));
    assert_eq!(nodes(to), [0, 1, 2, 3, 4]);
    (lock, again)
}

#[test]
fn a_second_request_that_was_not_sent_does_not_settle_the_first() {
    use FailureKind::{Cut, Down, Rejected, Silent};
    for unknown in [Silent, Cut] {
        for second in [Down, Rejected] {
            let (mut lock, again) = asked_twice([failed(unknown), queued(40)]);
            for node in 3..5 {
                lock.on_reply(node, &again, failed(second), at(2_001));
            }
            let (_, to) = lock.on_release(at(3_000));
            assert_eq!(nodes(to), [0, 1, 2, 3, 4], "{unknown:?} and queued, then {second:?}");
        }
    }
}

#[test]
fn a_node_that_was_down_at_first_may_hold_the_lock_later() {
    use FailureKind::{Down, Silent};
    let (mut lock, again) = asked_twice([failed(Down), failed(Down)]);
    lock.on_reply(3, &again, failed(Silent), at(2_050));
    lock.on_reply(4, &again, failed(Down), at(2_050));
    let (_, to) = lock.on_release(at(2_060));
    assert_eq!(nodes(to), [0, 1, 2, 3], "node 4 never got a request");
    // Before the replies, every node may hold the lock.
    let (mut lock, _) = asked_twice([failed(Down), failed(Down)]);
    assert_eq!(nodes(lock.on_release(at(2_001)).1), [0, 1, 2, 3, 4]);
}

#[test]
fn clients_that_are_not_queued_refresh_at_different_times() {
    let intervals = |ticket: u64| {
        let (lock, _) = LockState::begin(Quorum::of(3).unwrap(), Drift::default(), TTL, None, at(0));
        let (mut lock, mut request) =
            lock.begin_queueing(QueueRequest { ticket, ..queue_request() }, at(60_000));
        let mut intervals = Vec::new();
        let mut now = at(0);
        for _ in 0..20 {
            for node in 0..3 {
                assert!(lock.on_reply(node, &request, LockReply::Nil, now).is_none(), "the client queues on");
            }
            let due = lock.poll_timeout().unwrap();
            intervals.push(now.until(due));
            let (again, _) = sent(lock.on_timeout(due));
            (request, now) = (again, due);
        }
        // The first interval is the default: the client does not know yet that queues are full.
        intervals.split_off(1)
    };
    let (one, other) = (intervals(1_700_000_000_000), intervals(1_700_000_000_001));
    for interval in one.iter().chain(&other) {
        assert!((ms(125)..ms(375)).contains(interval), "{interval:?}");
    }
    let together = one.iter().zip(&other).filter(|(one, other)| one.abs_diff(**other) < ms(2)).count();
    assert!(together < 5, "{one:?} {other:?}");
}

#[test]
fn a_request_in_doubt_may_be_granted_late() {
    let (mut lock, request) = start_queueing(5, at(0), at(60_000));
    for node in 1..4 {
        assert!(lock.on_reply(node, &request, queued(40), at(1)).is_none());
    }
    // The last node got no request. The request to the first is in doubt.
    lock.on_reply(4, &request, failed(FailureKind::Down), at(1));
    lock.on_reply(0, &request, failed(FailureKind::Cut), at(1));
    let late = |lock: &LockState| (0..5).filter(|node| lock.may_be_granted_late(*node)).collect::<Vec<_>>();
    assert_eq!(late(&lock), [0]);
    let asked = (2..3_000).find_map(|ms| lock.on_timeout(at(ms)));
    let (again, to) = sent(asked);
    assert!(to.contains(0) && matches!(again.ask, Ask::Wait { .. }));
    lock.on_reply(0, &again, LockReply::Number(3), at(3_001));
    assert_eq!(late(&lock), [0], "a reply to the second request does not settle the first");
    lock.on_release(at(3_002));
    assert_eq!(late(&lock), [0]);
}
