//! How a cluster is found, and how one gets in.

use crate::client::{TTL, builder};
use crate::lines::{served, until_in_line, wait_for};
use crate::{alone, complaint, until_nothing_is_held};
use redlock_client::{Node, Tls};
use redlock_tests::{Certs, ClientCertificate, Cluster, SOON, Server, eventually_async, skip};

#[tokio::test]
async fn any_member_leads_to_all() {
    let mut cluster = Cluster::start(3);
    let urls = cluster.urls();
    let key = cluster.key(2, "lock");
    let manager = alone(Node::cluster([&urls[1]])).await;
    manager.try_acquire(&key, TTL).await.expect("a free lock").release().await;
    // One that is gone or hangs does not keep the others from being asked.
    let gone = Server::builder().tcp().start();
    let url = gone.url();
    drop(gone);
    let hanging = Server::builder().tcp().start();
    hanging.pause();
    let manager = alone(Node::cluster([&url, &hanging.url(), &urls[0]])).await;
    manager.try_acquire(&key, TTL).await.expect("a free lock").release().await;
    until_nothing_is_held(&cluster).await;
    cluster[0].kill();
}

#[tokio::test]
async fn what_is_no_cluster_of_nodes_is_refused() {
    let lacking = Cluster::start_with(2, |index, member| match index {
        0 => member,
        _ => member.without_module(),
    });
    let plain = Server::builder().tcp().start();
    let unserved = Server::builder().cluster().start();
    let cases = [
        (lacking.urls(), "has not loaded the redlock module"),
        (vec![plain.url()], "cluster support disabled"),
        (vec![unserved.url()], "does not say who the masters are"),
    ];
    for (urls, expected) in cases {
        let manager = builder().nodes([Node::cluster(urls)]).build().expect("addresses");
        let said = complaint(&manager).await;
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test]
async fn a_cluster_and_one_of_its_masters_are_one_witness() {
    let cluster = Cluster::start(2);
    let other = Server::builder().tcp().start();
    let nodes = [Node::cluster(cluster.urls()), Node::new(cluster[1].url()), Node::new(other.url())];
    let manager = builder().nodes(nodes).build().expect("addresses");
    eventually_async("the twin is found out", SOON, async || {
        let health = manager.health().await.expect("a runtime");
        let twins = health.nodes.iter().filter_map(|node| node.state.as_ref().err());
        let told = twins.filter(|failure| failure.detail.contains("the same node as")).count();
        let fine = health.nodes.iter().filter(|node| node.state.is_ok()).count();
        ((told, fine) == (1, 2)).then_some(())
    })
    .await;
}

/// What a client needs to be allowed, and no more.
const RULES: &str = "on >hush resetkeys ~app:* resetchannels &redlock:grant:* -@all +subscribe \
    +redlock.acquire +redlock.extend +redlock.release +redlock.node +cluster|slots +asking";

#[tokio::test]
async fn a_cluster_is_logged_in_to_everywhere() {
    let cluster = Cluster::start_with(2, |_, member| member.password("harness").user("app", RULES));
    let urls = cluster.urls();
    let keys = [0, 1].map(|master| cluster.key(master, "app:lock"));
    let in_url = |url: &String| url.replace("redis://", "redis://app:hush@");
    let nodes = [
        Node::cluster(urls.iter().map(in_url)),
        Node::cluster(&urls).login("app", "hush"),
        Node::cluster(urls.iter().map(in_url)).resp3(),
    ];
    for node in nodes {
        let manager = alone(node).await;
        for (master, key) in keys.iter().enumerate() {
            let guard = manager.try_acquire(key, TTL).await.expect("a free lock");
            let waiting = wait_for(&manager, key);
            until_in_line(&cluster, master, 1).await;
            guard.release().await;
            served(waiting).await.release().await;
        }
    }
    // Also at a master that is met on the way, and for a slot that is on its way.
    let manager = alone(Node::cluster([in_url(&urls[0])])).await;
    cluster.announce_move(&keys[0], 0, 1);
    let guard = manager.try_acquire(&keys[0], TTL).await.expect("a free lock");
    cluster.finish_move(&keys[0], 1);
    guard.extend().await.expect("a lock that is held");
    guard.release().await;
    let wrong = builder().nodes([Node::cluster(&urls).login("app", "wrong")]).build().expect("addresses");
    let said = complaint(&wrong).await;
    assert!(said.contains("WRONGPASS") && !said.contains("wrong"), "{said}");
}

#[tokio::test]
async fn a_cluster_is_reached_over_tls() {
    let certs = Certs::new();
    let server =
        Server::builder().cluster().tls(&certs, ClientCertificate::Required).arg("tls-cluster", "yes");
    let server = match server.try_start() {
        Ok(server) => server,
        Err(failure) if failure.lacks_tls() => return skip("the server was built without TLS"),
        Err(failure) => panic!("{failure}"),
    };
    let cluster = Cluster::form(vec![server]);
    let url = format!("rediss://127.0.0.1:{}", cluster[0].tls_port().expect("a port for TLS"));
    let tls = Tls::new().ca_pem(certs.ca_pem());
    let known = tls.clone().client_identity_pem(certs.client_cert_pem(), certs.client_key_pem());
    let manager = alone(Node::cluster([&url]).tls(known)).await;
    manager.try_acquire("lock", TTL).await.expect("a free lock").release().await;
    until_nothing_is_held(&cluster).await;
    let strangers =
        [Node::cluster([&url]).tls(tls), Node::cluster([&url]).tls(Tls::new().ca_pem(Certs::new().ca_pem()))];
    for stranger in strangers {
        let manager = builder().nodes([stranger]).build().expect("an address");
        let said = complaint(&manager).await;
        assert!(said.contains("no secure connection"), "{said}");
    }
}
