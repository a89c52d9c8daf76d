//! Extensions, and losing the lock.

use super::*;

#[test]
fn an_extension_needs_a_majority_and_counts_from_its_own_request() {
    let mut client = TestClient::held();
    client.now_ms = 5_000;
    let extend = client.extend();
    client.now_ms = 6_000;
    assert!(client.reply(0, &extend, LockReply::Number(7)).is_none());
    assert!(client.reply(1, &extend, LockReply::Number(7)).is_none());
    assert_eq!(client.valid_until_ms(), Some(LEASE_MS), "two of five are not enough");
    assert!(matches!(
        client.reply(2, &extend, LockReply::Number(7)),
        Some(LockOutput::Event(Event::Extended))
    ));
    assert_eq!(client.valid_until_ms(), Some(5_000 + LEASE_MS));
}

#[test]
fn a_failed_extension_changes_nothing() {
    let mut client = TestClient::held();
    client.now_ms = 5_000;
    let extend = client.extend();
    client.reply(0, &extend, silent());
    client.reply(1, &extend, silent());
    let failed = client.reply(2, &extend, silent());
    assert!(matches!(failed, Some(LockOutput::Event(Event::NotExtended(_)))), "{failed:?}");
    assert_eq!((client.lock.fence(), client.valid_until_ms()), (Some(7), Some(LEASE_MS)));
    // The next extension may succeed.
    client.now_ms = 6_000;
    let extend = client.extend();
    client.reply(0, &extend, LockReply::Number(7));
    client.reply(1, &extend, LockReply::Number(7));
    assert!(matches!(
        client.reply(2, &extend, LockReply::Number(7)),
        Some(LockOutput::Event(Event::Extended))
    ));
}

#[test]
fn an_extension_that_arrives_too_late_does_not_revive_the_lock() {
    let mut client = TestClient::held();
    client.now_ms = LEASE_MS - 1;
    let extend = client.extend();
    client.reply(0, &extend, LockReply::Number(7));
    client.reply(1, &extend, LockReply::Number(7));
    client.now_ms = LEASE_MS;
    assert!(matches!(
        client.reply(2, &extend, LockReply::Number(7)),
        Some(LockOutput::Event(Event::Lost(_)))
    ));
    assert_eq!(client.lock.fence(), None);
    assert_eq!(client.lock.on_extend(TTL, at(client.now_ms)).unwrap_err(), LockEnded);
}

#[test]
fn no_extension_is_sent_once_validity_is_over() {
    let mut client = TestClient::held();
    client.now_ms = LEASE_MS;
    assert_eq!(client.lock.on_extend(TTL, at(client.now_ms)).unwrap_err(), LockEnded);
}

#[test]
fn a_lock_that_a_majority_does_not_hold_is_lost_at_once() {
    let mut client = TestClient::held();
    client.now_ms = 100;
    let extend = client.extend();
    assert!(client.reply(0, &extend, LockReply::Nil).is_none());
    assert!(client.reply(1, &extend, LockReply::Nil).is_none());
    assert!(matches!(client.reply(2, &extend, LockReply::Nil), Some(LockOutput::Event(Event::Lost(_)))));
    assert!(client.reply(3, &extend, LockReply::Number(7)).is_none());
    assert_eq!(client.lock.fence(), None);
}

#[test]
fn a_shorter_extension_does_not_shorten_the_lease() {
    let mut client = TestClient::held();
    client.now_ms = 100;
    let (extend, _) = client.lock.on_extend(Duration::from_millis(50), at(100)).unwrap();
    for node in 0..5 {
        client.reply(node, &extend, LockReply::Number(7));
    }
    assert_eq!(client.valid_until_ms(), Some(LEASE_MS));
}

#[test]
fn a_reply_to_an_extension_after_the_release_is_ignored() {
    let mut client = TestClient::held();
    let extend = client.extend();
    client.lock.on_release(at(10));
    for node in 0..5 {
        assert!(client.reply(node, &extend, LockReply::Number(7)).is_none());
    }
    assert_eq!(client.lock.fence(), None);
}

#[test]
fn a_node_that_reports_no_lease_can_end_the_lock_at_once() {
    let mut client = TestClient::of(3);
    for node in 0..3 {
        client.vote(node, LockReply::Number(7));
    }
    // Nodes 1 and 2 extend. Node 0 does not reply, and its lease expires.
    client.now_ms = 5_000;
    let extend = client.extend();
    client.reply(0, &extend, silent());
    client.reply(1, &extend, LockReply::Number(7));
    assert!(matches!(
        client.reply(2, &extend, LockReply::Number(7)),
        Some(LockOutput::Event(Event::Extended))
    ));
    // Now node 2 replies that it does not hold the lock: one lease is left that has not expired.
    client.now_ms = LEASE_MS + 1_000;
    let extend = client.extend();
    client.reply(0, &extend, down());
    client.reply(1, &extend, down());
    assert!(matches!(client.reply(2, &extend, LockReply::Nil), Some(LockOutput::Event(Event::Lost(_)))));
}
