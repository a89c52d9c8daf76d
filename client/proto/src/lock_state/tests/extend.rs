//! Extensions, and losing the lock.

use super::*;

#[test]
fn an_extension_needs_a_majority_and_counts_from_its_own_request() {
    let mut run = TestClient::held();
    run.now_ms = 5_000;
    let extend = run.extend();
    run.now_ms = 6_000;
    assert!(run.answered(0, &extend, Reply::Number(7)).is_none());
    assert!(run.answered(1, &extend, Reply::Number(7)).is_none());
    assert_eq!(run.valid_until_ms(), Some(LEASE_MS), "two of five are not enough");
    assert!(matches!(run.answered(2, &extend, Reply::Number(7)), Some(LockOutput::Event(Event::Extended))));
    assert_eq!(run.valid_until_ms(), Some(5_000 + LEASE_MS));
}

#[test]
fn a_failed_extension_changes_nothing() {
    let mut run = TestClient::held();
    run.now_ms = 5_000;
    let extend = run.extend();
    run.answered(0, &extend, silent());
    run.answered(1, &extend, silent());
    let failed = run.answered(2, &extend, silent());
    assert!(matches!(failed, Some(LockOutput::Event(Event::NotExtended(_)))), "{failed:?}");
    assert_eq!((run.lock.fence(), run.valid_until_ms()), (Some(7), Some(LEASE_MS)));
    // The next one may succeed.
    run.now_ms = 6_000;
    let extend = run.extend();
    run.answered(0, &extend, Reply::Number(7));
    run.answered(1, &extend, Reply::Number(7));
    assert!(matches!(run.answered(2, &extend, Reply::Number(7)), Some(LockOutput::Event(Event::Extended))));
}

#[test]
fn an_extension_that_arrives_too_late_does_not_revive_the_lock() {
    let mut run = TestClient::held();
    run.now_ms = LEASE_MS - 1;
    let extend = run.extend();
    run.answered(0, &extend, Reply::Number(7));
    run.answered(1, &extend, Reply::Number(7));
    run.now_ms = LEASE_MS;
    assert!(matches!(run.answered(2, &extend, Reply::Number(7)), Some(LockOutput::Event(Event::Lost(_)))));
    assert_eq!(run.lock.fence(), None);
    assert_eq!(run.lock.on_extend(TTL, at(run.now_ms)).unwrap_err(), Over);
}

#[test]
fn no_extension_is_sent_once_validity_is_over() {
    let mut run = TestClient::held();
    run.now_ms = LEASE_MS;
    assert_eq!(run.lock.on_extend(TTL, at(run.now_ms)).unwrap_err(), Over);
}

#[test]
fn a_lock_that_a_majority_does_not_hold_is_lost_at_once() {
    let mut run = TestClient::held();
    run.now_ms = 100;
    let extend = run.extend();
    assert!(run.answered(0, &extend, Reply::Nil).is_none());
    assert!(run.answered(1, &extend, Reply::Nil).is_none());
    assert!(matches!(run.answered(2, &extend, Reply::Nil), Some(LockOutput::Event(Event::Lost(_)))));
    assert!(run.answered(3, &extend, Reply::Number(7)).is_none());
    assert_eq!(run.lock.fence(), None);
}

#[test]
fn a_shorter_extension_does_not_shorten_the_lease() {
    let mut run = TestClient::held();
    run.now_ms = 100;
    let (extend, _) = run.lock.on_extend(Duration::from_millis(50), at(100)).unwrap();
    for node in 0..5 {
        run.answered(node, &extend, Reply::Number(7));
    }
    assert_eq!(run.valid_until_ms(), Some(LEASE_MS));
}

#[test]
fn a_reply_to_an_extension_after_the_release_is_ignored() {
    let mut run = TestClient::held();
    let extend = run.extend();
    run.lock.on_release(at(10));
    for node in 0..5 {
        assert!(run.answered(node, &extend, Reply::Number(7)).is_none());
    }
    assert_eq!(run.lock.fence(), None);
}

#[test]
fn a_node_that_reports_no_lease_can_end_the_lock_at_once() {
    let mut run = TestClient::of(3);
    for node in 0..3 {
        run.voted(node, Reply::Number(7));
    }
    // Nodes 1 and 2 are extended; node 0 is cut off and runs out.
    run.now_ms = 5_000;
    let extend = run.extend();
    run.answered(0, &extend, silent());
    run.answered(1, &extend, Reply::Number(7));
    assert!(matches!(run.answered(2, &extend, Reply::Number(7)), Some(LockOutput::Event(Event::Extended))));
    // Now node 2 says that it does not have the lock: of three leases one is left that has not run out.
    run.now_ms = LEASE_MS + 1_000;
    let extend = run.extend();
    run.answered(0, &extend, down());
    run.answered(1, &extend, down());
    assert!(matches!(run.answered(2, &extend, Reply::Nil), Some(LockOutput::Event(Event::Lost(_)))));
}
