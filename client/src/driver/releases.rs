//! Releases: that each does what it is for, whatever becomes of it on its way.

use super::Driver;
use super::in_flight::{InFlight, PendingRelease, ReleaseGoal, Stage};
use super::message::EntryId;
use crate::hold::Hold;
use crate::wire;
use bytes::BytesMut;
use redlock_proto::{Ask, Failure, Moment, Request};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How much longer than its time to live a lock may linger on a node that we could not reach: as long as a
/// node bars late requests.
const KEEP_BEYOND_TTL: Duration = Duration::from_secs(10);

/// How often a bar is set up anew that came too late: more requests than that are hardly on their way, and a node that
/// always says that it has freed something is not to be believed.
const MAX_TOMBSTONES: u8 = 4;

/// Whether a release has to be sent again: the node did not get it, or could not do it just then.
fn is_to_be_repeated(outcome: &Result<wire::Frame, Failure>) -> bool {
    const PASSING: [&[u8]; 6] =
        [b"BUSY ", b"LOADING ", b"MASTERDOWN ", b"READONLY ", b"MISCONF ", b"NOREPLICAS "];
    match outcome {
        Err(_) => true,
        Ok(wire::Frame::Error(text)) => PASSING.iter().any(|word| text.starts_with(word)),
        Ok(_) => false,
    }
}

/// A release of some keys of a lock, as a node shall get it when it is back.
fn pending_release(
    goal: ReleaseGoal,
    keys: Range<usize>,
    hold: &Arc<Hold>,
    request: &Request,
    scratch: &mut BytesMut,
) -> Box<PendingRelease> {
    scratch.clear();
    let names = hold.keys.names().get(keys.clone()).unwrap_or_default();
    request.with_words(names, hold.owner.as_bytes(), &[], |words| wire::command(scratch, words));
    let expires_at = request.sent.plus(request.ttl.saturating_add(KEEP_BEYOND_TTL));
    Box::new(PendingRelease {
        goal,
        hold: Arc::clone(hold),
        keys,
        request: *request,
        command: scratch.clone().freeze(),
        due: request.sent,
        sent: request.sent,
        expires_at,
    })
}

impl Driver {
    /// Frees a lock that this driver does not know.
    pub(super) fn release_untracked(&mut self, hold: &Arc<Hold>, ttl: Duration, now: Moment) {
        let request = Request { ask: Ask::Release { floor: None }, ttl, sent: now };
        for node in 0..self.settings.quorum.nodes() {
            let all = 0..hold.keys.names().len();
            // What the driver of this lock had asked for may still be on its way.
            let release =
                pending_release(ReleaseGoal::ReleaseThenTombstone, all, hold, &request, &mut self.scratch);
            self.send_release(node, release, now);
        }
    }

    /// Sends a release that nobody waits for, now.
    fn send_release(&mut self, node: usize, mut release: Box<PendingRelease>, now: Moment) {
        release.sent = now;
        let (pool, events) = (&mut self.pool, &mut self.events);
        let (hold, request, command) = (Arc::clone(&release.hold), release.request, release.command.clone());
        let keys = hold.keys.names().get(release.keys.clone()).unwrap_or_default();
        request.with_words(keys, hold.owner.as_bytes(), &[], |words| {
            pool.submit(node, words, &command, InFlight::Release(release), now, events);
        });
    }

    /// Makes sure that a release does what it is for, whatever the node has said to it.
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
        let hold = Arc::clone(&entry.hold);
        let all = 0..hold.keys.names().len();
        if must_repeat {
            let goal = if is_in_doubt { ReleaseGoal::ReleaseThenTombstone } else { ReleaseGoal::Release };
            let release = pending_release(goal, all, &hold, request, &mut self.scratch);
            self.pool.queue_release(node, release, now);
        } else if must_tombstone {
            let goal = ReleaseGoal::Tombstone { again: MAX_TOMBSTONES };
            let release = pending_release(goal, all, &hold, request, &mut self.scratch);
            self.send_release(node, release, now);
        } else {
            self.release_keys_singly(node, &hold, request, now);
        }
    }

    /// The same for a release that nobody waits for: it is owed until the node has done it.
    pub(super) fn after_pending_release(
        &mut self,
        node: usize,
        mut release: Box<PendingRelease>,
        outcome: &Result<wire::Frame, Failure>,
        stage: Stage,
        now: Moment,
    ) {
        // It is still on its way.
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
                return self.release_keys_singly(node, &release.hold, &release.request, now);
            }
            (Ok(wire::Frame::Integer(1..)), ReleaseGoal::ReleaseThenTombstone) => MAX_TOMBSTONES,
            (Ok(wire::Frame::Integer(1..)), ReleaseGoal::Tombstone { again: again @ 1.. }) => again - 1,
            _ => return,
        };
        release.goal = ReleaseGoal::Tombstone { again };
        self.send_release(node, release, now);
    }

    /// Frees the keys of a lock one by one: several are freed together or not at all, and one of them was gone.
    fn release_keys_singly(&mut self, node: usize, hold: &Arc<Hold>, request: &Request, now: Moment) {
        let count = hold.keys.names().len();
        for key in (0..count).filter(|_| count > 1) {
            let release =
                pending_release(ReleaseGoal::Release, key..key + 1, hold, request, &mut self.scratch);
            self.send_release(node, release, now);
        }
    }
}
