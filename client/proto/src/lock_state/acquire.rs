//! Votes: counting the replies to an attempt, and deciding whether the lock is held.

use super::{Event, LockPhase, LockState, Request};
use crate::ballot::{Refusal, Verdict};
use crate::{LockReply, Moment, Vote};

impl LockState {
    /// Handles the reply of a node to a request for the lock.
    pub(super) fn handle_vote(&mut self, node: usize, request: &Request, reply: LockReply, now: Moment) {
        if self.is_stale_refusal(node, request, &reply) {
            return;
        }
        self.maybe_held.note_reply(node, &reply);
        self.note_queue_reply(node, request, &reply, now);
        self.note_claimed(node, &reply);
        if self.lose_if_expired(now) {
            return;
        }
        self.note_arrival(node, request, &reply, now);
        self.enter_vote(node, request, reply);
        // The reply may have ended a lease.
        if !self.lose_if_expired(now) {
            self.decide(now);
        }
    }

    /// Enters the vote of a node and renews its lease, unless the lock is over: then a reply changes nothing.
    pub(super) fn enter_vote(&mut self, node: usize, request: &Request, reply: LockReply) {
        if self.phase == LockPhase::Ended {
            return;
        }
        self.renew_lease(node, request, &reply);
        self.ballot.enter(node, Vote::from(reply));
    }

    /// Decides from the votes whether the attempt holds the lock, fails, raises nodes, or queues on.
    pub(super) fn decide(&mut self, now: Moment) {
        if self.phase != LockPhase::Acquiring {
            return;
        }
        let verdict = self.ballot.verdict();
        if let Verdict::Open | Verdict::Lost(_) = verdict {
            self.fence_raise.forget_majority();
        }
        match verdict {
            Verdict::Open => self.advance_queue(now),
            Verdict::Agreed { fence } if self.is_held_with(fence, self.must_last_until(now)) => {
                self.phase = LockPhase::Held { fence };
                self.emit(Event::Held { fence });
            }
            Verdict::Agreed { fence } => self.raise_or_queue(fence, false, now),
            Verdict::Split { goal, may_settle } => self.raise_or_queue(goal, may_settle, now),
            Verdict::Lost(refusal) if self.keeps_queueing(refusal, now) => self.advance_queue(now),
            Verdict::Lost(refusal) => self.fail(refusal),
        }
    }

    /// Whether a majority of the nodes have answered this fence and the same nodes hold the lock beyond
    /// `until`.
    ///
    /// A node that answered the fence and has lost the lock since may have granted larger fences to other
    /// clients. Other nodes that hold the lock with other fences do not make up for it.
    fn is_held_with(&self, fence: u64, until: Moment) -> bool {
        let holds = |node: &usize| {
            self.ballot.vote(*node).fence() == Some(fence) && !self.leases.has_expired(*node, until)
        };
        !self.has_expired(until) && self.quorum.is_reached_by((0..self.quorum.nodes()).filter(holds).count())
    }

    /// Ends the attempt.
    pub(super) fn fail(&mut self, refusal: Refusal) {
        self.phase = LockPhase::Ended;
        self.emit(Event::Failed(refusal));
    }
}
