//! Masters that hang or die, and connections that break.

use crate::client::{TTL, until_all_answer};
use crate::{alone, beside, first_failure, holders, until_nothing_is_held};
use redlock_client::{FailureKind, Node};
use redlock_tests::{
    Answer, Cluster, Deed, Fleet, Proxy, SOON, Server, eventually, eventually_async, in_time,
};

#[tokio::test]
async fn a_master_that_hangs_silences_the_node_until_it_is_back() {
    let (cluster, mut fleet) = (Cluster::start(2), Fleet::start(2));
    let manager = beside(&cluster, &fleet).await;
    let key = cluster.key(1, "lock");
    cluster[1].pause();
    let guard = manager.acquire(&key, TTL).await.expect("two of three nodes");
    guard.release().await;
    // The whole node is given up, whatever key is asked for.
    eventually_async("the cluster counts as away", SOON, async || {
        let health = manager.health().await.expect("a runtime");
        assert!(health.can_grant(), "two of three nodes are there");
        health.nodes[0].state.is_err().then_some(())
    })
    .await;
    let other = manager.acquire(cluster.key(0, "lock"), TTL).await.expect("two of three nodes");
    cluster[1].resume();
    until_all_answer(&manager).await;
    other.release().await;
    until_nothing_is_held(&cluster).await;
    eventually_async("the servers are free", SOON, async || fleet.is_free(&key).then_some(())).await;
}

#[tokio::test]
async fn a_master_that_died_and_came_back_is_used_again() {
    let mut cluster = Cluster::start_with(2, |_, member| member.module_args(["restart-grace", "off"]));
    let manager = alone(Node::cluster(cluster.urls())).await;
    let key = cluster.key(1, "lock");
    cluster[1].kill();
    eventually_async("the cluster counts as down", SOON, async || {
        let error = manager.try_acquire(&key, TTL).await.expect_err("nobody serves the key");
        matches!(first_failure(&error).0, FailureKind::Down).then_some(())
    })
    .await;
    cluster[1].restart();
    // Its members wait a little before they serve again.
    let guard = eventually_async("the cluster is repaired", SOON * 3, async || {
        manager.try_acquire(&key, TTL).await.ok()
    })
    .await;
    assert_eq!(holders(&cluster, &key), [1]);
    guard.release().await;
}

/// A cluster of one master that is reached through a proxy, also by those who ask the cluster for addresses.
fn behind_a_proxy() -> (Cluster, Proxy) {
    let cluster = Cluster::start(1);
    let proxy = Proxy::to(&cluster[0]);
    let port = proxy.port();
    let mut wire = cluster[0].connect();
    assert_eq!(wire.call_strs(&format!("CONFIG SET cluster-announce-port {port}")), Answer::ok());
    eventually("the cluster names the proxy", SOON, || {
        let Answer::List(ranges) = wire.call_strs("CLUSTER SLOTS") else { panic!("no slots") };
        (ranges[0].list()[2].list()[1] == Answer::Int(port.into())).then_some(())
    });
    (cluster, proxy)
}

#[tokio::test]
async fn a_broken_connection_is_no_refusal_and_nothing_is_sent_twice() {
    for deed in [Deed::CutBefore, Deed::CutInside, Deed::LoseReply, Deed::Strand] {
        let (cluster, proxy) = behind_a_proxy();
        let manager = alone(Node::cluster([proxy.url()])).await;
        proxy.ambush("REDLOCK.ACQUIRE", deed);
        let error = manager.try_acquire("lock", TTL).await.expect_err("no answer");
        assert_eq!(first_failure(&error).0, FailureKind::Cut, "{deed:?}: {error}");
        assert!(error.is_retryable(), "{deed:?}: nobody has refused");
        // A stranded acquire comes after the release that undoes it: it must not lock for nobody.
        proxy.until_seen("REDLOCK.RELEASE", 1).await;
        proxy.let_go();
        in_time("everything is freed", SOON, manager.close()).await;
        until_nothing_is_held(&cluster).await;
        assert_eq!(proxy.seen("REDLOCK.ACQUIRE"), 1, "{deed:?}");
        let guard = manager.acquire("lock", TTL).await.expect("a free lock");
        assert_eq!(holders(&cluster, "lock"), [0]);
        guard.release().await;
    }
}

#[tokio::test]
async fn connections_end_with_the_manager() {
    let cluster = Cluster::start(2);
    let until_clients = async |count: usize| {
        eventually_async("so many are connected", SOON, async || {
            let clients = |member: &Server| {
                let list = member.connect().call_strs("CLIENT LIST TYPE normal").string();
                list.lines().count()
            };
            cluster.iter().all(|member| clients(member) == count).then_some(())
        })
        .await;
    };
    // The one that asks is a client too.
    until_clients(1).await;
    let manager = alone(Node::cluster(cluster.urls())).await;
    until_clients(2).await;
    drop(manager);
    until_clients(1).await;
}

#[tokio::test]
async fn a_guard_that_outlives_its_manager_is_freed() {
    let cluster = Cluster::start(2);
    let manager = alone(Node::cluster(cluster.urls())).await;
    let guard = manager.try_acquire("lock", TTL).await.expect("a free lock");
    drop(manager);
    drop(guard);
    until_nothing_is_held(&cluster).await;
}
