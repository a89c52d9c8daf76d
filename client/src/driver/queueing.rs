//! Those who wait in line: whether one can, and what the nodes say to those who do.

use super::lock_entry::grant_of;
use super::{Driver, EntryId};
use crate::observe;
use crate::queue_support::QueueSupport;
use redlock_core::proof::Unverified;
use redlock_proto::{Failure, Moment, QueueRequest};
use std::time::Duration;

/// Every session has so many stamps of its own, as a power of two.
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

    /// Begins the calls for which it was not known how to wait, once it is; true if there were any.
    pub(super) fn start_undecided(&mut self, now: Moment) -> bool {
        if self.undecided.is_empty() || self.queue_support() == QueueSupport::Unknown {
            return false;
        }
        for message in std::mem::take(&mut self.undecided) {
            self.handle_message(message, now);
        }
        true
    }

    /// A place in line. Stamps of two sessions are never the same.
    pub(super) fn queue_request(&self, ticket: u64) -> QueueRequest {
        QueueRequest {
            ticket,
            stamp: self.serial << STAMP_BITS,
            wait: Duration::ZERO,
            channel: self.channel,
            claim: None,
        }
    }

    /// Takes in a message on the waiters' channel. Only a message that is signed with the owner of the session counts:
    /// every user with the right to publish can write there.
    pub(super) fn handle_push(&mut self, node: usize, message: &[u8], now: Moment) {
        let Some(message) = Unverified::parse(message) else { return };
        let Some(lock) = self.by_ticket.get(&message.ticket()).copied() else { return };
        let Some(entry) = self.entry(lock) else { return };
        let verified = message.verify(entry.hold.owner.as_bytes());
        let Some(grant) = verified.as_ref().and_then(grant_of) else { return };
        entry.state.handle_grant(node, grant, now);
        self.advance(lock, now);
    }

    /// A node has forgotten who waits.
    pub(super) fn handle_disconnect(&mut self, node: usize, failure: &Failure, now: Moment) {
        let waiting: Vec<EntryId> = self.by_ticket.values().copied().collect();
        for lock in waiting {
            if let Some(entry) = self.entry(lock) {
                entry.state.handle_disconnect(node, failure.clone(), now);
                self.advance(lock, now);
            }
        }
    }

    /// A node does not queue this client. Calls that are queued on other nodes leave: their callers poll, as later
    /// calls do.
    pub(super) fn leave_queues(&mut self, now: Moment) {
        if !matches!(self.queue_support(), QueueSupport::No(_)) {
            return;
        }
        let waiting: Vec<EntryId> = self.by_ticket.values().copied().collect();
        for lock in waiting {
            if let Some(entry) = self.entry(lock) {
                entry.state.stop_queueing(now);
                self.advance(lock, now);
            }
        }
    }
}
