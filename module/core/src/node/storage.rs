//! The durable state of a node: when it changes, and when it must be stored.

use super::LockNode;
use crate::command_error::{ArgProblem, CommandError};
use crate::durable::{Dataset, DurableState, LocksDigest};
use crate::grammar::Admit;
use crate::reply::Reply;
use crate::time::{Millis, NodeClock};
use redlock_contract::NonVoting;
use redlock_contract::drift::with_drift;

/// How long a lower longest lease must be possible before the node stores it, in milliseconds.
const LOWER_AFTER_MS: u64 = 60_000;

/// The least time between two states that the node stores although no grant waits for them, in milliseconds.
const STORE_AGAIN_AFTER_MS: u64 = 1_000;

impl LockNode {
    /// The durable state. It is stored, unless the last attempt to store it has failed.
    #[must_use]
    pub fn state(&self) -> &DurableState {
        &self.state
    }

    /// Takes over a state that the caller has just stored.
    pub fn set_state(&mut self, state: DurableState) {
        self.state = state;
        self.is_state_unsaved = false;
    }

    /// Takes over a state that is not stored yet. The node grants nothing until it is.
    pub fn set_unsaved_state(&mut self, state: DurableState) {
        self.state = state;
        self.is_state_unsaved = true;
    }

    /// Records that a state could not be stored. The file may contain it all the same, so the node grants nothing
    /// until the present state is stored.
    pub fn not_stored(&mut self) {
        self.is_state_unsaved = true;
    }

    /// The present state, if it is not stored.
    pub(super) fn unsaved_state(&self) -> Option<DurableState> {
        self.is_state_unsaved.then(|| self.state.clone())
    }

    /// Records that this node has run before.
    pub fn set_resumed(&mut self) {
        self.is_resumed = true;
    }

    /// The number and digest of all locks of this node.
    #[must_use]
    pub fn locks_digest(&self) -> LocksDigest {
        self.locks.digest()
    }

    /// The state of this server as a non-voting node with a node id of its own, for the caller to store. The node
    /// forgets its waiters.
    #[must_use]
    pub fn without_vote(&mut self, reason: NonVoting, node_id: String, dataset: Dataset) -> DurableState {
        self.clear_waiters();
        let state = self.state.without_vote(reason, node_id);
        state.following(dataset.id, dataset.high_water).unwrap_or(state)
    }

    /// Lets this node vote: with fences above the floor, after a quarantine. `store` stores the state. If `store`
    /// fails, this server does not vote. The file may contain the new state all the same, so the caller stores the
    /// present one again ([`state_to_store`](Self::state_to_store)).
    ///
    /// # Errors
    /// The request names another node, the server cannot tell which of several state files is its own, or the state
    /// cannot be stored.
    pub fn admit(
        &mut self,
        request: &Admit<'_>,
        store: impl FnOnce(&DurableState) -> Result<(), CommandError>,
        clock: &mut impl NodeClock,
    ) -> Result<Reply, CommandError> {
        if let Some(reason @ NonVoting::SeveralStates) = self.state.non_voting {
            return Err(CommandError::NonVoting(reason));
        }
        if request.node_id != self.state.node_id.as_bytes() {
            return Err(ArgProblem::OtherNode.at(1, "node-id"));
        }
        let (state, stripes) = self.state.admitted(&request.floor, &self.stripes, request.wait_ms);
        if let Err(error) = store(&state) {
            self.not_stored();
            return Err(error);
        }
        self.set_state(state);
        self.stripes.raise_to(stripes);
        self.shared.set_all_fences_old();
        if request.wait_ms > 0 {
            self.quarantine(with_drift(request.wait_ms), clock);
            self.outlast_loaded_locks();
        }
        Ok(Reply::Integer(1))
    }

    /// The state for the caller to store although no grant waits for it; `None` most of the time. There is one when
    /// the last attempt to store has failed, or when a lower longest lease has been possible for
    /// `LOWER_AFTER_MS`: a node on which long leases come and go does not store its state for each.
    #[must_use]
    pub fn state_to_store(&mut self, clock: &mut impl NodeClock) -> Option<DurableState> {
        let now = clock.proven();
        let lowered = self.state_with_shorter_lease(clock);
        self.track_shorter_lease(lowered.is_some(), now);
        if now < self.next_store {
            return None;
        }
        let lowered = lowered.filter(|_| now.since(self.shorter_since) >= LOWER_AFTER_MS);
        let next = lowered.or_else(|| self.unsaved_state())?;
        self.next_store = Millis(now.0 + STORE_AGAIN_AFTER_MS);
        Some(next)
    }

    /// Remembers since when a lower longest lease has been possible without a break.
    fn track_shorter_lease(&mut self, is_possible: bool, now: Millis) {
        if !is_possible {
            self.shorter_since = Millis(0);
        } else if self.shorter_since == Millis(0) {
            self.shorter_since = now;
        }
    }

    /// The state with a lower longest lease; `None` if the present one is needed. A quarantine that is under way
    /// counts as a lease: it waits for locks that are not in the table.
    #[must_use]
    pub fn state_with_shorter_lease(&self, clock: &mut impl NodeClock) -> Option<DurableState> {
        let now = clock.proven();
        let left = |until: Millis| until.since(now);
        let longest = self.locks.last_long_deadline().map_or(0, left).max(left(self.quarantine_until));
        self.state.with_leases_of(longest)
    }
}
