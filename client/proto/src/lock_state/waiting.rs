//! Waiting in line at every node at once.
//!
//! A waiting client is queued at the nodes that refuse it. A node that becomes free gives it the lock for a
//! short while and says so: a grant like any other, counted by the same rule. What is special is only that
//! the client did not ask at that moment, so it must find out from when the grant can be counted on
//! ([`LockState::handle_grant`]), and that it has to claim it: any command does.
//!
//! Nobody's safety depends on the rest of this file, which is about not waiting for ever: messages get lost,
//! nodes restart and forget who waits, and two clients can be first at different nodes.

use super::{Ask, LockState, Phase, Request};
use crate::ballot::{Refusal, Verdict};
use crate::{Moment, NodeSet, Reply, Vote};
use std::collections::VecDeque;
use std::time::Duration;

/// How often a client that is queued everywhere asks again, for grants whose news was lost.
const REFRESH: Duration = Duration::from_secs(2);
/// How often a client asks again that is not queued at every node, give or take a half.
const REFRESH_WHERE_MISSING: Duration = Duration::from_millis(250);
/// How soon a client asks again when a connection has broken, or when one is back on which a node was not heard.
const AFTER_A_CUT: Duration = Duration::from_millis(20);
/// The least time after which a client with too few grants looks who has the others. Longer than the nodes of
/// one hand-off are apart, even on machines that are busy.
const FIRST_PROBE: Duration = Duration::from_millis(10);
/// How often that time is doubled for a call that has given way again and again: whoever it gave way to may be gone.
const MOST_DOUBLINGS: u32 = 4;
/// The longest.
const LAST_PROBE: Duration = Duration::from_secs(1);
/// The least time for which a lock that was not claimed yet is of use.
const LEAST_OF_USE: Duration = Duration::from_millis(30);
/// The least time for which any lock that was waited for is of use, if it lasts for longer: its holder must be told
/// before it is over.
const LEAST_OF_ALL: Duration = Duration::from_millis(1);
/// How many round trips we want to have for a claim: one for the news and the claim itself, the rest for what may
/// come between.
const CLAIM_ROUND_TRIPS: u32 = 4;
/// Nodes wait for so long for a claim without being asked to.
const USUAL_CLAIM: Duration = Duration::from_millis(50);
/// They do not promise more than this.
const LONGEST_CLAIM: Duration = Duration::from_secs(60);
/// How many rounds of requests a grant may be older than the newest and still be counted on at once.
const ROUNDS_REMEMBERED: usize = 4;

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
pub(super) struct Waiting {
    queue: QueueRequest,
    hint: Option<u64>,
    first_stamp: u64,
    /// When the last requests were sent, by their stamps.
    rounds: VecDeque<(u64, Moment)>,
    /// When to give up.
    until: Moment,
    /// It is later than that, and some nodes have still to answer: only that is waited for.
    is_time_up: bool,
    /// Nobody would tell us of our turn: only what was asked already is waited for.
    is_leaving: bool,
    refresh_at: Moment,
    /// The nodes that have us in line, as far as we know.
    queued: NodeSet,
    /// The nodes whose grant is not claimed.
    unclaimed: NodeSet,
    /// When each of them has taken it back for certain.
    taken_back: Vec<Moment>,
    /// The stamp of the last request that each node has granted. If it has refused one since, that of the one before:
    /// whatever it had granted by then, it has taken back.
    granted: Vec<u64>,
    was_refused: bool,
    round_trip: Option<Duration>,
    probe: Probe,
    /// How often earlier attempts of the same call have given way.
    yields: u32,
}

/// Finding out who has the nodes that we lack.
#[derive(Clone, Debug)]
enum Probe {
    Idle,
    At(Moment, Duration),
    Asked { stamp: u64, missing: NodeSet, holders: Vec<u64>, by: Moment, delay: Duration },
}

impl Waiting {
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
        if self.rounds.len() == ROUNDS_REMEMBERED {
            self.rounds.pop_front();
        }
        self.rounds.push_back((self.queue.stamp, now));
        self.request(ttl, now)
    }

    fn note_granted(&mut self, node: usize, stamp: u64) {
        if let Some(granted) = self.granted.get_mut(node) {
            *granted = stamp.max(*granted);
        }
    }

    /// A node that is far away must leave us more time for the claim, or nothing that it hands us ever is ours. It
    /// is told at once, by asking again.
    fn see_to_distance(&mut self, sent: Moment, now: Moment) {
        self.want_to_claim_within(now.since(sent), USUAL_CLAIM, now);
    }

    /// The same for a node that has just said how long it waits for a claim: it may be set to less than is usual.
    fn see_to_window(&mut self, window: Duration, now: Moment) {
        if let Some(round_trip) = self.round_trip {
            self.want_to_claim_within(round_trip, window, now);
        }
    }

    fn want_to_claim_within(&mut self, round_trip: Duration, window: Duration, now: Moment) {
        let wanted = round_trip.saturating_mul(CLAIM_ROUND_TRIPS).min(LONGEST_CLAIM);
        if wanted > window && wanted > self.queue.claim.unwrap_or_default() {
            // Twice as much as seen, so that small differences do not bring it up again and again.
            self.queue.claim = Some(wanted.saturating_mul(2).min(LONGEST_CLAIM));
            self.refresh_at = now;
        }
    }

    /// Where lines are full everybody asks again and again: not all at the same moment, and none always after the
    /// same others. Tickets are as good as chance for that.
    fn pause_where_missing(&self) -> Duration {
        let mixed =
            (self.queue.ticket ^ self.queue.stamp.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let share = u32::try_from(mixed >> 48).unwrap_or_default();
        REFRESH_WHERE_MISSING / 2 + REFRESH_WHERE_MISSING * share / (1 << 16)
    }

    fn first_delay(&self) -> Duration {
        let usual = self.round_trip.unwrap_or_default().saturating_mul(4).clamp(FIRST_PROBE, LAST_PROBE);
        usual.saturating_mul(1 << self.yields.min(MOST_DOUBLINGS)).min(LAST_PROBE)
    }
}

impl LockState {
    /// Whether anything was handed to us that nobody has claimed yet.
    pub(super) fn has_unclaimed(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| !waiting.unclaimed.is_empty())
    }

    /// Lets the client queue until `until` at the nodes where another client holds the lock. To be called before
    /// the first transmit is taken: that becomes a request to queue.
    #[must_use]
    pub fn with_queue(mut self, queue: QueueRequest, until: Moment) -> Self {
        let (now, ttl) = (self.begun.sent, self.begun.ttl);
        let hint = match self.begun.ask {
            Ask::Acquire { hint } => hint,
            _ => None,
        };
        let waiting = Waiting {
            queue,
            hint,
            first_stamp: queue.stamp,
            rounds: VecDeque::from([(queue.stamp, now)]),
            until,
            is_time_up: false,
            is_leaving: false,
            refresh_at: now.plus(REFRESH),
            queued: NodeSet::EMPTY,
            unclaimed: NodeSet::EMPTY,
            taken_back: vec![now; self.quorum.nodes()],
            granted: vec![0; self.quorum.nodes()],
            was_refused: false,
            round_trip: None,
            probe: Probe::Idle,
            yields: 0,
        };
        self.begun = waiting.request(ttl, now);
        self.send(self.begun, NodeSet::first(self.quorum.nodes()));
        self.waiting = Some(waiting);
        self
    }

    /// Takes note of how often earlier attempts of the same call have given way to somebody who came first. One that is
    /// gone makes no use of that until what it left behind runs out: it is looked for less and less often.
    #[must_use]
    pub fn after_yields(mut self, times: u32) -> Self {
        if let Some(waiting) = self.waiting.as_mut() {
            waiting.yields = times;
        }
        self
    }

    /// Takes in the news that a node has given us the lock.
    ///
    /// The lock is counted on from a moment that came before the grant for certain: when the request was sent,
    /// and then as much later as the node says that it waited, less what the clocks may differ.
    pub fn handle_grant(&mut self, node: usize, grant: Grant, now: Moment) {
        let Some(waiting) = self.waiting.as_mut() else { return };
        let is_ours = (waiting.first_stamp..=waiting.queue.stamp).contains(&grant.stamp);
        if !is_ours || grant.fence == 0 {
            return;
        }
        self.maybe_held.insert(node);
        self.sticky.insert(node);
        if self.phase == Phase::Over {
            return;
        }
        // Every request is granted once: that much is known already, by an answer that came sooner or by the same news.
        // The node may have granted anew since, under another number, or have taken it back and refused.
        if waiting.granted.get(node).is_some_and(|granted| grant.stamp <= *granted) {
            return;
        }
        waiting.queued.remove(node);
        waiting.note_granted(node, grant.stamp);
        waiting.see_to_window(grant.claim, now);
        if self.has_just_lapsed(now) {
            return;
        }
        let Some(waiting) = self.waiting.as_mut() else { return };
        if let (Some(sent), Some(lease)) = (waiting.sent(grant.stamp), self.leases.get_mut(node)) {
            let granted = sent.plus(self.drift.at_least(grant.waited));
            let end = granted.plus(self.drift.lease(grant.claim));
            *lease = Some(lease.map_or(end, |old| old.later_of(end)));
        }
        match self.phase {
            Phase::Held { fence } => self.send_raise(fence, NodeSet::one(node), now),
            _ => {
                waiting.unclaimed.insert(node);
                if let Some(taken_back) = waiting.taken_back.get_mut(node) {
                    *taken_back = now.plus(grant.claim);
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
        let (Phase::Held { fence }, Some(waiting)) = (self.phase, self.waiting.as_mut()) else { return };
        let unclaimed = std::mem::take(&mut waiting.unclaimed);
        if !unclaimed.is_empty() {
            self.send_raise(fence, unclaimed, now);
        }
    }

    /// Whether a node has refused this client at first, or still does.
    #[must_use]
    pub fn was_refused(&self) -> bool {
        self.waiting.as_ref().is_some_and(|waiting| waiting.was_refused)
    }

    /// The connection to a node has broken: it has forgotten that we wait.
    pub fn handle_disconnect(&mut self, node: usize, failure: crate::Failure, now: Moment) {
        let Some(waiting) = self.waiting.as_mut() else { return };
        if self.phase != Phase::Acquiring || !waiting.queued.contains(node) {
            return;
        }
        waiting.queued.remove(node);
        waiting.refresh_at = sooner(waiting.refresh_at, now.plus(AFTER_A_CUT));
        self.ballot.enter(node, Vote::Failed(failure));
        self.decide(now);
    }

    /// News of a grant may have been missed, though nobody has forgotten that we wait: the answer to the next request
    /// tells.
    pub fn handle_missed_grants(&mut self, now: Moment) {
        if let Some(waiting) = self.waiting.as_mut() {
            waiting.refresh_at = sooner(waiting.refresh_at, now.plus(AFTER_A_CUT));
        }
    }

    /// Too few nodes can be heard to wait for them: whoever is in line leaves it, to ask again at once and not in line.
    /// A majority that has granted, or still may without being waited for, is not given away.
    pub fn stop_queueing(&mut self, now: Moment) {
        if let Some(waiting) = self.waiting.as_mut() {
            waiting.is_leaving = true;
            self.attend(now);
        }
    }

    /// Whether a refusal was overtaken by the grant of the same request, or by anything said to a later one.
    pub(super) fn is_outdated(&self, node: usize, request: &Request, reply: &Reply) -> bool {
        let (Some(waiting), Ask::Wait { queue, .. }) = (&self.waiting, request.ask) else { return false };
        let is_refusal = matches!(reply, Reply::Queued { .. } | Reply::Nil);
        is_refusal && waiting.granted.get(node).is_some_and(|granted| queue.stamp <= *granted)
    }

    /// Notes what a node said to a request to wait.
    pub(super) fn heard(&mut self, node: usize, request: &Request, reply: &Reply, now: Moment) {
        let (Some(waiting), Ask::Wait { queue, .. }) = (self.waiting.as_mut(), request.ask) else { return };
        let is_late = matches!(reply, Reply::Failed(failure) if failure.may_have_happened());
        if !is_late {
            waiting.round_trip.get_or_insert(now.since(request.sent));
        }
        match reply {
            Reply::Queued { .. } => {
                waiting.was_refused = true;
                waiting.queued.insert(node);
                waiting.note_granted(node, queue.stamp.saturating_sub(1));
                if queue.stamp == waiting.queue.stamp {
                    waiting.see_to_distance(request.sent, now);
                }
            }
            Reply::Failed(_) if is_late => {}
            Reply::Nil => {
                waiting.was_refused = true;
                waiting.queued.remove(node);
                waiting.note_granted(node, queue.stamp.saturating_sub(1));
            }
            Reply::Number(_) => {
                waiting.queued.remove(node);
                waiting.note_granted(node, queue.stamp);
            }
            _ => waiting.queued.remove(node),
        }
        if let Probe::Asked { stamp, missing, holders, .. } = &mut waiting.probe
            && *stamp == queue.stamp
        {
            missing.remove(node);
            if let Reply::Queued { ticket, .. } = reply {
                holders.push(*ticket);
            }
        }
    }

    /// A node that holds the lock for us and has answered a command knows that we claim it.
    pub(super) fn note_claim(&mut self, node: usize, reply: &Reply) {
        if let (Some(waiting), Reply::Number(_)) = (self.waiting.as_mut(), reply) {
            waiting.unclaimed.remove(node);
        }
    }

    /// A lock is counted on from this moment. One that was handed to us and has hardly any time left is claimed
    /// before it is of use to anybody; so is one that is nearly over at a node which has held it for long, while we
    /// waited for others.
    pub(super) fn counting_from(&self, now: Moment) -> Moment {
        match &self.waiting {
            None => now,
            Some(waiting) if waiting.unclaimed.is_empty() => {
                let lease = self.drift.lease(self.begun.ttl);
                let least = LEAST_OF_ALL.min(lease / 8);
                // Where the way there and back takes up nearly all of it, asking again brings no more.
                let is_far = waiting.round_trip.is_some_and(|way| way + 2 * least > lease);
                if is_far { now } else { now.plus(least) }
            }
            Some(_) => now.plus(LEAST_OF_USE),
        }
    }

    /// Whether to go on although the votes are lost.
    pub(super) fn waits(&self, refusal: Refusal, now: Moment) -> bool {
        let Some(waiting) = &self.waiting else { return false };
        refusal == Refusal::Contended && !now.has_reached(waiting.until)
    }

    /// When a waiting client has something to do.
    pub(super) fn queue_timeout(&self) -> Option<Moment> {
        let waiting =
            self.waiting.as_ref().filter(|_| self.phase == Phase::Acquiring && !self.is_raising())?;
        let probe = match &waiting.probe {
            Probe::Idle => None,
            Probe::At(at, _) => Some(*at),
            Probe::Asked { by, .. } => Some(*by),
        };
        let lapses = waiting.unclaimed.iter().filter_map(|node| waiting.taken_back.get(node).copied());
        let others = [Some(waiting.until), Some(waiting.refresh_at), probe].into_iter().flatten();
        let others = others.filter(|_| !waiting.is_time_up);
        others.chain(lapses).reduce(sooner)
    }

    /// Does what is due for a client that waits.
    pub(super) fn attend(&mut self, now: Moment) {
        if self.waiting.is_none() || self.phase != Phase::Acquiring || self.is_raising() {
            return;
        }
        self.drop_lapsed(now);
        let (granted, pending) = (self.ballot.granted(), self.ballot.pending());
        let quorum = self.quorum;
        let lacking: NodeSet = self.lacking();
        let queues_at = self.ballot.votes().len();
        let Some(waiting) = self.waiting.as_mut() else { return };
        if now.has_reached(waiting.until) {
            // Whoever asks for the last time is entitled to an answer, as those are who do not wait.
            waiting.is_time_up = true;
            if let Verdict::Lost(refusal) = self.ballot.verdict() {
                self.fail(refusal);
            }
            return;
        }
        if waiting.is_leaving && !quorum.is_reached_by(granted + pending) {
            return self.fail(Refusal::Yielded);
        }
        let is_split = granted > 0 && !quorum.is_reached_by(granted);
        let ask_now = match &waiting.probe {
            _ if !is_split => {
                waiting.probe = Probe::Idle;
                false
            }
            Probe::Idle => {
                let delay = waiting.first_delay();
                waiting.probe = Probe::At(now.plus(delay), delay);
                false
            }
            Probe::At(at, _) => now.has_reached(*at),
            Probe::Asked { missing, holders, by, delay, .. } => {
                if missing.is_empty() || now.has_reached(*by) {
                    if somebody_comes_first(holders, waiting.queue.ticket, quorum.needed()) {
                        return self.fail(Refusal::Yielded);
                    }
                    let delay = delay.saturating_mul(2).min(LAST_PROBE);
                    waiting.probe = Probe::At(now.plus(delay), delay);
                }
                false
            }
        };
        if !ask_now && !now.has_reached(waiting.refresh_at) {
            return;
        }
        if lacking.is_empty() {
            waiting.refresh_at = now.plus(REFRESH);
            return;
        }
        let request = waiting.begin_round(self.begun.ttl, now);
        let is_missing_somewhere = waiting.queued.len() + granted < queues_at;
        let pause = if is_missing_somewhere { waiting.pause_where_missing() } else { REFRESH };
        waiting.refresh_at = now.plus(pause);
        if let (true, Probe::At(_, delay)) = (ask_now, &waiting.probe) {
            let delay = *delay;
            let (stamp, by) = (waiting.queue.stamp, now.plus(delay));
            waiting.probe = Probe::Asked { stamp, missing: lacking, holders: Vec::new(), by, delay };
        }
        self.ask_again(lacking);
        self.send(request, lacking);
    }

    /// Whether nodes that granted were asked for more: until they have answered there is nothing else to do.
    fn is_raising(&self) -> bool {
        self.fence_raise.is_some_and(|raise| !raise.in_flight.is_empty())
    }

    /// The nodes that do not hold the lock for us.
    fn lacking(&self) -> NodeSet {
        self.ballot.nodes(|vote| vote.fence().is_none())
    }

    /// A grant that was not claimed in time is none: the lock has gone on to somebody else.
    fn drop_lapsed(&mut self, now: Moment) {
        let Some(waiting) = self.waiting.as_mut() else { return };
        for node in waiting.unclaimed.iter() {
            if waiting.taken_back.get(node).is_none_or(|until| now.has_reached(*until)) {
                waiting.unclaimed.remove(node);
                waiting.refresh_at = sooner(waiting.refresh_at, now);
                self.ballot.enter(node, Vote::Refused);
            }
        }
    }
}

/// Whether the nodes are split, and somebody who came before us has too few of them: then ours are for it.
/// Whoever has a majority needs none of ours.
fn somebody_comes_first(holders: &[u64], own: u64, needed: usize) -> bool {
    let has = |ticket: u64| holders.iter().filter(|holder| **holder == ticket).count();
    holders.iter().any(|ticket| *ticket > 0 && *ticket < own && has(*ticket) < needed)
}

fn sooner(one: Moment, other: Moment) -> Moment {
    if other.nanoseconds() < one.nanoseconds() { other } else { one }
}

#[cfg(test)]
mod tests;
