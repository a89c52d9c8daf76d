//! One lock, from the first request to the last answer.
//!
//! A session is what a client knows of one attempt to hold one lock (or several keys as one): it counts
//! votes, chooses the fence, keeps the lease of every node, and decides when the lock is held, extended,
//! lost and free. Whoever drives it sends what it asks for and brings back the answers, however late.

mod raise;
mod release;
mod request;
#[cfg(test)]
mod tests;
mod waiting;
mod words;

pub use release::{Freed, Freeing};
pub use request::{Ask, Request};
pub use waiting::{Grant, Line};

use crate::ballot::{Ballot, Refusal, Verdict};
use crate::reach::{has_advanced, is_within_reach};
use crate::{Drift, Failure, FailureKind, Moment, NodeSet, Quorum, Reply, Vote};
use std::time::Duration;

/// One lock, or an attempt at it.
#[derive(Clone, Debug)]
pub struct Session {
    quorum: Quorum,
    drift: Drift,
    begun: Request,
    /// The longest time to live that was asked for: a node may hold the lock for as long.
    longest_ttl: Duration,
    phase: Phase,
    ballot: Ballot,
    /// Until when each node that holds the lock can be counted on.
    leases: Vec<Option<Moment>>,
    /// The nodes that hold the lock, or may.
    may_hold: NodeSet,
    /// Those of them that are not crossed off any more: asked more than once, so that an answer to one request does
    /// not tell what became of the others, or known to have handed us the lock.
    stay: NodeSet,
    /// The nodes that a request was sent to of which nobody knows what became: it may still arrive.
    at_large: NodeSet,
    /// The nodes whose last grant was over before we heard of it.
    too_late: NodeSet,
    promotion: Option<Promotion>,
    /// Since when a majority that has granted is being raised to one fence.
    raising_since: Option<Moment>,
    patience: Patience,
    extension: Option<Extension>,
    raising: Option<raise::Raising>,
    waiting: Option<waiting::Waiting>,
    freeing: Option<Freeing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Acquiring,
    Held {
        fence: u64,
    },
    /// Failed, lost or released: nothing that comes in now revives it.
    Over,
}

/// How long to wait for an answer that may spare a second round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Nothing has called for it.
    Unused,
    Until(Moment),
    /// It is over, and does not begin anew: whoever waits on waits for an answer.
    Spent,
}

/// A second round: raising the nodes that answered less.
#[derive(Clone, Copy, Debug)]
struct Promotion {
    fence: u64,
    in_flight: NodeSet,
}

#[derive(Clone, Debug)]
struct Extension {
    request: Request,
    ballot: Ballot,
}

/// What an answer has led to.
#[derive(Clone, Debug)]
pub enum Event {
    /// Send this to these nodes.
    Promote(Request, NodeSet),
    /// The lock is held.
    Held {
        /// The number that a majority has answered.
        fence: u64,
    },
    /// The attempt has failed; release what it may have got.
    Failed(Refusal),
    /// The lock is held for longer, and under the larger number if one was asked for.
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

impl Session {
    /// An attempt, and the request that goes to every node.
    #[must_use]
    pub fn begin(
        quorum: Quorum,
        drift: Drift,
        ttl: Duration,
        hint: Option<u64>,
        now: Moment,
    ) -> (Self, Request) {
        let begun = Request { ask: Ask::Acquire { hint }, ttl, sent: now };
        let session = Self {
            quorum,
            drift,
            begun,
            longest_ttl: ttl,
            phase: Phase::Acquiring,
            ballot: Ballot::new(quorum),
            leases: vec![None; quorum.nodes()],
            may_hold: NodeSet::first(quorum.nodes()),
            stay: NodeSet::EMPTY,
            at_large: NodeSet::EMPTY,
            too_late: NodeSet::EMPTY,
            promotion: None,
            raising_since: None,
            patience: Patience::Unused,
            extension: None,
            raising: None,
            waiting: None,
            freeing: None,
        };
        (session, begun)
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
            Phase::Held { fence } => Some(fence),
            _ => None,
        }
    }

    /// Until when a majority of the nodes can be counted on; `None` if no majority can.
    #[must_use]
    pub fn valid_until(&self) -> Option<Moment> {
        Moment::held_by(self.leases.iter().flatten().copied(), self.quorum.needed())
    }

    /// Whether no majority of the nodes can be counted on any more.
    fn has_lapsed(&self, now: Moment) -> bool {
        self.valid_until().is_none_or(|until| now.has_reached(until))
    }

    /// When to call [`Session::woken`], if no answer comes first.
    #[must_use]
    pub fn wake_at(&self) -> Option<Moment> {
        let patience = match self.patience {
            Patience::Until(moment) if self.phase == Phase::Acquiring => Some(moment),
            _ => None,
        };
        [patience, self.waiting_wake_at()].into_iter().flatten().min_by_key(|at| at.nanoseconds())
    }

    /// Does what is due: goes on without the answers that were worth a short wait, or looks after the waiting.
    pub fn woken(&mut self, now: Moment) -> Option<Event> {
        self.decide(now)
    }

    /// Takes in what a node replied to a request, or that it did not. A late answer may follow the news
    /// that there was none.
    pub fn answered(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) -> Option<Event> {
        // No node counts from nothing: whoever says so is no node.
        let reply = match reply {
            Reply::Number(0) if !request.is_release() => {
                Reply::Failed(Failure::new(FailureKind::Cut, "a fence of 0"))
            }
            reply => reply,
        };
        match request.ask {
            Ask::Acquire { .. } | Ask::Wait { .. } => self.voted(node, request, reply, now),
            Ask::Promote { fence } => self.promoted(node, fence, request, reply, now),
            Ask::Extend => self.extended(node, request, reply, now),
            Ask::Release { .. } => {
                let freeing = self.freeing.as_mut()?;
                let was_settled = freeing.is_settled();
                freeing.enter(node, reply);
                (!was_settled && freeing.is_settled()).then_some(Event::Released)
            }
        }
    }

    fn voted(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) -> Option<Event> {
        if self.is_outdated(node, request, &reply) {
            return None;
        }
        match &reply {
            Reply::Number(_) | Reply::Queued { .. } => self.may_hold.insert(node),
            Reply::Failed(failure) if failure.may_have_happened() => self.at_large.insert(node),
            _ if self.stay.contains(node) => {}
            _ => self.may_hold.remove(node),
        }
        self.heard(node, request, &reply, now);
        self.note_claim(node, &reply);
        if let Some(lost) = self.lapse(now) {
            return Some(lost);
        }
        self.note_lateness(node, request, &reply, now);
        self.enter(node, request, reply);
        self.lapse(now).or_else(|| self.decide(now))
    }

    /// Takes note that nodes are asked once more for the lock.
    fn ask_again(&mut self, nodes: NodeSet) {
        for node in nodes.iter() {
            if self.may_hold.contains(node) {
                self.stay.insert(node);
            }
            self.may_hold.insert(node);
        }
    }

    /// Takes note whether a grant was of any use when we heard of it. Whoever does not wait asks once, and needs no
    /// more than the moment at which that was.
    fn note_lateness(&mut self, node: usize, request: &Request, reply: &Reply, now: Moment) {
        match reply {
            _ if self.waiting.is_none() => {}
            Reply::Number(_) if now.has_reached(request.lease_end(self.drift)) => self.too_late.insert(node),
            Reply::Number(_) => self.too_late.remove(node),
            _ => {}
        }
    }

    /// Whether the way to the nodes takes up all of the time to live, so that asking again is no use either.
    fn comes_too_late(&self, now: Moment) -> bool {
        if self.waiting.is_none() {
            return now.has_reached(self.begun.lease_end(self.drift));
        }
        let of_use =
            |node: &usize| self.ballot.vote(*node).fence().is_some() && !self.too_late.contains(*node);
        !self.quorum.is_reached_by((0..self.quorum.nodes()).filter(of_use).count())
    }

    fn promoted(
        &mut self,
        node: usize,
        fence: u64,
        request: &Request,
        mut reply: Reply,
        now: Moment,
    ) -> Option<Event> {
        if let Some(promotion) = self.promotion.as_mut().filter(|promotion| promotion.fence == fence) {
            promotion.in_flight.remove(node);
        }
        if let Some(lost) = self.lapse(now) {
            return Some(lost);
        }
        // A fence may take several commands to reach. A node that advances by less than a step is broken: the client
        // does not ask it again.
        if let Reply::Number(after) = reply
            && self.ballot.vote(node).fence().is_some_and(|before| !has_advanced(before, after, fence))
        {
            reply = Reply::Failed(Failure::new(FailureKind::Rejected, "did not raise the fence"));
        }
        self.note_claim(node, &reply);
        self.note_lateness(node, request, &reply, now);
        self.enter(node, request, reply);
        // An answer can take a lease away as well.
        let next = self.lapse(now).or_else(|| self.decide(now));
        next.or_else(|| self.attend_raising(node, fence, now))
    }

    /// Ends a hold whose time is up: what had lapsed before an answer came stays over, whatever it says.
    fn lapse(&mut self, now: Moment) -> Option<Event> {
        if !matches!(self.phase, Phase::Held { .. }) || !self.has_lapsed(now) {
            return None;
        }
        self.phase = Phase::Over;
        let said = self.extension.take().map_or_else(|| self.ballot.clone(), |extension| extension.ballot);
        Some(Event::Lost(said))
    }

    /// Notes how a node stands, unless all is over: then no answer changes anything.
    fn enter(&mut self, node: usize, request: &Request, reply: Reply) {
        if self.phase == Phase::Over {
            return;
        }
        self.renew(node, request, &reply);
        self.ballot.enter(node, Vote::from(reply));
    }

    /// A node that did as asked holds the lock from then on; one that says it does not, does not.
    fn renew(&mut self, node: usize, request: &Request, reply: &Reply) {
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

    fn decide(&mut self, now: Moment) -> Option<Event> {
        if self.phase != Phase::Acquiring {
            return None;
        }
        let verdict = self.ballot.verdict();
        // The majority that granted is gone. Another one has its own time to settle and to be raised.
        if let Verdict::Open | Verdict::Lost(_) = verdict {
            self.raising_since = None;
            if let Patience::Until(_) = self.patience {
                self.patience = Patience::Unused;
            }
        }
        match verdict {
            Verdict::Open => self.attend(now),
            Verdict::Agreed { fence } => {
                if !self.is_held_under(fence, self.counting_from(now)) {
                    return self.promote(fence, false, now).or_else(|| self.attend(now));
                }
                self.phase = Phase::Held { fence };
                Some(Event::Held { fence })
            }
            Verdict::Split { goal, may_settle } => {
                self.promote(goal, may_settle, now).or_else(|| self.attend(now))
            }
            Verdict::Lost(refusal) if self.waits(refusal, now) => self.attend(now),
            Verdict::Lost(refusal) => self.fail(refusal),
        }
    }

    fn fail(&mut self, refusal: Refusal) -> Option<Event> {
        self.phase = Phase::Over;
        Some(Event::Failed(refusal))
    }

    /// Raises the nodes that answered less than the goal, after waiting at most as long again as the majority
    /// took for an answer that would make it needless.
    fn promote(&mut self, goal: u64, may_settle: bool, now: Moment) -> Option<Event> {
        // Every raise renews the lease of its node. The first lease still bounds how often the client asks.
        let lasts_too_long = |since: Moment| now.has_reached(since.plus(self.drift.lease(self.begun.ttl)));
        if self.comes_too_late(now) || self.raising_since.is_some_and(lasts_too_long) {
            return self.fail(Refusal::Expired);
        }
        if self.patience == Patience::Unused {
            self.patience = Patience::Until(now.plus(now.since(self.begun.sent)));
        }
        // What was handed to us runs out unless it is claimed: a second round does, or leads to a hold that does.
        let may_settle = may_settle && !self.has_unclaimed();
        match self.patience {
            Patience::Until(moment) if may_settle && !now.has_reached(moment) => return None,
            _ => self.patience = Patience::Spent,
        }
        // A goal that can still be reached is kept, whatever else is answered meanwhile.
        let kept = self.promotion.filter(|old| self.quorum.is_reached_by(self.ballot.within(old.fence)));
        let goal = kept.map_or(goal, |promotion| promotion.fence);
        if kept.is_none() && !self.quorum.is_reached_by(self.ballot.within(goal)) {
            // Another answer may bring a goal that is nearer.
            return if self.ballot.pending() > 0 { None } else { self.fail(self.ballot.fences_apart()) };
        }
        let mut promotion = kept.unwrap_or(Promotion { fence: goal, in_flight: NodeSet::EMPTY });
        // Those that are behind, and those that gave us the lock while we waited, too long ago to count on.
        let is_wanted = |node: &usize| match self.ballot.vote(*node).fence() {
            Some(fence) if fence == goal => self.lease_has_lapsed(*node, self.counting_from(now)),
            Some(fence) => is_within_reach(fence, goal),
            None => false,
        };
        let nodes = 0..self.quorum.nodes();
        let to: NodeSet =
            nodes.filter(is_wanted).filter(|node| !promotion.in_flight.contains(*node)).collect();
        if to.is_empty() {
            self.promotion = Some(promotion);
            return None;
        }
        to.iter().for_each(|node| promotion.in_flight.insert(node));
        self.promotion = Some(promotion);
        self.raising_since.get_or_insert(now);
        Some(self.raise(goal, to, now))
    }

    /// Whether a majority of the nodes have answered this number and hold the lock for us, the same nodes. One that
    /// answered it and has lost the lock since may have granted others more; that yet others hold it, under other
    /// numbers, does not make up for it.
    fn is_held_under(&self, fence: u64, now: Moment) -> bool {
        let holds = |node: &usize| {
            self.ballot.vote(*node).fence() == Some(fence) && !self.lease_has_lapsed(*node, now)
        };
        !self.has_lapsed(now) && self.quorum.is_reached_by((0..self.quorum.nodes()).filter(holds).count())
    }

    fn lease_has_lapsed(&self, node: usize, now: Moment) -> bool {
        self.leases.get(node).copied().flatten().is_none_or(|until| now.has_reached(until))
    }

    fn raise(&self, fence: u64, to: NodeSet, now: Moment) -> Event {
        Event::Promote(Request { ask: Ask::Promote { fence }, ttl: self.begun.ttl, sent: now }, to)
    }

    /// Starts an extension, and says what goes to which nodes. One that is still under way goes on giving
    /// leases, but no more news.
    ///
    /// # Errors
    /// When the lock is over: an extension never revives it.
    pub fn extend(&mut self, ttl: Duration, now: Moment) -> Result<(Request, NodeSet), Over> {
        let held = matches!(self.phase, Phase::Held { .. });
        if !held || self.has_lapsed(now) {
            self.phase = Phase::Over;
            return Err(Over);
        }
        let request = Request { ask: Ask::Extend, ttl, sent: now };
        self.raising = None;
        self.longest_ttl = self.longest_ttl.max(ttl);
        let mut ballot = Ballot::new(self.quorum);
        // Nodes that are not asked keep saying what they said.
        for (node, vote) in self.ballot.votes().iter().enumerate() {
            if !self.may_hold.contains(node) {
                ballot.enter(node, vote.clone());
            }
        }
        self.extension = Some(Extension { request, ballot });
        Ok((request, self.may_hold))
    }

    fn extended(&mut self, node: usize, request: &Request, reply: Reply, now: Moment) -> Option<Event> {
        let Phase::Held { .. } = self.phase else { return None };
        let of_this_round = self.extension.as_mut().filter(|extension| extension.request == *request);
        if let Some(extension) = of_this_round {
            extension.ballot.enter(node, Vote::from(reply.clone()));
        }
        // What had lapsed before the answer came stays over, whatever it says.
        let had_lapsed = self.has_lapsed(now);
        if reply == Reply::Nil {
            self.ballot.enter(node, Vote::Refused);
        }
        self.renew(node, request, &reply);
        if had_lapsed || self.has_lapsed(now) {
            self.phase = Phase::Over;
            let said =
                self.extension.take().map_or_else(|| self.ballot.clone(), |extension| extension.ballot);
            return Some(Event::Lost(said));
        }
        let extension = self.extension.take_if(|extension| extension.request == *request)?;
        let (granted, pending) = (extension.ballot.granted(), extension.ballot.pending());
        if self.quorum.is_reached_by(granted) {
            Some(Event::Extended)
        } else if self.quorum.is_reached_by(granted + pending) {
            self.extension = Some(extension);
            None
        } else {
            Some(Event::NotExtended(extension.ballot))
        }
    }

    /// Ends the session, and says what goes to which nodes: all that hold the lock, or may.
    ///
    /// Asked twice, the second time answers nobody: the first is under way.
    pub fn release(&mut self, now: Moment) -> (Request, NodeSet) {
        self.phase = Phase::Over;
        self.extension = None;
        let floor = self.ballot.highest().filter(|_| self.ballot.disagrees());
        let request = Request { ask: Ask::Release { floor }, ttl: self.longest_ttl, sent: now };
        let to = if self.freeing.is_some() { NodeSet::EMPTY } else { self.may_hold };
        self.freeing.get_or_insert_with(|| Freeing::of(self.quorum, to));
        (request, to)
    }

    /// Whether a request to this node may still be on its way, over a connection that is gone, though a later one was
    /// answered. If so, and a release has freed what was granted to the later one, it must be sent once more: a node
    /// bars late requests of an owner whose release has freed nothing.
    #[must_use]
    pub fn may_be_granted_late(&self, node: usize) -> bool {
        self.at_large.contains(node)
    }

    /// What became of the release so far, once there was one.
    #[must_use]
    pub fn freeing(&self) -> Option<&Freeing> {
        self.freeing.as_ref()
    }
}
