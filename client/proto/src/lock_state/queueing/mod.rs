//! Queueing for a lock that another client holds.
//!
//! The life of an attempt that queues:
//!
//! 1. **Queued.** The client asks every node for the lock, or else for a position in its wait queue. A node
//!    on which another client holds the lock queues the client by its ticket.
//! 2. **Granted by a push.** When the lock becomes free, a node hands it to the first waiter and pushes a
//!    grant. It holds the lock for that client for a claim window only. A grant is a vote like any other and
//!    counts by the same rule. It differs in one point: the client did not ask at that moment, so it has to
//!    work out when the lease began ([`LockState::handle_grant`]).
//! 3. **Claimed.** Any command to the node claims the lock; the client sends a raise. It does so once a
//!    majority has granted: right after [`Event::Held`](super::Event::Held) ([`LockState::claim`]), or before
//!    it, if the rest of the claim windows is too short to hold the lock or the fences differ. If a claim
//!    window ends first, the node takes the lock back and the client queues there again.
//! 4. **Held.** A majority has granted one fence and holds the lock for long enough.
//!
//! On the way to that:
//!
//! - **Yield.** Two clients can be first at different nodes. A client with a minority of grants probes the
//!   other nodes after 10 ms. If an older ticket also lacks a majority, the attempt fails with
//!   [`Refusal::Yielded`]; the caller releases the grants and queues again.
//! - **Refresh.** The client repeats its request every two seconds, and sooner after a disconnect or where it
//!   is not queued, because pushes get lost and nodes that restart forget their waiters.
//! - **Leave.** The attempt ends at its deadline with the refusal of the nodes, or after
//!   [`LockState::stop_queueing`] with [`Refusal::Yielded`], unless a majority has granted or still may.
//!
//! Safety depends on two things here: when the lease of a pushed grant begins, and that an old push never
//! replaces what a node said later ([`LockState::handle_grant`]). The rest keeps a client from waiting for
//! ever.
//!
//! | file | subject |
//! |---|---|
//! | `rounds` | the request to queue, its rounds and their stamps |
//! | `replies` | what each node has replied |
//! | `grants` | pushes, and claiming |
//! | `claims` | what is not claimed yet, and claim windows |
//! | `probe` | who holds the other nodes; yielding |
//! | `refresh` | when to repeat the request |

mod claims;
mod grants;
mod probe;
mod refresh;
mod replies;
mod rounds;
#[cfg(test)]
mod tests;

pub use grants::Grant;
pub use rounds::QueueRequest;

use super::{AcquireOptions, Ask, LockPhase, LockState, Request};
use crate::ballot::{Ballot, Refusal, Verdict};
use crate::{Failure, LockReply, Moment, NodeSet, Quorum, Vote};
use claims::{Claims, DEFAULT_CLAIM_WINDOW};
use probe::{ProbeStep, Prober};
use refresh::{REFRESH_INTERVAL, RefreshTimer, retry_interval};
use replies::QueueReplies;
use rounds::QueueRounds;
use std::time::Duration;

/// What a client that queues knows beside the votes.
#[derive(Clone, Debug)]
pub(super) struct Queueing {
    rounds: QueueRounds,
    replies: QueueReplies,
    claims: Claims,
    prober: Prober,
    refresh: RefreshTimer,
    /// Whether the deadline has passed. The client then waits only for replies that are in flight, and for
    /// the ends of claim windows.
    deadline_passed: bool,
    /// Whether the caller has called [`LockState::stop_queueing`].
    is_stopping: bool,
}

/// What a client that queues does now.
enum QueueStep {
    Wait,
    Fail(Refusal),
    Send { to: NodeSet, is_probe: bool },
}

impl Queueing {
    fn new(rounds: QueueRounds, nodes: usize, now: Moment) -> Self {
        Self {
            rounds,
            replies: QueueReplies::new(nodes),
            claims: Claims::new(nodes, now),
            prober: Prober::new(),
            refresh: RefreshTimer::new(now),
            deadline_passed: false,
            is_stopping: false,
        }
    }

    /// Whether the last grant of a node had expired when the client got it.
    pub(super) fn has_expired_on_arrival(&self, node: usize) -> bool {
        self.replies.has_expired_on_arrival(node)
    }

    fn note_reply(&mut self, node: usize, stamp: u64, reply: &LockReply, took: Duration, now: Moment) {
        self.replies.note(node, stamp, reply, took);
        if matches!(reply, LockReply::Queued { .. }) && stamp == self.rounds.stamp() {
            self.widen_claim_window(took, DEFAULT_CLAIM_WINDOW, now);
        }
        self.prober.note_reply(node, stamp, reply);
    }

    fn timeout(&self) -> Option<Moment> {
        let timers = [Some(self.rounds.deadline()), Some(self.refresh.at()), self.prober.timeout()];
        let timers = timers.into_iter().flatten().filter(|_| !self.deadline_passed);
        timers.chain(self.claims.first_window_end()).reduce(Moment::earlier_of)
    }

    fn next_step(&mut self, ballot: &Ballot, quorum: Quorum, now: Moment) -> QueueStep {
        if now.has_reached(self.rounds.deadline()) {
            self.deadline_passed = true;
            // The last request still gets its replies, as it does for a client that does not queue.
            return match ballot.verdict() {
                Verdict::Lost(refusal) => QueueStep::Fail(refusal),
                _ => QueueStep::Wait,
            };
        }
        let granted = ballot.granted();
        if self.is_stopping && !quorum.is_reached_by(granted + ballot.pending()) {
            return QueueStep::Fail(Refusal::Yielded);
        }
        let has_minority = granted > 0 && !quorum.is_reached_by(granted);
        let is_probe = match self.probe_step(has_minority, quorum, now) {
            ProbeStep::Wait => false,
            ProbeStep::Send => true,
            ProbeStep::Yield => return QueueStep::Fail(Refusal::Yielded),
        };
        if !is_probe && !self.refresh.is_due(now) {
            return QueueStep::Wait;
        }
        let to = ballot.nodes(|vote| vote.fence().is_none());
        if to.is_empty() {
            self.refresh.restart(REFRESH_INTERVAL, now);
            return QueueStep::Wait;
        }
        QueueStep::Send { to, is_probe }
    }

    fn probe_step(&mut self, has_minority: bool, quorum: Quorum, now: Moment) -> ProbeStep {
        if !has_minority {
            self.prober.cancel();
            return ProbeStep::Wait;
        }
        self.prober.step(self.rounds.ticket(), quorum, self.replies.round_trip(), now)
    }

    /// Begins another round, to these nodes.
    fn begin_round(&mut self, to: NodeSet, is_probe: bool, ballot: &Ballot, now: Moment) {
        self.rounds.begin_next(now);
        let stamp = self.rounds.stamp();
        let is_queued_everywhere = self.replies.queued() + ballot.granted() >= ballot.votes().len();
        let interval =
            if is_queued_everywhere { REFRESH_INTERVAL } else { retry_interval(self.rounds.ticket(), stamp) };
        self.refresh.restart(interval, now);
        if is_probe {
            self.prober.note_sent(stamp, to, now);
        }
    }
}

impl LockState {
    /// Lets the client queue until `deadline` on the nodes where another client holds the lock. The caller
    /// calls this before it takes the first transmit, which becomes a request to queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueRequest, deadline: Moment) -> Self {
        let (now, ttl) = (self.first_request.sent, self.first_request.ttl);
        let options = match self.first_request.ask {
            Ask::Acquire { options } => options,
            _ => AcquireOptions::default(),
        };
        let rounds = QueueRounds::new(queue, options, deadline, now);
        self.first_request = rounds.request(ttl, now);
        self.send(self.first_request, NodeSet::first(self.quorum.nodes()));
        self.queueing = Some(Queueing::new(rounds, self.quorum.nodes(), now));
        self
    }

    /// Sets how often earlier attempts of the same call have yielded to an older ticket. A client that is
    /// gone makes no use of a yield until its own grants expire, so the client probes later after every
    /// yield.
    #[must_use]
    pub fn after_yields(mut self, times: u32) -> Self {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.prober.set_yields(times);
        }
        self
    }

    /// Whether a node has refused this client because another client held the lock.
    #[must_use]
    pub fn was_contended(&self) -> bool {
        self.queueing.as_ref().is_some_and(|queueing| queueing.replies.was_contended())
    }

    /// Handles that the connection to a node broke: the node has removed this client from its queue.
    pub fn handle_disconnect(&mut self, node: usize, failure: Failure, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        if self.phase != LockPhase::Acquiring || !queueing.replies.note_disconnect(node) {
            return;
        }
        queueing.refresh.after_disconnect(now);
        self.ballot.enter(node, Vote::Failed(failure));
        self.decide(now);
    }

    /// Stops queueing: the caller calls this when a node cannot queue this client. If a majority has granted or may still grant in reply to a request, the attempt continues. Otherwise it fails with
    /// [`Refusal::Yielded`], and the caller asks again without a queue.
    pub fn stop_queueing(&mut self, now: Moment) {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.is_stopping = true;
            self.advance_queue(now);
        }
    }

    /// Whether a reply is a refusal that is older than what the client knows: the same request was granted
    /// since, or the node replied to a later one.
    pub(super) fn is_stale_refusal(&self, node: usize, request: &Request, reply: &LockReply) -> bool {
        let (Some(queueing), Ask::Wait { queue, .. }) = (&self.queueing, request.ask) else { return false };
        let is_refusal = matches!(reply, LockReply::Queued { .. } | LockReply::Nil);
        is_refusal && queueing.replies.has_decided(node, queue.stamp)
    }

    /// Notes what a node replied to a request to queue.
    pub(super) fn note_queue_reply(
        &mut self,
        node: usize,
        request: &Request,
        reply: &LockReply,
        now: Moment,
    ) {
        let (Some(queueing), Ask::Wait { queue, .. }) = (self.queueing.as_mut(), request.ask) else { return };
        queueing.note_reply(node, queue.stamp, reply, now.since(request.sent), now);
    }

    /// Notes whether a grant had expired when the client got its reply. A client that does not queue asks
    /// each node once, so the moment of its first request tells it the same.
    pub(super) fn note_arrival(&mut self, node: usize, request: &Request, reply: &LockReply, now: Moment) {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.replies.note_arrival(node, reply, request.lease_end(self.drift), now);
        }
    }

    /// Whether the client queues on, although no majority can grant now.
    pub(super) fn keeps_queueing(&self, refusal: Refusal, now: Moment) -> bool {
        let Some(queueing) = &self.queueing else { return false };
        refusal == Refusal::Contended && !now.has_reached(queueing.rounds.deadline())
    }

    /// When a client that queues has something to do.
    pub(super) fn queue_timeout(&self) -> Option<Moment> {
        let is_waiting = self.phase == LockPhase::Acquiring && !self.fence_raise.is_in_flight();
        self.queueing.as_ref().filter(|_| is_waiting)?.timeout()
    }

    /// Decides what a client that queues does now, and does it. While raises are in flight it only waits for
    /// the replies to those.
    pub(super) fn advance_queue(&mut self, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        if self.phase != LockPhase::Acquiring || self.fence_raise.is_in_flight() {
            return;
        }
        for node in queueing.claims.take_expired(now).iter() {
            self.ballot.enter(node, Vote::Refused);
            queueing.refresh.no_later_than(now);
        }
        match queueing.next_step(&self.ballot, self.quorum, now) {
            QueueStep::Wait => {}
            QueueStep::Fail(refusal) => self.fail(refusal),
            QueueStep::Send { to, is_probe } => {
                queueing.begin_round(to, is_probe, &self.ballot, now);
                let request = queueing.rounds.request(self.first_request.ttl, now);
                self.maybe_held.note_asked_again(to);
                self.send(request, to);
            }
        }
    }
}
