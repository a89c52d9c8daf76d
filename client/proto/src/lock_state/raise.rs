//! The second round: raising a majority that granted to one fence.
//!
//! Nodes that missed requests grant one lock with different fences. The client holds the lock only with one
//! fence from a majority, so it chooses a goal and asks the nodes below it to raise their fence. The same
//! command renews the lease and claims a lock that was handed over.

use super::{Ask, LockState, Request};
use crate::ballot::Refusal;
use crate::fence_reach::{has_advanced, is_within_reach};
use crate::{Failure, FailureKind, LockReply, Moment, NodeSet};
use std::time::Duration;

/// The second round of one attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct FenceRaise {
    goal: Option<RaiseGoal>,
    /// When the client sent the first raise to the present majority.
    since: Option<Moment>,
    settle_timer: SettleTimer,
}

/// The fence that nodes are raised to.
#[derive(Clone, Copy, Debug)]
struct RaiseGoal {
    fence: u64,
    /// The nodes that have not replied to the raise.
    in_flight: NodeSet,
}

/// How long the client waits for a reply that may make the second round needless.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettleTimer {
    /// The client has not waited for the present majority.
    Unused,
    /// The client waits until this moment.
    Until(Moment),
    /// The time is over and does not start again: a client that waits now waits for a reply.
    Spent,
}

impl FenceRaise {
    pub(super) fn new() -> Self {
        Self { goal: None, since: None, settle_timer: SettleTimer::Unused }
    }

    /// Whether a node has not replied to a raise.
    pub(super) fn is_in_flight(&self) -> bool {
        self.goal.is_some_and(|goal| !goal.in_flight.is_empty())
    }

    /// The moment until which the client waits for a reply that may make the second round needless.
    pub(super) fn settles_at(&self) -> Option<Moment> {
        match self.settle_timer {
            SettleTimer::Until(moment) => Some(moment),
            SettleTimer::Unused | SettleTimer::Spent => None,
        }
    }

    /// Forgets the majority that granted, because it is gone. Another majority gets its own time to settle
    /// and to be raised.
    pub(super) fn forget_majority(&mut self) {
        self.since = None;
        if let SettleTimer::Until(_) = self.settle_timer {
            self.settle_timer = SettleTimer::Unused;
        }
    }

    /// Whether the client waits before it raises. It waits once, for as long as the majority took to grant.
    fn waits_to_settle(&mut self, may_settle: bool, majority_took: Duration, now: Moment) -> bool {
        if self.settle_timer == SettleTimer::Unused {
            self.settle_timer = SettleTimer::Until(now.plus(majority_took));
        }
        match self.settle_timer {
            SettleTimer::Until(moment) if may_settle && !now.has_reached(moment) => true,
            _ => {
                self.settle_timer = SettleTimer::Spent;
                false
            }
        }
    }
}

impl LockState {
    /// Handles the reply of a node to a raise.
    pub(super) fn handle_raise_reply(
        &mut self,
        node: usize,
        fence: u64,
        request: &Request,
        mut reply: LockReply,
        now: Moment,
    ) {
        if let Some(goal) = self.fence_raise.goal.as_mut().filter(|goal| goal.fence == fence) {
            goal.in_flight.remove(node);
        }
        if self.lose_if_expired(now) {
            return;
        }
        // A fence may take several commands to reach. A node that advances by less than a step is broken: the
        // client does not ask it again.
        if let LockReply::Number(after) = reply
            && self.ballot.vote(node).fence().is_some_and(|before| !has_advanced(before, after, fence))
        {
            reply = LockReply::Failed(Failure::new(FailureKind::Rejected, "did not raise the fence"));
        }
        self.note_claimed(node, &reply);
        self.note_arrival(node, request, &reply, now);
        self.enter_vote(node, request, reply);
        if !self.lose_if_expired(now) {
            self.decide(now);
        }
    }

    /// Raises a majority that granted to one fence. If that sends nothing and fails nothing, the client
    /// queues on.
    pub(super) fn raise_or_queue(&mut self, goal: u64, may_settle: bool, now: Moment) {
        self.raise_to_one_fence(goal, may_settle, now);
        self.advance_queue(now);
    }

    /// Raises the nodes below the goal. First the client waits for a reply that may make this needless, at
    /// most for as long as the majority took to grant.
    fn raise_to_one_fence(&mut self, goal: u64, may_settle: bool, now: Moment) {
        if self.lacks_usable_majority(now) || self.raises_for_too_long(now) {
            let is_raising = self.fence_raise.since.is_some() && self.ballot.disagrees();
            return self.fail(if is_raising { self.ballot.fences_apart() } else { Refusal::Expired });
        }
        // A node takes back what it handed over, unless the client claims it. A raise claims it, or leads to
        // a hold that does; waiting does not.
        let may_settle = may_settle && !self.has_unclaimed_grants();
        let majority_took = now.since(self.first_request.sent);
        if self.fence_raise.waits_to_settle(may_settle, majority_took, now) {
            return;
        }
        let Some(mut goal) = self.choose_goal(goal) else {
            // Another reply may bring a goal within reach.
            if self.ballot.pending() == 0 {
                self.fail(self.ballot.fences_apart());
            }
            return;
        };
        let to = self.nodes_to_raise(goal, now);
        to.iter().for_each(|node| goal.in_flight.insert(node));
        self.fence_raise.goal = Some(goal);
        if !to.is_empty() {
            self.fence_raise.since.get_or_insert(now);
            self.send_raise(goal.fence, to, now);
        }
    }

    /// Whether fewer than a majority of the grants had time left when the client got them: the round trip
    /// takes up the time to live, and another request would not help.
    fn lacks_usable_majority(&self, now: Moment) -> bool {
        let Some(queueing) = &self.queueing else {
            return now.has_reached(self.first_request.lease_end(self.drift));
        };
        let is_usable = |node: &usize| {
            self.ballot.vote(*node).fence().is_some() && !queueing.has_expired_on_arrival(*node)
        };
        !self.quorum.is_reached_by((0..self.quorum.nodes()).filter(is_usable).count())
    }

    /// Whether the second round has taken as long as one lease. Every raise renews the lease of its node, so
    /// the leases themselves set no end.
    fn raises_for_too_long(&self, now: Moment) -> bool {
        let lease = self.drift.lease(self.first_request.ttl);
        self.fence_raise.since.is_some_and(|since| now.has_reached(since.plus(lease)))
    }

    /// The goal of before while a majority can still be raised to it, whatever else nodes have replied since;
    /// else the new one. `None` if no majority can be raised to it.
    fn choose_goal(&self, fence: u64) -> Option<RaiseGoal> {
        let is_within_reach = |fence: u64| self.quorum.is_reached_by(self.ballot.within(fence));
        let kept = self.fence_raise.goal.filter(|old| is_within_reach(old.fence));
        kept.or_else(|| is_within_reach(fence).then_some(RaiseGoal { fence, in_flight: NodeSet::EMPTY }))
    }

    /// The nodes to send a raise: those below the goal, and those that have the goal but hold the lock for
    /// too short a time, such as a node that granted it long ago to a client that queued. Without those that
    /// have one in flight.
    fn nodes_to_raise(&self, goal: RaiseGoal, now: Moment) -> NodeSet {
        let is_wanted = |node: &usize| match self.ballot.vote(*node).fence() {
            Some(fence) if fence == goal.fence => self.leases.has_expired(*node, self.must_last_until(now)),
            Some(fence) => is_within_reach(fence, goal.fence),
            None => false,
        };
        let nodes = 0..self.quorum.nodes();
        nodes.filter(is_wanted).filter(|node| !goal.in_flight.contains(*node)).collect()
    }

    pub(super) fn send_raise(&mut self, fence: u64, to: NodeSet, now: Moment) {
        self.send(Request { ask: Ask::RaiseFence { fence }, ttl: self.first_request.ttl, sent: now }, to);
    }
}
