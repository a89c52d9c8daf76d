//! From two groups to three, under load.

use crate::client::{TTL, until_all_answer};
use crate::crowd::{self, Crowd, Watch};
use crate::{Estate, names, place_of};
use redlock_client::LockGroups;
use redlock_sim::Violation;
use redlock_tests::{SOON, eventually_async};

/// The clients of a move.
struct Clients {
    old: LockGroups,
    moving: LockGroups,
    new: LockGroups,
}

impl Clients {
    async fn of(estate: &Estate) -> Self {
        let (old, new) = (estate.groups(&[0, 1]).await, estate.groups(&[0, 1, 2]).await);
        let moving = LockGroups::moving(&old, &new).expect("a move");
        Self { old, moving, new }
    }

    /// Some resources that go to the third group, and two that stay.
    fn keys(&self) -> Vec<String> {
        let goes = |key: &String| place_of(&self.new, key) == 2;
        let stays = names().filter(|key| !goes(key)).take(2);
        names().filter(goes).take(4).chain(stays).collect()
    }
}

/// Takes a lock once, before the eyes of the watch.
async fn visit(groups: &LockGroups, key: &str, watch: &Watch) -> u64 {
    let session = watch.began(0);
    let guard = groups.acquire(key, crowd::TTL).await.expect("a free lock");
    watch.entered(session, 0, &guard);
    let fence = guard.fence();
    guard.release().await;
    fence
}

/// Waits until every node of a group is out of quarantine.
async fn until_it_grants(estate: &Estate, place: usize) {
    let manager = estate.manager(place);
    until_all_answer(&manager).await;
    eventually_async("every node grants again", SOON * 3, async || {
        let health = manager.health().await.expect("a runtime");
        health.nodes.iter().all(redlock_client::NodeHealth::can_grant).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_move_to_a_new_group_while_everybody_works() {
    let mut estate = Estate::start();
    let clients = Clients::of(&estate).await;
    let keys = clients.keys();
    // One whose new group has counted further, one whose old group has, and one that nobody wants meanwhile.
    estate.lift(2, &keys[0], 5_000_000);
    estate.lift(place_of(&clients.old, &keys[1]), &keys[1], 7_000_000);
    let (quiet, quiet_watch) = (&keys[3], Watch::over(1));
    estate.lift(place_of(&clients.old, quiet), quiet, 9_000_000);
    visit(&clients.old, quiet, &quiet_watch).await;
    let wanted: Vec<String> = keys.iter().filter(|key| *key != quiet).cloned().collect();

    let crowd = Crowd::of(std::slice::from_ref(&clients.old), 6, &wanted);
    crowd.until_visits(10).await;
    crowd.change_to(&clients.moving, 3).await;
    // A node of every group dies and comes back, waits for a while, and then counts from elsewhere than the others.
    for place in 0..3 {
        estate.fleets[place].crash(&[1]);
        crowd.until_visits(5).await;
        until_it_grants(&estate, place).await;
    }
    crowd.until_visits(5).await;
    clients.moving.carry_over().await.expect("a majority of every group");
    crowd.change_to(&clients.new, 3).await;
    crowd.until_visits(10).await;
    let watch = crowd.disperse().await;
    assert_eq!(watch.violations(), []);

    visit(&clients.new, quiet, &quiet_watch).await;
    assert_eq!(quiet_watch.violations(), []);
    for place in 0..2 {
        assert!(wanted[..3].iter().all(|key| estate.fleets[place].is_free(key)), "left behind in {place}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resources_move_back_when_the_group_is_removed() {
    let estate = Estate::start();
    let clients = Clients::of(&estate).await;
    let back = LockGroups::moving(&clients.new, &clients.old).expect("a move");
    let keys = clients.keys();
    estate.lift(2, &keys[0], 5_000_000);
    let crowd = Crowd::of(std::slice::from_ref(&clients.new), 6, &keys);
    crowd.until_visits(5).await;
    crowd.change_to(&back, 2).await;
    back.carry_over().await.expect("a majority of every group");
    crowd.change_to(&clients.old, 2).await;
    crowd.until_visits(5).await;
    assert_eq!(crowd.disperse().await.violations(), []);
}

#[tokio::test]
async fn control_old_and_new_clients_at_the_same_time_hold_one_lock_twice() {
    let estate = Estate::start();
    let clients = Clients::of(&estate).await;
    let (key, watch) = (&clients.keys()[0], Watch::over(1));
    let (first, second) = (watch.began(0), watch.began(0));
    let old = clients.old.try_acquire(key, TTL).await.expect("a free lock");
    watch.entered(first, 0, &old);
    let new = clients.new.try_acquire(key, TTL).await.expect("free as far as it knows");
    watch.entered(second, 0, &new);
    let violations = watch.violations();
    assert!(violations.iter().any(|seen| matches!(seen, Violation::Overlap { .. })), "{violations:?}");
}

#[tokio::test]
async fn control_without_carrying_over_a_number_comes_again() {
    let estate = Estate::start();
    let clients = Clients::of(&estate).await;
    let (key, watch) = (&clients.keys()[0], Watch::over(1));
    let before = visit(&clients.old, key, &watch).await;
    let after = visit(&clients.new, key, &watch).await;
    assert!(after <= before, "{after} after {before}");
    let violations = watch.violations();
    assert!(violations.iter().any(|seen| matches!(seen, Violation::FenceNotLarger { .. })), "{violations:?}");
}
