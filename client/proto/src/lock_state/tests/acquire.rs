//! Votes: when an attempt holds the lock, and when it fails.

use super::*;

#[test]
fn one_round_when_a_majority_agrees() {
    let mut client = TestClient::of(5);
    assert!(client.vote(0, LockReply::Number(7)).is_none());
    assert!(client.vote(1, LockReply::Number(7)).is_none());
    assert_held(client.vote(2, LockReply::Number(7)), 7);
    // Later replies change nothing, whatever they are.
    assert!(client.vote(3, LockReply::Number(99)).is_none());
    assert!(client.vote(4, LockReply::Nil).is_none());
    assert_eq!(client.lock.fence(), Some(7));
}

#[test]
fn validity_counts_from_before_the_request_was_sent() {
    let mut client = TestClient::of(3);
    client.now_ms = 4_000;
    client.vote(0, LockReply::Number(1));
    client.vote(1, LockReply::Number(1));
    assert_eq!(client.valid_until_ms(), Some(LEASE_MS), "not from the reply, 4 s later");
}

#[test]
fn a_lock_granted_too_late_is_not_held() {
    let mut client = TestClient::of(3);
    client.now_ms = LEASE_MS;
    client.vote(0, LockReply::Number(1));
    assert_failed(client.vote(1, LockReply::Number(1)), Refusal::Expired);
    // The release goes to every node, also to the one that has not replied.
    assert_eq!(client.lock.on_release(at(client.now_ms)).1, NodeSet::first(3));
}

#[test]
fn a_reply_after_the_timeout_still_counts() {
    let mut client = TestClient::of(3);
    client.vote(0, LockReply::Number(3));
    assert!(client.vote(1, silent()).is_none());
    assert_held(client.vote(1, LockReply::Number(3)), 3);
}

#[test]
fn a_reply_after_a_failure_changes_nothing_but_the_release() {
    let mut client = TestClient::of(3);
    client.vote(0, LockReply::Nil);
    assert_failed(client.vote(1, LockReply::Nil), Refusal::Contended);
    assert!(client.vote(2, LockReply::Number(5)).is_none());
    assert_eq!((client.lock.fence(), client.lock.valid_until()), (None, None));
    // The node holds the lock, so the release goes to it.
    assert!(client.lock.on_release(at(0)).1.contains(2));
}

#[test]
fn a_majority_of_grants_after_a_failure_does_not_hold_the_lock() {
    let mut client = TestClient::of(3);
    client.vote(0, silent());
    assert_failed(client.vote(1, silent()), Refusal::NoQuorum);
    for node in 0..3 {
        assert!(client.vote(node, LockReply::Number(5)).is_none());
    }
    assert_eq!((client.lock.fence(), client.lock.valid_until()), (None, None));
    assert_eq!(client.lock.on_release(at(1)).1, NodeSet::first(3), "the release goes to all of them");
}

#[test]
fn half_of_an_even_number_is_a_refusal() {
    let mut client = TestClient::of(4);
    client.vote(0, LockReply::Number(1));
    client.vote(1, LockReply::Number(1));
    client.vote(2, LockReply::Nil);
    assert_failed(client.vote(3, LockReply::Nil), Refusal::Contended);
}

#[test]
fn a_fence_of_zero_is_not_a_vote() {
    let mut client = TestClient::of(1);
    assert_failed(client.vote(0, LockReply::Number(0)), Refusal::NoQuorum);
    assert!(client.lock.on_release(at(0)).1.contains(0), "the node may hold the lock all the same");
}
