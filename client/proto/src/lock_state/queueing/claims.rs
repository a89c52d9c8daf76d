//! Claims: what nodes have handed over, and for how long they wait for the claim.

use super::{LockState, Queueing};
use crate::{LockReply, Moment, NodeSet};
use redlock_contract::limits::{DEFAULT_CLAIM_WINDOW_MS, MAX_CLAIM_MS};
use std::time::Duration;

/// The shortest lease that is of use while a grant is unclaimed: the claim has to arrive within it.
const MIN_UNCLAIMED_LEASE: Duration = Duration::from_millis(30);
/// The shortest lease that is of use to a client that has queued, if the time to live is longer: the holder
/// must get the lock before the lease ends.
const MIN_LEASE: Duration = Duration::from_millis(1);
/// How many round trips a claim window should last: one for the push and the claim, the rest as a reserve.
const CLAIM_ROUND_TRIPS: u32 = 4;
/// The claim window of a node that was not asked for another one.
pub(super) const DEFAULT_CLAIM_WINDOW: Duration = Duration::from_millis(DEFAULT_CLAIM_WINDOW_MS);
/// The longest claim window that a node gives.
const MAX_CLAIM_WINDOW: Duration = Duration::from_millis(MAX_CLAIM_MS);

/// The grants that the client has not claimed.
#[derive(Clone, Debug)]
pub(super) struct Claims {
    /// The nodes that handed the lock over and do not know yet that the client claims it.
    unclaimed: NodeSet,
    /// When each of these nodes has certainly taken the lock back. Without meaning for the other nodes.
    window_ends: Vec<Moment>,
}

impl Claims {
    pub(super) fn new(nodes: usize, now: Moment) -> Self {
        Self { unclaimed: NodeSet::EMPTY, window_ends: vec![now; nodes] }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unclaimed.is_empty()
    }

    /// Notes that a node handed the lock over and takes it back at `window_end`, unless the client claims it.
    pub(super) fn insert(&mut self, node: usize, window_end: Moment) {
        self.unclaimed.insert(node);
        if let Some(end) = self.window_ends.get_mut(node) {
            *end = window_end;
        }
    }

    /// Notes that a node knows of the claim.
    pub(super) fn remove(&mut self, node: usize) {
        self.unclaimed.remove(node);
    }

    /// Returns all nodes to claim, and forgets them.
    pub(super) fn take(&mut self) -> NodeSet {
        std::mem::take(&mut self.unclaimed)
    }

    /// Returns the nodes whose claim window is over, and forgets them: they have passed the lock on.
    pub(super) fn take_expired(&mut self, now: Moment) -> NodeSet {
        let is_over = |end: Option<&Moment>| end.is_none_or(|end| now.has_reached(*end));
        let nodes = self.unclaimed.iter();
        let expired: NodeSet = nodes.filter(|node| is_over(self.window_ends.get(*node))).collect();
        expired.iter().for_each(|node| self.unclaimed.remove(node));
        expired
    }

    /// When the first claim window is over.
    pub(super) fn first_window_end(&self) -> Option<Moment> {
        let ends = self.unclaimed.iter().filter_map(|node| self.window_ends.get(node).copied());
        ends.reduce(Moment::earlier_of)
    }
}

impl Queueing {
    /// Asks every node for a longer claim window, at once, if a window of this length is too short for this
    /// round trip. A node that is far away must wait longer for the claim, or the client loses everything
    /// that the node hands over.
    pub(super) fn widen_claim_window(&mut self, round_trip: Duration, window: Duration, now: Moment) {
        let wanted = round_trip.saturating_mul(CLAIM_ROUND_TRIPS).min(MAX_CLAIM_WINDOW);
        if wanted > window && wanted > self.rounds.claim_window() {
            // Twice as much as needed, so that a small difference does not cause another round.
            self.rounds.ask_for_claim_window(wanted.saturating_mul(2).min(MAX_CLAIM_WINDOW));
            self.refresh.make_due(now);
        }
    }
}

impl LockState {
    /// Whether a node handed the lock over and the client has not claimed it.
    pub(in crate::lock_state) fn has_unclaimed_grants(&self) -> bool {
        self.queueing.as_ref().is_some_and(|queueing| !queueing.claims.is_empty())
    }

    /// Notes the claim of a node that replied to a command that it holds the lock: any command claims.
    pub(in crate::lock_state) fn note_claimed(&mut self, node: usize, reply: &LockReply) {
        if let (Some(queueing), LockReply::Number(_)) = (self.queueing.as_mut(), reply) {
            queueing.claims.remove(node);
        }
    }

    /// The moment that a lease must outlast to count as a vote for the lock.
    ///
    /// For a client that does not queue, this is now. A client that queues needs a little time more: a lock
    /// that was handed over and is nearly over has to be claimed first, and so has one that a node has held
    /// for long, while the client queued at the others.
    pub(in crate::lock_state) fn must_last_until(&self, now: Moment) -> Moment {
        let Some(queueing) = &self.queueing else { return now };
        if !queueing.claims.is_empty() {
            return now.plus(MIN_UNCLAIMED_LEASE);
        }
        let lease = self.drift.lease(self.first_request.ttl);
        let least = MIN_LEASE.min(lease / 8);
        // Where the round trip takes nearly the whole lease, another request brings no more.
        let is_far = queueing.replies.round_trip().is_some_and(|round_trip| round_trip + 2 * least > lease);
        if is_far { now } else { now.plus(least) }
    }
}
