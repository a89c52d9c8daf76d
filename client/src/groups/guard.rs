//! A lock that is held in one group, or during a move in two.

use crate::Error;
use crate::guard::{Detached, Guard};
use crate::held::Held;
use crate::lease::Loss;
use crate::report::ReleaseReport;
use crate::under::Holds;
use std::fmt;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A lock that is held, from [`LockGroups`](super::LockGroups).
///
/// Like a [`Guard`], it frees the lock when it is dropped, in the background. During a move of groups it stands for
/// two locks, one in the old group of the resource and one in the new one: it is valid while both are, and both
/// have the same fence.
#[must_use = "a lock is freed as soon as its guard is dropped"]
pub struct GroupGuard {
    home: Guard,
    /// The lock in the group that the resource moves away from.
    old: Option<Guard>,
}

impl GroupGuard {
    pub(super) fn new(home: Guard, old: Option<Guard>) -> Self {
        Self { home, old }
    }

    fn guards(&self) -> impl Iterator<Item = &Guard> {
        [Some(&self.home), self.old.as_ref()].into_iter().flatten()
    }

    /// The number to hand to every storage that the work writes to.
    ///
    /// For one resource no two holders ever have the same, and one that held it before has a smaller one; also
    /// over a move, if it is done in the order that [`LockGroups::moving`](super::LockGroups::moving) asks for.
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.home.fence()
    }

    /// The resources that are locked, in order, as the caller named them.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.home.resources()
    }

    /// The time to live that was asked for last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.home.ttl()
    }

    /// How long the lock may still be believed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.held().remaining()
    }

    /// Whether the lock may be believed at this moment. A local question: no network.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guards().all(Guard::is_valid)
    }

    /// A view of the lock for the work under it: cheap to clone, and without the right to end it.
    #[must_use]
    pub fn held(&self) -> GroupHeld {
        GroupHeld { home: self.home.held(), old: self.old.as_ref().map(Guard::held) }
    }

    /// Resolves when the lock is no longer held. If its time runs out, it resolves a little before that,
    /// whatever the network does.
    ///
    /// Cancel safe: it can be dropped and called again.
    ///
    /// # Panics
    /// Where there is no tokio runtime with a timer.
    pub async fn lost(&self) -> Loss {
        self.held().lost().await
    }

    /// The error that says that the lock is over.
    pub(super) fn lost_error(&self, loss: Loss) -> Error {
        let over = self.guards().find(|guard| !guard.is_valid()).unwrap_or(&self.home);
        over.lost_error(loss)
    }

    /// A token that is cancelled when the lock is no longer held: lost, released or dropped. Also when the runtime
    /// that it was first asked for on shuts down: nobody would watch the clock for it any more.
    ///
    /// # Errors
    /// When there is no tokio runtime to watch the clock.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        self.held().cancellation_token()
    }

    /// Holds the lock for its time to live, from now on. Returns how long it may be believed.
    ///
    /// Cancel safe, as [`Guard::extend`].
    ///
    /// # Errors
    /// As [`Guard::extend`]. During a move both locks must be extended: after [`Error::NoQuorum`] one of them may
    /// have been, and [`GroupGuard::remaining`] tells how long both are held.
    pub async fn extend(&self) -> Result<Duration, Error> {
        self.extended(None).await
    }

    /// As [`GroupGuard::extend`], with another time to live from now on. A shorter one takes nothing away. Cancel
    /// safe, as [`Guard::extend`].
    ///
    /// # Errors
    /// As [`GroupGuard::extend`], and [`Error::Invalid`] for a time to live that cannot be.
    pub async fn extend_to(&self, ttl: Duration) -> Result<Duration, Error> {
        self.extended(Some(ttl)).await
    }

    /// Extends by another time to live, if there is one.
    async fn extended(&self, ttl: Option<Duration>) -> Result<Duration, Error> {
        let Some(old) = &self.old else { return extend(&self.home, ttl).await };
        let (home, old) = tokio::join!(extend(&self.home, ttl), extend(old, ttl));
        match (home, old) {
            (Ok(home), Ok(old)) => Ok(home.min(old)),
            // What is over says more than what could not be extended.
            (Err(lost @ Error::Lost { .. }), _) | (_, Err(lost @ Error::Lost { .. })) => Err(lost),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Extends the lock in the background, in time, until it will have been held for `max_hold` from now; as
    /// [`Guard::keep_alive`].
    ///
    /// # Errors
    /// When there is no tokio runtime.
    pub fn keep_alive(&mut self, max_hold: Duration) -> Result<(), Error> {
        self.home.keep_alive(max_hold)?;
        self.old.as_mut().map_or(Ok(()), |old| old.keep_alive(max_hold))
    }

    /// Frees the lock and waits until a majority of the nodes of its group has freed it, or everybody has
    /// answered or failed to in time; during a move in both groups.
    ///
    /// It never fails, also not for a lock that has run out: see the report. Cancel safe: once polled, the
    /// release takes its course; dropped before, the guard frees the lock as it goes.
    pub async fn release(self) -> GroupRelease {
        let was_held = self.is_valid();
        let Some(old) = self.old else {
            return GroupRelease { was_held, home: self.home.release().await, old: None };
        };
        let (home, old) = tokio::join!(self.home.release(), old.release());
        GroupRelease { was_held, home, old: Some(old) }
    }

    /// Gives the lock out of hand, as [`Guard::detach`]; during a move both locks, the old group's last.
    #[must_use = "without the owners nobody can free the locks before they run out"]
    pub fn detach(self) -> Vec<Detached> {
        [Some(self.home), self.old].into_iter().flatten().map(Guard::detach).collect()
    }
}

/// A function and no closure: what a closure makes of a borrowed guard cannot go to another thread.
async fn extend(guard: &Guard, ttl: Option<Duration>) -> Result<Duration, Error> {
    match ttl {
        None => guard.extend().await,
        Some(ttl) => guard.extend_to(ttl).await,
    }
}

impl Holds for GroupGuard {
    fn over(&self) -> Option<Loss> {
        self.guards().find_map(Guard::over)
    }

    async fn lost(&self) -> Loss {
        Self::lost(self).await
    }

    fn lost_error(&self, loss: Loss) -> Error {
        Self::lost_error(self, loss)
    }

    async fn free(self) {
        self.release().await;
    }
}

impl fmt::Debug for GroupGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupGuard").field("home", &self.home).field("old", &self.old).finish()
    }
}

/// A view of a lock from [`LockGroups`](super::LockGroups): what the work under it needs to know.
///
/// Cheap to clone and free to be sent to other tasks. It goes on telling the truth when the lock is over.
#[derive(Clone, Debug)]
pub struct GroupHeld {
    home: Held,
    old: Option<Held>,
}

impl GroupHeld {
    /// The number to hand to every storage that the work writes to; see [`GroupGuard::fence`].
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.home.fence()
    }

    /// How long the lock may still be believed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let home = self.home.remaining();
        self.old.as_ref().map_or(home, |old| old.remaining().min(home))
    }

    /// Whether the lock may be believed at this moment. A local question: no network.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        !self.remaining().is_zero()
    }

    /// Resolves when the lock is no longer held: lost, released or dropped. If its time runs out, it resolves a
    /// little before that, whatever the network does.
    ///
    /// Cancel safe: it can be dropped and called again.
    ///
    /// # Panics
    /// Where there is no tokio runtime with a timer.
    pub async fn lost(&self) -> Loss {
        let Some(old) = &self.old else { return self.home.lost().await };
        tokio::select! {
            biased;
            loss = self.home.lost() => loss,
            loss = old.lost() => loss,
        }
    }

    /// A token that is cancelled when [`GroupHeld::lost`] resolves, and when the runtime that it was first asked for on
    /// shuts down: nobody would watch the clock for it any more.
    ///
    /// # Errors
    /// When there is no tokio runtime to watch the clock.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        let token = self.home.cancellation_token()?;
        let Some(old) = &self.old else { return Ok(token) };
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let (either, old) = (CancellationToken::new(), old.cancellation_token()?);
        let cancel = either.clone().drop_guard();
        runtime.spawn(async move {
            let _cancel = cancel;
            tokio::select! {
                () = token.cancelled() => {}
                () = old.cancelled() => {}
            }
        });
        Ok(either)
    }
}

/// What became of the release of a [`GroupGuard`].
#[derive(Clone, Debug)]
pub struct GroupRelease {
    was_held: bool,
    home: ReleaseReport,
    old: Option<ReleaseReport>,
}

impl GroupRelease {
    /// Whether the lock was still valid when it was released. If not, somebody else may have held it since.
    #[must_use]
    pub fn was_held(&self) -> bool {
        self.was_held
    }

    /// Whether a majority of the nodes has freed the lock, in every group that had it: the next one can have it.
    #[must_use]
    pub fn is_free_on_a_majority(&self) -> bool {
        self.reports().all(ReleaseReport::is_free_on_a_majority)
    }

    /// What the nodes made of it: of the resource's group, and during a move of the group it moves away from.
    pub fn reports(&self) -> impl Iterator<Item = &ReleaseReport> {
        [Some(&self.home), self.old.as_ref()].into_iter().flatten()
    }
}

impl fmt::Display for GroupRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.home.fmt(f)?;
        self.old.as_ref().map_or(Ok(()), |old| write!(f, "; {old}"))
    }
}
