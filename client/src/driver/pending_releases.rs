//! Releases that a node has not executed yet. The driver repeats each until then, or until the lock expires.

use crate::lock_shared::LockShared;
use crate::wire;
use bytes::{Bytes, BytesMut};
use redlock_contract::limits::DEFAULT_LATE_WINDOW_MS;
use redlock_proto::{Moment, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The pause before the client repeats releases on a connection that is up.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// How long after the time to live a release is kept: as long as a node keeps a tombstone.
const KEEP_BEYOND_TTL: Duration = Duration::from_millis(DEFAULT_LATE_WINDOW_MS);
/// How many releases are kept for one node. Beyond that, locks expire by their time to live.
const MAX_PENDING: usize = 65_536;

/// What a release has to achieve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReleaseGoal {
    /// Free the lock.
    Release,
    /// Free the lock, then leave a tombstone: a late acquire of the same owner may still be on its way. A
    /// node leaves a tombstone when a release frees nothing.
    ReleaseThenTombstone,
    /// Leave a tombstone. If the release frees the lock instead, an acquire came first: the client sends the
    /// release again, at most `again` times.
    Tombstone { again: u8 },
}

/// A release that is repeated until the node has executed it.
#[derive(Clone)]
pub(super) struct PendingRelease {
    pub(super) goal: ReleaseGoal,
    pub(super) shared: Arc<LockShared>,
    /// The positions of the keys to free, among the keys of `shared`.
    pub(super) keys: Range<usize>,
    pub(super) request: Request,
    /// The encoded command.
    pub(super) command: Bytes,
    pub(super) queued_at: Moment,
    /// When the client last sent the release.
    pub(super) sent: Moment,
    /// When the client stops repeating the release: the lock and its tombstone have expired by then.
    pub(super) expires_at: Moment,
}

impl PendingRelease {
    /// A release of some keys of a lock. `scratch` is where the command is encoded.
    pub(super) fn new(
        goal: ReleaseGoal,
        keys: Range<usize>,
        shared: &Arc<LockShared>,
        request: &Request,
        scratch: &mut BytesMut,
    ) -> Box<Self> {
        scratch.clear();
        let names = shared.keys.names().get(keys.clone()).unwrap_or_default();
        request.with_words(names, shared.owner.as_bytes(), &[], |words| wire::command(scratch, words));
        Box::new(Self {
            goal,
            shared: Arc::clone(shared),
            keys,
            request: *request,
            command: scratch.clone().freeze(),
            queued_at: request.sent,
            sent: request.sent,
            expires_at: request.sent.plus(request.ttl.saturating_add(KEEP_BEYOND_TTL)),
        })
    }
}

/// The pending releases of one node, oldest first.
#[derive(Default)]
pub(super) struct PendingReleases {
    queue: VecDeque<Box<PendingRelease>>,
    /// How many releases, from the front of the queue, to send as fast as the connection accepts them.
    due: usize,
    /// When all releases become due on a connection that is up.
    pub(super) flush_at: Option<Moment>,
}

impl PendingReleases {
    /// Queues a release. If the queue is full, expired releases make room; otherwise this release is dropped.
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

    /// Makes all queued releases due. Releases that are queued later wait for the next call.
    pub(super) fn mark_due(&mut self) {
        self.flush_at = None;
        self.due = self.queue.len();
    }

    /// Makes no release due: the connection is lost.
    pub(super) fn pause(&mut self) {
        self.due = 0;
    }

    /// Takes the next due release that has not expired.
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

    pub(super) fn iter(&self) -> impl Iterator<Item = &PendingRelease> {
        self.queue.iter().map(|release| &**release)
    }

    /// The release that was queued last.
    pub(super) fn newest(&self) -> Option<&PendingRelease> {
        self.queue.back().map(|release| &**release)
    }
}
