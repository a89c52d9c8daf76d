//! Releases that failed, or that freed nothing: what the driver sends next.

use super::Driver;
use super::in_flight::{InFlight, Stage};
use super::message::EntryId;
use super::pending_releases::{PendingRelease, ReleaseGoal};
use crate::lock_shared::LockShared;
use crate::wire;
use redlock_contract::ErrorCode;
use redlock_proto::{Ask, Failure, Moment, Request};
use std::sync::Arc;
use std::time::Duration;

/// How many more releases the client sends for a tombstone if the first of them freed the lock instead, so at
/// most five in all. More late acquires than that are unlikely: a node that keeps freeing is wrong.
const MAX_TOMBSTONES: u8 = 4;

/// Whether a release has to be sent again: the node did not get it, or could not do it just then.
fn is_to_be_repeated(outcome: &Result<wire::Frame, Failure>) -> bool {
    use ErrorCode::{Busy, Loading, MasterDown, Misconf, NoReplicas, ReadOnly};
    match outcome {
        Err(_) => true,
        Ok(wire::Frame::Error(text)) => {
            matches!(ErrorCode::of(text), Some(Busy | Loading | MasterDown | ReadOnly | Misconf | NoReplicas))
        }
        Ok(_) => false,
    }
}

impl Driver {
    /// Releases a lock that this driver does not track.
    pub(super) fn release_untracked(&mut self, shared: &Arc<LockShared>, ttl: Duration, now: Moment) {
        let request = Request { ask: Ask::Release { floor: None }, ttl, sent: now };
        // An acquire of the former driver may still be on its way.
        let goal = ReleaseGoal::ReleaseThenTombstone;
        for node in 0..self.settings.quorum.nodes() {
            let all = 0..shared.keys.names().len();
            let release = PendingRelease::new(goal, all, shared, &request, &mut self.scratch);
            self.send_release(node, release, now);
        }
    }

    /// Sends a release now, and repeats it until the node has executed it.
    fn send_release(&mut self, node: usize, mut release: Box<PendingRelease>, now: Moment) {
        release.sent = now;
        let (pool, events) = (&mut self.pool, &mut self.events);
        let (shared, request, command) =
            (Arc::clone(&release.shared), release.request, release.command.clone());
        let keys = shared.keys.names().get(release.keys.clone()).unwrap_or_default();
        request.with_words(keys, shared.owner.as_bytes(), &[], |words| {
            pool.submit(node, words, &command, InFlight::Release(release), now, events);
        });
    }

    /// Decides what follows a node's reply to the release of a lock:
    ///
    /// - The node did not execute it: the driver repeats it.
    /// - It freed the lock, and a late acquire may still be on its way: another release leaves a tombstone.
    /// - It freed nothing: if the lock has several keys, the driver releases each key on its own.
    pub(super) fn after_release(
        &mut self,
        node: usize,
        lock: EntryId,
        request: &Request,
        outcome: &Result<wire::Frame, Failure>,
        now: Moment,
    ) {
        let Some(entry) = self.locks.get(lock.index) else { return };
        let is_in_doubt = entry.state.may_be_granted_late(node);
        let must_repeat = is_to_be_repeated(outcome);
        let must_tombstone = is_in_doubt && matches!(outcome, Ok(wire::Frame::Integer(1..)));
        let has_freed_nothing = matches!(outcome, Ok(wire::Frame::Integer(0)));
        if !(must_repeat || must_tombstone || has_freed_nothing) {
            return;
        }
        let shared = Arc::clone(&entry.shared);
        let all = 0..shared.keys.names().len();
        if must_repeat {
            let goal = if is_in_doubt { ReleaseGoal::ReleaseThenTombstone } else { ReleaseGoal::Release };
            let release = PendingRelease::new(goal, all, &shared, request, &mut self.scratch);
            self.pool.queue_release(node, release, now);
        } else if must_tombstone {
            let goal = ReleaseGoal::Tombstone { again: MAX_TOMBSTONES };
            let release = PendingRelease::new(goal, all, &shared, request, &mut self.scratch);
            self.send_release(node, release, now);
        } else {
            self.release_keys_singly(node, &shared, request, now);
        }
    }

    /// The same for a pending release.
    pub(super) fn after_pending_release(
        &mut self,
        node: usize,
        mut release: Box<PendingRelease>,
        outcome: &Result<wire::Frame, Failure>,
        stage: Stage,
        now: Moment,
    ) {
        if stage == Stage::Overdue {
            return;
        }
        if is_to_be_repeated(outcome) {
            return self.pool.queue_release(node, release, now);
        }
        let again = match (outcome, release.goal) {
            (Ok(wire::Frame::Integer(0)), ReleaseGoal::Release | ReleaseGoal::ReleaseThenTombstone)
                if release.keys.len() > 1 =>
            {
                return self.release_keys_singly(node, &release.shared, &release.request, now);
            }
            (Ok(wire::Frame::Integer(1..)), ReleaseGoal::ReleaseThenTombstone) => MAX_TOMBSTONES,
            (Ok(wire::Frame::Integer(1..)), ReleaseGoal::Tombstone { again: again @ 1.. }) => again - 1,
            _ => return,
        };
        release.goal = ReleaseGoal::Tombstone { again };
        self.send_release(node, release, now);
    }

    /// Releases each key of a lock with several keys on its own; with one key it sends nothing. A node frees
    /// all keys of a command or none.
    fn release_keys_singly(&mut self, node: usize, shared: &Arc<LockShared>, request: &Request, now: Moment) {
        let count = shared.keys.names().len();
        for key in (0..count).filter(|_| count > 1) {
            let release =
                PendingRelease::new(ReleaseGoal::Release, key..key + 1, shared, request, &mut self.scratch);
            self.send_release(node, release, now);
        }
    }
}
