//! Votes: when an attempt holds the lock, and when it fails.

use super::*;

#[test]
fn one_round_when_a_majority_agrees() {
    let mut run = TestClient::of(5);
    assert!(run.voted(0, Reply::Number(7)).is_none());
    assert!(run.voted(1, Reply::Number(7)).is_none());
    assert!(matches!(run.voted(2, Reply::Number(7)), Some(LockOutput::Event(Event::Held { fence: 7 }))));
    // Stragglers change nothing, whatever they say.
    assert!(run.voted(3, Reply::Number(99)).is_none());
    assert!(run.voted(4, Reply::Nil).is_none());
    assert_eq!(run.lock.fence(), Some(7));
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let mut run = TestClient::of(3);
    run.now_ms = 4_000;
    run.voted(0, Reply::Number(1));
    run.voted(1, Reply::Number(1));
    assert_eq!(run.valid_until_ms(), Some(LEASE_MS), "not from the answer, 4 s later");
}

#[test]
fn a_lock_granted_too_late_is_not_held() {
    let mut run = TestClient::of(3);
    run.now_ms = LEASE_MS;
    run.voted(0, Reply::Number(1));
    assert!(matches!(
        run.voted(1, Reply::Number(1)),
        Some(LockOutput::Event(Event::Failed(Refusal::Expired)))
    ));
    // And it is given back, also where no answer has come.
    assert_eq!(run.lock.on_release(at(run.now_ms)).1, NodeSet::first(3));
}

#[test]
fn a_reply_after_the_timeout_still_counts() {
    let mut run = TestClient::of(3);
    run.voted(0, Reply::Number(3));
    assert!(run.voted(1, silent()).is_none());
    assert!(matches!(run.voted(1, Reply::Number(3)), Some(LockOutput::Event(Event::Held { fence: 3 }))));
}

#[test]
fn a_reply_after_a_failure_changes_nothing_but_the_release() {
    let mut run = TestClient::of(3);
    run.voted(0, Reply::Nil);
    assert!(matches!(run.voted(1, Reply::Nil), Some(LockOutput::Event(Event::Failed(Refusal::Contended)))));
    assert!(run.voted(2, Reply::Number(5)).is_none());
    assert_eq!((run.lock.fence(), run.lock.valid_until()), (None, None));
    // But the node has the lock, and is asked to free it.
    assert!(run.lock.on_release(at(0)).1.contains(2));
}

#[test]
fn a_majority_of_grants_after_a_failure_does_not_hold_the_lock() {
    let mut run = TestClient::of(3);
    run.voted(0, silent());
    assert!(matches!(run.voted(1, silent()), Some(LockOutput::Event(Event::Failed(Refusal::NoQuorum)))));
    for node in 0..3 {
        assert!(run.voted(node, Reply::Number(5)).is_none());
    }
    assert_eq!((run.lock.fence(), run.lock.valid_until()), (None, None));
    assert_eq!(run.lock.on_release(at(1)).1, NodeSet::first(3), "and all of them are given back");
}

#[test]
fn half_of_an_even_number_is_a_refusal() {
    let mut run = TestClient::of(4);
    run.voted(0, Reply::Number(1));
    run.voted(1, Reply::Number(1));
    run.voted(2, Reply::Nil);
    assert!(matches!(run.voted(3, Reply::Nil), Some(LockOutput::Event(Event::Failed(Refusal::Contended)))));
}

#[test]
fn a_fence_of_zero_is_not_a_vote() {
    let mut run = TestClient::of(1);
    let failed = run.voted(0, Reply::Number(0));
    assert!(matches!(failed, Some(LockOutput::Event(Event::Failed(Refusal::NoQuorum)))), "{failed:?}");
    assert!(run.lock.on_release(at(0)).1.contains(0), "but who knows what it did");
}
