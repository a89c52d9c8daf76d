//! Waiting in line at every node at once.
//!
//! A waiting client is queued at the nodes that refuse it. A node that becomes free gives it the lock for a
//! short while and says so: a grant like any other, counted by the same rule. What is special is only that
//! the client did not ask at that moment, so it must find out from when the grant can be counted on
//! ([`LockState::handle_grant`]), and that it has to claim it: any command does.
//!
//! Nobody's safety depends on the rest of this file, which is about not waiting for ever: messages get lost,
//! nodes restart and forget who waits, and two clients can be first at different nodes.

use super::{Ask, LockPhase, LockState, Request};
use crate::ballot::{Refusal, Verdict};
use crate::{Moment, NodeSet, Reply, Vote};
use std::collections::VecDeque;
use std::time::Duration;

/// How often a client that is queued everywhere asks again, for grants whose news was lost.
const REFRESH_INTERVAL: Duration = Duration::from_secs(2);
/// How often a client asks again that is not queued at every node, give or take a half.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// How soon a client asks again when a connection has broken, or when one is back on which a node was not heard.
const REFRESH_AFTER_DISCONNECT: Duration = Duration::from_millis(20);
/// The least time after which a client with too few grants looks who has the others. Longer than the nodes of
/// one hand-off are apart, even on machines that are busy.
const MIN_PROBE_DELAY: Duration = Duration::from_millis(10);
/// How often that time is doubled for a call that has given way again and again: whoever it gave way to may be gone.
const MAX_DOUBLINGS: u32 = 4;
/// The longest.
const MAX_PROBE_DELAY: Duration = Duration::from_secs(1);
/// The least time for which a lock that was not claimed yet is of use.
const MIN_UNCLAIMED_LEASE: Duration = Duration::from_millis(30);
/// The least time for which any lock that was waited for is of use, if it lasts for longer: its holder must be told
/// before it is over.
const MIN_LEASE: Duration = Duration::from_millis(1);
/// How many round trips we want to have for a claim: one for the news and the claim itself, the rest for what may
/// come between.
const CLAIM_ROUND_TRIPS: u32 = 4;
/// Nodes wait for so long for a claim without being asked to.
const DEFAULT_CLAIM_WINDOW: Duration = Duration::from_millis(50);
/// They do not promise more than this.
const MAX_CLAIM_WINDOW: Duration = Duration::from_secs(60);
/// How many rounds of requests a grant may be older than the newest and still be counted on at once.
const MAX_ROUNDS_KEPT: usize = 4;

/// A place in line, the same at every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRequest {
    /// The smallest is served first. Chosen once for a call and kept over its attempts.
    pub ticket: u64,
    /// Names the request: the news of a grant repeats it. Never the same for two sessions of one ticket.
    pub stamp: u64,
    /// For how long the nodes keep the place.
    pub wait: Duration,
    /// Where the news of a grant is to be sent.
    pub channel: [u8; 16],
    /// How long we need to claim what we are given, if that is longer than nodes take for granted.
    pub claim: Option<Duration>,
}

/// A lock that a node has given to a client that waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The number it is held under.
    pub fence: u64,
    /// The request that was waiting.
    pub stamp: u64,
    /// How long it waited, by the node's clock: from after it came to before it was granted.
    pub waited: Duration,
    /// For how long the node keeps the lock unless it is claimed.
    pub claim: Duration,
}

/// What a client knows of its waiting.
#[derive(Clone, Debug)]
pub(super) struct Queueing {
    queue: QueueRequest,
    hint: Option<u64>,
    first_stamp: u64,
    /// When the last requests were sent, by their stamps.
    rounds: VecDeque<(u64, Moment)>,
    /// When to give up.
    until: Moment,
    /// It is later than that, and some nodes have still to answer: only that is waited for.
    deadline_passed: bool,
    /// Nobody would tell us of our turn: only what was asked already is waited for.
    is_stopping: bool,
    refresh_at: Moment,
    /// The nodes that have us in line, as far as we know.
    queued: NodeSet,
    /// The nodes whose grant is not claimed.
    unclaimed: NodeSet,
    /// When each of them has taken it back for certain.
    window_ends: Vec<Moment>,
    /// The stamp of the last request that each node has granted. If it has refused one since, that of the one before:
    /// whatever it had granted by then, it has taken back.
    decided_stamps: Vec<u64>,
    was_contended: bool,
    round_trip: Option<Duration>,
    probe: Probe,
    /// How often earlier attempts of the same call have given way.
    yields: u32,
}

/// Finding out who has the nodes that we lack.
#[derive(Clone, Debug)]
enum Probe {
    Idle,
    Scheduled(Moment, Duration),
    InFlight { stamp: u64, missing: NodeSet, holders: Vec<u64>, by: Moment, delay: Duration },
}

impl Queueing {
    fn request(&self, ttl: Duration, now: Moment) -> Request {
        let queue = QueueRequest { wait: now.until(self.until).max(Duration::from_millis(1)), ..self.queue };
        Request { ask: Ask::Wait { hint: self.hint, queue }, ttl, sent: now }
    }

    /// When the request with this stamp was sent; `None` if it is too long ago.
    fn sent(&self, stamp: u64) -> Option<Moment> {
        self.rounds.iter().find(|(round, _)| *round == stamp).map(|(_, sent)| *sent)
    }

    fn begin_round(&mut self, ttl: Duration, now: Moment) -> Request {
        self.queue.stamp += 1;
        if self.rounds.len() == MAX_ROUNDS_KEPT {
            self.rounds.pop_front();
        }
        self.rounds.push_back((self.queue.stamp, now));
        self.request(ttl, now)
    }

    fn note_decided(&mut self, node: usize, stamp: u64) {
        if let Some(granted) = self.decided_stamps.get_mut(node) {
            *granted = stamp.max(*granted);
        }
    }

    /// A node that is far away must leave us more time for the claim, or nothing that it hands us ever is ours. It
    /// is told at once, by asking again.
    fn widen_window_for_distance(&mut self, sent: Moment, now: Moment) {
        self.widen_claim_window(now.since(sent), DEFAULT_CLAIM_WINDOW, now);
    }

    /// The same for a node that has just said how long it waits for a claim: it may be set to less than is usual.
    fn widen_short_window(&mut self, window: Duration, now: Moment) {
        if let Some(round_trip) = self.round_trip {
            self.widen_claim_window(round_trip, window, now);
        }
    }

    fn widen_claim_window(&mut self, round_trip: Duration, window: Duration, now: Moment) {
        let wanted = round_trip.saturating_mul(CLAIM_ROUND_TRIPS).min(MAX_CLAIM_WINDOW);
        if wanted > window && wanted > self.queue.claim.unwrap_or_default() {
            // Twice as much as seen, so that small differences do not bring it up again and again.
            self.queue.claim = Some(wanted.saturating_mul(2).min(MAX_CLAIM_WINDOW));
            self.refresh_at = now;
        }
    }

    /// Where lines are full everybody asks again and again: not all at the same moment, and none always after the
    /// same others. Tickets are as good as chance for that.
    fn retry_interval(&self) -> Duration {
        let mixed =
            (self.queue.ticket ^ self.queue.stamp.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let share = u32::try_from(mixed >> 48).unwrap_or_default();
        RETRY_INTERVAL / 2 + RETRY_INTERVAL * share / (1 << 16)
    }

    fn first_probe_delay(&self) -> Duration {
        let usual =
            self.round_trip.unwrap_or_default().saturating_mul(4).clamp(MIN_PROBE_DELAY, MAX_PROBE_DELAY);
        usual.saturating_mul(1 << self.yields.min(MAX_DOUBLINGS)).min(MAX_PROBE_DELAY)
    }
}

impl LockState {
    /// Whether anything was handed to us that nobody has claimed yet.
    pub(super) fn has_unclaimed_grants(&self) -> bool {
        self.queueing.as_ref().is_some_and(|queueing| !queueing.unclaimed.is_empty())
    }

    /// Lets the client queue until `until` at the nodes where another client holds the lock. To be called before
    /// the first transmit is taken: that becomes a request to queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueRequest, until: Moment) -> Self {
        let (now, ttl) = (self.first_request.sent, self.first_request.ttl);
        let hint = match self.first_request.ask {
            Ask::Acquire { hint } => hint,
            _ => None,
        };
        let queueing = Queueing {
            queue,
            hint,
            first_stamp: queue.stamp,
            rounds: VecDeque::from([(queue.stamp, now)]),
            until,
            deadline_passed: false,
            is_stopping: false,
            refresh_at: now.plus(REFRESH_INTERVAL),
            queued: NodeSet::EMPTY,
            unclaimed: NodeSet::EMPTY,
            window_ends: vec![now; self.quorum.nodes()],
            decided_stamps: vec![0; self.quorum.nodes()],
            was_contended: false,
            round_trip: None,
            probe: Probe::Idle,
            yields: 0,
        };
        self.first_request = queueing.request(ttl, now);
        self.send(self.first_request, NodeSet::first(self.quorum.nodes()));
        self.queueing = Some(queueing);
        self
    }

    /// Takes note of how often earlier attempts of the same call have given way to somebody who came first. One that is
    /// gone makes no use of that until what it left behind runs out: it is looked for less and less often.
    #[must_use]
    pub fn after_yields(mut self, times: u32) -> Self {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.yields = times;
        }
        self
    }

    /// Takes in the news that a node has given us the lock.
    ///
    /// The lock is counted on from a moment that came before the grant for certain: when the request was sent,
    /// and then as much later as the node says that it waited, less what the clocks may differ.
    pub fn handle_grant(&mut self, node: usize, grant: Grant, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        let is_ours = (queueing.first_stamp..=queueing.queue.stamp).contains(&grant.stamp);
        if !is_ours || grant.fence == 0 {
            return;
        }
        self.maybe_held.insert(node);
        self.sticky.insert(node);
        if self.phase == LockPhase::Over {
            return;
        }
        // Every request is granted once: that much is known already, by an answer that came sooner or by the same news.
        // The node may have granted anew since, under another number, or have taken it back and refused.
        if queueing.decided_stamps.get(node).is_some_and(|granted| grant.stamp <= *granted) {
            return;
        }
        queueing.queued.remove(node);
        queueing.note_decided(node, grant.stamp);
        queueing.widen_short_window(grant.claim, now);
        if self.lose_if_expired(now) {
            return;
        }
        let Some(queueing) = self.queueing.as_mut() else { return };
        if let (Some(sent), Some(lease)) = (queueing.sent(grant.stamp), self.leases.get_mut(node)) {
            let granted = sent.plus(self.drift.at_least(grant.waited));
            let end = granted.plus(self.drift.lease(grant.claim));
            *lease = Some(lease.map_or(end, |old| old.later_of(end)));
        }
        match self.phase {
            LockPhase::Held { fence } => self.send_raise(fence, NodeSet::one(node), now),
            _ => {
                queueing.unclaimed.insert(node);
                if let Some(window_ends) = queueing.window_ends.get_mut(node) {
                    *window_ends = now.plus(grant.claim);
                }
                self.expired_on_arrival.remove(node);
                self.ballot.enter(node, Vote::Granted { fence: grant.fence });
                self.decide(now);
            }
        }
    }

    /// Claims the lock at every node that handed it over while the client queued. To be called after
    /// [`Event::Held`](super::Event::Held), or else those nodes take the lock back.
    pub fn claim(&mut self, now: Moment) {
        let (LockPhase::Held { fence }, Some(queueing)) = (self.phase, self.queueing.as_mut()) else {
            return;
        };
        let unclaimed = std::mem::take(&mut queueing.unclaimed);
        if !unclaimed.is_empty() {
            self.send_raise(fence, unclaimed, now);
        }
    }

    /// Whether a node has refused this client at first, or still does.
    #[must_use]
    pub fn was_contended(&self) -> bool {
        self.queueing.as_ref().is_some_and(|queueing| queueing.was_contended)
    }

    /// The connection to a node has broken: it has forgotten that we wait.
    pub fn handle_disconnect(&mut self, node: usize, failure: crate::Failure, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        if self.phase != LockPhase::Acquiring || !queueing.queued.contains(node) {
            return;
        }
        queueing.queued.remove(node);
        queueing.refresh_at = earlier_of(queueing.refresh_at, now.plus(REFRESH_AFTER_DISCONNECT));
        self.ballot.enter(node, Vote::Failed(failure));
        self.decide(now);
    }

    /// News of a grant may have been missed, though nobody has forgotten that we wait: the answer to the next request
    /// tells.
    pub fn handle_missed_grants(&mut self, now: Moment) {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.refresh_at = earlier_of(queueing.refresh_at, now.plus(REFRESH_AFTER_DISCONNECT));
        }
    }

    /// Too few nodes can be heard to wait for them: whoever is in line leaves it, to ask again at once and not in line.
    /// A majority that has granted, or still may without being waited for, is not given away.
    pub fn stop_queueing(&mut self, now: Moment) {
        if let Some(queueing) = self.queueing.as_mut() {
            queueing.is_stopping = true;
            self.advance_queue(now);
        }
    }

    /// Whether a refusal was overtaken by the grant of the same request, or by anything said to a later one.
    pub(super) fn is_stale_refusal(&self, node: usize, request: &Request, reply: &Reply) -> bool {
        let (Some(queueing), Ask::Wait { queue, .. }) = (&self.queueing, request.ask) else { return false };
        let is_refusal = matches!(reply, Reply::Queued { .. } | Reply::Nil);
        is_refusal && queueing.decided_stamps.get(node).is_some_and(|granted| queue.stamp <= *granted)
    }

    /// Notes what a node said to a request to wait.
    pub(super) fn note_queue_reply(&mut self, node: usize, request: &Request, reply: &Reply, now: Moment) {
        let (Some(queueing), Ask::Wait { queue, .. }) = (self.queueing.as_mut(), request.ask) else { return };
        let is_late = matches!(reply, Reply::Failed(failure) if failure.may_have_happened());
        if !is_late {
            queueing.round_trip.get_or_insert(now.since(request.sent));
        }
        match reply {
            Reply::Queued { .. } => {
                queueing.was_contended = true;
                queueing.queued.insert(node);
                queueing.note_decided(node, queue.stamp.saturating_sub(1));
                if queue.stamp == queueing.queue.stamp {
                    queueing.widen_window_for_distance(request.sent, now);
                }
            }
            Reply::Failed(_) if is_late => {}
            Reply::Nil => {
                queueing.was_contended = true;
                queueing.queued.remove(node);
                queueing.note_decided(node, queue.stamp.saturating_sub(1));
            }
            Reply::Number(_) => {
                queueing.queued.remove(node);
                queueing.note_decided(node, queue.stamp);
            }
            _ => queueing.queued.remove(node),
        }
        if let Probe::InFlight { stamp, missing, holders, .. } = &mut queueing.probe
            && *stamp == queue.stamp
        {
            missing.remove(node);
            if let Reply::Queued { ticket, .. } = reply {
                holders.push(*ticket);
            }
        }
    }

    /// A node that holds the lock for us and has answered a command knows that we claim it.
    pub(super) fn note_claimed(&mut self, node: usize, reply: &Reply) {
        if let (Some(queueing), Reply::Number(_)) = (self.queueing.as_mut(), reply) {
            queueing.unclaimed.remove(node);
        }
    }

    /// A lock is counted on from this moment. One that was handed to us and has hardly any time left is claimed
    /// before it is of use to anybody; so is one that is nearly over at a node which has held it for long, while we
    /// waited for others.
    pub(super) fn must_last_until(&self, now: Moment) -> Moment {
        match &self.queueing {
            None => now,
            Some(queueing) if queueing.unclaimed.is_empty() => {
                let lease = self.drift.lease(self.first_request.ttl);
                let least = MIN_LEASE.min(lease / 8);
                // Where the way there and back takes up nearly all of it, asking again brings no more.
                let is_far = queueing.round_trip.is_some_and(|way| way + 2 * least > lease);
                if is_far { now } else { now.plus(least) }
            }
            Some(_) => now.plus(MIN_UNCLAIMED_LEASE),
        }
    }

    /// Whether to go on although the votes are lost.
    pub(super) fn keeps_queueing(&self, refusal: Refusal, now: Moment) -> bool {
        let Some(queueing) = &self.queueing else { return false };
        refusal == Refusal::Contended && !now.has_reached(queueing.until)
    }

    /// When a waiting client has something to do.
    pub(super) fn queue_timeout(&self) -> Option<Moment> {
        let queueing =
            self.queueing.as_ref().filter(|_| self.phase == LockPhase::Acquiring && !self.is_raising())?;
        let probe = match &queueing.probe {
            Probe::Idle => None,
            Probe::Scheduled(at, _) => Some(*at),
            Probe::InFlight { by, .. } => Some(*by),
        };
        let lapses = queueing.unclaimed.iter().filter_map(|node| queueing.window_ends.get(node).copied());
        let others = [Some(queueing.until), Some(queueing.refresh_at), probe].into_iter().flatten();
        let others = others.filter(|_| !queueing.deadline_passed);
        others.chain(lapses).reduce(earlier_of)
    }

    /// Does what is due for a client that waits.
    pub(super) fn advance_queue(&mut self, now: Moment) {
        if self.queueing.is_none() || self.phase != LockPhase::Acquiring || self.is_raising() {
            return;
        }
        self.drop_expired_grants(now);
        let (granted, pending) = (self.ballot.granted(), self.ballot.pending());
        let quorum = self.quorum;
        let not_granted: NodeSet = self.not_granted();
        let queues_at = self.ballot.votes().len();
        let Some(queueing) = self.queueing.as_mut() else { return };
        if now.has_reached(queueing.until) {
            // Whoever asks for the last time is entitled to an answer, as those are who do not wait.
            queueing.deadline_passed = true;
            if let Verdict::Lost(refusal) = self.ballot.verdict() {
                self.fail(refusal);
            }
            return;
        }
        if queueing.is_stopping && !quorum.is_reached_by(granted + pending) {
            return self.fail(Refusal::Yielded);
        }
        let is_split = granted > 0 && !quorum.is_reached_by(granted);
        let ask_now = match &queueing.probe {
            _ if !is_split => {
                queueing.probe = Probe::Idle;
                false
            }
            Probe::Idle => {
                let delay = queueing.first_probe_delay();
                queueing.probe = Probe::Scheduled(now.plus(delay), delay);
                false
            }
            Probe::Scheduled(at, _) => now.has_reached(*at),
            Probe::InFlight { missing, holders, by, delay, .. } => {
                if missing.is_empty() || now.has_reached(*by) {
                    if older_ticket_lacks_majority(holders, queueing.queue.ticket, quorum.needed()) {
                        return self.fail(Refusal::Yielded);
                    }
                    let delay = delay.saturating_mul(2).min(MAX_PROBE_DELAY);
                    queueing.probe = Probe::Scheduled(now.plus(delay), delay);
                }
                false
            }
        };
        if !ask_now && !now.has_reached(queueing.refresh_at) {
            return;
        }
        if not_granted.is_empty() {
            queueing.refresh_at = now.plus(REFRESH_INTERVAL);
            return;
        }
        let request = queueing.begin_round(self.first_request.ttl, now);
        let is_missing_somewhere = queueing.queued.len() + granted < queues_at;
        let pause = if is_missing_somewhere { queueing.retry_interval() } else { REFRESH_INTERVAL };
        queueing.refresh_at = now.plus(pause);
        if let (true, Probe::Scheduled(_, delay)) = (ask_now, &queueing.probe) {
            let delay = *delay;
            let (stamp, by) = (queueing.queue.stamp, now.plus(delay));
            queueing.probe = Probe::InFlight { stamp, missing: not_granted, holders: Vec::new(), by, delay };
        }
        self.note_asked_again(not_granted);
        self.send(request, not_granted);
    }

    /// Whether nodes that granted were asked for more: until they have answered there is nothing else to do.
    fn is_raising(&self) -> bool {
        self.fence_raise.is_some_and(|raise| !raise.in_flight.is_empty())
    }

    /// The nodes that do not hold the lock for us.
    fn not_granted(&self) -> NodeSet {
        self.ballot.nodes(|vote| vote.fence().is_none())
    }

    /// A grant that was not claimed in time is none: the lock has gone on to somebody else.
    fn drop_expired_grants(&mut self, now: Moment) {
        let Some(queueing) = self.queueing.as_mut() else { return };
        for node in queueing.unclaimed.iter() {
            if queueing.window_ends.get(node).is_none_or(|until| now.has_reached(*until)) {
                queueing.unclaimed.remove(node);
                queueing.refresh_at = earlier_of(queueing.refresh_at, now);
                self.ballot.enter(node, Vote::Refused);
            }
        }
    }
}

/// Whether the nodes are split, and somebody who came before us has too few of them: then ours are for it.
/// Whoever has a majority needs none of ours.
fn older_ticket_lacks_majority(holders: &[u64], own: u64, needed: usize) -> bool {
    let has = |ticket: u64| holders.iter().filter(|holder| **holder == ticket).count();
    holders.iter().any(|ticket| *ticket > 0 && *ticket < own && has(*ticket) < needed)
}

fn earlier_of(one: Moment, other: Moment) -> Moment {
    if other.nanoseconds() < one.nanoseconds() { other } else { one }
}

#[cfg(test)]
mod tests;
