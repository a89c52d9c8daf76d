//! What the driver does for a lock: sends its requests, passes it votes, wakes it, drops it.

use super::in_flight::{InFlight, Stage};
use super::lock_entry::LockEntry;
use super::replies::lock_reply;
use super::{Driver, EntryId};
use crate::wire::{self, Frame};
use redlock_proto::{Event, Failure, FailureKind, LockReply, Moment, Request, Transmit};
use std::time::Duration;

/// The shortest time between two wake-ups of one lock.
pub(super) const MIN_TIMER_PAUSE: Duration = Duration::from_micros(50);

impl Driver {
    pub(super) fn entry(&mut self, id: EntryId) -> Option<&mut LockEntry> {
        self.locks.get_mut(id.index).filter(|entry| entry.serial == id.serial)
    }

    /// Sends the requests that a lock asks for; true if there were any.
    pub(super) fn transmit(&mut self, lock: EntryId, now: Moment) -> bool {
        let Some(entry) = self.locks.get_mut(lock.index) else { return false };
        let Some(Transmit { request, to }) = entry.state.poll_transmit() else { return false };
        entry.sent(to.len());
        self.in_flight += to.len();
        let (pool, events, scratch) = (&mut self.pool, &mut self.events, &mut self.scratch);
        let shared = &entry.shared;
        let label = shared.label(&self.settings);
        request.with_words(shared.keys.names(), shared.owner.as_bytes(), label, |words| {
            scratch.clear();
            wire::command(scratch, words);
            for node in to.iter() {
                pool.submit(node, words, scratch, InFlight::Vote { lock, request }, now, events);
            }
        });
        true
    }

    /// Passes a node's reply to its lock.
    pub(super) fn handle_vote(
        &mut self,
        node: usize,
        lock: EntryId,
        request: &Request,
        outcome: Result<Frame, Failure>,
        stage: Stage,
        now: Moment,
    ) {
        let Some(entry) = self.locks.get_mut(lock.index) else { return };
        entry.settled(stage);
        if stage != Stage::SettledLate {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
        if stage != Stage::Overdue && request.is_release() {
            self.after_release(node, lock, request, &outcome, now);
        }
        let Some(entry) = self.locks.get_mut(lock.index) else { return };
        let reply = lock_reply(outcome, request);
        if !request.is_release() {
            self.pool.note_vote(node, &reply);
        }
        entry.add_late_vote(node, request, &reply);
        let is_named_twice =
            matches!(&reply, LockReply::Failed(failure) if failure.kind == FailureKind::SameNode);
        entry.state.handle_reply(node, request, reply, now);
        // The attempt fails even if the other nodes are a majority: a vote is missing for as long as this
        // client runs.
        if is_named_twice && entry.time_out() {
            return self.release(lock, now);
        }
        self.advance(lock, now);
    }

    /// Does what a lock asks for after an input: sends requests, reports the event, sets the timer.
    pub(super) fn advance(&mut self, lock: EntryId, now: Moment) {
        let has_sent = self.transmit(lock, now);
        let Some(entry) = self.locks.get_mut(lock.index) else { return };
        let event = entry.state.poll_event();
        if let Some(Event::Held { fence }) = event {
            self.hints.held(fence);
        }
        if entry.apply(event, has_sent, lock, now) {
            self.release(lock, now);
        } else {
            self.transmit(lock, now);
        }
        self.set_timer(lock);
        self.remove_if_done(lock);
    }

    /// Ends a lock: releases it on every node that may hold it.
    pub(super) fn release(&mut self, lock: EntryId, now: Moment) {
        let Some(entry) = self.entry(lock) else { return };
        let disagreed = entry.state.ballot().disagrees();
        entry.release(now);
        if disagreed {
            self.hints.saw_disagreement();
        }
        self.transmit(lock, now);
        self.remove_if_done(lock);
    }

    pub(super) fn remove_if_done(&mut self, lock: EntryId) {
        let Some(entry) = self.entry(lock).filter(|entry| entry.is_done()) else { return };
        if let Some(ticket) = entry.ticket
            && self.by_ticket.get(&ticket) == Some(&lock)
        {
            self.by_ticket.remove(&ticket);
        }
        self.locks.remove(lock.index);
    }

    /// Sets the timer of a lock, if the lock has to be woken earlier than planned.
    pub(super) fn set_timer(&mut self, lock: EntryId) {
        let Some(entry) = self.entry(lock) else { return };
        let Some(at) = entry.state.poll_timeout() else { return };
        let at = at.later_of(entry.not_before);
        if entry.timer.is_none_or(|timer| at.nanoseconds() < timer.nanoseconds()) {
            entry.timer = Some(at);
            self.timers.set(lock, at);
        }
    }

    /// Reports overdue requests and wakes locks; true if anything happened.
    pub(super) fn fire_timers(&mut self, now: Moment) -> bool {
        let mut is_busy = self.pool.tick(now, &mut self.events);
        while let Some((lock, fired)) = self.timers.pop_fired(now) {
            // A timer that was replaced is ignored.
            let Some(entry) = self.entry(lock).filter(|entry| entry.timer == Some(fired)) else { continue };
            entry.timer = None;
            let Some(at) = entry.state.poll_timeout() else { continue };
            if now.has_reached(at) {
                is_busy = true;
                entry.state.handle_timeout(now);
                // A lock that asks to be woken at this moment again must not block the others.
                entry.not_before = now.plus(MIN_TIMER_PAUSE);
                self.advance(lock, now);
            } else {
                // One clock has reached `not_before`, neither has reached `at`. A timer for the later of the
                // two would fire at once again.
                entry.timer = Some(at);
                self.timers.set(lock, at);
            }
        }
        is_busy || !self.events.is_empty()
    }
}
