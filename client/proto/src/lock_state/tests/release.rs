//! Releases.

use super::*;

#[test]
fn a_refused_attempt_releases_what_it_may_hold() {
    let mut run = TestClient::of(5);
    run.voted(0, Reply::Number(1));
    run.voted(1, silent());
    run.voted(2, down());
    assert!(matches!(run.voted(3, Reply::Nil), Some(LockOutput::Event(Event::Failed(Refusal::Contended)))));
    run.voted(4, Reply::Nil);
    let (request, to) = run.lock.on_release(at(1));
    assert_eq!(request.ask, Ask::Release { floor: None });
    assert_eq!(to.iter().collect::<Vec<_>>(), [0, 1], "granted, and may have granted");
}

#[test]
fn a_release_is_settled_by_a_majority_or_by_all_replies() {
    let mut run = TestClient::held();
    let (release, to) = run.lock.on_release(at(10));
    assert_eq!(to, NodeSet::first(5));
    assert!(run.answered(0, &release, Reply::Number(1)).is_none());
    assert!(run.answered(1, &release, silent()).is_none());
    assert!(run.answered(2, &release, Reply::Number(1)).is_none());
    assert!(matches!(run.answered(3, &release, Reply::Number(1)), Some(LockOutput::Event(Event::Released))));
    assert!(run.answered(4, &release, Reply::Number(0)).is_none(), "the news comes once");
    let nodes = run.lock.release_progress().unwrap().nodes();
    assert_eq!((&nodes[0], &nodes[4]), (&ReleaseOutcome::Freed, &ReleaseOutcome::NotHeld));
    // A second release has nobody to ask.
    run.lock.release(at(11));
    assert!(run.lock.output().is_none());
}

#[test]
fn a_release_of_an_expired_lock_is_settled_too() {
    let mut run = TestClient::held();
    let (release, _) = run.lock.on_release(at(60_000));
    for node in 0..4 {
        assert!(run.answered(node, &release, Reply::Number(0)).is_none());
    }
    assert!(matches!(run.answered(4, &release, Reply::Number(0)), Some(LockOutput::Event(Event::Released))));
}

#[test]
fn a_release_raises_the_nodes_that_granted_less() {
    let mut run = TestClient::of(3);
    run.voted(0, Reply::Number(4));
    run.voted(1, Reply::Number(4));
    run.voted(2, Reply::Number(9));
    assert_eq!(run.lock.fence(), Some(4));
    assert_eq!(run.lock.on_release(at(1)).0.ask, Ask::Release { floor: Some(9) });
}

#[test]
fn a_release_carries_the_longest_time_to_live() {
    let mut run = TestClient::held();
    let hour = Duration::from_secs(3600);
    run.lock.on_extend(hour, at(2)).unwrap();
    assert_eq!(run.lock.on_release(at(4)).0.ttl, hour);
}
