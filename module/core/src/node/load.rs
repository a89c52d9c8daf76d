//! Locks that come from outside of the node's commands: saved, loaded, renamed and moved ones.

use super::{FULL, LockNode};
use crate::command_error::CommandError;
use crate::durable::DurableState;
use crate::fence::Stripe;
use crate::image::LockImage;
use crate::request;
use crate::request::OwnerArg;
use crate::table::{Database, LockId, NewLock};
use crate::time::{Millis, NodeClock};
use redlock_contract::limits::{MAX_TTL_LIMIT_MS, raise_limit};

impl LockNode {
    /// Whether this node could have granted a lock like this one. The caller refuses any other lock that arrives by
    /// `RESTORE` or `MIGRATE`: a forged image must not hold a key for years, or use up its fences.
    #[must_use]
    pub fn could_have_granted(&self, key: &[u8], image: &LockImage) -> bool {
        image.left_ms <= self.max_ttl_ms && image.fence <= raise_limit(self.stripes.last(Stripe::of(key)))
    }

    /// The state for the caller to store before it loads a saved lock; `None` if the stored state covers the lock.
    #[must_use]
    pub fn state_to_load(&self, key: &[u8], image: &LockImage) -> Option<DurableState> {
        let left_ms = image.left_ms.min(MAX_TTL_LIMIT_MS);
        let next = self.state.reserving([Stripe::of(key)], image.fence, left_ms);
        next.or_else(|| self.unsaved_state())
    }

    /// Loads a saved lock, once [its state](Self::state_to_load) is stored or set as unsaved. The caller puts the lock
    /// under its key.
    ///
    /// # Errors
    /// The node can hold no more locks, or the image is not one of a lock.
    pub fn load(
        &mut self,
        database: Database,
        key: &[u8],
        image: &LockImage,
        clock: &mut impl NodeClock,
    ) -> Result<LockId, CommandError> {
        let owner = OwnerArg::parse(&image.owner)?;
        let now = clock.latest();
        // No node grants for longer, so no lock has more left.
        let left_ms = image.left_ms.min(MAX_TTL_LIMIT_MS);
        self.stripes.raise(Stripe::of(key), image.fence);
        self.last_loaded = self.last_loaded.max(now);
        self.locks
            .insert(&NewLock {
                database,
                key,
                owner: owner.bytes(),
                label: request::label(&image.label).map_err(|problem| problem.at(0, "label"))?,
                fence: image.fence,
                granted: Millis(now.0.saturating_sub(image.held_ms)),
                deadline: now.deadline_after(left_ms),
                lease_ms: left_ms,
                extensions: image.extensions,
            })
            .ok_or(FULL)
    }

    /// The time left and the time held of a lock of this node's own data set, in milliseconds. The stored longest lease
    /// covers every lock that was held when the server stopped. A lock with more time left was saved earlier: the rest
    /// of that time has passed since, and its owner must not get it back after the quarantine. The sum of both stays
    /// the same, because the digest of the locks contains it.
    #[must_use]
    pub fn times_of_own(&self, left_ms: u64, held_ms: u64) -> (u64, u64) {
        let is_own = self.is_resumed && self.state.non_voting.is_none();
        let most_ms = if is_own { self.state.longest_lease_ms.max(1) } else { left_ms };
        let passed_ms = left_ms.saturating_sub(most_ms);
        (left_ms - passed_ms, held_ms.saturating_add(passed_ms))
    }

    /// The saved form of a lock.
    #[must_use]
    pub fn image(&self, lock: LockId, clock: &mut impl NodeClock) -> LockImage {
        self.locks.image(lock, clock.proven())
    }

    /// The database and the key of a lock.
    #[must_use]
    pub fn location(&self, lock: LockId) -> (Database, &[u8]) {
        self.locks.location(lock)
    }

    /// Records that a lock is under another key than the one it was granted for. The sweep, which did not find the
    /// lock, visits it again. All holders of a shared lock are under that key.
    pub fn found_at(&mut self, lock: LockId, database: Database, key: &[u8]) {
        if !self.shared.has(lock) {
            return self.locks.found_at(lock, database, key);
        }
        // Not all holders have expired, and the key has another stripe than before.
        self.raise_past(lock, Stripe::of(key));
        self.shared.set_old_fence(lock, true);
        for holder in self.shared.holders(lock) {
            self.locks.found_at(holder, database, key);
        }
    }

    /// Records that the caller searches for an expired lock that is not under its key.
    pub fn set_missing(&mut self, lock: LockId) {
        self.locks.set_missing(lock);
    }

    /// The missing locks that were removed since the last call: the caller need not search for them.
    pub fn take_no_longer_missing(&mut self) -> Vec<LockId> {
        self.locks.take_no_longer_missing()
    }

    /// Records that `SWAPDB` has swapped two databases.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        self.locks.databases_swapped(one, other);
        self.queues.databases_swapped(one, other);
    }
}
