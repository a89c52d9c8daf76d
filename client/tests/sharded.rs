//! Several shards of nodes in memory: the shard of a resource, and the effect of a shard that is down.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{TTL, manager};
use redlock_client::memory::MemoryNodes;
use redlock_client::{Error, LockManager, ShardHealth, ShardedLocks};
use std::collections::BTreeSet;
use std::future::Future;

/// Three shards of three nodes each.
struct ThreeShards {
    nodes: [MemoryNodes; 3],
}

const NAMES: [&str; 3] = ["eu-1", "eu-2", "eu-3"];

impl ThreeShards {
    fn new() -> Self {
        Self { nodes: [MemoryNodes::new(3), MemoryNodes::new(3), MemoryNodes::new(3)] }
    }

    /// A client of the shards at these indexes, in this order.
    fn shards(&self, places: &[usize]) -> ShardedLocks {
        ShardedLocks::new(places.iter().map(|place| (NAMES[*place], manager(&self.nodes[*place]))))
            .expect("shards")
    }

    fn three(&self) -> ShardedLocks {
        self.shards(&[0, 1, 2])
    }

    /// How many nodes of a shard hold a key.
    fn holders(&self, place: usize, key: &str) -> usize {
        (0..3).filter(|node| self.nodes[place].holds(*node, key)).count()
    }
}

fn place_of(shards: &ShardedLocks, key: &str) -> usize {
    let name = shards.shard_of(key).expect("a name");
    NAMES.iter().position(|other| *other == name).expect("a shard")
}

fn sent<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn a_resource_has_the_same_shard_for_every_client() {
    let cluster = ThreeShards::new();
    let (one, other) = (cluster.three(), cluster.shards(&[2, 0, 1]));
    let mut used = BTreeSet::new();
    for number in 0..60 {
        let key = format!("orders:{number}");
        let place = place_of(&one, &key);
        used.insert(place);
        let guard = sent(one.acquire(&key, TTL)).await.expect("free");
        let holders: Vec<usize> = (0..3).map(|place| cluster.holders(place, &key)).collect();
        assert_eq!((holders.iter().sum::<usize>(), holders[place]), (3, 3), "{key}: {holders:?}");
        let refused = sent(other.try_acquire(&key, TTL)).await;
        assert!(matches!(refused, Err(Error::Contended(_))), "{refused:?}");
        assert!(other.inspect(&key).await.expect("a runtime").is_held());
        assert!(guard.release().await.is_free_on_a_majority());
        assert_eq!(other.try_acquire(&key, TTL).await.expect("free").fence(), 2);
        other.flush().await;
    }
    assert_eq!(used.len(), 3, "sixty resources use all three shards");
}

#[tokio::test]
async fn several_resources_need_one_shard() {
    let cluster = ThreeShards::new();
    let shards = cluster.three();
    let guard = sent(shards.acquire_many(["{orders}:1", "{orders}:2"], TTL))
        .await
        .expect("two resources of one shard");
    assert_eq!(guard.resources().count(), 2);
    drop(guard);
    shards.flush().await;
    let apart: Vec<String> = (0..60).map(|number| format!("orders:{number}")).collect();
    let refused = shards.acquire_many(&apart, TTL).await;
    let Err(Error::Invalid(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("{orders}:1"), "{why}");
    assert!(matches!(shards.manager_of(&apart), Err(Error::Invalid(_))));
    let health = shards.health().await.expect("a runtime");
    assert!(health.len() == 3 && health.iter().all(|shard| shard.health.can_grant()));
    let held = |shard: &ShardHealth| {
        shard.health.nodes.iter().any(|node| node.state.as_ref().is_ok_and(|state| state.locks > 0))
    };
    assert!(!health.iter().any(held), "the refused call acquired no lock");
}

#[tokio::test(start_paused = true)]
async fn a_shard_that_is_down_affects_only_its_own_resources() {
    let cluster = ThreeShards::new();
    let shards = cluster.three();
    (0..2).for_each(|node| cluster.nodes[1].silence(node));
    for number in 0..30 {
        let key = format!("orders:{number}");
        let outcome = shards.try_acquire(&key, TTL).await;
        assert_eq!(outcome.is_err(), place_of(&shards, &key) == 1, "{outcome:?}");
    }
    let health = shards.health().await.expect("a runtime");
    let can_grant: Vec<bool> = health.iter().map(|shard| shard.health.can_grant()).collect();
    assert_eq!(can_grant, [true, false, true]);
    let text = health[1].to_string();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(
        text.starts_with(&format!("{}: 1 of 3 nodes grant, 2 are needed\n  memory", health[1].shard)),
        "{text}"
    );
}

#[test]
fn shards_that_overlap_are_refused() {
    let nodes = MemoryNodes::new(3);
    let shard = || LockManager::in_memory(3);
    let why = |shards: Vec<(&str, LockManager)>| match ShardedLocks::new(shards) {
        Err(Error::Config(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(why(vec![]), "at least one shard must be named");
    assert_eq!(why(vec![("", shard())]), "a shard must have a name");
    assert_eq!(why(vec![("a", shard()), ("a", shard())]), "two shards are named a");
    let twice = why(vec![("a", manager(&nodes)), ("b", manager(&nodes))]);
    assert!(twice.contains("both a and b"), "{twice}");
    let server =
        |name: &str| LockManager::builder().nodes([format!("redis://{name}")]).build().expect("an address");
    let twice = why(vec![("a", server("one")), ("b", server("one"))]);
    assert!(twice.contains("both a and b"), "{twice}");
    let prefixed =
        LockManager::builder().memory(&MemoryNodes::new(3)).key_prefix("app:").build().expect("fine");
    assert_eq!(why(vec![("a", shard()), ("b", prefixed)]), "a and b have different key prefixes");
}
