//! Several shards of real nodes: resources are spread over them.
//!
//! | file | subject |
//! |---|---|
//! | `spread.rs` | where resources live, and what a shard that is down takes along |
//! | `crowd.rs` | tasks that want the same locks all the time, and who watches them |

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

#[path = "../client/mod.rs"]
mod client;
mod crowd;
mod spread;

use client::{builder, until_all_answer};
use redlock_client::{LockManager, Retry, ShardedLocks};
use redlock_tests::{Fleet, SOON};
use std::time::Duration;

pub(crate) const NAMES: [&str; 3] = ["eu-1", "eu-2", "eu-3"];

/// Three shards of three nodes.
pub(crate) struct Cluster {
    pub(crate) fleets: [Fleet; 3],
}

impl Cluster {
    pub(crate) fn start() -> Self {
        Self { fleets: [Fleet::start(3), Fleet::start(3), Fleet::start(3)] }
    }

    /// A client of one of the shards alone.
    pub(crate) fn manager(&self, place: usize) -> LockManager {
        let retry =
            Retry::exponential(Duration::from_millis(1), Duration::from_millis(30)).give_up_after(SOON * 3);
        builder().nodes(self.fleets[place].urls()).retry(retry).build().expect("addresses")
    }

    /// A client of some shards, by their places and in this order, that is connected to all of their nodes.
    pub(crate) async fn shards(&self, places: &[usize]) -> ShardedLocks {
        let mut shards = Vec::new();
        for place in places {
            let manager = self.manager(*place);
            until_all_answer(&manager).await;
            shards.push((NAMES[*place], manager));
        }
        ShardedLocks::new(shards).expect("shards")
    }
}

/// The place of the shard that has a key.
pub(crate) fn place_of(shards: &ShardedLocks, key: &str) -> usize {
    let name = shards.shard_of(key).expect("a name");
    NAMES.iter().position(|other| *other == name).expect("one of the three")
}

/// Names of resources, in the order of their numbers.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..).map(|number| format!("orders:{number}"))
}
