//! News that come more than once, and late: whoever listens may hear of a grant again when it is over.

use super::client::TTL;
use super::{manager, served, until_held, until_waiting, wait_for};
use redlock_tests::{Answer, Fleet, Wire};

/// Listens to all that a node tells those who wait.
fn observer(fleet: &Fleet, node: usize) -> Wire {
    let mut wire = fleet[node].connect();
    wire.call_strs("PSUBSCRIBE redlock:grant:*");
    wire
}

/// Says again at each node, three times, what it said there. Tells how many listened, at least.
fn repeat(fleet: &Fleet, news: &[(String, String)]) -> i64 {
    let said = fleet.iter().zip(news).flat_map(|(node, (channel, message))| {
        let mut wire = node.connect();
        (0..3).map(move |_| wire.call(&["PUBLISH", channel, message]).int())
    });
    said.min().unwrap_or(0)
}

#[tokio::test]
async fn news_that_are_repeated_do_no_harm() {
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
    let news: Vec<(String, String)> = observers
        .iter_mut()
        .map(|observer| {
            let told = observer.receive().expect("a grant");
            (told.list()[2].string(), told.list()[3].string())
        })
        .collect();
    assert!(news.iter().all(|(_, message)| message.contains(" 2 ")), "the second grant: {news:?}");

    // To the one whom it has made the holder.
    assert_eq!(repeat(&fleet, &news), 2, "the client listens, and the observer");
    assert!(second.is_valid());
    assert_eq!(second.fence(), 2);
    second.release().await;

    // And when somebody else holds it, to the same client, which waits again.
    let third = others.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 1).await;
    repeat(&fleet, &news);
    for node in fleet.iter() {
        let seen = node.connect().call_strs("REDLOCK.INSPECT job");
        assert_eq!(seen.field("fence"), Some(&Answer::Int(third.fence().cast_signed())), "{seen:?}");
    }
    assert!(third.is_valid());
    let number = third.fence();
    third.release().await;
    let fourth = served(waiting).await;
    assert!(fourth.fence() > number && fourth.is_valid(), "{}", fourth.fence());
}
