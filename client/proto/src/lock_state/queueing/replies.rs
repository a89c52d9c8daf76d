//! What the nodes have replied to the requests to queue.

use crate::{LockReply, Moment, NodeSet};
use std::time::Duration;

/// What the client knows of each node from its replies and its grants.
#[derive(Clone, Debug)]
pub(super) struct QueueReplies {
    /// The nodes that have the client in their wait queue, as far as the client knows.
    queued: NodeSet,
    /// For each node the largest stamp of which the client knows the outcome; 0 if it knows of no outcome. A
    /// grant decides its own stamp. A refusal decides the stamp before its own: what the node had granted by
    /// then, it has taken back, but it may still grant the refused request.
    decided: Vec<u64>,
    /// The nodes whose last grant had expired when the client got it.
    expired_on_arrival: NodeSet,
    /// Whether a node has refused because another client held the lock.
    was_contended: bool,
    /// How long the first reply took.
    round_trip: Option<Duration>,
}

impl QueueReplies {
    pub(super) fn new(nodes: usize) -> Self {
        Self {
            queued: NodeSet::EMPTY,
            decided: vec![0; nodes],
            expired_on_arrival: NodeSet::EMPTY,
            was_contended: false,
            round_trip: None,
        }
    }

    /// Notes the reply of a node to the request with this stamp, and how long the reply took.
    pub(super) fn note(&mut self, node: usize, stamp: u64, reply: &LockReply, took: Duration) {
        if matches!(reply, LockReply::Failed(failure) if failure.may_have_happened()) {
            return;
        }
        self.round_trip.get_or_insert(took);
        match reply {
            LockReply::Number(_) => self.note_granted(node, stamp),
            LockReply::Queued { .. } => {
                self.note_refused(node, stamp);
                self.queued.insert(node);
            }
            LockReply::Nil => {
                self.note_refused(node, stamp);
                self.queued.remove(node);
            }
            LockReply::Quarantined { .. } | LockReply::Failed(_) => self.queued.remove(node),
        }
    }

    /// Notes that a node has granted the request with this stamp, by a reply or by a push.
    pub(super) fn note_granted(&mut self, node: usize, stamp: u64) {
        self.queued.remove(node);
        self.decide(node, stamp);
    }

    fn note_refused(&mut self, node: usize, stamp: u64) {
        self.was_contended = true;
        self.decide(node, stamp.saturating_sub(1));
    }

    fn decide(&mut self, node: usize, stamp: u64) {
        if let Some(decided) = self.decided.get_mut(node) {
            *decided = stamp.max(*decided);
        }
    }

    /// Whether the client knows if a node granted the request with this stamp, or a newer request.
    pub(super) fn has_decided(&self, node: usize, stamp: u64) -> bool {
        self.decided.get(node).is_some_and(|decided| stamp <= *decided)
    }

    /// Records whether a grant had expired when its reply arrived.
    pub(super) fn note_arrival(&mut self, node: usize, reply: &LockReply, lease_end: Moment, now: Moment) {
        match reply {
            LockReply::Number(_) if now.has_reached(lease_end) => self.expired_on_arrival.insert(node),
            LockReply::Number(_) => self.expired_on_arrival.remove(node),
            _ => {}
        }
    }

    /// Notes that a node pushed a grant: the client cannot tell yet whether it expires too early.
    pub(super) fn note_push(&mut self, node: usize) {
        self.expired_on_arrival.remove(node);
    }

    /// Whether the last grant of a node had expired when the client got it.
    pub(super) fn has_expired_on_arrival(&self, node: usize) -> bool {
        self.expired_on_arrival.contains(node)
    }

    /// Notes that the connection to a node broke: the node has removed the client from its queue. Returns
    /// whether the client was queued there.
    pub(super) fn note_disconnect(&mut self, node: usize) -> bool {
        let was_queued = self.queued.contains(node);
        self.queued.remove(node);
        was_queued
    }

    /// How many nodes have the client in their wait queue.
    pub(super) fn queued(&self) -> usize {
        self.queued.len()
    }

    pub(super) fn was_contended(&self) -> bool {
        self.was_contended
    }

    pub(super) fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }
}
