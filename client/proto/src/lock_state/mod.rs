//! One lock, from the first request to the last reply, without I/O.
//!
//! A [`LockState`] is what one client knows of one attempt to hold one lock (or several keys as one lock). It
//! counts votes, chooses the fence, keeps the lease of every node, and decides when the lock is held, extended,
//! lost and released. It sends nothing itself: the caller (a driver, a simulator, a test) reports what happened,
//! and then asks what to do.
//!
//! # The order of calls
//!
//! After [`LockState::new`], and after every input and every command, the caller
//!
//! 1. drains [`poll_transmit`](LockState::poll_transmit) and sends each transmit,
//! 2. drains [`poll_event`](LockState::poll_event) and acts on each event, which may mean another command,
//! 3. sets its timer to [`poll_timeout`](LockState::poll_timeout).
//!
//! One call leaves at most one transmit or one event behind, so both wait in a slot of one; drained, they leave
//! no trace. A reply is reported with the request that it answers, however late it comes. A request that got no
//! reply in time is reported as [`Reply::Failed`]; the reply may still follow.
//!
//! | inputs | the caller reports |
//! |---|---|
//! | [`handle_reply`](LockState::handle_reply) | what a node replied to a request, or that it did not |
//! | [`handle_grant`](LockState::handle_grant) | a push: a node handed the lock to this client, which had queued |
//! | [`handle_disconnect`](LockState::handle_disconnect) | a connection broke: the node dropped this client from its queue |
//! | [`handle_missed_grants`](LockState::handle_missed_grants) | pushes of a node may have been missed |
//! | [`handle_timeout`](LockState::handle_timeout) | the moment of `poll_timeout` has come |
//!
//! | commands | the caller wants |
//! |---|---|
//! | [`new`](LockState::new), [`with_queue`](LockState::with_queue) | the lock; and to queue if another client holds it |
//! | [`claim`](LockState::claim) | to keep a lock that was handed over, after [`Event::Held`] |
//! | [`extend`](LockState::extend) | more time |
//! | [`stop_queueing`](LockState::stop_queueing) | to queue no longer, because no push would arrive |
//! | [`release`](LockState::release) | to release the lock, or to give the attempt up |
//!
//! | outputs | the caller |
//! |---|---|
//! | [`poll_transmit`](LockState::poll_transmit) | sends a request to some nodes |
//! | [`poll_event`](LockState::poll_event) | learns that the lock is held, failed, extended, not extended, lost or released |
//! | [`poll_timeout`](LockState::poll_timeout) | calls `handle_timeout` at that moment, unless something else comes first |

mod queueing;
mod release;
mod request;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use queueing::{Grant, QueueRequest};
pub use release::{ReleaseOutcome, ReleaseProgress};
pub use request::{Ask, Request};

use crate::ballot::{Ballot, Refusal, Verdict};
use crate::fence_reach::{has_advanced, is_within_reach};
use crate::{Drift, Failure, FailureKind, Moment, NodeSet, Quorum, Reply, Vote};
use std::time::Duration;

/// One lock, or an attempt at it.
#[derive(Clone, Debug)]
pub struct LockState {
    quorum: Quorum,
    drift: Drift,
    first_request: Request,
    /// The longest time to live that was asked for: a node may hold the lock for as long.
    longest_ttl: Duration,
    phase: LockPhase,
    ballot: Ballot,
    /// Until when each node that holds the lock can be counted on.
    leases: Vec<Option<Moment>>,
    /// The nodes that hold the lock, or may.
    maybe_held: NodeSet,
    /// Those of them that are not crossed off any more: asked more than once, so that an answer to one request does
    /// not tell what became of the others, or known to have handed us the lock.
    sticky: NodeSet,
    /// The nodes that a request was sent to of which nobody knows what became: it may still arrive.
    in_doubt: NodeSet,
    /// The nodes whose last grant was over before we heard of it.
    expired_on_arrival: NodeSet,
    fence_raise: Option<RaiseGoal>,
    /// Since when a majority that has granted is being raised to one fence.
    raising_since: Option<Moment>,
    settle_timer: SettleTimer,
    extension: Option<Extension>,
    queueing: Option<queueing::Queueing>,
    release_progress: Option<ReleaseProgress>,
    /// What the caller has still to send.
    transmit: Option<Transmit>,
    /// What the caller has still to learn.
    event: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockPhase {
    Acquiring,
    Held {
        fence: u64,
    },
    /// Failed, lost or released: nothing that comes in now revives it.
    Over,
}

/// How long to wait for an answer that may spare a second round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SettleTimer {
    /// Nothing has called for it.
    Unused,
    Until(Moment),
    /// It is over, and does not begin anew: whoever waits on waits for an answer.
    Spent,
}

/// A second round: raising the nodes that answered less.
#[derive(Clone, Copy, Debug)]
struct RaiseGoal {
    fence: u64,
    in_flight: NodeSet,
}

#[derive(Clone, Debug)]
struct Extension {
    request: Request,
    ballot: Ballot,
}

/// A request to some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The request. The caller reports it with each reply.
    pub request: Request,
    /// The nodes that get it; never empty.
    pub to: NodeSet,
}

/// A change that the caller has to know of.
#[derive(Clone, Debug)]
pub enum Event {
    /// The lock is held.
    Held {
        /// The number that a majority has answered.
        fence: u64,
    },
    /// The attempt has failed; release what it may have got.
    Failed(Refusal),
    /// The lock is held for longer.
    Extended,
    /// It is not held for longer, and still held for as long as it was; with what the nodes said.
    NotExtended(Ballot),
    /// The lock is no longer held; with what the nodes said to the extension, if that told.
    Lost(Ballot),
    /// The release need not be waited for any longer.
    Released,
}

/// The lock is over, so nothing can be extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over;

impl LockState {
    /// Begins an attempt: the first transmit asks every node for the lock.
    #[must_use]
    pub fn new(quorum: Quorum, drift: Drift, ttl: Duration, hint: Option<u64>, now: Moment) -> Self {
        let first_request = Request { ask: Ask::Acquire { hint }, ttl, sent: now };
        Self {
            quorum,
            drift,
            first_request,
            longest_ttl: ttl,
            phase: LockPhase::Acquiring,
            ballot: Ballot::new(quorum),
            leases: vec![None; quorum.nodes()],
            maybe_held: NodeSet::first(quorum.nodes()),
            sticky: NodeSet::EMPTY,
            in_doubt: NodeSet::EMPTY,
            expired_on_arrival: NodeSet::EMPTY,
            fence_raise: None,
            raising_since: None,
            settle_timer: SettleTimer::Unused,
            extension: None,
            queueing: None,
            release_progress: None,
            transmit: Some(Transmit { request: first_request, to: NodeSet::first(quorum.nodes()) }),
            event: None,
        }
    }

    /// How every node stands.
    #[must_use]
    pub fn ballot(&self) -> &Ballot {
        &self.ballot
    }

    /// The fence, while the lock is held.
    #[must_use]
    pub fn fence(&self) -> Option<u64> {
        match self.phase {
            LockPhase::Held { fence } => Some(fence),
            _ => None,
        }
    }

    /// Until when a majority of the nodes can be counted on; `None` if no majority can.
    #[must_use]
    pub fn valid_until(&self) -> Option<Moment> {
        Moment::held_by(self.leases.iter().flatten().copied(), self.quorum.needed())
    }

    /// Whether no majority of the nodes can be counted on any more.
    fn has_expired(&self, now: Moment) -> bool {
        self.valid_until().is_none_or(|until| now.has_reached(until))
    }

    /// The next request to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmit.take()
    }

    /// The next change that the caller has to know of.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.event.take()
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else is reported first.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Moment> {
        let settled = match self.settle_timer {
            SettleTimer::Until(moment) if self.phase == LockPhase::Acquiring => Some(moment),
            _ => None,
        };
        [settled, self.queue_timeout()].into_iter().flatten().min_by_key(|at| at.nanoseconds())
    }

    /// Handles that a moment has come: the client goes on without replies that were worth a short wait, or asks
    /// the nodes again where it queues.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.decide(now);
    }

    /// Handles what a node replied to a request, or that it did not. A late reply may follow the report that there
    /// was none.
    pub fn handle_reply(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) {
        // No node counts from nothing: whoever says so is no node.
        let reply = match reply {
            Reply::Number(0) if !request.is_release() => {
                Reply::Failed(Failure::new(FailureKind::Cut, "a fence of 0"))
            }
            reply => reply,
        };
        match request.ask {
            Ask::Acquire { .. } | Ask::Wait { .. } => self.handle_vote(node, request, reply, now),
            Ask::RaiseFence { fence } => self.handle_raise_reply(node, fence, request, reply, now),
            Ask::Extend => self.handle_extension_reply(node, request, reply, now),
            Ask::Release { .. } => self.handle_release_reply(node, reply),
        }
    }

    /// Leaves a request for the caller to send.
    fn send(&mut self, request: Request, to: NodeSet) {
        if !to.is_empty() {
            self.transmit = Some(Transmit { request, to });
        }
    }

    fn emit(&mut self, event: Event) {
        self.event = Some(event);
    }

    fn handle_vote(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) {
        if self.is_stale_refusal(node, request, &reply) {
            return;
        }
        match &reply {
            Reply::Number(_) | Reply::Queued { .. } => self.maybe_held.insert(node),
            Reply::Failed(failure) if failure.may_have_happened() => self.in_doubt.insert(node),
            _ if self.sticky.contains(node) => {}
            _ => self.maybe_held.remove(node),
        }
        self.note_queue_reply(node, request, &reply, now);
        self.note_claimed(node, &reply);
        if self.lose_if_expired(now) {
            return;
        }
        self.note_expired_on_arrival(node, request, &reply, now);
        self.enter_vote(node, request, reply);
        // A reply can take a lease away as well.
        if !self.lose_if_expired(now) {
            self.decide(now);
        }
    }

    /// Takes note that nodes are asked once more for the lock.
    fn note_asked_again(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if self.maybe_held.contains(node) {
                self.sticky.insert(node);
            }
            self.maybe_held.insert(node);
        }
    }

    /// Takes note whether a grant was of any use when we heard of it. Whoever does not wait asks once, and needs no
    /// more than the moment at which that was.
    fn note_expired_on_arrival(&mut self, node: usize, request: &Request, reply: &Reply, now: Moment) {
        match reply {
            _ if self.queueing.is_none() => {}
            Reply::Number(_) if now.has_reached(request.lease_end(self.drift)) => {
                self.expired_on_arrival.insert(node)
            }
            Reply::Number(_) => self.expired_on_arrival.remove(node),
            _ => {}
        }
    }

    /// Whether the way to the nodes takes up all of the time to live, so that asking again is no use either.
    fn lacks_usable_majority(&self, now: Moment) -> bool {
        if self.queueing.is_none() {
            return now.has_reached(self.first_request.lease_end(self.drift));
        }
        let of_use = |node: &usize| {
            self.ballot.vote(*node).fence().is_some() && !self.expired_on_arrival.contains(*node)
        };
        !self.quorum.is_reached_by((0..self.quorum.nodes()).filter(of_use).count())
    }

    fn handle_raise_reply(
        &mut self,
        node: usize,
        fence: u64,
        request: &Request,
        mut reply: Reply,
        now: Moment,
    ) {
        if let Some(raise) = self.fence_raise.as_mut().filter(|raise| raise.fence == fence) {
            raise.in_flight.remove(node);
        }
        if self.lose_if_expired(now) {
            return;
        }
        // A fence may take several commands to reach. A node that advances by less than a step is broken: the client
        // does not ask it again.
        if let Reply::Number(after) = reply
            && self.ballot.vote(node).fence().is_some_and(|before| !has_advanced(before, after, fence))
        {
            reply = Reply::Failed(Failure::new(FailureKind::Rejected, "did not raise the fence"));
        }
        self.note_claimed(node, &reply);
        self.note_expired_on_arrival(node, request, &reply, now);
        self.enter_vote(node, request, reply);
        if !self.lose_if_expired(now) {
            self.decide(now);
        }
    }

    /// Ends a hold whose time is up, and says whether it did. A lock that lapsed before a reply came stays lost,
    /// whatever the reply says.
    fn lose_if_expired(&mut self, now: Moment) -> bool {
        if !matches!(self.phase, LockPhase::Held { .. }) || !self.has_expired(now) {
            return false;
        }
        self.lose();
        true
    }

    /// Ends a hold, with what the nodes said to the extension if there was one.
    fn lose(&mut self) {
        self.phase = LockPhase::Over;
        let ballot = self.extension.take().map_or_else(|| self.ballot.clone(), |extension| extension.ballot);
        self.emit(Event::Lost(ballot));
    }

    /// Notes how a node stands, unless all is over: then no answer changes anything.
    fn enter_vote(&mut self, node: usize, request: &Request, reply: Reply) {
        if self.phase == LockPhase::Over {
            return;
        }
        self.renew_lease(node, request, &reply);
        self.ballot.enter(node, Vote::from(reply));
    }

    /// A node that did as asked holds the lock from then on; one that says it does not, does not.
    fn renew_lease(&mut self, node: usize, request: &Request, reply: &Reply) {
        let lease_end = request.lease_end(self.drift);
        if let Some(lease) = self.leases.get_mut(node) {
            match reply {
                // A shorter extension takes nothing away: a node never shortens.
                Reply::Number(_) => *lease = Some(lease.map_or(lease_end, |old| old.later_of(lease_end))),
                Reply::Nil | Reply::Queued { .. } => *lease = None,
                Reply::Quarantined { .. } | Reply::Failed(_) => {}
            }
        }
    }

    fn decide(&mut self, now: Moment) {
        if self.phase != LockPhase::Acquiring {
            return;
        }
        let verdict = self.ballot.verdict();
        // The majority that granted is gone. Another one has its own time to settle and to be raised.
        if let Verdict::Open | Verdict::Lost(_) = verdict {
            self.raising_since = None;
            if let SettleTimer::Until(_) = self.settle_timer {
                self.settle_timer = SettleTimer::Unused;
            }
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

    /// Raises a majority that granted to one fence. Where that sends nothing and fails nothing, the client goes on
    /// queueing.
    fn raise_or_queue(&mut self, goal: u64, may_settle: bool, now: Moment) {
        self.raise_to_one_fence(goal, may_settle, now);
        self.advance_queue(now);
    }

    fn fail(&mut self, refusal: Refusal) {
        self.phase = LockPhase::Over;
        self.emit(Event::Failed(refusal));
    }

    /// Raises the nodes that answered less than the goal, after waiting at most as long again as the majority
    /// took for an answer that would make it needless.
    fn raise_to_one_fence(&mut self, goal: u64, may_settle: bool, now: Moment) {
        // Every raise renews the lease of its node. The first lease still bounds how often the client asks.
        let lasts_too_long =
            |since: Moment| now.has_reached(since.plus(self.drift.lease(self.first_request.ttl)));
        if self.lacks_usable_majority(now) || self.raising_since.is_some_and(lasts_too_long) {
            return self.fail(Refusal::Expired);
        }
        if self.settle_timer == SettleTimer::Unused {
            self.settle_timer = SettleTimer::Until(now.plus(now.since(self.first_request.sent)));
        }
        // What was handed to us runs out unless it is claimed: a second round does, or leads to a hold that does.
        let may_settle = may_settle && !self.has_unclaimed_grants();
        match self.settle_timer {
            SettleTimer::Until(moment) if may_settle && !now.has_reached(moment) => return,
            _ => self.settle_timer = SettleTimer::Spent,
        }
        // A goal that can still be reached is kept, whatever else is answered meanwhile.
        let kept = self.fence_raise.filter(|old| self.quorum.is_reached_by(self.ballot.within(old.fence)));
        let goal = kept.map_or(goal, |raise| raise.fence);
        if kept.is_none() && !self.quorum.is_reached_by(self.ballot.within(goal)) {
            // Another answer may bring a goal that is nearer.
            if self.ballot.pending() == 0 {
                self.fail(self.ballot.fences_apart());
            }
            return;
        }
        let mut raise = kept.unwrap_or(RaiseGoal { fence: goal, in_flight: NodeSet::EMPTY });
        // Those that are behind, and those that gave us the lock while we waited, too long ago to count on.
        let is_wanted = |node: &usize| match self.ballot.vote(*node).fence() {
            Some(fence) if fence == goal => self.lease_has_expired(*node, self.must_last_until(now)),
            Some(fence) => is_within_reach(fence, goal),
            None => false,
        };
        let nodes = 0..self.quorum.nodes();
        let to: NodeSet = nodes.filter(is_wanted).filter(|node| !raise.in_flight.contains(*node)).collect();
        to.iter().for_each(|node| raise.in_flight.insert(node));
        self.fence_raise = Some(raise);
        if !to.is_empty() {
            self.raising_since.get_or_insert(now);
            self.send_raise(goal, to, now);
        }
    }

    /// Whether a majority of the nodes have answered this number and hold the lock for us, the same nodes. One that
    /// answered it and has lost the lock since may have granted others more; that yet others hold it, under other
    /// numbers, does not make up for it.
    fn is_held_with(&self, fence: u64, now: Moment) -> bool {
        let holds = |node: &usize| {
            self.ballot.vote(*node).fence() == Some(fence) && !self.lease_has_expired(*node, now)
        };
        !self.has_expired(now) && self.quorum.is_reached_by((0..self.quorum.nodes()).filter(holds).count())
    }

    fn lease_has_expired(&self, node: usize, now: Moment) -> bool {
        self.leases.get(node).copied().flatten().is_none_or(|until| now.has_reached(until))
    }

    fn send_raise(&mut self, fence: u64, to: NodeSet, now: Moment) {
        self.send(Request { ask: Ask::RaiseFence { fence }, ttl: self.first_request.ttl, sent: now }, to);
    }

    /// Asks the nodes to hold the lock for longer. Ends with [`Event::Extended`], [`Event::NotExtended`] or
    /// [`Event::Lost`]. An extension that is still in flight goes on renewing leases, but ends with no event.
    ///
    /// # Errors
    /// When the lock is over: an extension never revives it.
    pub fn extend(&mut self, ttl: Duration, now: Moment) -> Result<(), Over> {
        let held = matches!(self.phase, LockPhase::Held { .. });
        if !held || self.has_expired(now) {
            self.phase = LockPhase::Over;
            return Err(Over);
        }
        self.longest_ttl = self.longest_ttl.max(ttl);
        let mut ballot = Ballot::new(self.quorum);
        // Nodes that are not asked keep saying what they said.
        for (node, vote) in self.ballot.votes().iter().enumerate() {
            if !self.maybe_held.contains(node) {
                ballot.enter(node, vote.clone());
            }
        }
        let request = Request { ask: Ask::Extend, ttl, sent: now };
        self.extension = Some(Extension { request, ballot });
        self.send(request, self.maybe_held);
        Ok(())
    }

    fn handle_extension_reply(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) {
        let LockPhase::Held { .. } = self.phase else { return };
        let of_this_round = self.extension.as_mut().filter(|extension| extension.request == *request);
        if let Some(extension) = of_this_round {
            extension.ballot.enter(node, Vote::from(reply.clone()));
        }
        // What had lapsed before the answer came stays over, whatever it says.
        let had_expired = self.has_expired(now);
        if reply == Reply::Nil {
            self.ballot.enter(node, Vote::Refused);
        }
        self.renew_lease(node, request, &reply);
        if had_expired || self.has_expired(now) {
            return self.lose();
        }
        let Some(extension) = self.extension.take_if(|extension| extension.request == *request) else {
            return;
        };
        let (granted, pending) = (extension.ballot.granted(), extension.ballot.pending());
        if self.quorum.is_reached_by(granted) {
            self.emit(Event::Extended);
        } else if self.quorum.is_reached_by(granted + pending) {
            self.extension = Some(extension);
        } else {
            self.emit(Event::NotExtended(extension.ballot));
        }
    }

    /// Ends the attempt or the hold: the transmit goes to all nodes that hold the lock, or may. Ends with
    /// [`Event::Released`]. A second release sends nothing: the first is in flight.
    pub fn release(&mut self, now: Moment) {
        self.phase = LockPhase::Over;
        self.extension = None;
        if self.release_progress.is_some() {
            return;
        }
        self.release_progress = Some(ReleaseProgress::of(self.quorum, self.maybe_held));
        if self.maybe_held.is_empty() {
            return self.emit(Event::Released);
        }
        let floor = self.ballot.highest().filter(|_| self.ballot.disagrees());
        self.send(Request { ask: Ask::Release { floor }, ttl: self.longest_ttl, sent: now }, self.maybe_held);
    }

    fn handle_release_reply(&mut self, node: usize, reply: Reply) {
        let Some(progress) = self.release_progress.as_mut() else { return };
        let was_settled = progress.is_settled();
        progress.enter(node, reply);
        if !was_settled && progress.is_settled() {
            self.emit(Event::Released);
        }
    }

    /// Whether a request to this node may still be on its way, over a connection that is gone, though a later one was
    /// answered. If so, and a release has freed what was granted to the later one, it must be sent once more: a node
    /// bars late requests of an owner whose release has freed nothing.
    #[must_use]
    pub fn may_be_granted_late(&self, node: usize) -> bool {
        self.in_doubt.contains(node)
    }

    /// What became of the release so far, once there was one.
    #[must_use]
    pub fn release_progress(&self) -> Option<&ReleaseProgress> {
        self.release_progress.as_ref()
    }
}
