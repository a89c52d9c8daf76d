//! Several shards of real nodes, with the resources spread over them.
//!
//! | file | subject |
//! |---|---|
//! | `spread.rs` | which shard has a resource, and what a shard without a majority affects |
//! | `workers.rs` | tasks that contend for the same locks, and an observer that checks the holders |

#![allow(clippy::expect_used, clippy::panic, reason = "tests, and helpers of tests")]

#[path = "../client/mod.rs"]
mod client;
mod spread;
mod workers;

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

    /// A client of one shard.
    pub(crate) fn manager(&self, place: usize) -> LockManager {
        let retry =
            Retry::exponential(Duration::from_millis(1), Duration::from_millis(30)).give_up_after(SOON * 3);
        builder().nodes(self.fleets[place].urls()).retry(retry).build().expect("addresses")
    }

    /// A client of these shards, in this order, that is connected to all of their nodes. A place is an index into
    /// [`NAMES`].
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

/// The index in [`NAMES`] of the shard that has a key.
pub(crate) fn place_of(shards: &ShardedLocks, key: &str) -> usize {
    let name = shards.shard_of(key).expect("a name");
    NAMES.iter().position(|other| *other == name).expect("one of the three shards")
}

/// Resource names: `orders:0`, `orders:1` and so on.
pub(crate) fn names() -> impl Iterator<Item = String> {
    (0..).map(|number| format!("orders:{number}"))
}
