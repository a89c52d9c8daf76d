//! One lock, from the first request to the last reply, without I/O.
//!
//! A [`LockState`] is what one client knows of one attempt to hold one lock (or several keys as one lock). It
//! counts votes, chooses the fence, keeps the lease of every node, and decides when the lock is held,
//! extended, lost and released. It sends nothing itself: the caller (a driver, a simulator, a test) reports
//! what happened, and then polls for what to do.
//!
//! # The order of calls
//!
//! After [`LockState::new`], and after every input and every command, the caller
//!
//! 1. drains [`poll_transmit`](LockState::poll_transmit) and sends each transmit,
//! 2. drains [`poll_event`](LockState::poll_event) and acts on each event, which may mean another command,
//! 3. sets its timer to [`poll_timeout`](LockState::poll_timeout).
//!
//! One call leaves at most one transmit or one event behind, so there is one slot for each. The caller
//! reports a reply with the request that it answers, however late it comes. It reports a request that got no
//! reply in time as [`LockReply::Failed`]; the reply may still follow.
//!
//! | inputs | the caller reports |
//! |---|---|
//! | [`handle_reply`](LockState::handle_reply) | what a node replied to a request, or that it did not reply |
//! | [`handle_grant`](LockState::handle_grant) | a push: a node handed the lock to this client, which had queued |
//! | [`handle_disconnect`](LockState::handle_disconnect) | a connection broke: the node dropped this client from its queue |
//! | [`handle_timeout`](LockState::handle_timeout) | the moment of `poll_timeout` has come |
//!
//! | commands | the caller wants |
//! |---|---|
//! | [`new`](LockState::new), [`with_queue`](LockState::with_queue) | the lock; and to queue if another client holds it |
//! | [`claim`](LockState::claim) | to keep a lock that nodes handed over, after [`Event::Held`] |
//! | [`extend`](LockState::extend) | more time |
//! | [`stop_queueing`](LockState::stop_queueing) | to queue no longer, because no push would arrive |
//! | [`release`](LockState::release) | to release the lock, or to give the attempt up |
//!
//! | outputs | the caller |
//! |---|---|
//! | [`poll_transmit`](LockState::poll_transmit) | sends a request to some nodes |
//! | [`poll_event`](LockState::poll_event) | learns that the lock is held, failed, extended, not extended, lost or released |
//! | [`poll_timeout`](LockState::poll_timeout) | calls `handle_timeout` at that moment, unless something else comes first |
//!
//! | file | subject |
//! |---|---|
//! | `acquire` | counting votes, deciding whether the lock is held |
//! | `raise` | the second round, which raises a majority to one fence |
//! | `queueing` | waiting for a lock that another client holds |
//! | `leases` | until when each node holds the lock, and losing it |
//! | `maybe_held` | which nodes may hold the lock |
//! | `extend`, `release` | the two commands on a lock that is held |
//! | `request`, `words` | a request, and its words on the wire |

mod acquire;
mod extend;
mod leases;
mod maybe_held;
mod queueing;
mod raise;
mod release;
mod request;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod words;

pub use extend::LockEnded;
pub use queueing::{Grant, QueueRequest};
pub use release::{ReleaseOutcome, ReleaseProgress};
pub use request::{AcquireOptions, Ask, LockMode, Request};

use crate::ballot::{Ballot, Refusal};
use crate::{Drift, Failure, FailureKind, LockReply, Moment, NodeSet, Quorum};
use extend::Extension;
use leases::Leases;
use maybe_held::MaybeHeld;
use queueing::Queueing;
use raise::FenceRaise;
use std::time::Duration;

/// One lock, or an attempt to get it.
#[derive(Clone, Debug)]
pub struct LockState {
    quorum: Quorum,
    drift: Drift,
    /// The first request, to every node. Raises and later rounds ask for the same time to live.
    first_request: Request,
    /// The longest time to live of any request: a node may hold the lock for as long.
    longest_ttl: Duration,
    phase: LockPhase,
    ballot: Ballot,
    leases: Leases,
    maybe_held: MaybeHeld,
    fence_raise: FenceRaise,
    /// The newest extension, while it is in flight.
    extension: Option<Extension>,
    /// `None` for a client that does not queue.
    queueing: Option<Queueing>,
    /// `None` before the release.
    release_progress: Option<ReleaseProgress>,
    /// The request that the caller has not sent yet.
    transmit: Option<Transmit>,
    /// The event that the caller has not taken yet.
    event: Option<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockPhase {
    Acquiring,
    Held {
        fence: u64,
    },
    /// Failed, lost or released: no input revives the lock.
    Ended,
}

/// A request to some nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The request. The caller reports it with each reply.
    pub request: Request,
    /// The nodes that get it; never empty.
    pub to: NodeSet,
}

/// A change that the caller must handle.
#[derive(Clone, Debug)]
pub enum Event {
    /// The client holds the lock.
    Held {
        /// The fence that a majority has answered.
        fence: u64,
    },
    /// The attempt has failed. The caller releases every lock that the nodes may have granted.
    Failed(Refusal),
    /// An extension succeeded: the validity ends later.
    Extended,
    /// An extension failed: the validity ends when it did before. Contains the replies of the nodes.
    NotExtended(Ballot),
    /// The lock is no longer held. Contains the replies to the extension in flight, or, without one, all
    /// votes.
    Lost(Ballot),
    /// The caller need not wait for the release any longer.
    Released,
}

impl LockState {
    /// Begins an attempt: the first transmit asks every node for the lock.
    #[must_use]
    pub fn new(quorum: Quorum, drift: Drift, ttl: Duration, options: AcquireOptions, now: Moment) -> Self {
        let first_request = Request { ask: Ask::Acquire { options }, ttl, sent: now };
        let nodes = quorum.nodes();
        Self {
            quorum,
            drift,
            first_request,
            longest_ttl: ttl,
            phase: LockPhase::Acquiring,
            ballot: Ballot::new(quorum),
            leases: Leases::new(nodes),
            maybe_held: MaybeHeld::all(nodes),
            fence_raise: FenceRaise::new(),
            extension: None,
            queueing: None,
            release_progress: None,
            transmit: Some(Transmit { request: first_request, to: NodeSet::first(nodes) }),
            event: None,
        }
    }

    /// The vote of every node.
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
        let settles_at = self.fence_raise.settles_at().filter(|_| self.phase == LockPhase::Acquiring);
        [settles_at, self.queue_timeout()].into_iter().flatten().reduce(Moment::earlier_of)
    }

    /// Handles that the moment of [`poll_timeout`](Self::poll_timeout) has come: the client raises fences
    /// without the pending replies, repeats its request to the nodes that have not granted the lock, or gives
    /// up.
    pub fn handle_timeout(&mut self, now: Moment) {
        self.decide(now);
    }

    /// Handles what a node replied to a request, or that it did not reply. A late reply may follow the report
    /// that there was none.
    pub fn handle_reply(&mut self, node: usize, request: &Request, reply: LockReply, now: Moment) {
        // Fences begin at 1: a server that replies 0 is not a node.
        let reply = match reply {
            LockReply::Number(0) if !request.is_release() => {
                LockReply::Failed(Failure::new(FailureKind::Cut, "a fence of 0"))
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

    /// Leaves a request for the caller to send, unless there is no node to send it to.
    fn send(&mut self, request: Request, to: NodeSet) {
        if !to.is_empty() {
            self.transmit = Some(Transmit { request, to });
        }
    }

    /// Leaves an event for the caller to take.
    fn emit(&mut self, event: Event) {
        self.event = Some(event);
    }
}
