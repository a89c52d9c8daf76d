//! Carrying the numbers of the old groups over to the new ones.
//!
//! A resource that nobody locks during a move has its last number in the old group only. So before the old
//! groups are forgotten, the new ones are made to count from above all that the old ones have ever had.
//!
//! A node counts for many keys together: all that share a stripe. A lock on one key of every stripe, taken under
//! a number that is large enough and freed again, lifts them all; and since it was held by a majority, whoever
//! holds any resource of that group later has a larger number.

use super::set::{Group, GroupSet};
use crate::keys::MAX_KEYS;
use crate::manager::Effort;
use crate::{Error, Health};
use redlock_core::fence::{STRIPES, Stripe};
use redlock_proto::ceiling::ceiling;
use redlock_proto::{Ballot, Vote};
use std::collections::HashSet;
use std::time::Duration;

/// How long a lock that lifts may last: it is freed as soon as it is had.
const TTL: Duration = Duration::from_secs(2);

/// What the names of the keys begin with that are locked for it, after the manager's prefix.
const NAME: &str = "redlock:carry-over:";

/// Lifts every group that is given resources above the numbers of those that they come from.
pub(super) async fn carry_over(old: &GroupSet, new: &GroupSet) -> Result<(), Error> {
    for group in &new.groups {
        let mut floor = None;
        for giver in old.groups.iter().filter(|giver| gives(giver, group, old, new)) {
            floor = floor.max(Some(largest_held(giver).await?));
        }
        if let Some(floor) = floor {
            lift(group, floor).await?;
        }
    }
    Ok(())
}

/// Whether a resource can move from one group to another. Of two groups that are in both sets neither draws
/// differently than before.
fn gives(giver: &Group, taker: &Group, old: &GroupSet, new: &GroupSet) -> bool {
    giver.name != taker.name && (old.named(&taker.name).is_none() || new.named(&giver.name).is_none())
}

/// A number that no holder in a group has gone beyond.
async fn largest_held(group: &Group) -> Result<u64, Error> {
    let settings = group.manager.settings();
    let health = group.manager.health().await?;
    let told: Vec<Option<u64>> =
        health.nodes.iter().map(|node| node.state.as_ref().ok().map(|state| state.fence)).collect();
    match ceiling(settings.quorum, &told) {
        Some(fence) => Ok(fence),
        None => Err(too_few_answered(group, &health)),
    }
}

fn too_few_answered(group: &Group, health: &Health) -> Error {
    let settings = group.manager.settings();
    let mut ballot = Ballot::new(settings.quorum);
    for (node, health) in health.nodes.iter().enumerate() {
        if let Err(failure) = &health.state {
            ballot.enter(node, Vote::Failed(failure.clone()));
        }
    }
    match group.manager.key(NAME.as_bytes()) {
        Ok(keys) => Error::NoQuorum(Box::new(group.manager.shared().evidence(&keys, Some(&ballot)))),
        Err(error) => error,
    }
}

/// Makes every later number of a group larger than `floor`.
async fn lift(group: &Group, floor: u64) -> Result<(), Error> {
    let manager = &group.manager;
    let mut names = one_of_every_stripe(manager.settings().key_prefix.clone());
    loop {
        let batch: Vec<String> = names.by_ref().take(MAX_KEYS).collect();
        if batch.is_empty() {
            return Ok(());
        }
        let guard = manager.take(manager.keys(batch)?, TTL, Effort::AsConfigured, Some(floor)).await?;
        if guard.fence() < floor {
            guard.extender.raise_to(floor).await?;
        }
        guard.release().await;
    }
}

/// Names of resources, so that there is a key on every stripe.
fn one_of_every_stripe(prefix: Vec<u8>) -> impl Iterator<Item = String> {
    let mut seen = HashSet::with_capacity(STRIPES);
    let mut key = prefix;
    let length = key.len();
    let is_new = move |name: &String| {
        key.truncate(length);
        key.extend_from_slice(name.as_bytes());
        seen.insert(Stripe::of(&key))
    };
    (0_u32..).map(|number| format!("{NAME}{number}")).filter(is_new).take(STRIPES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_stripe_has_a_key() {
        for prefix in ["", "app:"] {
            let names = one_of_every_stripe(prefix.into());
            let stripes: HashSet<Stripe> =
                names.map(|name| Stripe::of(format!("{prefix}{name}").as_bytes())).collect();
            assert_eq!(stripes.len(), STRIPES);
        }
    }
}
