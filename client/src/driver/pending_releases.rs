//! What a node is owed: releases that it did not get, or could not do, until it can or they are pointless.

use super::in_flight::PendingRelease;
use redlock_proto::Moment;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a node that could not do what it was asked is left alone before it is asked again to free a lock.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How many releases are kept for a node that is away. The rest runs out by itself.
const MAX_PENDING: usize = 65_536;

/// The releases that a node still has to get, oldest first.
#[derive(Default)]
pub(super) struct PendingReleases {
    queue: VecDeque<Box<PendingRelease>>,
    /// How many of them, from the front, are to be sent as fast as the connection takes them.
    due: usize,
    /// When all of them fall due over a connection that is up.
    flush_at: Option<Moment>,
}

impl PendingReleases {
    /// Keeps one more, if there is room.
    pub(super) fn add(&mut self, release: Box<PendingRelease>, now: Moment) {
        if self.queue.len() >= MAX_PENDING {
            self.queue.retain(|release| !now.has_reached(release.expires_at));
            self.due = self.due.min(self.queue.len());
        }
        if self.queue.len() < MAX_PENDING {
            self.queue.push_back(release);
            self.flush_at.get_or_insert(now.plus(RETRY_AFTER));
        }
    }

    /// What is owed by now is to be sent. What is added later waits for the next time.
    pub(super) fn mark_due(&mut self) {
        self.flush_at = None;
        self.due = self.queue.len();
    }

    /// Nothing can be sent for now: the connection is gone.
    pub(super) fn pause(&mut self) {
        self.due = 0;
    }

    /// The next that is to be sent now and is not pointless by now.
    pub(super) fn next(&mut self, now: Moment) -> Option<Box<PendingRelease>> {
        while self.due > 0 {
            self.due -= 1;
            let release = self.queue.pop_front()?;
            if !now.has_reached(release.expires_at) {
                return Some(release);
            }
        }
        None
    }

    pub(super) fn flush_at(&self) -> Option<Moment> {
        self.flush_at
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingRelease> {
        self.queue.iter().map(|release| &**release)
    }

    /// The one that was added last.
    pub(super) fn newest(&self) -> Option<&PendingRelease> {
        self.queue.back().map(|release| &**release)
    }
}
