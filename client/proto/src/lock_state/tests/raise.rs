//! The second round: one fence from a majority.

use super::*;

#[test]
fn different_fences_are_raised_to_one() {
    let mut client = TestClient::of(3);
    client.now_ms = 2;
    client.vote(0, LockReply::Number(4));
    // The reply of the third node may make a majority of one fence: the client waits as long again.
    assert!(client.vote(1, LockReply::Number(9)).is_none());
    assert_eq!(client.lock.poll_timeout(), Some(at(4)));
    client.now_ms = 4;
    let (request, to) = sent(client.lock.on_timeout(at(4)));
    assert_eq!(request.ask, Ask::RaiseFence { fence: 9 });
    assert_eq!(to.iter().collect::<Vec<_>>(), [0]);
    assert_eq!(client.lock.poll_timeout(), None);
    let held = client.reply(0, &request, LockReply::Number(9));
    assert_held(held, 9);
    // Two leases count: one from the first round, one from the second.
    assert_eq!(client.valid_until_ms(), Some(LEASE_MS));
}

#[test]
fn a_late_reply_makes_the_second_round_needless() {
    let mut client = TestClient::of(3);
    client.now_ms = 1;
    client.vote(0, LockReply::Number(4));
    client.vote(1, LockReply::Number(9));
    assert_held(client.vote(2, LockReply::Number(4)), 4);
}

#[test]
fn a_node_that_replies_during_the_second_round_is_raised_too() {
    let mut client = TestClient::of(5);
    client.now_ms = 1;
    for (node, fence) in [(0, 1), (1, 2), (2, 3)] {
        client.vote(node, LockReply::Number(fence));
    }
    let (first, to) = sent(client.lock.on_timeout(at(2)));
    assert_eq!(to.iter().collect::<Vec<_>>(), [0, 1]);
    let (second, to) = sent(client.vote(3, LockReply::Number(2)));
    assert_eq!((second.ask, to.iter().collect::<Vec<_>>()), (Ask::RaiseFence { fence: 3 }, vec![3]));
    client.reply(0, &first, LockReply::Number(3));
    assert_held(client.reply(3, &second, LockReply::Number(3)), 3);
}

#[test]
fn only_replies_equal_to_the_fence_count() {
    let mut client = TestClient::of(3);
    client.vote(0, LockReply::Number(1));
    client.vote(2, silent());
    let (request, _) = sent(client.vote(1, LockReply::Number(2)));
    // The node has granted again meanwhile, with a larger fence than the goal.
    let next = client.reply(0, &request, LockReply::Number(5));
    let (request, to) = sent(next);
    assert_eq!((request.ask, to.iter().collect::<Vec<_>>()), (Ask::RaiseFence { fence: 5 }, vec![1]));
    assert_held(client.reply(1, &request, LockReply::Number(5)), 5);
}

/// The fence that a node replies to a raise.
fn raised(fence: u64, goal: u64) -> u64 {
    fence.max(goal.min(fence.saturating_add(RAISE_STEP).max(RAISE_CAP)).min(MAX_FENCE))
}

/// Raises two nodes to one fence. Returns the fence and the number of raises.
fn agreed(mut fences: [u64; 2]) -> (u64, u64) {
    let mut client = TestClient::of(2);
    client.vote(0, LockReply::Number(fences[0]));
    let mut event = client.vote(1, LockReply::Number(fences[1]));
    for commands in 0.. {
        let (request, node) = match event {
            Some(LockOutput::Transmit(Transmit { request, to })) => (request, to.iter().next().unwrap()),
            Some(LockOutput::Event(Event::Held { fence })) => return (fence, commands),
            other => panic!("{fences:?} after {commands}: {other:?}"),
        };
        let Ask::RaiseFence { fence: goal } = request.ask else { panic!("{request:?}") };
        fences[node] = raised(fences[node], goal);
        event = client.reply(node, &request, LockReply::Number(fences[node]));
    }
    unreachable!("every loop ends")
}

#[test]
fn nodes_agree_however_far_apart_they_are() {
    let table = [
        ([1, 3 << 40], 1),
        ([3 << 60, 1], 1),
        ([1, RAISE_CAP], 1),
        ([RAISE_CAP + 9, 1], 2),
        ([RAISE_CAP + 9, RAISE_CAP + 9 + RAISE_STEP], 1),
        ([RAISE_CAP, RAISE_CAP + 64 * RAISE_STEP], 64),
        ([MAX_FLOOR, MAX_FLOOR - 1], 1),
    ];
    for (fences, commands) in table {
        assert_eq!(agreed(fences), (*fences.iter().max().unwrap(), commands), "{fences:?}");
    }
}

/// An older module raises by 2^32 with each command.
#[test]
fn a_node_that_raises_in_larger_steps_is_asked_until_it_reaches_the_goal() {
    let mut client = TestClient::of(2);
    client.vote(0, LockReply::Number(1 << 40));
    let mut event = client.vote(1, LockReply::Number(1));
    for step in 1..256 {
        let (request, _) = sent(event);
        event = client.reply(1, &request, LockReply::Number(1 + (step << 32)));
    }
    let (request, _) = sent(event);
    let held = client.reply(1, &request, LockReply::Number(1 << 40));
    assert!(matches!(held, Some(LockOutput::Event(Event::Held { fence })) if fence == 1 << 40), "{held:?}");
}

#[test]
fn a_node_that_does_not_raise_its_fence_is_asked_once() {
    let mut client = TestClient::of(2);
    client.vote(0, LockReply::Number(9));
    let (request, _) = sent(client.vote(1, LockReply::Number(1)));
    assert_failed(client.reply(1, &request, LockReply::Number(1)), Refusal::NoQuorum);
}

/// A broken node might raise by one with each command.
#[test]
fn a_node_that_raises_by_less_than_a_step_is_asked_once() {
    let raised_by = |step: u64| {
        let mut client = TestClient::of(2);
        client.vote(0, LockReply::Number(1 << 40));
        let asked = client.vote(1, LockReply::Number(1));
        let (request, _) = sent(asked);
        client.reply(1, &request, LockReply::Number(1 + step))
    };
    for step in [1, RAISE_STEP - 1] {
        assert_failed(raised_by(step), Refusal::NoQuorum);
    }
    assert!(matches!(raised_by(RAISE_STEP), Some(LockOutput::Transmit(_))), "a whole step is enough");
}

/// A broken node might raise by one step with each command, and every raise renews the lease of a client that
/// queues. The first lease bounds the second round all the same.
#[test]
fn a_second_round_that_outlasts_the_lease_fails() {
    let queue =
        QueueRequest { ticket: 5, stamp: 100, wait: Duration::ZERO, channel: [b'c'; 16], claim: None };
    let quorum = Quorum::of(2).unwrap();
    let (plain, acquire) = LockState::begin(quorum, Drift::default(), TTL, None, at(0));
    let (waits, wait) = plain.clone().begin_queueing(queue, at(60_000));
    for (mut lock, request) in [(plain, acquire), (waits, wait)] {
        lock.on_reply(0, &request, LockReply::Number(1 << 61), at(1));
        let mut event = lock.on_reply(1, &request, LockReply::Number(1), at(1));
        let (mut now_ms, mut fence) = (1, 1);
        let refusal = loop {
            (now_ms, fence) = (now_ms + 100, fence + RAISE_STEP);
            assert!(now_ms < 2 * LEASE_MS, "the second round does not end");
            event = match event {
                Some(LockOutput::Event(Event::Failed(refusal))) => break refusal,
                Some(LockOutput::Transmit(Transmit { request, to })) => {
                    // The node that has the goal replies with it, if the client renews its lease.
                    let mut last = None;
                    for node in to.iter() {
                        let said = if node == 0 { 1 << 61 } else { fence };
                        last = lock.on_reply(node, &request, LockReply::Number(said), at(now_ms)).or(last);
                    }
                    last
                }
                other => panic!("{now_ms} ms: {other:?}"),
            };
        };
        // Nodes do not lower a fence, so the next attempt continues here.
        let reached = fence - RAISE_STEP;
        let apart = Refusal::FencesApart { smallest: reached, largest: 1 << 61 };
        assert_eq!(refusal, apart);
    }
}

#[test]
fn a_reply_to_a_raise_does_not_revive_an_expired_lock() {
    let mut client = TestClient::of(3);
    client.now_ms = 1;
    client.vote(0, LockReply::Number(4));
    client.vote(1, LockReply::Number(9));
    client.now_ms = 9_000;
    let (raise, _) = sent(client.lock.on_timeout(at(9_000)));
    // A slow third reply makes the majority first. The lock expires before the raised node replies.
    assert_held(client.vote(2, LockReply::Number(9)), 9);
    client.now_ms = LEASE_MS;
    let lost = client.reply(0, &raise, LockReply::Number(9));
    assert!(matches!(lost, Some(LockOutput::Event(Event::Lost(_)))), "{lost:?}");
    assert_eq!(client.lock.fence(), None);
}

#[test]
fn the_settle_timer_ends_with_the_majority_it_was_for() {
    let mut client = TestClient::of(3);
    client.now_ms = 5;
    client.vote(0, LockReply::Number(4));
    client.vote(1, LockReply::Number(9));
    assert_eq!(client.lock.poll_timeout(), Some(at(10)));
    // The node fails: the majority that granted different fences is gone.
    client.vote(1, silent());
    assert_eq!(client.lock.poll_timeout(), None);
}

#[test]
fn one_node_with_an_absurd_fence_is_left_alone() {
    let mut client = TestClient::of(5);
    client.vote(0, LockReply::Number(u64::MAX));
    client.vote(1, LockReply::Number(1));
    client.vote(2, silent());
    client.now_ms = 1;
    client.vote(3, LockReply::Number(2));
    let (request, to) = sent(client.vote(4, LockReply::Number(3)));
    assert_eq!((request.ask, to.iter().collect::<Vec<_>>()), (Ask::RaiseFence { fence: 3 }, vec![1, 3]));
    client.reply(1, &request, LockReply::Number(3));
    assert_held(client.reply(3, &request, LockReply::Number(3)), 3);
}

#[test]
fn fences_of_broken_nodes_fail_the_attempt() {
    for largest in [MAX_FLOOR + 1, MAX_FENCE, u64::MAX] {
        let mut client = TestClient::of(2);
        client.vote(0, LockReply::Number(largest));
        let failed = client.vote(1, LockReply::Number(1));
        let apart = Refusal::FencesApart { smallest: 1, largest };
        assert!(
            matches!(&failed, Some(LockOutput::Event(Event::Failed(refusal))) if *refusal == apart),
            "{failed:?}"
        );
    }
}

/// Another client may have raised the counter of a key with thousands of commands.
#[test]
fn a_fence_that_takes_many_commands_is_reached() {
    let goal = RAISE_CAP + 5_000 * RAISE_STEP;
    let mut client = TestClient::of(2);
    client.vote(0, LockReply::Number(goal));
    let mut event = client.vote(1, LockReply::Number(1));
    let mut fence = 1;
    let mut commands = 0;
    while fence < goal {
        let (request, _) = sent(event);
        assert_eq!(request.ask, Ask::RaiseFence { fence: goal });
        fence = goal.min(raise_limit(fence));
        commands += 1;
        event = client.reply(1, &request, LockReply::Number(fence));
    }
    assert_held(event, goal);
    assert_eq!(commands, 5_001);
}

#[test]
fn a_spent_settle_timer_sets_no_timeout() {
    let mut client = TestClient::of(5);
    client.now_ms = 2;
    for (node, fence) in [(0, 1), (1, 1), (2, u64::MAX)] {
        client.vote(node, LockReply::Number(fence));
    }
    assert_eq!(client.lock.poll_timeout(), Some(at(4)));
    // No goal is within reach, so the client waits for a reply, and not for a moment that has passed.
    assert!(client.lock.on_timeout(at(4)).is_none());
    assert_eq!(client.lock.poll_timeout(), None);
    assert_held(client.vote(3, LockReply::Number(1)), 1);
}
