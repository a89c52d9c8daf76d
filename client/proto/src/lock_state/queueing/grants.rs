//! Grants: a node hands the lock to this client and pushes a message.

use super::{LockPhase, LockState};
use crate::{Moment, NodeSet, Vote};
use std::time::Duration;

/// The message of a node that has handed the lock to this client, which had queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The fence of the lock on this node.
    pub fence: u64,
    /// The stamp of the request that was granted.
    pub stamp: u64,
    /// How long the request was queued, by the node's clock: from after it arrived until before it was
    /// granted.
    pub waited: Duration,
    /// The claim window: how long the node holds the lock unless the client claims it.
    pub claim: Duration,
}

impl LockState {
    /// Handles a push: a node handed the lock to this client.
    ///
    /// The lease counts from a moment that was certainly before the grant: when the client sent the request,
    /// plus the time that the request was queued by the node's clock, less the drift.
    pub fn handle_grant(&mut self, node: usize, grant: Grant, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        let is_ours = queueing.rounds.contains(grant.stamp);
        if !is_ours || grant.fence == 0 {
            return;
        }
        self.maybe_held.note_grant(node);
        if self.phase == LockPhase::Ended {
            return;
        }
        // A node grants each request once. A decided stamp is known already, from a reply or the same push.
        // Since then the node may have granted another fence, or have taken the lock back and refused.
        if queueing.replies.has_decided(node, grant.stamp) {
            return;
        }
        queueing.replies.note_granted(node, grant.stamp);
        // The node may give a shorter claim window than the default.
        if let Some(round_trip) = queueing.replies.round_trip() {
            queueing.widen_claim_window(round_trip, grant.claim, now);
        }
        let sent = queueing.rounds.sent_at(grant.stamp);
        if self.lose_if_expired(now) {
            return;
        }
        if let Some(sent) = sent {
            let granted = sent.plus(self.drift.at_least(grant.waited));
            self.leases.renew(node, granted.plus(self.drift.lease(grant.claim)));
        }
        match self.phase {
            LockPhase::Held { fence } => self.send_raise(fence, NodeSet::one(node), now),
            _ => self.count_grant(node, grant, now),
        }
    }

    /// Counts a pushed grant as a vote that is to be claimed.
    fn count_grant(&mut self, node: usize, grant: Grant, now: Moment) {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.claims.insert(node, now.plus(grant.claim));
            queueing.replies.note_push(node);
        }
        self.ballot.enter(node, Vote::Granted { fence: grant.fence });
        self.decide(now);
    }

    /// Claims the lock on every node that handed it over. The caller calls this after
    /// [`Event::Held`](crate::Event::Held); without it, those nodes take the lock back.
    pub fn claim(&mut self, now: Moment) {
        let (LockPhase::Held { fence }, Some(queueing)) = (self.phase, self.queueing.as_mut()) else {
            return;
        };
        let unclaimed = queueing.claims.take();
        self.send_raise(fence, unclaimed, now);
    }
}
