//! Ways to connect to a node: Unix sockets, databases, RESP3, users and passwords, TLS.

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

mod client;

use client::{TTL, manager, until_all_answer};
use redlock_client::{Error, LockManager, Node, Tls, Vote};
use redlock_tests::{
    Answer, Certs, ClientCertificate, Direction, Fleet, Proxy, SOON, Server, admit, eventually_async,
    in_time, skip,
};
use std::time::Duration;

/// The rules that `module/COMMANDS.md` advises for an application, on any server.
fn app() -> &'static str {
    let advice = include_str!("../../module/COMMANDS.md");
    let mut rules = advice.lines().filter_map(|line| line.strip_prefix("ACL SETUSER app "));
    rules.next().expect("ACL rules for an application in COMMANDS.md")
}

/// Sends every kind of request that a client has, and checks that it succeeds.
async fn works(manager: &LockManager) {
    until_all_answer(manager).await;
    let guard = in_time("an acquire ends", SOON, manager.try_acquire("lock:1", TTL)).await.expect("a lock");
    in_time("an extension ends", SOON, guard.extend()).await.expect("a lock that is held");
    let seen = in_time("an inspection ends", SOON, manager.inspect("lock:1")).await.expect("a runtime");
    assert_eq!(seen.lock().map(|lock| lock.fence), Some(guard.fence()), "{seen:?}");
    let report = in_time("a release ends", SOON, guard.release()).await;
    assert!(report.is_free_on_a_majority(), "{report}");
    let many = manager.try_acquire_many(["lock:2", "lock:3"], TTL);
    let many = in_time("an acquire ends", SOON, many).await.expect("two locks");
    in_time("an extension ends", SOON, many.extend()).await.expect("locks that are held");
    let report = in_time("a release ends", SOON, many.release()).await;
    assert!(report.is_free_on_a_majority(), "{report}");
    assert!(manager.health().await.expect("a runtime").can_grant());
}

/// Checks that a call queues for a held lock and gets it after the release.
async fn waits_in_line(manager: LockManager, fleet: &Fleet) {
    let guard = manager.acquire("lock:1", TTL).await.expect("a free lock");
    let waiting = tokio::spawn(async move { manager.acquire("lock:1", TTL).await });
    client::until_waiting(fleet, 1).await;
    guard.release().await;
    let served = in_time("the waiter gets the lock", SOON, waiting).await;
    served.expect("no panic").expect("the lock").release().await;
}

/// The error of an acquire that no majority grants.
async fn failed(manager: &LockManager) -> Error {
    let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock:1", TTL)).await;
    refused.expect_err("every node refuses this client")
}

/// The error of an acquire that every node rejects, for a cause that a retry does not cure.
async fn rejection(manager: &LockManager) -> String {
    let error = failed(manager).await;
    assert!(matches!(error, Error::Rejected(_)) && !error.is_retryable(), "{error:?}");
    assert_eq!(error.reason(), "rejected");
    error.to_string()
}

/// The error of an acquire for which the client has no usable connection.
async fn outage(manager: &LockManager) -> String {
    let error = failed(manager).await;
    assert!(matches!(error, Error::NoQuorum(_)) && error.is_retryable(), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn unix_sockets() {
    let fleet = Fleet::start(3);
    works(&manager(fleet.unix_urls())).await;
}

#[tokio::test]
async fn resp3() {
    let fleet = Fleet::start_with(3, |_, node| node.user("app", app()));
    works(&manager(fleet.urls().iter().map(|url| format!("{url}?protocol=resp3")))).await;
    let logged_in = |url: &String| format!("{}?protocol=resp3", url.replace("://", "://app:secret@"));
    works(&manager(fleet.urls().iter().map(logged_in))).await;
}

#[tokio::test]
async fn a_database_of_its_own() {
    let fleet = Fleet::start(3);
    let (first, third) = (manager(fleet.urls()), manager(fleet.urls().iter().map(|url| format!("{url}/3"))));
    works(&third).await;
    let there = third.try_acquire("lock:1", TTL).await.expect("a free lock");
    third.health().await.expect("a runtime");
    let mut wire = fleet[0].connect();
    assert_eq!(wire.inspect("lock:1"), None);
    wire.call_strs("SELECT 3");
    assert_eq!(wire.inspect("lock:1").map(|lock| lock.fence), i64::try_from(there.fence()).ok());
    let here = first.try_acquire("lock:1", TTL).await.expect("another lock");
    assert!(here.is_valid() && there.is_valid());
    let beyond = manager(fleet.urls().iter().map(|url| format!("{url}/9999")));
    let error = outage(&beyond).await;
    assert!(error.contains("DB index"), "{error}");
}

#[tokio::test]
async fn users_with_no_more_rights_than_advised() {
    let fleet = Fleet::start_with(3, |_, node| node.user("app", app()));
    for protocol in [2, 3] {
        let url = |url: &String| format!("{}?protocol={protocol}", url.replace("://", "://app:secret@"));
        let app = manager(fleet.urls().iter().map(url));
        works(&app).await;
        // These rules are also enough to queue, with the protocol that has pushes.
        if protocol == 3 {
            waits_in_line(app, &fleet).await;
        }
    }
    let by_socket = fleet.unix_urls();
    works(&manager(by_socket.iter().map(|url| format!("{url}?user=app&pass=secret")))).await;
}

#[tokio::test]
async fn a_missing_permission_is_reported() {
    let fleet = Fleet::start_with(3, |_, node| node.user("watcher", "on >secret ~* -@all +redlock.node"));
    let watcher = manager(fleet.urls().iter().map(|url| url.replace("://", "://watcher:secret@")));
    let error = rejection(&watcher).await;
    assert!(error.contains("NOPERM"), "{error}");
    let elsewhere = Fleet::start_with(3, |_, node| node.user("app", app()));
    let app = manager(elsewhere.urls().iter().map(|url| url.replace("://", "://app:secret@")));
    let error = app.try_acquire("other:1", TTL).await.expect_err("keys that this user may not use");
    assert!(error.to_string().contains("NOPERM") && !error.is_retryable(), "{error}");
    assert!(matches!(error, Error::Rejected(_)), "{error:?}");
}

/// The server of the module has another name for the command, or a proxy does not let it through.
#[tokio::test]
async fn an_unknown_command_is_a_rejection() {
    let plain = Server::builder().without_module().start();
    let unknown = plain.connect().call_strs("REDLOCK.ACQUIRE lock:1 owner 1000");
    assert!(unknown.string().contains("unknown command"), "{unknown:?}");
    let network = client::Network::start(3);
    for proxy in &network.proxies[..2] {
        proxy.forge_reply("REDLOCK.ACQUIRE", format!("-{}\r\n", unknown.string()));
    }
    let error = rejection(&manager(network.urls())).await;
    assert!(error.contains("unknown command"), "{error}");
}

#[tokio::test]
async fn a_missing_module_is_a_rejection() {
    let fleet = Fleet::start_with(3, |index, node| if index < 2 { node.without_module() } else { node });
    let error = rejection(&manager(fleet.urls())).await;
    assert!(error.contains("has not loaded the redlock module"), "{error}");
}

/// A replica that somebody has promoted does not vote until an operator admits it.
#[tokio::test]
async fn promoted_replicas_reject_requests_until_an_operator_admits_them() {
    let masters = [0; 2].map(|_| Server::builder().tcp().start());
    let replicas = masters.each_ref().map(|master| Server::builder().tcp().replica_of(master).start());
    for (replica, master) in replicas.iter().zip(&masters) {
        replica.wait_for_replication(master);
        assert_eq!(replica.connect().call_strs("REPLICAOF NO ONE"), Answer::ok());
    }
    let node = Server::builder().tcp().start();
    let manager = manager([node.url(), replicas[0].url(), replicas[1].url()]);
    let error = failed(&manager).await;
    assert!(matches!(error, Error::Rejected(_)), "{error:?}");
    // The same request succeeds after the admission.
    assert!(error.is_retryable(), "{error:?}");
    for answer in &error.nodes()[1..] {
        let Vote::Failed(why) = &answer.vote else { panic!("{error}") };
        assert!(
            why.to_string().contains("REDLOCKNOVOTE") && why.to_string().contains("redlock admit"),
            "{why}"
        );
    }
    assert!(matches!(error.nodes()[0].vote, Vote::Granted { .. }), "{error}");
    // One of three is a minority.
    admit(&mut replicas[0].connect(), 0, 0);
    let granted = in_time("an acquire ends", SOON, manager.acquire("lock:1", TTL)).await;
    granted.expect("two of three nodes vote").release().await;
}

#[tokio::test]
async fn passwords_right_wrong_and_missing() {
    let fleet = Fleet::start_with(3, |_, node| node.password("sesame"));
    works(&manager(fleet.urls().iter().map(|url| url.replace("://", "://:sesame@")))).await;
    let wrong = manager(fleet.urls().iter().map(|url| url.replace("://", "://:simsim@")));
    let wrong = rejection(&wrong).await;
    assert!(wrong.contains("WRONGPASS") && !wrong.contains("simsim"), "{wrong}");
    let missing = rejection(&manager(fleet.urls())).await;
    assert!(missing.contains("NOAUTH"), "{missing}");
}

#[tokio::test]
async fn a_password_that_is_set_right_later_lets_the_client_in() {
    let fleet = Fleet::start_with(3, |_, node| node.user("app", "on >old ~* +@all"));
    let app = manager(fleet.urls().iter().map(|url| url.replace("://", "://app:new@")));
    assert!(rejection(&app).await.contains("WRONGPASS"));
    for node in fleet.iter() {
        node.connect().call_strs("ACL SETUSER app >new");
    }
    works(&app).await;
}

/// Starts nodes that listen for TLS; `None` if this server was built without TLS.
fn start_with_tls(certs: &Certs, clients: ClientCertificate) -> Option<Fleet> {
    if let Err(failure) = Server::builder().tls(certs, clients).try_start() {
        assert!(failure.lacks_tls(), "{failure}");
        skip("this server was built without TLS");
        return None;
    }
    Some(Fleet::start_with(3, |_, node| node.tls(certs, clients)))
}

fn tls_urls(fleet: &Fleet, host: &str) -> Vec<String> {
    let port = |node: &Server| node.tls_port().expect("a node with TLS");
    fleet.iter().map(|node| format!("rediss://{host}:{}", port(node))).collect()
}

fn tls_manager(urls: Vec<String>, tls: Tls) -> LockManager {
    client::builder().nodes(urls).tls(tls).build().expect("certificates that can be read")
}

#[tokio::test]
async fn tls_with_an_authority_of_ones_own() {
    let certs = Certs::new();
    let Some(fleet) = start_with_tls(&certs, ClientCertificate::NotAsked) else { return };
    for host in ["127.0.0.1", "localhost"] {
        works(&tls_manager(tls_urls(&fleet, host), Tls::new().ca_pem(certs.ca_pem()))).await;
    }
    // Settings for each node, with both protocols.
    for protocol in [2, 3] {
        let tls = || Tls::new().ca_pem(certs.ca_pem());
        let node = |url: String| Node::new(format!("{url}/5?protocol={protocol}")).tls(tls());
        let nodes = tls_urls(&fleet, "127.0.0.1").into_iter().map(node);
        let manager = client::builder().nodes(nodes).build().expect("certificates that can be read");
        works(&manager).await;
        if protocol == 3 {
            waits_in_line(manager, &fleet).await;
        }
    }
}

#[tokio::test]
async fn tls_to_a_server_of_another_authority_is_refused() {
    let (certs, other) = (Certs::new(), Certs::new());
    let Some(fleet) = start_with_tls(&certs, ClientCertificate::NotAsked) else { return };
    let stranger = tls_manager(tls_urls(&fleet, "127.0.0.1"), Tls::new().ca_pem(other.ca_pem()));
    let error = outage(&stranger).await;
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    assert_eq!(
        fleet.calls("redlock.node"),
        [0; 3],
        "the client sends nothing to a server that it does not trust"
    );
}

#[tokio::test]
async fn tls_to_a_server_of_another_name_is_refused() {
    let certs = Certs::for_hosts(&["elsewhere.example"]);
    let Some(fleet) = start_with_tls(&certs, ClientCertificate::NotAsked) else { return };
    let client = tls_manager(tls_urls(&fleet, "127.0.0.1"), Tls::new().ca_pem(certs.ca_pem()));
    let error = outage(&client).await;
    assert!(error.to_lowercase().contains("certificate"), "{error}");
    assert_eq!(
        fleet.calls("redlock.node"),
        [0; 3],
        "the client sends nothing to a server that it does not trust"
    );
}

#[tokio::test]
async fn tls_both_ways() {
    let (certs, other) = (Certs::new(), Certs::new());
    let Some(fleet) = start_with_tls(&certs, ClientCertificate::Required) else { return };
    let urls = || tls_urls(&fleet, "127.0.0.1");
    let trusting = || Tls::new().ca_pem(certs.ca_pem());
    let own = trusting().client_identity_pem(certs.client_cert_pem(), certs.client_key_pem());
    works(&tls_manager(urls(), own)).await;
    outage(&tls_manager(urls(), trusting())).await;
    let foreign = trusting().client_identity_pem(other.client_cert_pem(), other.client_key_pem());
    outage(&tls_manager(urls(), foreign)).await;
}

#[tokio::test]
async fn tls_that_breaks_off_anywhere_is_begun_again() {
    let certs = Certs::new();
    let Some(fleet) = start_with_tls(&certs, ClientCertificate::NotAsked) else { return };
    let proxies: Vec<Proxy> = fleet.iter().map(Proxy::to_tls).collect();
    let urls = proxies.iter().map(|proxy| format!("rediss://127.0.0.1:{}", proxy.port())).collect();
    let manager = tls_manager(urls, Tls::new().ca_pem(certs.ca_pem()));
    works(&manager).await;
    for bytes in [1, 5, 100, 700, 1500] {
        for way in [Direction::ToServer, Direction::ToClient] {
            proxies[0].cut();
            proxies[0].cut_after(way, bytes);
            let refused = in_time("an acquire ends", SOON, manager.try_acquire("lock:1", TTL)).await;
            drop(refused.expect("two of three nodes are enough"));
            // If the connection has not transferred this many bytes yet, it is cut during the next requests.
            eventually_async("the client uses the node again", SOON, async || {
                let health = manager.health().await.expect("a runtime");
                health.nodes[0].can_grant().then_some(())
            })
            .await;
        }
    }
    proxies[0].clear_faults();
    works(&manager).await;
}

#[tokio::test]
async fn tls_where_there_is_none_is_an_error_in_time() {
    let certs = Certs::new();
    let fleet = Fleet::start(3);
    let urls = fleet.urls().iter().map(|url| url.replace("redis://", "rediss://")).collect::<Vec<_>>();
    let tls = Tls::new().ca_pem(certs.ca_pem());
    let brisk = client::builder().connect_timeout(Duration::from_secs(1)).nodes(urls).tls(tls);
    outage(&brisk.build().expect("certificates that can be read")).await;
}

#[test]
fn certificates_that_cannot_be_read_are_found_before_anything_is_sent() {
    let certs = Certs::new();
    let unreadable = [
        Tls::new().ca_pem("no certificate"),
        Tls::new().ca_pem(certs.ca_pem()).client_identity_pem("no certificate", "no key"),
        Tls::new().ca_pem(certs.ca_pem()).client_identity_pem(certs.client_cert_pem(), "no key"),
    ];
    for tls in unreadable {
        let built = client::builder().nodes(["rediss://127.0.0.1:1"]).tls(tls).build();
        assert!(matches!(built, Err(Error::Config(_))), "{built:?}");
    }
}

#[tokio::test]
async fn no_reply_is_taken_for_that_of_another_command() {
    let network = client::Network::start(1);
    // The proxy withholds the reply to the subscription and lets every other reply through.
    network.proxies[0].forge_reply("SUBSCRIBE", "");
    let manager = manager(network.urls());
    let error = outage(&manager).await;
    assert!(error.contains("no answer to the subscription"), "{error}");
    network.proxies[0].clear_faults();
    client::until_all_answer(&manager).await;
    works(&manager).await;
}
