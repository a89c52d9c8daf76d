//! Several groups of nodes in memory: where resources live, and what a move does to locks and numbers.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

mod common;

use common::{LEASE, TTL, manager};
use redlock_client::memory::Nodes;
use redlock_client::{
    Error, GroupGuard, GroupHeld, GroupRelease, GroupsBuilder, LockGroups, LockManager, Loss, Retry,
};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::collections::BTreeSet;
use std::fmt::Debug;
use std::future::Future;
use std::time::Duration;

assert_impl_all!(LockGroups: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(GroupsBuilder: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(GroupGuard: Send, Sync, Unpin, Debug);
assert_impl_all!(GroupHeld: Send, Sync, Unpin, Clone, Debug);
assert_impl_all!(GroupRelease: Send, Sync, Unpin, Clone, Debug);
assert_not_impl_any!(GroupGuard: Clone);

/// Three groups of three nodes.
struct Estate {
    nodes: [Nodes; 3],
}

const NAMES: [&str; 3] = ["eu-1", "eu-2", "eu-3"];

impl Estate {
    fn new() -> Self {
        Self { nodes: [Nodes::new(3), Nodes::new(3), Nodes::new(3)] }
    }

    /// A client of some groups, by their places, in this order.
    fn groups(&self, places: &[usize]) -> LockGroups {
        let add =
            |groups: GroupsBuilder, place: &usize| groups.group(NAMES[*place], manager(&self.nodes[*place]));
        places.iter().fold(LockGroups::builder(), add).build().expect("groups")
    }

    fn two(&self) -> LockGroups {
        self.groups(&[0, 1])
    }

    fn three(&self) -> LockGroups {
        self.groups(&[0, 1, 2])
    }

    fn moving(&self) -> LockGroups {
        LockGroups::moving(&self.two(), &self.three()).expect("a move")
    }

    /// How many nodes of a group hold a key.
    fn holders(&self, place: usize, key: &str) -> usize {
        (0..3).filter(|node| self.nodes[place].holds(*node, key)).count()
    }

    /// Lets the nodes of a group count on from here for a key.
    async fn lift(&self, place: usize, key: &str, times: u64) {
        let manager = manager(&self.nodes[place]);
        for _ in 0..times {
            manager.acquire(key, TTL).await.expect("free").release().await;
        }
    }
}

fn place_of(groups: &LockGroups, key: &str) -> usize {
    let name = groups.group_of(key).expect("a name");
    NAMES.iter().position(|other| *other == name).expect("a group")
}

/// A resource that goes from one of two groups to the third.
fn mover(estate: &Estate) -> (String, usize) {
    let (old, new) = (estate.two(), estate.three());
    let mut names = (0..).map(|number| format!("orders:{number}"));
    let name = names.find(|name| place_of(&new, name) == 2).expect("names never end");
    let from = place_of(&old, &name);
    (name, from)
}

fn sent<F: Future + Send>(future: F) -> F {
    future
}

#[tokio::test]
async fn a_resource_lives_in_one_group_whoever_asks() {
    let estate = Estate::new();
    let (one, other) = (estate.three(), estate.groups(&[2, 0, 1]));
    let mut used = BTreeSet::new();
    for number in 0..60 {
        let key = format!("orders:{number}");
        let place = place_of(&one, &key);
        used.insert(place);
        let guard = sent(one.acquire(&key, TTL)).await.expect("free");
        let holders: Vec<usize> = (0..3).map(|place| estate.holders(place, &key)).collect();
        assert_eq!((holders.iter().sum::<usize>(), holders[place]), (3, 3), "{key}: {holders:?}");
        let refused = sent(other.try_acquire(&key, TTL)).await;
        assert!(matches!(refused, Err(Error::Contended(_))), "{refused:?}");
        assert!(other.inspect(&key).await.expect("a runtime").is_held());
        assert!(guard.release().await.is_free_on_a_majority());
        assert_eq!(other.try_acquire(&key, TTL).await.expect("free").fence(), 2);
        other.close().await;
    }
    assert_eq!(used.len(), 3, "sixty resources are in all groups");
}

#[tokio::test]
async fn several_resources_need_one_group() {
    let estate = Estate::new();
    let groups = estate.three();
    let guard = sent(groups.acquire_many(["{orders}:1", "{orders}:2"], TTL)).await.expect("together");
    assert_eq!(guard.resources().count(), 2);
    drop(guard);
    groups.close().await;
    let apart: Vec<String> = (0..60).map(|number| format!("orders:{number}")).collect();
    for refused in [
        groups.acquire_many(&apart, TTL).await,
        groups.try_acquire_many(&apart, TTL).await,
        groups.acquire_many_timeout(&apart, TTL, TTL).await,
    ] {
        let Err(Error::Invalid(why)) = refused else { panic!("{refused:?}") };
        assert!(why.contains("{orders}:1"), "{why}");
    }
    let health = groups.health().await.expect("a runtime");
    assert!(health.can_grant() && health.groups.len() == 3);
    let held = |group: &redlock_client::GroupHealth| {
        group.health.nodes.iter().any(|node| node.state.as_ref().is_ok_and(|state| state.locks > 0))
    };
    assert!(!health.groups.iter().any(held), "nothing was taken");
}

#[tokio::test(start_paused = true)]
async fn a_group_that_is_down_takes_only_its_own_along() {
    let estate = Estate::new();
    let groups = estate.three();
    (0..2).for_each(|node| estate.nodes[1].silence(node));
    for number in 0..30 {
        let key = format!("orders:{number}");
        let outcome = groups.try_acquire(&key, TTL).await;
        assert_eq!(outcome.is_err(), place_of(&groups, &key) == 1, "{outcome:?}");
    }
    let health = groups.health().await.expect("a runtime");
    let well: Vec<bool> = health.groups.iter().map(|group| group.health.can_grant()).collect();
    assert_eq!((well, health.can_grant()), (vec![true, false, true], false));
}

#[test]
fn groups_that_cannot_be_are_refused() {
    let nodes = Nodes::new(3);
    let group = || LockManager::in_memory(3);
    let why = |builder: GroupsBuilder| match builder.build() {
        Err(Error::Config(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let new = LockGroups::builder;
    assert_eq!(why(new()), "no group is named");
    assert_eq!(why(new().group("", group())), "a group must have a name");
    assert_eq!(why(new().group("a", group()).group("a", group())), "two groups are named a");
    let twice = why(new().group("a", manager(&nodes)).group("b", manager(&nodes)));
    assert!(twice.contains("both a and b"), "{twice}");
    let server =
        |name: &str| LockManager::builder().nodes([format!("redis://{name}")]).build().expect("an address");
    let twice = why(new().group("a", server("one")).group("b", server("one")));
    assert!(twice.contains("both a and b"), "{twice}");
    let prefixed = LockManager::builder().memory(&Nodes::new(3)).key_prefix("app:").build().expect("fine");
    assert_eq!(why(new().group("a", group()).group("b", prefixed)), "a and b have different key prefixes");
}

#[test]
fn moves_that_cannot_be_are_refused() {
    let estate = Estate::new();
    let why = |old: &LockGroups, new: &LockGroups| match LockGroups::moving(old, new) {
        Err(Error::Config(why)) => why.to_string(),
        other => panic!("{other:?}"),
    };
    let of =
        |name: &str, nodes: &Nodes| LockGroups::builder().group(name, manager(nodes)).build().expect("fine");
    let renamed = why(&of("a", &estate.nodes[0]), &of("b", &estate.nodes[0]));
    assert!(renamed.contains("both a and b"), "{renamed}");
    let changed = why(&of("a", &estate.nodes[0]), &of("a", &estate.nodes[1]));
    assert!(changed.contains("other nodes"), "{changed}");
    assert!(why(&estate.moving(), &estate.three()).contains("must be over"));
}

#[tokio::test]
async fn who_moves_excludes_those_before_and_those_after() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let (old, moving, new) = (estate.two(), estate.moving(), estate.three());
    let is_refused =
        async |by: &LockGroups| matches!(by.try_acquire(&key, TTL).await, Err(Error::Contended(_)));
    for holder in [&old, &new] {
        let guard = holder.acquire(&key, TTL).await.expect("free");
        assert!(is_refused(&moving).await);
        moving.close().await;
        let held = estate.holders(from, &key) + estate.holders(2, &key);
        assert_eq!(held, 3, "what was refused was given back");
        assert!(moving.inspect(&key).await.expect("a runtime").is_held());
        guard.release().await;
    }
    let guard = sent(moving.acquire(&key, TTL)).await.expect("free");
    assert_eq!((estate.holders(from, &key), estate.holders(2, &key)), (3, 3));
    assert!(is_refused(&old).await && is_refused(&new).await && is_refused(&moving).await);
    let report = guard.release().await;
    assert!(report.was_held() && report.is_free_on_a_majority() && report.reports().count() == 2, "{report}");
    // The negative control: those before and those after do not know of each other.
    let one = old.acquire(&key, TTL).await.expect("free");
    let two = new.acquire(&key, TTL).await.expect("as free to those who know other groups");
    assert!(one.is_valid() && two.is_valid());
}

/// Takes and frees a lock, and tells its number.
async fn fence(by: &LockGroups, key: &str) -> u64 {
    let guard = by.acquire(key, TTL).await.expect("free");
    let fence = guard.fence();
    assert_eq!(fence, guard.held().fence());
    guard.release().await;
    fence
}

#[tokio::test]
async fn numbers_grow_through_the_modes_whichever_group_has_counted_further() {
    for (ahead_in_old, ahead_in_new) in [(0, 0), (40, 0), (0, 40), (7, 8), (8, 7)] {
        let estate = Estate::new();
        let (key, from) = mover(&estate);
        estate.lift(from, &key, ahead_in_old).await;
        estate.lift(2, &key, ahead_in_new).await;
        let (old, moving, new) = (estate.two(), estate.moving(), estate.three());
        let mut fences = Vec::new();
        // Before the numbers are carried over only the old and the moving meet, then only the moving and the new.
        for by in [&old, &moving, &old, &moving, &moving, &old, &moving] {
            fences.push(fence(by, &key).await);
        }
        moving.carry_over().await.expect("all nodes are there");
        for by in [&moving, &new, &moving, &new, &new, &moving, &new] {
            fences.push(fence(by, &key).await);
        }
        assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
    }
}

#[tokio::test]
async fn a_holder_that_vanished_during_the_move_is_not_followed_by_a_smaller_number() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    estate.lift(2, &key, 50).await;
    let vanished = estate.moving().acquire(&key, TTL).await.expect("free");
    let fence_then = vanished.fence();
    assert!(fence_then > 50);
    // Nobody releases it: an administrator breaks the locks, and nothing but the nodes' own count is left.
    drop(vanished.detach());
    for node in 0..3 {
        assert!(estate.nodes[from].delete(node, &key) && estate.nodes[2].delete(node, &key));
    }
    assert!(fence(&estate.two(), &key).await > fence_then);
}

#[tokio::test]
async fn what_nobody_locked_during_the_move_goes_on_counting_all_the_same() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    estate.lift(from, &key, 500).await;
    let before = fence(&estate.two(), &key).await;
    let moving = estate.moving();
    // The negative control: without carrying over, the new group knows nothing of it.
    assert!(fence(&estate.three(), &key).await < before);
    sent(moving.carry_over()).await.expect("all nodes are there");
    assert!(fence(&estate.three(), &key).await > before);
    moving.carry_over().await.expect("once more does no harm");
    assert!((0..3).all(|place| estate.holders(place, "redlock:carry-over:0") == 0), "nothing stays locked");
    let steady = estate.three().carry_over().await;
    assert!(matches!(steady, Err(Error::Invalid(_))), "{steady:?}");
}

#[tokio::test(start_paused = true)]
async fn numbers_are_carried_over_only_from_a_majority() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    estate.lift(from, &key, 5).await;
    estate.nodes[from].silence(0);
    estate.moving().carry_over().await.expect("a majority is there");
    estate.nodes[from].silence(1);
    let refused = estate.moving().carry_over().await;
    assert!(matches!(refused, Err(Error::NoQuorum(_))), "{refused:?}");
}

#[tokio::test]
async fn removing_a_group_is_a_move_like_any_other() {
    let estate = Estate::new();
    let (key, to) = mover(&estate);
    let (old, new) = (estate.three(), estate.two());
    let moving = LockGroups::moving(&old, &new).expect("a move");
    assert_eq!((moving.group_of(&key).expect("a name"), moving.groups().count()), (NAMES[to], 3));
    estate.lift(2, &key, 30).await;
    let mut fences = Vec::new();
    for by in [&old, &moving, &old] {
        fences.push(fence(by, &key).await);
    }
    moving.carry_over().await.expect("all nodes are there");
    for by in [&new, &moving, &new] {
        fences.push(fence(by, &key).await);
    }
    assert!(fences.is_sorted_by(|one, other| one < other), "{fences:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_two_groups_is_over_when_one_of_them_is() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let moving = estate.moving();
    for lost in [from, 2] {
        let guard = moving.acquire(&key, TTL).await.expect("free");
        let token = guard.cancellation_token().expect("a runtime");
        let held = guard.held();
        assert!(guard.is_valid() && guard.remaining() <= LEASE && !token.is_cancelled());
        (0..3).for_each(|node| assert!(estate.nodes[lost].delete(node, &key)));
        let outcome = guard.extend().await;
        assert!(matches!(outcome, Err(Error::Lost { loss: Loss::Gone, .. })), "{outcome:?}");
        assert!(!guard.is_valid() && !held.is_valid() && guard.remaining().is_zero());
        assert_eq!(guard.lost().await, Loss::Gone);
        token.cancelled().await;
        assert!(!guard.release().await.was_held());
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_two_groups_is_kept_alive_in_both() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let moving = estate.moving();
    let mut guard = moving.acquire(&key, TTL).await.expect("free");
    guard.keep_alive(TTL * 10).expect("a runtime");
    tokio::time::sleep(TTL * 5).await;
    assert!(guard.is_valid());
    assert_eq!((estate.holders(from, &key), estate.holders(2, &key)), (3, 3));
    assert!(guard.extend_to(TTL * 2).await.expect("all nodes are there") > TTL);
    drop(guard);
    moving.close().await;
    assert_eq!((estate.holders(from, &key), estate.holders(2, &key)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn the_old_lock_lasts_while_the_new_one_is_waited_for() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let moving = estate.moving();
    let holder = estate.three().acquire(&key, TTL * 20).await.expect("free");
    let waiter = tokio::spawn({
        let (moving, key) = (moving.clone(), key.clone());
        async move { moving.acquire_timeout(&key, TTL, TTL * 10).await }
    });
    tokio::time::sleep(TTL * 3).await;
    assert_eq!(estate.holders(from, &key), 3, "long after its first time to live");
    holder.release().await;
    let guard = waiter.await.expect("no panic").expect("free by now");
    assert!(guard.is_valid() && guard.remaining() >= LEASE / 2);
    guard.release().await;
    // And one that waits in vain says how long, and leaves nothing behind.
    let holder = estate.three().acquire(&key, TTL * 20).await.expect("free");
    let timeout = moving.acquire_timeout(&key, TTL, TTL * 2).await;
    assert!(matches!(timeout, Err(Error::Timeout { waited, .. }) if waited == TTL * 2), "{timeout:?}");
    moving.close().await;
    assert_eq!(estate.holders(from, &key), 0);
    drop(holder);
}

#[tokio::test]
async fn those_on_their_way_back_do_not_wait_in_a_circle() {
    let estate = Estate::new();
    let (key, _) = mover(&estate);
    let (old, new) = (estate.two(), estate.three());
    let ways = [LockGroups::moving(&old, &new), LockGroups::moving(&new, &old)];
    let task = |number: usize| {
        let (moving, key) = (ways[number % 2].clone().expect("a move"), key.clone());
        tokio::spawn(async move {
            let mut fences = Vec::new();
            for _ in 0..20 {
                fences.push(fence(&moving, &key).await);
                tokio::task::yield_now().await;
            }
            fences
        })
    };
    let tasks: Vec<_> = (0..4).map(task).collect();
    let mut all = BTreeSet::new();
    for task in tasks {
        // Whoever waited in a circle would have given up after ten seconds, with an error.
        all.extend(task.await.expect("nobody gave up"));
    }
    assert_eq!(all.len(), 80, "a number for each");
}

#[tokio::test(start_paused = true)]
async fn work_runs_under_both_locks_and_stops_with_either() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let moving = estate.moving();
    let work = moving.with_lock(&key, TTL, async |held| {
        tokio::time::sleep(TTL * 3).await;
        Ok::<_, Error>((held.fence(), estate.holders(from, &key), estate.holders(2, &key)))
    });
    assert_eq!(work.await.expect("kept alive"), (1, 3, 3));
    let work = moving.with_lock(&key, TTL, async |_| {
        (0..3).for_each(|node| assert!(estate.nodes[from].delete(node, &key)));
        std::future::pending::<Result<(), Error>>().await
    });
    assert!(matches!(work.await, Err(Error::Lost { .. })));
    assert_eq!(estate.holders(2, &key), 0);
}

#[tokio::test(start_paused = true)]
async fn a_new_group_that_is_down_leaves_nothing_in_the_old_one() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    (0..2).for_each(|node| estate.nodes[2].silence(node));
    let moving = estate.moving();
    let refused = moving.try_acquire(&key, TTL).await;
    assert!(matches!(refused, Err(Error::NoQuorum(_))), "{refused:?}");
    moving.close().await;
    assert_eq!(estate.holders(from, &key), 0);
    let stays = (0..).map(|number| format!("orders:{number}")).find(|key| place_of(&moving, key) < 2);
    drop(moving.try_acquire(stays.expect("names never end"), TTL).await.expect("its group is well"));
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_given_up_half_way_frees_both() {
    let estate = Estate::new();
    let (key, from) = mover(&estate);
    let holder = estate.three().acquire(&key, TTL * 20).await.expect("free");
    let moving = estate.moving();
    let waited = tokio::time::timeout(Duration::from_secs(1), moving.acquire(&key, TTL)).await;
    assert!(waited.is_err(), "still waiting");
    moving.close().await;
    assert_eq!(estate.holders(from, &key), 0);
    drop(holder);
    // A policy of one attempt does not wait for either.
    let once = LockManager::builder().memory(&estate.nodes[0]).retry(Retry::none()).build().expect("fine");
    drop(
        LockGroups::builder()
            .group("eu-1", once)
            .build()
            .expect("fine")
            .acquire("a", TTL)
            .await
            .expect("free"),
    );
}
