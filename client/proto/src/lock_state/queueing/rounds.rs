//! The request to queue, and the rounds in which the client sends it.

use super::{AcquireOptions, Ask, Request};
use crate::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// How many rounds the client remembers. A grant of an older round counts as a vote, but its lease starts
/// with the claim, because the client no longer knows when it sent the request.
const MAX_ROUNDS_KEPT: usize = 4;

/// A request to queue, the same for every node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRequest {
    /// The ticket: a node serves the smallest first. The caller chooses it once for a call and keeps it for
    /// all attempts of that call.
    pub ticket: u64,
    /// The number of the round. A grant repeats it. Two attempts with one ticket never use the same stamp.
    pub stamp: u64,
    /// How long the nodes keep the client queued.
    pub wait: Duration,
    /// The channel to which a node pushes the grant.
    pub channel: [u8; 16],
    /// The claim window that the client needs, if it is longer than the one that nodes give by default.
    pub claim: Option<Duration>,
}

/// The rounds of requests of one attempt. The stamps of successive rounds are successive numbers.
#[derive(Clone, Debug)]
pub(super) struct QueueRounds {
    /// The request of the newest round.
    newest: QueueRequest,
    options: AcquireOptions,
    first_stamp: u64,
    /// The stamp of each of the last rounds and when it was sent, oldest first.
    sent: VecDeque<(u64, Moment)>,
    /// When the client stops queueing.
    deadline: Moment,
}

impl QueueRounds {
    /// Begins the first round.
    pub(super) fn new(first: QueueRequest, options: AcquireOptions, deadline: Moment, now: Moment) -> Self {
        let sent = VecDeque::from([(first.stamp, now)]);
        Self { newest: first, options, first_stamp: first.stamp, sent, deadline }
    }

    /// Begins another round.
    pub(super) fn begin_next(&mut self, now: Moment) {
        self.newest.stamp += 1;
        if self.sent.len() == MAX_ROUNDS_KEPT {
            self.sent.pop_front();
        }
        self.sent.push_back((self.newest.stamp, now));
    }

    /// The request of the newest round.
    pub(super) fn request(&self, ttl: Duration, now: Moment) -> Request {
        let wait = now.until(self.deadline).max(Duration::from_millis(1));
        let queue = QueueRequest { wait, ..self.newest };
        Request { ask: Ask::Wait { options: self.options, queue }, ttl, sent: now }
    }

    /// Asks for this claim window from the next round on.
    pub(super) fn ask_for_claim_window(&mut self, window: Duration) {
        self.newest.claim = Some(window);
    }

    /// The claim window that the client asks for; zero if it takes the default.
    pub(super) fn claim_window(&self) -> Duration {
        self.newest.claim.unwrap_or_default()
    }

    /// When the round with this stamp was sent; `None` if the client does not remember.
    pub(super) fn sent_at(&self, stamp: u64) -> Option<Moment> {
        self.sent.iter().find(|(round, _)| *round == stamp).map(|(_, sent)| *sent)
    }

    /// Whether a round of this attempt has this stamp.
    pub(super) fn contains(&self, stamp: u64) -> bool {
        (self.first_stamp..=self.newest.stamp).contains(&stamp)
    }

    /// The stamp of the newest round.
    pub(super) fn stamp(&self) -> u64 {
        self.newest.stamp
    }

    pub(super) fn ticket(&self) -> u64 {
        self.newest.ticket
    }

    pub(super) fn deadline(&self) -> Moment {
        self.deadline
    }
}
