//! Nodes that tell of what they hand on over a connection of its own, because RESP2 cannot on that of the commands.

use super::client::{
    NODE_TIMEOUT, Network, TTL, builder, until_all_answer, until_held, until_waiting, waiters,
};
use super::{connected, handed_on_in_order, manager, served, wait_for};
use redlock_client::LockManager;
use redlock_tests::{Answer, Deed, Fleet, SOON, Server, eventually_async, in_time};
use std::time::Duration;

fn in_resp2(url: impl AsRef<str>) -> String {
    format!("{}?protocol=2", url.as_ref())
}

/// A client that speaks RESP2 and is connected.
async fn apart(urls: Vec<String>) -> LockManager {
    let locks = manager(urls.iter().map(in_resp2));
    until_all_answer(&locks).await;
    locks
}

/// How many connections a node has that are there to listen.
fn listeners(node: &Server) -> usize {
    node.connect().call_strs("CLIENT LIST TYPE pubsub").string().lines().count()
}

async fn until_listening(fleet: &Fleet, count: usize) {
    let what = format!("{count} listen at every node");
    let is_so = async || fleet.iter().all(|node| listeners(node) == count).then_some(());
    eventually_async(&what, SOON, is_so).await;
}

/// Makes a client wait for a lock that somebody else has, so that it listens from then on.
async fn have_waited(holder: &LockManager, locks: &LockManager, fleet: &Fleet) {
    let guard = holder.acquire("before", TTL).await.expect("free");
    until_held(fleet.iter(), "before").await;
    let waiting = wait_for(locks, "before");
    until_waiting(fleet, 1).await;
    guard.release().await;
    served(waiting).await.release().await;
}

#[tokio::test]
async fn over_resp2_too_a_lock_is_handed_on_in_order_and_asked_for_once() {
    let network = Network::start(3);
    let holder = connected(&network).await;
    let mut clients = Vec::new();
    for _ in 0..7 {
        let locks = apart(network.urls()).await;
        have_waited(&holder, &locks, &network.fleet).await;
        clients.push(locks);
    }
    handed_on_in_order(&network.fleet, clients).await;
}

#[tokio::test]
async fn nodes_of_both_protocols_hand_on_together() {
    let network = Network::start(5);
    let holder = connected(&network).await;
    let urls = network.urls();
    let mut clients = Vec::new();
    for mix in 0..7_usize {
        // From one node in RESP2 to all but one, and not always the same.
        let mixed = |(node, url): (usize, &String)| match (node + mix) % 5 > mix % 4 {
            true => url.clone(),
            false => in_resp2(url),
        };
        let locks = manager(urls.iter().enumerate().map(mixed));
        until_all_answer(&locks).await;
        have_waited(&holder, &locks, &network.fleet).await;
        clients.push(locks);
    }
    handed_on_in_order(&network.fleet, clients).await;
}

#[tokio::test]
async fn nobody_listens_before_somebody_waits_nor_after_the_manager_is_gone() {
    let fleet = Fleet::start(3);
    let holder = manager(fleet.urls().iter().map(in_resp2));
    let guard = holder.acquire("job", TTL).await.expect("free");
    until_all_answer(&holder).await;
    assert!(fleet.iter().all(|node| listeners(node) == 0), "nobody had to wait");
    let other = apart(fleet.urls()).await;
    let waiting = wait_for(&other, "job");
    until_waiting(&fleet, 1).await;
    until_listening(&fleet, 1).await;
    guard.release().await;
    let guard = served(waiting).await;
    guard.release().await;
    drop(other);
    until_listening(&fleet, 0).await;
}

#[tokio::test]
async fn the_first_one_who_waits_is_served() {
    let fleet = Fleet::start(5);
    // Not all need be there for that.
    fleet[4].pause();
    let holder = manager(fleet.urls());
    let guard = holder.acquire("job", TTL).await.expect("free");
    until_held(fleet.iter().take(4), "job").await;
    let newcomer = manager(fleet.urls().iter().map(in_resp2));
    let waiting = wait_for(&newcomer, "job");
    let all_wait = || fleet.iter().take(4).all(|node| super::waiters_at(node) == 1).then_some(());
    eventually_async("it waits at the others", SOON, async || all_wait()).await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
    fleet[4].resume();
}

/// How many locks a node has handed on, or which it counts besides.
fn counted(node: &Server, what: &str) -> u64 {
    let count = node.info("redlock", &format!("redlock_{what}")).expect("it is counted");
    count.parse().expect("a number")
}

#[tokio::test]
async fn what_was_said_while_nobody_listened_is_asked_for() {
    // What is handed on is kept for as long as the test takes.
    let fleet = Fleet::start_with(3, |_, node| node.module_args(["claim-window", "60000"]));
    let network = Network::before(fleet);
    let holder = builder().wait_in_line(false).nodes(network.fleet.urls()).build().expect("addresses");
    let other = apart(network.urls()).await;
    have_waited(&holder, &other, &network.fleet).await;
    until_listening(&network.fleet, 1).await;
    let handoffs = || network.fleet.iter().map(|node| counted(node, "handoffs")).collect::<Vec<_>>();
    let before = handoffs();
    let guard = holder.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&other, "job");
    until_waiting(&network.fleet, 1).await;
    // Nobody listens, and nobody does again before the lock was handed on.
    for (node, proxy) in network.fleet.iter().zip(&network.proxies) {
        proxy.ambush("SUBSCRIBE", Deed::Hold);
        assert_eq!(node.connect().call_strs("CLIENT KILL TYPE pubsub"), Answer::Int(1));
        proxy.until_struck().await;
    }
    assert_eq!(waiters(&network.fleet), [1; 3], "nobody is out of the line for that");
    guard.release().await;
    let expected: Vec<u64> = before.iter().map(|count| count + 1).collect();
    eventually_async("the lock is handed on", SOON, async || (handoffs() == expected).then_some(())).await;
    network.let_go();
    let next = served(waiting).await;
    assert!(next.is_valid());
    until_listening(&network.fleet, 1).await;
    assert_eq!(handoffs(), expected);
    let unclaimed = |node: &Server| counted(node, "unclaimed");
    assert!(network.fleet.iter().all(|node| unclaimed(node) == 0), "what it was handed was its own");
}

#[tokio::test]
async fn whenever_it_is_heard_again_it_asks_again() {
    let fleet = Fleet::start(3);
    let holder = builder().wait_in_line(false).nodes(fleet.urls()).build().expect("addresses");
    let other = apart(fleet.urls()).await;
    let guard = holder.acquire("job", TTL).await.expect("free");
    until_held(fleet.iter(), "job").await;
    let waiting = wait_for(&other, "job");
    until_waiting(&fleet, 1).await;
    // Whoever only asked as usual, every two seconds, would not have done so as often by then.
    in_time("it asks again each time", SOON, async {
        for _ in 0..8 {
            until_listening(&fleet, 1).await;
            let before = fleet.calls("redlock.acquire");
            for node in fleet.iter() {
                assert_eq!(node.connect().call_strs("CLIENT KILL TYPE pubsub"), Answer::Int(1));
            }
            eventually_async("it asks again", SOON, async || {
                let calls = fleet.calls("redlock.acquire");
                calls.iter().zip(&before).all(|(calls, before)| calls > before).then_some(())
            })
            .await;
        }
    })
    .await;
    assert_eq!(waiters(&fleet), [1; 3], "nobody is out of the line for that");
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn whoever_waits_survives_broken_connections_and_restarts() {
    let network = Network::without_grace(5);
    let other = apart(network.urls()).await;
    super::survives_broken_connections_and_restarts(network, &other).await;
}

#[tokio::test]
async fn where_nobody_can_be_heard_it_is_asked_for_again_until_one_can() {
    // Whoever listens never hears that it does, or is told that it cannot for now.
    for said in ["", "-LOADING Redis is loading the dataset in memory\r\n"] {
        let network = Network::start(3);
        network.proxies.iter().for_each(|proxy| proxy.forge("SUBSCRIBE", said));
        let patience = Duration::from_millis(200);
        let hasty = builder().connect_timeout(patience).node_timeout(NODE_TIMEOUT);
        let locks = hasty.nodes(network.urls().iter().map(in_resp2)).build().expect("addresses");
        until_all_answer(&locks).await;
        let holder = connected_past(&network).await;
        let guard = holder.acquire("job", TTL).await.expect("free");
        let waiting = wait_for(&locks, "job");
        let asked =
            async || network.fleet.calls("redlock.acquire").iter().all(|calls| *calls > 5).then_some(());
        eventually_async("it is asked for again and again", SOON, asked).await;
        network.proxies.iter().for_each(redlock_tests::Proxy::pass);
        until_waiting(&network.fleet, 1).await;
        guard.release().await;
        assert!(served(waiting).await.is_valid());
    }
}

#[tokio::test]
async fn whoever_is_in_line_asks_again_when_it_is_not_heard_any_more() {
    let rules = "on >secret ~* &* -@all +@connection +redlock.acquire +redlock.extend +redlock.release \
                 +redlock.node +subscribe";
    let fleet = Fleet::start_with(3, |_, node| node.user("app", rules));
    let holder = builder().wait_in_line(false).nodes(fleet.urls()).build().expect("addresses");
    let urls = fleet.urls().into_iter().map(|url| url.replace("://", "://app:secret@")).collect();
    let other = apart(urls).await;
    have_waited(&holder, &other, &fleet).await;
    let guard = holder.acquire("job", TTL).await.expect("free");
    let waiting = wait_for(&other, "job");
    until_waiting(&fleet, 1).await;
    // Those who listen are thrown out, and not let in again.
    for node in fleet.iter() {
        assert_eq!(node.connect().call_strs("ACL SETUSER app resetchannels"), Answer::ok());
        node.connect().call_strs("CLIENT KILL TYPE pubsub");
    }
    until_waiting(&fleet, 0).await;
    assert!(!waiting.is_finished(), "it asks again");
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn a_connection_that_is_slow_to_come_holds_nobody_up() {
    let network = Network::start(5);
    // Whoever waits for that connection waits for longer than this test.
    let patient = builder().connect_timeout(Duration::from_secs(3600));
    let locks = patient.nodes(network.urls().iter().map(in_resp2)).build().expect("addresses");
    until_all_answer(&locks).await;
    let holder = builder().wait_in_line(false).nodes(network.fleet.urls()).build().expect("addresses");
    have_waited(&holder, &locks, &network.fleet).await;
    until_listening(&network.fleet, 1).await;
    network.proxies[4].ambush("SUBSCRIBE", Deed::Hold);
    network.proxies[4].cut();
    network.proxies[4].until_struck().await;
    let free = in_time("a free lock is had", SOON, locks.acquire("free", TTL)).await.expect("a majority");
    free.release().await;
    let guard = holder.acquire("job", TTL).await.expect("free");
    until_held(network.fleet.iter(), "job").await;
    let waiting = wait_for(&locks, "job");
    let all_wait = || network.fleet.iter().all(|node| super::waiters_at(node) == 1).then_some(());
    eventually_async("it stands in line", SOON, async || all_wait()).await;
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

/// A client that goes past the proxies.
async fn connected_past(network: &Network) -> LockManager {
    let locks = manager(network.fleet.urls());
    until_all_answer(&locks).await;
    locks
}
