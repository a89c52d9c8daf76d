//! Other waiters that misbehave: they hang, disconnect, queue on some nodes only, or forge their tickets.
//!
//! The tests send their commands to the nodes directly, without the client.

use super::client::{Network, TTL};
use super::{manager, served, until_held, until_waiting, wait_for, waiters_at};
use redlock_client::Guard;
use redlock_tests::{Answer, Direction, Fleet, SOON, Server, Wire, eventually_async};

const LAST: &str = "9223372036854775807";

/// Queues on some nodes with a ticket that the test chooses. Returns the connections.
fn queue_up<'a>(nodes: impl Iterator<Item = &'a Server>, owner: &str, ticket: &str) -> Vec<Wire> {
    let queue = |node: &Server| {
        let mut wire = node.connect();
        let answer =
            wire.call(&["REDLOCK.ACQUIRE", "job", owner, "60000", "WAIT", ticket, "60000", "somebody"]);
        assert!(matches!(answer, Answer::List(_)), "queued: {answer:?}");
        wire
    };
    nodes.map(queue).collect()
}

/// How many locks a node handed on that were not claimed in time.
fn unclaimed(node: &Server) -> u64 {
    let count = node.info("redlock", "redlock_unclaimed").expect("redlock_unclaimed in INFO");
    count.parse().expect("a number")
}

/// Five nodes, a guard that holds the lock on each of them, and another client that is connected to all of them.
async fn held() -> (Fleet, Guard, redlock_client::LockManager) {
    let fleet = Fleet::start(5);
    let guard = manager(fleet.urls()).acquire("job", TTL).await.expect("free");
    until_held(fleet.iter(), "job").await;
    let locks = manager(fleet.urls());
    super::until_all_answer(&locks).await;
    (fleet, guard, locks)
}

#[tokio::test]
async fn a_hung_waiter_costs_its_claim_window_once() {
    let (fleet, guard, locks) = held().await;
    let _silent = queue_up(fleet.iter(), "silent", "1");
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 2).await;
    guard.release().await;
    let next = served(waiting).await;
    assert!(next.fence() >= 3, "the nodes gave a fence to the silent waiter");
    assert!(fleet.iter().filter(|node| unclaimed(node) > 0).count() >= 3, "a majority took the lock back");
}

#[tokio::test]
async fn a_waiter_whose_connections_end_is_removed_at_once() {
    let (fleet, guard, locks) = held().await;
    let gone = queue_up(fleet.iter(), "gone", "1");
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 2).await;
    drop(gone);
    until_waiting(&fleet, 1).await;
    guard.release().await;
    assert_eq!(served(waiting).await.fence(), 2, "no other waiter got the lock in between");
}

#[tokio::test]
async fn a_waiter_on_some_nodes_only_does_not_block_the_others() {
    for count in [2, 3] {
        let (fleet, guard, locks) = held().await;
        let _elsewhere = queue_up(fleet.iter().take(count), "elsewhere", "1");
        let waiting = wait_for(&locks, "job");
        let all = || fleet.iter().map(waiters_at).sum::<u64>() == 5 + count as u64;
        eventually_async("both wait on their nodes", SOON, async || all().then_some(())).await;
        guard.release().await;
        // The client does not need two of the nodes. With three, it waits until their claim windows have ended.
        assert!(served(waiting).await.is_valid());
    }
}

#[tokio::test]
async fn forged_tickets_change_the_order_and_nothing_else() {
    let (fleet, guard, locks) = held().await;
    for node in fleet.iter() {
        // Longer than this test, so that no claim is too late.
        node.connect().call_strs("CONFIG SET redlock.claim-window 60000");
    }
    let mut patient = queue_up(fleet.iter(), "patient", LAST);
    let waiting = wait_for(&locks, "job");
    until_waiting(&fleet, 2).await;
    let mut pushing = queue_up(fleet.iter(), "pushing", "1");
    guard.release().await;
    for wire in &mut pushing {
        let claimed = wire.call(&["REDLOCK.EXTEND", "job", "pushing", "60000"]);
        assert!(
            matches!(claimed, Answer::Int(2)),
            "the smallest ticket is first, although it queued last: {claimed:?}"
        );
        wire.call(&["REDLOCK.RELEASE", "job", "pushing"]);
    }
    let honest = served(waiting).await;
    assert_eq!(honest.fence(), 3);
    honest.release().await;
    for wire in &mut patient {
        let claimed = wire.call(&["REDLOCK.EXTEND", "job", "patient", "60000"]);
        assert!(matches!(claimed, Answer::Int(4)), "the largest ticket is served last: {claimed:?}");
    }
}

#[tokio::test]
async fn a_waiter_whose_grant_pushes_are_lost_gets_the_lock() {
    let network = Network::start(5);
    let guard = manager(network.fleet.urls()).acquire("job", TTL).await.expect("free");
    until_held(network.fleet.iter(), "job").await;
    let locks = super::connected(&network).await;
    let waiting = wait_for(&locks, "job");
    until_waiting(&network.fleet, 1).await;
    network.proxies.iter().for_each(|proxy| proxy.drop_bytes(Direction::ToClient));
    guard.release().await;
    for proxy in &network.proxies {
        eventually_async("the push is lost", SOON, async || (proxy.dropped() > 0).then_some(())).await;
    }
    network.let_go();
    network.proxies.iter().for_each(redlock_tests::Proxy::clear_faults);
    assert!(served(waiting).await.is_valid());
}
