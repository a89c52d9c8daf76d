//! Waiting in line at a cluster: the master that serves the key has the line, and any member tells.

use crate::client::{TTL, builder, until_all_answer, waiters, waiters_at};
use crate::{alone, holders, until_nothing_is_held};
use redlock_client::{Error, Guard, LockManager, Node};
use redlock_tests::{Cluster, Fleet, SOON, Server, eventually_async, in_time};
use std::time::Instant;
use tokio::task::JoinHandle;

pub(crate) fn wait_for(locks: &LockManager, key: &str) -> JoinHandle<Result<Guard, Error>> {
    let (locks, key) = (locks.clone(), key.to_owned());
    tokio::spawn(async move { locks.acquire(key, TTL).await })
}

pub(crate) async fn served(waiting: JoinHandle<Result<Guard, Error>>) -> Guard {
    in_time("whoever waits is served", SOON, waiting).await.expect("no panic").expect("the lock")
}

/// Waits until so many are in line at a master, and nobody elsewhere.
pub(crate) async fn until_in_line(cluster: &Cluster, master: usize, count: u64) {
    let expected = |index| if index == master { count } else { 0 };
    let is_so = || cluster.iter().enumerate().all(|(index, member)| waiters_at(member) == expected(index));
    let what = format!("{count} are in line at master {master}");
    eventually_async(&what, SOON, async || is_so().then_some(())).await;
}

/// How many connections all members have that are there to listen.
fn listeners(cluster: &Cluster) -> usize {
    let at = |member: &Server| member.connect().call_strs("CLIENT LIST TYPE pubsub").string().lines().count();
    cluster.iter().map(at).sum()
}

/// A client that has its only node in this cluster, and one that has too and never waits in line.
async fn pair(cluster: &Cluster) -> (LockManager, LockManager) {
    let holder = builder().wait_in_line(false).nodes([Node::cluster(cluster.urls())]);
    let holder = holder.build().expect("addresses");
    until_all_answer(&holder).await;
    (holder, alone(Node::cluster(cluster.urls())).await)
}

#[tokio::test]
async fn a_lock_of_any_master_is_handed_on_and_asked_for_once() {
    let cluster = Cluster::start(3);
    let in_resp2 = |url: String| format!("{url}?protocol=2");
    let urls = [cluster.urls(), cluster.urls().into_iter().map(in_resp2).collect()];
    for urls in urls {
        let (holder, _) = pair(&cluster).await;
        let locks = alone(Node::cluster(urls)).await;
        assert_eq!(listeners(&cluster), 0, "nobody has had to wait");
        for master in [0, 1, 2] {
            let key = cluster.key(master, "lock");
            let guard = holder.acquire(&key, TTL).await.expect("free");
            let (started, before) = (Instant::now(), cluster[master].calls("redlock.acquire"));
            let waiting = wait_for(&locks, &key);
            until_in_line(&cluster, master, 1).await;
            guard.release().await;
            served(waiting).await.release().await;
            // Once to stand in line, once before that if nobody listened yet, and again only after seconds in line.
            let calls = cluster[master].calls("redlock.acquire") - before;
            assert!((1..=3 + started.elapsed().as_secs()).contains(&calls), "{calls}");
        }
        assert_eq!(listeners(&cluster), 1, "one is enough for all masters");
        drop(locks);
        eventually_async("nobody listens", SOON, async || (listeners(&cluster) == 0).then_some(())).await;
    }
    until_nothing_is_held(&cluster).await;
}

#[tokio::test]
async fn a_cluster_and_servers_beside_it_hand_on_together() {
    let (cluster, fleet) = (Cluster::start(2), Fleet::start(2));
    let nodes =
        || [Node::cluster(cluster.urls())].into_iter().chain(fleet.urls().into_iter().map(Node::from));
    let client = || builder().nodes(nodes()).build().expect("addresses");
    let (one, other) = (client(), client());
    until_all_answer(&one).await;
    until_all_answer(&other).await;
    let key = cluster.key(1, "lock");
    // The cluster is needed: one of the others is not there.
    fleet[1].pause();
    for _ in 0..5 {
        let guard = one.acquire(&key, TTL).await.expect("two of three");
        let waiting = wait_for(&other, &key);
        until_in_line(&cluster, 1, 1).await;
        guard.release().await;
        served(waiting).await.release().await;
    }
    fleet[1].resume();
    eventually_async("no line is left", SOON, async || {
        waiters(&fleet).iter().all(|count| *count == 0).then_some(())
    })
    .await;
}

#[tokio::test]
async fn whenever_it_is_heard_again_it_asks_again() {
    let cluster = Cluster::start(2);
    let (holder, locks) = pair(&cluster).await;
    let key = cluster.key(0, "lock");
    let guard = holder.acquire(&key, TTL).await.expect("free");
    let waiting = wait_for(&locks, &key);
    until_in_line(&cluster, 0, 1).await;
    // Whoever only asked as usual, every two seconds, would not have done so as often by then.
    in_time("it asks again each time", SOON, async {
        for _ in 0..8 {
            eventually_async("it listens", SOON, async || (listeners(&cluster) == 1).then_some(())).await;
            let before = cluster[0].calls("redlock.acquire");
            let kill = |member: &Server| member.connect().call_strs("CLIENT KILL TYPE pubsub").int();
            assert_eq!(cluster.iter().map(kill).sum::<i64>(), 1);
            let asked = async || (cluster[0].calls("redlock.acquire") > before).then_some(());
            eventually_async("it asks again", SOON, asked).await;
        }
    })
    .await;
    assert_eq!(waiters_at(&cluster[0]), 1, "nobody is out of the line for that");
    guard.release().await;
    assert!(served(waiting).await.is_valid());
}

#[tokio::test]
async fn whoever_waits_follows_the_slot() {
    let cluster = Cluster::start(3);
    let (holder, locks) = pair(&cluster).await;
    let key = cluster.key(0, "lock");
    let guard = holder.acquire(&key, TTL).await.expect("free");
    let waiting = wait_for(&locks, &key);
    until_in_line(&cluster, 0, 1).await;
    cluster.announce_move(&key, 0, 2);
    cluster.carry(&key, 0, 2);
    cluster.finish_move(&key, 2);
    until_in_line(&cluster, 2, 1).await;
    assert_eq!(holders(&cluster, &key), [2]);
    guard.release().await;
    let next = served(waiting).await;
    assert_eq!(holders(&cluster, &key), [2]);
    next.release().await;
    until_nothing_is_held(&cluster).await;
}
