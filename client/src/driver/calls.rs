//! What the driver does for each message of a caller.

use super::lock_entry::LockEntry;
use super::{AcquireCall, Driver, EntryId, Extended, Message, NotAcquired};
use crate::queue_support::QueueSupport;
use redlock_proto::{Ballot, Moment, Refusal};
use std::time::Duration;
use tokio::sync::oneshot;

impl Driver {
    pub(super) fn handle_message(&mut self, message: Message, now: Moment) {
        match message {
            Message::Acquire(call) => self.acquire(call, now),
            Message::Cancel { ticket } => self.cancel(ticket, now),
            Message::DeadlinePassed { ticket } => self.deadline_passed(ticket, now),
            Message::Extend { lock, ttl, answer } => self.extend(lock, ttl, answer, now),
            Message::Release { lock, answer } => {
                if let Some(entry) = self.entry(lock) {
                    entry.on_released = answer;
                    self.release(lock, now);
                }
            }
            Message::Detach { lock } => self.detach(lock),
            Message::ReleaseUntracked { shared, ttl } => self.release_untracked(&shared, ttl, now),
            Message::Broadcast { words, to, answer } => self.broadcast(&words, to, answer, now),
            Message::Flush { answer } => self.flush(answer, now),
        }
    }

    /// Starts an attempt. The first calls wait until the client knows which nodes answer. A call that wants to
    /// queue waits until it is known whether it can.
    pub(super) fn acquire(&mut self, call: AcquireCall, now: Moment) {
        if !self.pool.is_introduced() {
            return self.undecided.push(call);
        }
        let queue_until = match call.queue_until() {
            None => None,
            Some(until) => match self.queue_support() {
                QueueSupport::Yes => Some(until),
                QueueSupport::No(_) => None,
                QueueSupport::Unknown => return self.undecided.push(call),
            },
        };
        let hint = self.hints.for_next_acquire();
        self.serial += 1;
        let ticket = call.ticket();
        let queue = ticket.zip(queue_until).map(|(ticket, until)| (self.queue_request(ticket), until));
        let entry = LockEntry::new(&self.settings, self.serial, call, hint, queue, now);
        let lock = EntryId { index: self.locks.insert(entry), serial: self.serial };
        if let Some(ticket) = ticket {
            self.by_ticket.insert(ticket, lock);
        }
        self.advance(lock, now);
    }

    /// Starts the waiting calls that can start; true if there were any.
    pub(super) fn start_undecided(&mut self, now: Moment) -> bool {
        if self.undecided.is_empty() || !self.pool.is_introduced() {
            return false;
        }
        let any_queues = self.undecided.iter().any(|call| call.queue_until().is_some());
        let may_queue = any_queues && self.queue_support() != QueueSupport::Unknown;
        let can_start = |call: &mut AcquireCall| may_queue || call.queue_until().is_none();
        let calls: Vec<AcquireCall> = self.undecided.extract_if(.., can_start).collect();
        let any = !calls.is_empty();
        // A caller that has stopped waiting needs no request, and so no release.
        for call in calls.into_iter().filter(|call| !call.answer.is_closed()) {
            self.acquire(call, now);
        }
        any
    }

    fn cancel(&mut self, ticket: u64, now: Moment) {
        self.undecided.retain(|call| call.ticket() != Some(ticket));
        if let Some(lock) = self.by_ticket.get(&ticket).copied() {
            self.advance(lock, now);
        }
    }

    /// Fails a call whose deadline has passed, and releases what the nodes have granted or may grant.
    fn deadline_passed(&mut self, ticket: u64, now: Moment) {
        if let Some(place) = self.undecided.iter().position(|call| call.ticket() == Some(ticket)) {
            let (refusal, ballot) = (Refusal::NoQuorum, Ballot::new(self.settings.quorum));
            let answer = self.undecided.remove(place).answer;
            let _ = answer.send(Err(NotAcquired { refusal, ballot, has_waited: false }));
        }
        if let Some(lock) = self.by_ticket.get(&ticket).copied()
            && self.entry(lock).is_some_and(LockEntry::time_out)
        {
            self.release(lock, now);
        }
    }

    fn extend(&mut self, lock: EntryId, ttl: Duration, answer: oneshot::Sender<Extended>, now: Moment) {
        let drift = self.settings.drift;
        if let Some(entry) = self.entry(lock) {
            entry.extend(ttl, drift, now, answer);
            self.transmit(lock, now);
        }
    }

    /// Stops tracking a lock, once its requests in flight have an outcome.
    fn detach(&mut self, lock: EntryId) {
        if let Some(entry) = self.entry(lock) {
            entry.is_over = true;
        }
        self.remove_if_done(lock);
    }
}
