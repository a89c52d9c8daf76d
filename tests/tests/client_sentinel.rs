//! Nodes behind Sentinel: the current master votes, and a new master votes only after an operator has admitted it.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod client;

use client::{TTL, builder, until_all_answer};
use redlock_client::{LockManager, Node, ReleaseOutcome, Vote};
use redlock_tests::{Answer, Fleet, SOON, Sentinel, Server, admit, eventually_async};
use std::time::Duration;

/// Longer than a failover takes in these tests, and short enough to wait for its end.
const SHORT: Duration = Duration::from_secs(6);

/// A master and its replica.
struct Pair {
    master: Server,
    replica: Server,
}

impl Pair {
    fn start() -> Self {
        let master = Server::builder().tcp().start();
        let replica = Server::builder().replica_of(&master).start();
        replica.wait_for_replication(&master);
        Self { master, replica }
    }
}

/// A manager with this one node, so that each call shows what the node answers.
async fn single(node: Node) -> LockManager {
    let manager = builder().nodes([node]).build().expect("an address");
    until_all_answer(&manager).await;
    manager
}

fn node_id(server: &Server) -> String {
    server.connect().call_strs("REDLOCK.NODE").field("node-id").expect("a node id").string()
}

/// Why the client cannot use the first node.
async fn first_node_error(manager: &LockManager) -> String {
    let health = manager.health().await.expect("a runtime");
    health.nodes[0].state.as_ref().expect_err("a node that the client cannot use").detail.to_string()
}

#[tokio::test]
async fn every_node_may_be_a_watched_master() {
    let (sentinel, mut fleet) = (Sentinel::start(), Fleet::start(3));
    let names = ["one", "two", "three"];
    names.iter().zip(fleet.iter()).for_each(|(name, master)| sentinel.watch(name, master));
    let nodes = names.map(|name| Node::sentinel([sentinel.url()], name));
    let manager = builder().nodes(nodes).build().expect("addresses");
    until_all_answer(&manager).await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    eventually_async("all three masters hold the lock", SOON, async || {
        let fence = i64::try_from(guard.fence()).ok();
        fleet.fences("lock").iter().all(|held| *held == fence).then_some(())
    })
    .await;
    guard.extend().await.expect("a lock that is held");
    assert!(manager.inspect("lock").await.expect("a runtime").is_held());
    let health = manager.health().await.expect("a runtime");
    for (node, master) in health.nodes.iter().zip(fleet.iter()) {
        assert_eq!(node.state.as_ref().expect("a master").id, node_id(master));
    }
    assert!(guard.release().await.is_free_on_a_majority());
    eventually_async("the lock is free", SOON, async || fleet.is_free("lock").then_some(())).await;
}

#[tokio::test]
async fn after_a_failover_the_new_master_votes_once_it_is_admitted() {
    let (sentinel, mut pair, fleet) = (Sentinel::start(), Pair::start(), Fleet::start(2));
    sentinel.watch("orders", &pair.master);
    let watched = || Node::sentinel([sentinel.url()], "orders");
    let nodes = [watched()].into_iter().chain(fleet.urls().into_iter().map(Node::from));
    let manager = builder().nodes(nodes).build().expect("addresses");
    until_all_answer(&manager).await;
    pair.replica.wait_for_replication(&pair.master);
    sentinel.fail_over("orders");
    // The new master is another node. Until an operator admits it, it does not vote.
    let single = builder().nodes([watched()]).build().expect("an address");
    let error = eventually_async("the new master is found", SOON, async || {
        let error = single.try_acquire("other", SHORT).await.expect_err("the new master does not vote");
        error.to_string().contains("REDLOCKNOVOTE").then_some(error)
    })
    .await;
    assert!(error.to_string().contains("redlock admit"), "{error}");
    manager.try_acquire("other", SHORT).await.expect("two of three nodes").release().await;
    // The procedure: stop the old server, then admit the new one.
    pair.master.kill();
    admit(&mut pair.replica.connect(), 0, 0);
    let guard = eventually_async("the new master votes", SOON, async || {
        let guard = manager.try_acquire("lock", TTL).await.expect("three nodes");
        let held_there = pair.replica.connect().inspect("lock").is_some();
        if held_there {
            return Some(guard);
        }
        guard.release().await;
        None
    })
    .await;
    guard.release().await;
}

/// Swaps master and replica without Sentinel, so that the connections to the old master stay open.
fn swap(pair: &Pair) {
    let port = pair.replica.port().expect("a port");
    assert_eq!(pair.replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
    assert_eq!(pair.master.connect().call_strs(&format!("REPLICAOF 127.0.0.1 {port}")), Answer::ok());
}

#[tokio::test]
async fn the_client_leaves_a_master_that_became_a_replica() {
    let (sentinel, pair) = (Sentinel::start(), Pair::start());
    sentinel.watch("orders", &pair.master);
    let manager = single(Node::sentinel([sentinel.url()], "orders")).await;
    swap(&pair);
    let error = manager.try_acquire("lock", TTL).await.expect_err("a replica grants nothing");
    let vote = &error.nodes()[0].vote;
    assert!(matches!(vote, Vote::Failed(failure) if failure.detail.starts_with("READONLY")), "{error}");
    // Sentinel still names the old master, but the client checks the role of the server.
    let error = first_node_error(&manager).await;
    assert!(error.contains("is a replica now") || error.contains("is not a master"), "{error}");
    sentinel.watch("orders", &pair.replica);
    until_all_answer(&manager).await;
    let health = manager.health().await.expect("a runtime");
    assert_eq!(health.nodes[0].state.as_ref().expect("a master").id, node_id(&pair.replica));
}

#[tokio::test]
async fn a_release_that_a_replica_refused_is_sent_to_the_new_master() {
    let (sentinel, pair) = (Sentinel::start(), Pair::start());
    sentinel.watch("orders", &pair.master);
    let manager = single(Node::sentinel([sentinel.url()], "orders")).await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    pair.replica.wait_for_replication(&pair.master);
    swap(&pair);
    let report = guard.release().await;
    assert!(matches!(report.nodes()[0].outcome, ReleaseOutcome::Failed(_)), "{report}");
    assert!(pair.replica.connect().inspect("lock").is_some(), "the new master holds the lock too");
    sentinel.watch("orders", &pair.replica);
    eventually_async("the new master has freed the lock", SOON, async || {
        pair.replica.connect().inspect("lock").is_none().then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_client_uses_the_credentials_of_the_master() {
    const RULES: &str =
        "on >hush resetkeys ~* resetchannels -@all +redlock.acquire +redlock.release +redlock.node";
    let sentinel = Sentinel::start();
    let master = Server::builder().tcp().password("harness").user("app", RULES).start();
    sentinel.watch("orders", &master);
    let node = || Node::sentinel([sentinel.url()], "orders");
    for node in [node().login("app", "hush"), node().login("app", "hush").resp3()] {
        let manager = single(node).await;
        manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
    }
    for (node, expected) in [(node(), "NOAUTH"), (node().login("app", "wrong"), "WRONGPASS")] {
        let manager = builder().nodes([node]).build().expect("an address");
        let error = first_node_error(&manager).await;
        assert!(error.contains(expected) && !error.contains("wrong"), "{error}");
    }
}

#[tokio::test]
async fn a_dead_or_hung_sentinel_is_skipped() {
    let (gone, hanging, sentinel) = (Sentinel::start(), Sentinel::start(), Sentinel::start());
    let master = Server::builder().tcp().start();
    sentinel.watch("orders", &master);
    hanging.pause();
    let urls = [gone.url(), hanging.url(), sentinel.url()];
    drop(gone);
    let manager = single(Node::sentinel(urls, "orders")).await;
    manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
}

#[tokio::test]
async fn an_unwatched_master_is_reported_and_used_once_it_is_watched() {
    let sentinel = Sentinel::start();
    let nodes = [Node::sentinel([sentinel.url()], "orders")];
    let manager = builder().nodes(nodes).build().expect("an address");
    let error = first_node_error(&manager).await;
    assert!(error.contains("knows no master \"orders\""), "{error}");
    // The client uses the master as soon as Sentinel watches it.
    let master = Server::builder().tcp().start();
    sentinel.watch("orders", &master);
    until_all_answer(&manager).await;
    manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
}

#[tokio::test]
async fn a_client_queues_on_watched_masters() {
    let (sentinel, fleet) = (Sentinel::start(), Fleet::start(3));
    let names = ["one", "two", "three"];
    names.iter().zip(fleet.iter()).for_each(|(name, master)| sentinel.watch(name, master));
    let nodes = names.map(|name| Node::sentinel([sentinel.url()], name));
    let manager = builder().nodes(nodes).build().expect("addresses");
    until_all_answer(&manager).await;
    let guard = manager.acquire("lock", TTL).await.expect("a free lock");
    let waiting = tokio::spawn(async move { manager.acquire("lock", TTL).await });
    client::until_waiting(&fleet, 1).await;
    guard.release().await;
    let next = redlock_tests::in_time("the waiter gets the lock", SOON, waiting).await;
    assert!(next.expect("no panic").expect("the lock").is_valid());
}
