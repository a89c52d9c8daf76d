//! Extension: asking the nodes to hold the lock for longer.

use super::{Ask, Event, LockPhase, LockState, Request};
use crate::{Ballot, LockReply, Moment, Vote};
use std::time::Duration;

/// An extension that is in flight.
#[derive(Clone, Debug)]
pub(super) struct Extension {
    request: Request,
    /// What the nodes replied to it.
    pub(super) ballot: Ballot,
}

/// The error of an extension: the lock is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockEnded;

impl LockState {
    /// Asks the nodes to hold the lock for longer. Ends with [`Event::Extended`], [`Event::NotExtended`] or
    /// [`Event::Lost`]. An extension that is still in flight goes on renewing leases, but ends with no event.
    ///
    /// # Errors
    /// If the lock is over: an extension never revives it.
    pub fn extend(&mut self, ttl: Duration, now: Moment) -> Result<(), LockEnded> {
        let held = matches!(self.phase, LockPhase::Held { .. });
        if !held || self.has_expired(now) {
            self.phase = LockPhase::Ended;
            return Err(LockEnded);
        }
        self.longest_ttl = self.longest_ttl.max(ttl);
        let to = self.maybe_held.nodes();
        let mut ballot = Ballot::new(self.quorum);
        // The votes of nodes that are not asked stay as they are.
        for (node, vote) in self.ballot.votes().iter().enumerate() {
            if !to.contains(node) {
                ballot.enter(node, vote.clone());
            }
        }
        let request = Request { ask: Ask::Extend, ttl, sent: now };
        self.extension = Some(Extension { request, ballot });
        self.send(request, to);
        Ok(())
    }

    /// Handles the reply of a node to an extension.
    pub(super) fn handle_extension_reply(
        &mut self,
        node: usize,
        request: &Request,
        reply: LockReply,
        now: Moment,
    ) {
        let LockPhase::Held { .. } = self.phase else { return };
        let in_flight = self.extension.as_mut().filter(|extension| extension.request == *request);
        if let Some(extension) = in_flight {
            extension.ballot.enter(node, Vote::from(reply.clone()));
        }
        // A lock that expired before the reply arrived stays lost, whatever the reply says.
        let had_expired = self.has_expired(now);
        if reply == LockReply::Nil {
            self.ballot.enter(node, Vote::Refused);
        }
        self.renew_lease(node, request, &reply);
        if had_expired || self.has_expired(now) {
            return self.lose();
        }
        self.finish_extension(request);
    }

    /// Ends the extension if a majority has granted it or no longer can.
    fn finish_extension(&mut self, request: &Request) {
        let Some(extension) = self.extension.take_if(|extension| extension.request == *request) else {
            return;
        };
        let (granted, pending) = (extension.ballot.granted(), extension.ballot.pending());
        if self.quorum.is_reached_by(granted) {
            self.emit(Event::Extended);
        } else if self.quorum.is_reached_by(granted + pending) {
            self.extension = Some(extension);
        } else {
            self.emit(Event::NotExtended(extension.ballot));
        }
    }
}
