//! One resource locked in two groups, under one number.

use super::guard::GroupGuard;
use crate::guard::Guard;
use crate::keys::Keys;
use crate::manager::{Effort, LockManager};
use crate::{Error, keep_alive};
use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;
use tokio::time::Instant;

/// Takes a lock in the old group and then in the new one. Everybody who takes both does so in this order, so
/// that nobody waits in a circle.
pub(super) async fn take_both(
    old: &LockManager,
    new: &LockManager,
    keys: Keys,
    ttl: Duration,
    effort: Effort,
) -> Result<GroupGuard, Error> {
    let started = Instant::now();
    let first = old.take(keys.clone(), ttl, effort, None).await?;
    let second = {
        // Somebody who knows only the new groups may hold it there. Meanwhile the first lock must last.
        let keeping = keep_alive::run(first.extender.clone(), old.settings().max_hold);
        let lasting = async {
            keeping.await;
            pending::<Infallible>().await
        };
        let effort_left = left_of(effort, started);
        tokio::select! {
            biased;
            _ = first.lost() => return Err(came_to_nothing(old, &keys)),
            never = lasting => match never {},
            second = new.take(keys.clone(), ttl, effort_left, Some(first.fence())) => {
                second.map_err(|error| in_all(error, effort))?
            }
        }
    };
    agree(&first, &second).await?;
    let guard = GroupGuard::new(second, Some(first));
    if guard.is_valid() { Ok(guard) } else { Err(came_to_nothing(new, &keys)) }
}

/// Makes both locks have the larger of their numbers.
///
/// The new group was asked for at least the number of the old one. If its nodes had counted less, it is the same
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
fn came_to_nothing(manager: &LockManager, keys: &Keys) -> Error {
    Error::Expired(Box::new(manager.shared().evidence(keys, None)))
}
