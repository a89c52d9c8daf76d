//! How the groups are.

use super::set::Group;
use crate::{Error, Health};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

/// How all groups are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupsHealth {
    /// Every group, in the order in which they were named.
    pub groups: Vec<GroupHealth>,
}

/// How one group is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupHealth {
    /// The group's name.
    pub group: Arc<str>,
    /// How its nodes are.
    pub health: Health,
}

impl GroupsHealth {
    /// Whether every group would grant a free lock now.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.groups.iter().all(|group| group.health.can_grant())
    }
}

pub(super) async fn health(groups: &[&Group]) -> Result<GroupsHealth, Error> {
    let asked = together(groups.iter().map(|group| group.manager.health())).await;
    let told = groups
        .iter()
        .zip(asked)
        .map(|(group, health)| Ok(GroupHealth { group: Arc::clone(&group.name), health: health? }));
    Ok(GroupsHealth { groups: told.collect::<Result<_, Error>>()? })
}

/// Waits for all of some futures at once: one group that does not answer must not hold up the next. They are few,
/// so all are polled whenever one of them wakes.
pub(super) async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waited: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    let mut outcomes: Vec<Option<F::Output>> = waited.iter().map(|_| None).collect();
    poll_fn(|cx| {
        for (future, outcome) in waited.iter_mut().zip(&mut outcomes).filter(|(_, outcome)| outcome.is_none())
        {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                *outcome = Some(value);
            }
        }
        if outcomes.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outcomes.into_iter().flatten().collect()
}
