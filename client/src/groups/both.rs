//! One resource locked in two groups, under one number.

use super::guard::GroupGuard;
use super::set::Group;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::manager::Effort;
use crate::{Error, keep_alive};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::Instant;

/// Takes a lock in the old group of a resource and in its new one.
///
/// Everybody who takes both begins with the one whose name comes first, so that nobody waits in a circle; also not
/// those who are on their way forwards and those who are on their way back.
pub(super) async fn take_both(
    old: &Group,
    new: &Group,
    keys: Keys,
    ttl: Duration,
    effort: Effort,
) -> Result<GroupGuard, Error> {
    let begins_with_old = old.name < new.name;
    let (one, other) = if begins_with_old { (old, new) } else { (new, old) };
    let started = Instant::now();
    let first = one.manager.take(keys.clone(), ttl, effort, None).await?;
    let second = {
        // Somebody who knows only the other group may hold it there. Meanwhile the first lock must last.
        let keeping = keep_alive::run(first.extender.clone(), one.manager.settings().max_hold);
        let lasting = async {
            keeping.await;
            pending::<Infallible>().await
        };
        let effort_left = left_of(effort, started);
        tokio::select! {
            biased;
            _ = first.lost() => return Err(came_to_nothing(one, &keys)),
            never = lasting => match never {},
            second = other.manager.take(keys.clone(), ttl, effort_left, Some(first.fence())) => {
                second.map_err(|error| in_all(error, effort))?
            }
        }
    };
    agree(&first, &second).await?;
    let (old, new) = if begins_with_old { (first, second) } else { (second, first) };
    let guard = GroupGuard::new(new, Some(old));
    if guard.is_valid() { Ok(guard) } else { Err(came_to_nothing(other, &keys)) }
}

/// Makes both locks have the larger of their numbers.
///
/// The second group was asked for at least the number of the first. If its nodes had counted less, it is the same
/// number and nothing is left to be done, which is the usual case; otherwise the smaller one is raised.
async fn agree(first: &Guard, second: &Guard) -> Result<(), Error> {
    let fence = first.fence().max(second.fence());
    for guard in [first, second] {
        if guard.fence() < fence {
            guard.extender.raise_to(fence).await?;
        }
    }
    Ok(())
}

/// What is left of the time that a caller allowed.
fn left_of(effort: Effort, started: Instant) -> Effort {
    match effort {
        Effort::Within(wait) => Effort::Within(wait.saturating_sub(started.elapsed())),
        effort => effort,
    }
}

/// The same error, with the time that was allowed in all.
fn in_all(error: Error, effort: Effort) -> Error {
    match (error, effort) {
        (Error::Timeout { evidence, .. }, Effort::Within(waited)) => Error::Timeout { waited, evidence },
        (error, _) => error,
    }
}

/// One of the locks was over before both were held; all was given back, and may be asked for again.
fn came_to_nothing(group: &Group, keys: &Keys) -> Error {
    Error::Expired(Box::new(group.manager.shared().evidence(keys, None)))
}
