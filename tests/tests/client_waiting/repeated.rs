//! Grant pushes that arrive more than once, or after the grant has ended.

use super::client::TTL;
use super::{manager, served, until_held, until_waiting, wait_for};
use redlock_tests::{Answer, Fleet, Wire};

/// Subscribes to every grant push of a node.
fn observer(fleet: &Fleet, node: usize) -> Wire {
    let mut wire = fleet[node].connect();
    wire.call_strs("PSUBSCRIBE redlock:grant:*");
    wire
}

/// Publishes the push of each node there again, three times. Returns the smallest number of receivers.
fn repeat(fleet: &Fleet, pushes: &[(String, String)]) -> i64 {
    let receivers = fleet.iter().zip(pushes).flat_map(|(node, (channel, message))| {
        let mut wire = node.connect();
        (0..3).map(move |_| wire.call(&["PUBLISH", channel, message]).int())
    });
    receivers.min().unwrap_or(0)
}

#[tokio::test]
async fn repeated_grant_pushes_do_no_harm() {
    let fleet = Fleet::start(5);
    let mut observers: Vec<Wire> = (0..5).map(|node| observer(&fleet, node)).collect();
    let others = manager(fleet.urls());
    let first = others.acquire("job", TTL).await.expect("free");
    until_held(fleet.iter(), "job").await;
    let locks = manager(fleet.urls());
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 1).await;
    first.release().await;
    let second = served(waiting).await;
    let pushes: Vec<(String, String)> = observers
        .iter_mut()
        .map(|observer| {
            let push = observer.receive().expect("a grant");
            (push.list()[2].string(), push.list()[3].string())
        })
        .collect();
    assert!(pushes.iter().all(|(_, message)| message.contains(" 2 ")), "the second grant: {pushes:?}");

    // Repeated to the client that holds the lock.
    assert_eq!(repeat(&fleet, &pushes), 2, "the client and the observer are subscribed");
    assert!(second.is_valid());
    assert_eq!(second.fence(), 2);
    second.release().await;

    // Repeated to the same client while it waits again and another client holds the lock.
    let third = others.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 1).await;
    repeat(&fleet, &pushes);
    for node in fleet.iter() {
        let seen = node.connect().call_strs("REDLOCK.INSPECT job");
        assert_eq!(seen.field("fence"), Some(&Answer::Int(third.fence().cast_signed())), "{seen:?}");
    }
    assert!(third.is_valid());
    let before = third.fence();
    third.release().await;
    let fourth = served(waiting).await;
    assert!(fourth.fence() > before && fourth.is_valid(), "fence {} after {before}", fourth.fence());
}
