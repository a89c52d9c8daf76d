//! Several groups of real nodes: resources are spread over them, and move between them without two holders and
//! without a number that does not grow.
//!
//! | file | subject |
//! |---|---|
//! | `spread.rs` | where resources live, and what a group that is down takes along |
//! | `moves.rs` | from two groups to three, under load |
//! | `crowd.rs` | tasks that want the same locks all the time, and who watches them |

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

#[path = "../client/mod.rs"]
mod client;
mod crowd;
mod moves;
mod spread;

use client::{builder, until_all_answer};
use redlock_client::{GroupsBuilder, LockGroups, LockManager, Retry};
use redlock_tests::{Fleet, SOON};
use std::time::Duration;

pub(crate) const NAMES: [&str; 3] = ["eu-1", "eu-2", "eu-3"];

/// Three groups of three nodes.
pub(crate) struct Estate {
    pub(crate) fleets: [Fleet; 3],
}

impl Estate {
    pub(crate) fn start() -> Self {
        Self { fleets: [Fleet::start(3), Fleet::start(3), Fleet::start(3)] }
    }

    /// A client of one of the groups alone.
    pub(crate) fn manager(&self, place: usize) -> LockManager {
        let retry =
            Retry::exponential(Duration::from_millis(1), Duration::from_millis(30)).give_up_after(SOON * 3);
        builder().nodes(self.fleets[place].urls()).retry(retry).build().expect("addresses")
    }

    /// A client of some groups, by their places and in this order, that is connected to all of their nodes.
    pub(crate) async fn groups(&self, places: &[usize]) -> LockGroups {
        let mut groups: GroupsBuilder = LockGroups::builder();
        for place in places {
            let manager = self.manager(*place);
            until_all_answer(&manager).await;
            groups = groups.group(NAMES[*place], manager);
        }
        groups.build().expect("groups")
    }

    /// Makes the nodes of a group count on from this number for a key.
    pub(crate) fn lift(&self, place: usize, key: &str, fence: u64) {
        for node in self.fleets[place].iter() {
            let mut wire = node.connect();
            let fence = fence.to_string();
            let granted = wire.call(&["REDLOCK.ACQUIRE", key, "who-lifts-0d6b", "1000", "FENCE", &fence]);
            assert_eq!(granted.int().to_string(), fence);
            assert_eq!(wire.call(&["REDLOCK.RELEASE", key, "who-lifts-0d6b"]).int(), 1);
        }
    }
}

/// The place of the group that has a key.
pub(crate) fn place_of(groups: &LockGroups, key: &str) -> usize {
    let name = groups.group_of(key).expect("a name");
    NAMES.iter().position(|other| *other == name).expect("one of the three")
}

/// Names of resources, in the order of their numbers.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..).map(|number| format!("orders:{number}"))
}
