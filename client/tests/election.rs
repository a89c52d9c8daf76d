//! Leader election, on nodes in memory and a clock that a test can advance.

#![allow(clippy::expect_used)]

mod common;

use common::manager;
use redlock_client::memory::MemoryNodes;
use redlock_client::{Election, Error, Leadership, LockManager, LostReason};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, advance, timeout};

const LEASE: Duration = Duration::from_secs(10);

fn election(nodes: &MemoryNodes) -> Election {
    manager(nodes).election("scheduler").lease(LEASE)
}

/// Starts a campaign, and waits until its requests have reached the nodes.
async fn start(election: &Election, candidate: &str) -> JoinHandle<Result<Leadership, Error>> {
    let (election, candidate) = (election.clone(), candidate.to_owned());
    let campaign = tokio::spawn(async move { election.campaign(candidate).await });
    advance(Duration::from_millis(1)).await;
    campaign
}

async fn elected(campaign: JoinHandle<Result<Leadership, Error>>) -> Leadership {
    campaign.await.expect("no panic").expect("the candidate is elected")
}

async fn leader(election: &Election) -> Option<(String, u64)> {
    let leader = election.leader().await.expect("all nodes answer");
    leader.map(|leader| (leader.candidate, leader.term))
}

#[tokio::test(start_paused = true)]
async fn candidates_lead_one_after_the_other_in_order() {
    let nodes = MemoryNodes::new(5);
    let (one, two, three) = (election(&nodes), election(&nodes), election(&nodes));
    let first = one.campaign("one").await.expect("no other candidate");
    assert!(first.is_leader() && first.term() == 1);
    let (second, third) = (start(&two, "two").await, start(&three, "three").await);
    assert_eq!(leader(&two).await, Some(("one".into(), 1)));
    assert!(!second.is_finished() && !third.is_finished());

    assert!(first.resign().await.is_free_on_a_majority());
    let second = elected(second).await;
    assert_eq!(leader(&one).await, Some(("two".into(), 2)));
    assert!(!third.is_finished());
    drop(second);
    let third = elected(third).await;
    assert_eq!((third.term(), leader(&one).await), (3, Some(("three".into(), 3))));
}

#[tokio::test(start_paused = true)]
async fn a_leader_stays_until_it_resigns() {
    let nodes = MemoryNodes::new(3);
    let (one, two) = (election(&nodes), election(&nodes));
    let leadership = one.campaign("one").await.expect("no other candidate");
    let late = two.campaign_timeout("two", LEASE * 20).await.expect_err("the leader extends its lease");
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    assert!(leadership.is_leader());
    leadership.resign().await;
    assert_eq!(leader(&two).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_learns_it_before_the_next_one_leads() {
    let nodes = MemoryNodes::new(3);
    let (one, two) = (election(&nodes), election(&nodes));
    let leadership = one.campaign("one").await.expect("no other candidate");
    let token = leadership.cancellation_token().expect("a runtime");
    let next = start(&two, "two").await;
    (0..2).for_each(|node| nodes.hang(node));
    assert_eq!(leadership.lost().await, LostReason::Expired);
    assert!(!next.is_finished(), "the lease still runs on the nodes");
    token.cancelled().await;
    (0..2).for_each(|node| nodes.revive(node));
    let next = timeout(LEASE * 3, elected(next)).await.expect("the lease has ended");
    assert!(next.is_leader() && next.term() > leadership.term() && !leadership.is_leader());
}

#[tokio::test(start_paused = true)]
async fn an_observer_reports_each_change_once() {
    let nodes = MemoryNodes::new(3);
    let (one, two) = (election(&nodes), election(&nodes));
    let mut observer = election(&nodes).observe().every(Duration::from_millis(100));
    assert_eq!(observer.next().await.expect("answers"), None);
    let first = one.campaign("one").await.expect("no other candidate");
    let seen = observer.next().await.expect("answers").expect("a leader");
    assert_eq!((seen.candidate.as_str(), seen.term), ("one", 1));
    let silent = timeout(LEASE * 5, observer.next()).await;
    assert!(silent.is_err(), "the same leader leads on: {silent:?}");
    first.resign().await;
    assert_eq!(observer.next().await.expect("answers"), None);
    let _second = two.campaign("two").await.expect("no other candidate");
    assert_eq!(observer.next().await.expect("answers").expect("a leader").term, 2);
}

/// Each node counts on its own, so the leader's fence may be that of a bare majority.
#[tokio::test(start_paused = true)]
async fn while_no_majority_agrees_it_is_unclear_who_leads() {
    let nodes = MemoryNodes::new(3);
    let election = election(&nodes);
    let mut observer = election.observe();
    nodes.silence(2);
    let leadership = election.campaign("one").await.expect("two of three");
    assert_eq!(leader(&election).await, Some(("one".into(), leadership.term())));
    assert_eq!(observer.next().await.expect("answers").expect("a leader").candidate, "one");
    // Now a node is gone that holds the lock, and one is there that does not.
    nodes.revive(2);
    nodes.silence(1);
    let unclear = election.leader().await.expect_err("one node holds the lock, and one does not");
    assert!(matches!(unclear, Error::NoQuorum(_)), "{unclear}");
    let words = unclear.to_string();
    assert!(words.contains("granted, fence 1") && words.contains("not held"), "{words}");
    let silent = timeout(LEASE / 4, observer.next()).await;
    assert!(silent.is_err(), "the observer waits until it is clear: {silent:?}");
    nodes.revive(1);
    assert_eq!(leader(&election).await, Some(("one".into(), leadership.term())));
}

#[tokio::test(start_paused = true)]
async fn an_observer_asks_once_in_its_interval() {
    let nodes = MemoryNodes::new(3);
    let mut observer = election(&nodes).observe();
    (0..3).for_each(|node| nodes.silence(node));
    let started = Instant::now();
    for _ in 0..5 {
        observer.next().await.expect_err("no node answers");
    }
    let took = started.elapsed();
    let expected = Duration::from_secs(4);
    assert!((expected..expected + LEASE / 10).contains(&took), "at once, and then every second: {took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_a_majority_nobody_knows_who_leads() {
    let nodes = MemoryNodes::new(3);
    let election = election(&nodes);
    (0..2).for_each(|node| nodes.silence(node));
    let unknown = election.leader().await.expect_err("one of three nodes answers");
    assert!(matches!(unknown, Error::NoQuorum(_)), "{unknown}");
    let mut observer = election.observe();
    assert!(observer.next().await.is_err());
    (0..2).for_each(|node| nodes.revive(node));
    assert_eq!(observer.next().await.expect("all answer again"), None);
}

#[tokio::test]
async fn bad_input_is_an_error_and_changes_nothing() {
    let nodes = MemoryNodes::new(3);
    let locks = manager(&nodes);
    let long = locks.election("scheduler").campaign("x".repeat(257)).await.expect_err("too long");
    assert!(matches!(long, Error::Invalid(_)) && long.to_string().contains("256"), "{long}");
    let nameless = locks.election("").campaign("one").await.expect_err("no name");
    assert!(matches!(nameless, Error::Invalid(_)), "{nameless}");
    assert!(matches!(locks.election("").leader().await, Err(Error::Invalid(_))));
    let instant = locks.election("scheduler").lease(Duration::ZERO).campaign("one").await;
    assert!(matches!(&instant, Err(Error::Invalid(_))), "{instant:?}");
    assert!((0..3).all(|node| !nodes.holds(node, "scheduler")));
}

#[test]
fn threads_elect_a_leader_without_a_runtime() {
    let nodes = MemoryNodes::new(3);
    let build =
        || LockManager::builder().memory(&nodes).build_blocking().expect("nodes in memory are enough");
    let (one, two) = (build().election("scheduler"), build().election("scheduler").lease(LEASE));
    let first = one.campaign("one").expect("no other candidate");
    assert!(first.is_leader() && first.held().is_valid());
    assert_eq!(first.wait_lost(Duration::from_millis(1)), None);
    let late = two.campaign_timeout("two", Duration::from_millis(20)).expect_err("one leads");
    assert!(matches!(late, Error::Timeout { .. }), "{late}");
    let second = std::thread::scope(|scope| {
        let second = scope.spawn(|| two.campaign("two").expect("one resigns"));
        assert!(first.resign().was_held());
        second.join().expect("no panic")
    });
    assert_eq!((second.term(), two.leader().expect("answers").expect("a leader").term), (2, 2));
    drop(second);
    let third = one.campaign_timeout("one", Duration::from_secs(10)).expect("the drop resigns");
    assert_eq!(third.term(), 3);
}
