//! The nodes' wait queues: whether a call can queue, and the grants that the nodes push.

use super::lock_entry::LockEntry;
use super::replies::grant_of;
use super::{Driver, EntryId};
use crate::observe;
use crate::queue_support::QueueSupport;
use redlock_contract::grant::Unverified;
use redlock_proto::{Failure, Moment, QueueRequest};
use std::time::Duration;

/// Each lock has 2^20 stamps of its own.
const STAMP_BITS: u32 = 20;

impl Driver {
    /// Whether a call that waits for a held lock can queue on the nodes. Reports once why it cannot.
    pub(super) fn queue_support(&mut self) -> QueueSupport {
        let (support, node) = self.pool.queue_support(self.settings.quorum);
        if let QueueSupport::No(reason) = support
            && !std::mem::replace(&mut self.has_reported_polling, true)
        {
            observe::polls_because_of(node, reason);
        }
        support
    }

    /// What the newest lock sends to queue on the nodes. Two locks never have the same stamp.
    pub(super) fn queue_request(&self, ticket: u64) -> QueueRequest {
        QueueRequest {
            ticket,
            stamp: self.serial << STAMP_BITS,
            wait: Duration::ZERO,
            channel: self.channel,
            claim: None,
        }
    }

    /// Handles a message on the channel of grants. Every user who may publish can write there: only a message
    /// counts that this node has signed with the owner of the lock.
    pub(super) fn handle_push(&mut self, node: usize, message: &[u8], now: Moment) {
        let Some(message) = Unverified::parse(message) else { return };
        let Some(lock) = self.by_ticket.get(&message.ticket()).copied() else { return };
        let Some(node_id) = self.pool.node_id(node) else { return };
        let Some(entry) = self.entry(lock) else { return };
        let verified = message.verify(&node_id, entry.shared.owner.as_bytes());
        let Some(grant) = verified.as_ref().and_then(grant_of) else { return };
        entry.state.handle_grant(node, grant, now);
        self.advance(lock, now);
    }

    /// Tells the locks that may wait that a node has removed them from its wait queues.
    pub(super) fn handle_disconnect(&mut self, node: usize, failure: &Failure, now: Moment) {
        self.for_each_waiting(now, |entry| entry.state.handle_disconnect(node, failure.clone(), now));
    }

    /// Leaves all wait queues because one node does not queue this client. The callers poll instead.
    pub(super) fn leave_queues(&mut self, now: Moment) {
        if matches!(self.queue_support(), QueueSupport::No(_)) {
            self.for_each_waiting(now, |entry| entry.state.stop_queueing(now));
        }
    }

    fn for_each_waiting(&mut self, now: Moment, input: impl Fn(&mut LockEntry)) {
        let waiting: Vec<EntryId> = self.by_ticket.values().copied().collect();
        for lock in waiting {
            if let Some(entry) = self.entry(lock) {
                input(entry);
                self.advance(lock, now);
            }
        }
    }
}
