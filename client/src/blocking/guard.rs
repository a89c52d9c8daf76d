//! A lock that is held, for a program without an async runtime.

use super::engine::Engine;
use crate::report::ReleaseReport;
use crate::{Detached, Error, LockHandle, LostReason};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A lock that is held; the blocking form of [`crate::Guard`].
///
/// Dropping it frees the lock in the background, without blocking; use [`Guard::release`] to wait until it is
/// free and to learn what the nodes said. If a program ends with a guard as the last thing it drops, the
/// nodes may not be told in time, and the lock ends by itself: let a manager go last, it waits.
#[must_use = "a lock is freed as soon as its guard is dropped"]
pub struct Guard {
    /// Before the engine, so that the release is on its way when the engine stops.
    guard: crate::Guard,
    engine: Arc<Engine>,
}

impl Guard {
    pub(super) fn new(guard: crate::Guard, engine: &Arc<Engine>) -> Self {
        Self { guard, engine: Arc::clone(engine) }
    }

    /// The number to hand to every storage that the work writes to; see [`crate::Guard::fence`].
    #[must_use]
    pub fn fence(&self) -> u64 {
        self.guard.fence()
    }

    /// The resources that are locked, in order, as the caller named them.
    pub fn resources(&self) -> impl Iterator<Item = &[u8]> {
        self.guard.resources()
    }

    /// The time to live that was asked for last.
    #[must_use]
    pub fn ttl(&self) -> Duration {
        self.guard.ttl()
    }

    /// How long the lock may still be believed; zero once it is over.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Whether the lock may be believed at this moment. A local question: no network.
    ///
    /// Nothing can interrupt a thread that works under a lock: it has to ask, before every step that matters.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.guard.is_valid()
    }

    /// A view of the lock for the work under it: cheap to clone, free to be sent to other threads, and
    /// without the right to end it.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        self.guard.held()
    }

    /// Waits until the lock is no longer held, or for `at_most`: then `None`.
    ///
    /// If the lock's time runs out, that is told a little before, whatever the network does.
    #[must_use = "`None` says that the lock is still held"]
    pub fn wait_lost(&self, at_most: Duration) -> Option<LostReason> {
        let held = self.held();
        let lost = async move { tokio::time::timeout(at_most, held.lost()).await.ok() };
        // A runtime that is gone keeps nothing alive.
        self.engine.wait(lost).unwrap_or(Some(LostReason::Expired))
    }

    /// Holds the lock for its time to live, from now on. Returns how long it may be believed.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answered: the lock is still held for as long as it was, and
    /// trying again makes sense. [`Error::Lost`] if it is over; nothing revives it then.
    pub fn extend(&self) -> Result<Duration, Error> {
        self.extend_to(self.ttl())
    }

    /// As [`Guard::extend`], with another time to live from now on. A shorter one takes nothing away.
    ///
    /// # Errors
    /// As [`Guard::extend`], and [`Error::Invalid`] for a time to live that cannot be.
    pub fn extend_to(&self, ttl: Duration) -> Result<Duration, Error> {
        let ttl = self.engine.settings().check_ttl(ttl)?;
        let extender = self.guard.extender.clone();
        self.engine.wait(async move { extender.extend(ttl).await })?
    }

    /// Extends the lock in the background, in time, until it has been held for `max_hold` from now.
    ///
    /// If the nodes fail, it goes on trying for as long as the lock is valid. Called again, the new bound
    /// replaces the old one.
    ///
    /// # Errors
    /// [`Error::NoRuntime`], if the thread that would do it is gone.
    pub fn keep_alive(&mut self, max_hold: Duration) -> Result<(), Error> {
        let guard = &mut self.guard;
        self.engine.inside(|| guard.keep_alive(max_hold))?
    }

    /// Frees the lock and waits until a majority of the nodes has freed it, or everybody has answered or
    /// failed to in time.
    ///
    /// It never fails, also not for a lock that has run out: see the report.
    pub fn release(self) -> ReleaseReport {
        let Self { guard, engine } = self;
        let was_held = guard.is_valid();
        let report = engine.wait(guard.release());
        report.unwrap_or_else(|_| ReleaseReport::new(was_held, &engine.settings().names, None))
    }

    /// Gives the lock out of hand: it is held until it runs out, or until somebody who knows the owner frees
    /// it, perhaps another process.
    #[must_use = "without the owner nobody can free the lock before it runs out"]
    pub fn detach(self) -> Detached {
        self.guard.detach()
    }

    /// The error that says that the lock is over, if it is.
    pub(super) fn lost_error(&self) -> Option<Error> {
        self.guard.over().map(|reason| self.guard.lost_error(reason))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
