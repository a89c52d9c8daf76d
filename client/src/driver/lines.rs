//! Those who wait in line: whether one can, and what the nodes say to those who do.

use super::record::grant_of;
use super::wires::Offer;
use super::{Driver, SessionId};
use crate::observe;
use redlock_core::proof::Unverified;
use redlock_proto::{Failure, Line, Moment};
use std::time::Duration;

/// Every session has so many stamps of its own, as a power of two.
const STAMP_BITS: u32 = 20;

/// How a call that may take long waits for a lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    InLine,
    /// Its caller asks again, and again.
    AskOnce,
    /// Its caller asks again at once, to wait in line. A connection for the news alone is made when there is
    /// somebody to wait for, not before.
    AskFirst,
    NotKnownYet,
}

/// Why nobody can wait in line, as far as it was told: each of the reasons once.
#[derive(Debug, Default)]
pub(super) struct Told {
    refused: bool,
    unheard: bool,
}

impl Driver {
    /// How to wait for a lock that is held. Says so once if nobody can wait in line.
    pub(super) fn way_to_wait(&mut self) -> Way {
        match self.wires.offer_waiting(self.settings.quorum) {
            Offer::InLine => Way::InLine,
            Offer::NotKnownYet => Way::NotKnownYet,
            Offer::NotYet => Way::AskFirst,
            Offer::NotAt(node) => {
                if !std::mem::replace(&mut self.told.refused, true) {
                    observe::polls_because_of(node);
                }
                Way::AskOnce
            }
            Offer::Unheard(node) => {
                if !std::mem::replace(&mut self.told.unheard, true) {
                    observe::polls_while_unheard(node);
                }
                Way::AskOnce
            }
        }
    }

    /// Begins the calls for which it was not known how to wait, once it is; true if there were any.
    pub(super) fn place(&mut self, now: Moment) -> bool {
        if self.unplaced.is_empty() || self.way_to_wait() == Way::NotKnownYet {
            return false;
        }
        for message in std::mem::take(&mut self.unplaced) {
            self.call(message, now);
        }
        true
    }

    /// A place in line. Stamps of two sessions are never the same.
    pub(super) fn line(&self, ticket: u64) -> Line {
        Line {
            ticket,
            stamp: self.serial << STAMP_BITS,
            wait: Duration::ZERO,
            channel: self.channel,
            claim: None,
        }
    }

    /// Takes in a message on the waiters' channel. Only a message that is signed with the owner of the session counts:
    /// every user with the right to publish can write there.
    pub(super) fn heard(&mut self, node: usize, message: &[u8], now: Moment) {
        let Some(message) = Unverified::parse(message) else { return };
        let Some(session) = self.by_ticket.get(&message.ticket()).copied() else { return };
        let Some(record) = self.record(session) else { return };
        let verified = message.verify(record.hold.owner.as_bytes());
        let Some(grant) = verified.as_ref().and_then(grant_of) else { return };
        let event = record.session.pushed(node, grant, now);
        if let Some(redlock_proto::Event::Held { fence }) = event {
            self.hints.held(fence);
        }
        self.happened(session, event, now);
    }

    /// A node has forgotten who waits.
    pub(super) fn cut(&mut self, node: usize, failure: &Failure, now: Moment) {
        let waiting: Vec<SessionId> = self.by_ticket.values().copied().collect();
        for session in waiting {
            if let Some(record) = self.record(session) {
                let event = record.session.cut(node, failure.clone(), now);
                self.happened(session, event, now);
            }
        }
    }

    /// A node is heard again, and may have said something while it was not.
    pub(super) fn ask_again(&mut self, now: Moment) {
        let waiting: Vec<SessionId> = self.by_ticket.values().copied().collect();
        for session in waiting {
            if let Some(record) = self.record(session) {
                record.session.missed_news(now);
                self.plan_wake(session);
            }
        }
    }

    /// A node is not heard any more. Whoever stands in line where too few are would not hear of its turn: it leaves,
    /// and its caller asks again at once, as those do who come now.
    pub(super) fn leave_lines(&mut self, now: Moment) {
        if !matches!(self.wires.offer_waiting(self.settings.quorum), Offer::NotAt(_) | Offer::Unheard(_)) {
            return;
        }
        let waiting: Vec<SessionId> = self.by_ticket.values().copied().collect();
        for session in waiting {
            if let Some(record) = self.record(session) {
                let event = record.session.leave_line(now);
                self.happened(session, event, now);
            }
        }
    }
}
