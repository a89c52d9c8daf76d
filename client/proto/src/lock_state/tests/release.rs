//! Releases.

use super::*;

#[test]
fn a_refused_attempt_releases_what_it_may_hold() {
    let mut client = TestClient::of(5);
    client.vote(0, LockReply::Number(1));
    client.vote(1, silent());
    client.vote(2, down());
    assert_failed(client.vote(3, LockReply::Nil), Refusal::Contended);
    client.vote(4, LockReply::Nil);
    let (request, to) = client.lock.on_release(at(1));
    assert_eq!(request.ask, Ask::Release { floor: None });
    assert_eq!(
        to.iter().collect::<Vec<_>>(),
        [0, 1],
        "the node that granted and the node that may have granted"
    );
}

#[test]
fn a_release_is_settled_by_a_majority_or_by_all_replies() {
    let mut client = TestClient::held();
    let (release, to) = client.lock.on_release(at(10));
    assert_eq!(to, NodeSet::first(5));
    assert!(client.reply(0, &release, LockReply::Number(1)).is_none());
    assert!(client.reply(1, &release, silent()).is_none());
    assert!(client.reply(2, &release, LockReply::Number(1)).is_none());
    assert!(matches!(
        client.reply(3, &release, LockReply::Number(1)),
        Some(LockOutput::Event(Event::Released))
    ));
    assert!(client.reply(4, &release, LockReply::Number(0)).is_none(), "the event comes once");
    let nodes = client.lock.release_progress().unwrap().nodes();
    assert_eq!((&nodes[0], &nodes[4]), (&ReleaseOutcome::Freed, &ReleaseOutcome::NotHeld));
    // A second release sends nothing.
    client.lock.release(at(11));
    assert!(client.lock.output().is_none());
}

#[test]
fn a_release_of_an_expired_lock_is_settled_too() {
    let mut client = TestClient::held();
    let (release, _) = client.lock.on_release(at(60_000));
    for node in 0..4 {
        assert!(client.reply(node, &release, LockReply::Number(0)).is_none());
    }
    assert!(matches!(
        client.reply(4, &release, LockReply::Number(0)),
        Some(LockOutput::Event(Event::Released))
    ));
}

#[test]
fn a_release_raises_the_nodes_that_granted_less() {
    let mut client = TestClient::of(3);
    client.vote(0, LockReply::Number(4));
    client.vote(1, LockReply::Number(4));
    client.vote(2, LockReply::Number(9));
    assert_eq!(client.lock.fence(), Some(4));
    assert_eq!(client.lock.on_release(at(1)).0.ask, Ask::Release { floor: Some(9) });
}

#[test]
fn a_release_carries_the_longest_time_to_live() {
    let mut client = TestClient::held();
    let hour = Duration::from_secs(3600);
    client.lock.on_extend(hour, at(2)).unwrap();
    assert_eq!(client.lock.on_release(at(4)).0.ttl, hour);
}
