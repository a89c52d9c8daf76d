//! Where resources live, and what a group that is down takes along.

use crate::client::TTL;
use crate::crowd::Crowd;
use crate::{Estate, names, place_of};
use redlock_client::Error;

#[tokio::test]
async fn a_resource_is_locked_in_its_group_and_nowhere_else() {
    let mut estate = Estate::start();
    let groups = estate.groups(&[0, 1, 2]).await;
    let mut shares = [0; 3];
    let mut guards = Vec::new();
    for key in names().take(60) {
        guards.push(groups.try_acquire(&key, TTL).await.expect("a free lock"));
        let place = place_of(&groups, &key);
        shares[place] += 1;
        for (other, fleet) in estate.fleets.iter_mut().enumerate() {
            let holders = fleet.locks(&key).iter().flatten().count();
            // The last of three may not have it yet: two are enough for the answer.
            assert!(if other == place { holders >= 2 } else { holders == 0 }, "{key}: {holders} of {other}");
        }
    }
    assert!(shares.iter().all(|share| *share > 0), "{shares:?}");
    let health = groups.health().await.expect("a runtime");
    assert!(health.can_grant());
    drop(guards);
    groups.close().await;
    for key in names().take(60) {
        for fleet in &mut estate.fleets {
            assert!(fleet.is_free(&key), "{key}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_that_name_the_groups_in_another_order_exclude_each_other() {
    let estate = Estate::start();
    let groups = [estate.groups(&[0, 1, 2]).await, estate.groups(&[2, 0, 1]).await];
    let keys: Vec<String> = names().take(4).collect();
    let crowd = Crowd::of(&groups, 8, &keys);
    crowd.until_visits(40).await;
    let watch = crowd.disperse().await;
    assert_eq!(watch.violations(), []);
}

#[tokio::test]
async fn a_group_without_a_majority_takes_only_its_own_resources_along() {
    let mut estate = Estate::start();
    let groups = estate.groups(&[0, 1, 2]).await;
    estate.fleets[1][0].kill();
    estate.fleets[1][2].kill();
    for key in names().take(30) {
        let outcome = groups.try_acquire(&key, TTL).await;
        if place_of(&groups, &key) == 1 {
            assert!(matches!(outcome, Err(Error::NoQuorum(_))), "{outcome:?}");
        } else {
            drop(outcome.expect("a group that is well"));
        }
    }
    let health = groups.health().await.expect("a runtime");
    let well: Vec<bool> = health.groups.iter().map(|group| group.health.can_grant()).collect();
    assert_eq!(well, [true, false, true]);
}
