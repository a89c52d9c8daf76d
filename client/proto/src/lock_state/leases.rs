//! Until when the nodes hold the lock for the client, and what happens when that time is over.

use super::{Event, LockPhase, LockState, Request};
use crate::{LockReply, Moment};

/// The end of each node's lease, on the client's clocks; `None` for a node that does not hold the lock.
#[derive(Clone, Debug)]
pub(super) struct Leases(Vec<Option<Moment>>);

impl Leases {
    pub(super) fn new(nodes: usize) -> Self {
        Self(vec![None; nodes])
    }

    /// Renews a node's lease. A lease that ends later stays: a node never shortens a lease.
    pub(super) fn renew(&mut self, node: usize, end: Moment) {
        if let Some(lease) = self.0.get_mut(node) {
            *lease = Some(lease.map_or(end, |old| old.later_of(end)));
        }
    }

    fn remove(&mut self, node: usize) {
        if let Some(lease) = self.0.get_mut(node) {
            *lease = None;
        }
    }

    /// The moment until which at least `count` nodes hold the lock; `None` if fewer hold it.
    fn held_by(&self, count: usize) -> Option<Moment> {
        Moment::held_by(self.0.iter().flatten().copied(), count)
    }

    /// Whether a node's lease is over, or the node has no lease.
    pub(super) fn has_expired(&self, node: usize, now: Moment) -> bool {
        self.0.get(node).copied().flatten().is_none_or(|end| now.has_reached(end))
    }
}

impl LockState {
    /// The moment until which a majority of the nodes hold the lock; `None` if no majority holds it.
    #[must_use]
    pub fn valid_until(&self) -> Option<Moment> {
        self.leases.held_by(self.quorum.needed())
    }

    /// Whether no majority of the nodes holds the lock any more.
    pub(super) fn has_expired(&self, now: Moment) -> bool {
        self.valid_until().is_none_or(|until| now.has_reached(until))
    }

    /// Renews the lease of a node that did what the request asked, and removes the lease of a node that
    /// replied that it does not hold the lock.
    pub(super) fn renew_lease(&mut self, node: usize, request: &Request, reply: &LockReply) {
        match reply {
            LockReply::Number(_) => self.leases.renew(node, request.lease_end(self.drift)),
            LockReply::Nil | LockReply::Queued { .. } => self.leases.remove(node),
            LockReply::Quarantined { .. } | LockReply::Failed(_) => {}
        }
    }

    /// Ends a hold that has expired, and returns whether it did. A lock that expired before a reply arrived
    /// stays lost, whatever the reply says.
    pub(super) fn lose_if_expired(&mut self, now: Moment) -> bool {
        if !matches!(self.phase, LockPhase::Held { .. }) || !self.has_expired(now) {
            return false;
        }
        self.lose();
        true
    }

    /// Ends a hold, with the replies to the extension if one was in flight.
    pub(super) fn lose(&mut self) {
        self.phase = LockPhase::Ended;
        let ballot = self.extension.take().map_or_else(|| self.ballot.clone(), |extension| extension.ballot);
        self.emit(Event::Lost(ballot));
    }
}
