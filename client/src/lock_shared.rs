//! The state of one lock, shared by its guard, its views and the driver.

use crate::Error;
use crate::clock::Clock;
use crate::keys::Keys;
use crate::observe;
use crate::owner::Owner;
use crate::settings::Settings;
use redlock_proto::{Ballot, LockMode, LockReply, Moment, NodeSet, Quorum, Vote, keep_alive};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Why a lock is no longer held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// The validity has ended, or ends so soon that the holder must stop.
    Expired,
    /// A majority of the nodes answered that this client does not hold the lock: an administrator released
    /// it, or the nodes forgot it.
    Gone,
    /// The guard was released or dropped.
    Released,
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its validity ended",
            Self::Gone => "a majority of the nodes no longer holds it",
            Self::Released => "it was released",
        })
    }
}

/// How long a call that has failed waits for votes that are still to come, and again for the nodes to say who holds the
/// lock.
pub(crate) const EXPLAIN_LIMIT: Duration = Duration::from_millis(50);

const HELD: u8 = 0;

/// The state of one attempt to acquire a lock, and of the lock if the attempt succeeds. Reading the validity
/// takes no mutex and sends no message.
#[derive(Debug)]
pub(crate) struct LockShared {
    pub(crate) keys: Keys,
    pub(crate) mode: LockMode,
    pub(crate) owner: Owner,
    /// A note for people; `None` for the label of the manager.
    label: Option<Box<str>>,
    clock: Clock,
    /// The end of validity on both clocks of [`Moment`], in nanoseconds. A reader between two stores sees one
    /// old and one new value. Validity ends when either clock reaches its value, so this reader never gets an
    /// end later than both.
    valid_until: [AtomicU64; 2],
    /// How long before the end of validity the holder is notified, in nanoseconds.
    notice_ns: AtomicU64,
    /// `HELD`, or why the lock has ended.
    end: AtomicU8,
    /// Notifies the tasks that wait for the loss of the lock, or for late votes.
    changed: Notify,
    fence: AtomicU64,
    /// The nodes that granted the lock, one bit per node.
    granted_by: AtomicU64,
    ttl_ms: AtomicU64,
    loss_reported: AtomicBool,
    was_refused: AtomicBool,
    /// Makes the extensions of one lock run one after the other.
    pub(crate) extending: tokio::sync::Mutex<()>,
    extras: Mutex<Extras>,
}

/// State that most locks never use.
#[derive(Debug, Default)]
struct Extras {
    token: Option<CancellationToken>,
    /// The answers to the last extension, if that extension failed.
    last_votes: Option<Ballot>,
    /// The votes that came after the attempt was decided, each with its node.
    late_votes: Vec<(usize, Vote)>,
}

impl LockShared {
    /// Starts an attempt with a new owner. A new owner keeps attempts apart: this attempt neither counts nor
    /// releases what an earlier attempt left on the nodes.
    pub(crate) fn new(keys: Keys, mode: LockMode, ttl: Duration, settings: &Settings) -> Self {
        Self {
            keys,
            mode,
            owner: Owner::random(),
            label: None,
            clock: settings.clock,
            valid_until: [AtomicU64::new(0), AtomicU64::new(0)],
            notice_ns: AtomicU64::new(notice_ns(settings.drift.lease(ttl))),
            end: AtomicU8::new(HELD),
            changed: Notify::new(),
            fence: AtomicU64::new(0),
            granted_by: AtomicU64::new(0),
            ttl_ms: AtomicU64::new(millis(ttl)),
            loss_reported: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
            extending: tokio::sync::Mutex::new(()),
            extras: Mutex::default(),
        }
    }

    /// The same attempt with a label of its own.
    pub(crate) fn with_label(self, label: Option<Box<str>>) -> Self {
        Self { label, ..self }
    }

    /// The label that the nodes show.
    pub(crate) fn label<'a>(&'a self, settings: &'a Settings) -> &'a [u8] {
        self.label.as_deref().map_or(&settings.label, str::as_bytes)
    }

    /// Whether other clients may hold the lock together with this one.
    pub(crate) fn is_shared(&self) -> bool {
        self.mode == LockMode::Shared
    }

    /// Stores the fence of the granted lock.
    pub(crate) fn granted(&self, fence: u64) {
        self.fence.store(fence, Ordering::Release);
    }

    /// Stores the nodes that granted the lock.
    pub(crate) fn granted_by(&self, nodes: NodeSet) {
        let bits = nodes.iter().fold(0, |bits, node| bits | 1_u64 << node);
        self.granted_by.store(bits, Ordering::Relaxed);
    }

    /// Records that another client held the lock when this client asked for it.
    pub(crate) fn refused(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
    }

    /// Whether another client held the lock when this client asked for it.
    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused.load(Ordering::Relaxed)
    }

    /// The fence; 0 before the lock is held.
    pub(crate) fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    /// The time to live of the last acquire or extension.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Relaxed))
    }

    /// Stores the time to live of an extension that succeeded. `lease` is `ttl` minus the allowance for
    /// drift.
    pub(crate) fn set_ttl(&self, ttl: Duration, lease: Duration) {
        self.ttl_ms.store(millis(ttl), Ordering::Relaxed);
        self.notice_ns.store(notice_ns(lease), Ordering::Relaxed);
    }

    /// How long before the end of validity the holder is notified.
    pub(crate) fn notice(&self) -> Duration {
        Duration::from_nanos(self.notice_ns.load(Ordering::Relaxed))
    }

    /// Moves the end of validity: mostly later, sometimes earlier. Shortens the notice if little validity is
    /// left: a lock that is valid only for the claim window would otherwise be reported as lost at once.
    pub(crate) fn set_valid_until(&self, until: Moment, lease: Duration) {
        if until == self.valid_until() {
            return;
        }
        let lease = lease.min(self.clock.now().until(until));
        self.notice_ns.store(notice_ns(lease), Ordering::Relaxed);
        let (first, second) = until.nanoseconds();
        self.valid_until[0].store(first, Ordering::Release);
        self.valid_until[1].store(second, Ordering::Release);
        self.changed.notify_waiters();
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::new(self.valid_until[0].load(Ordering::Acquire), self.valid_until[1].load(Ordering::Acquire))
    }

    /// Marks the lock as no longer held. The first reason stays.
    pub(crate) fn end(&self, reason: LostReason) {
        let code = match reason {
            LostReason::Expired => 1,
            LostReason::Gone => 2,
            LostReason::Released => 3,
        };
        if self.end.compare_exchange(HELD, code, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.changed.notify_waiters();
        }
    }

    /// Why the lock has ended; `None` while nothing has noticed an end.
    pub(crate) fn ended(&self) -> Option<LostReason> {
        match self.end.load(Ordering::Acquire) {
            HELD => None,
            1 => Some(LostReason::Expired),
            2 => Some(LostReason::Gone),
            _ => Some(LostReason::Released),
        }
    }

    /// How long the lock stays valid. Once this is zero, it stays zero.
    pub(crate) fn remaining(&self) -> Duration {
        if self.ended().is_some() {
            return Duration::ZERO;
        }
        let left = self.clock.now().until(self.valid_until());
        if left.is_zero() {
            self.end(LostReason::Expired);
        }
        left
    }

    /// Resolves when the lock is no longer held, a little before its validity ends. Needs no network.
    pub(crate) async fn lost(&self) -> LostReason {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if let Some(reason) = self.ended() {
                self.report_loss();
                return reason;
            }
            let left = self.remaining().saturating_sub(self.notice());
            if left.is_zero() {
                self.end(LostReason::Expired);
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(nap(left)) => {}
                () = changed => {}
            }
        }
    }

    /// Reports the loss of the lock to metrics and tracing, once, if the lock has ended without a release.
    /// Called wherever the client may find that the lock has ended.
    pub(crate) fn report_loss(&self) {
        if let Some(reason @ (LostReason::Expired | LostReason::Gone)) = self.ended()
            && !self.loss_reported.swap(true, Ordering::Relaxed)
        {
            observe::lost(&self.keys, self.fence(), reason);
        }
    }

    /// Suppresses the report of a loss, for a detached lock: another client may extend it.
    pub(crate) fn suppress_loss_report(&self) {
        self.loss_reported.store(true, Ordering::Relaxed);
    }

    /// Returns a token that is cancelled when the lock is no longer held. All callers get the same token. A
    /// task on the runtime of the first call watches the clock; if that runtime shuts down, the token is
    /// cancelled, and the next call makes a new one.
    pub(crate) fn token(self: &Arc<Self>) -> Result<CancellationToken, Error> {
        let mut extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        let is_watched = |token: &&CancellationToken| !token.is_cancelled() || self.ended().is_some();
        if let Some(token) = extras.token.as_ref().filter(is_watched) {
            return Ok(token.clone());
        }
        let runtime = tokio::runtime::Handle::try_current().map_err(|_| Error::NoRuntime)?;
        let token = CancellationToken::new();
        let (hold, cancel) = (Arc::clone(self), token.clone().drop_guard());
        runtime.spawn(async move {
            let _cancel = cancel;
            hold.lost().await;
        });
        extras.token = Some(token.clone());
        Ok(token)
    }

    /// Stores the answers to a failed extension, for a later error. `None` after an extension that succeeded.
    pub(crate) fn set_last_votes(&self, votes: Option<Ballot>) {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner).last_votes = votes;
    }

    /// Stores a vote that came after the attempt had failed, for the error of the call.
    pub(crate) fn add_late_vote(&self, node: usize, vote: Vote) {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner).late_votes.push((node, vote));
        self.changed.notify_waiters();
    }

    /// Waits until each of these nodes has voted after the attempt had failed.
    pub(crate) async fn wait_for_late_votes(&self, nodes: &[usize]) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if nodes.iter().all(|node| self.late_vote(*node).is_some()) {
                return;
            }
            changed.await;
        }
    }

    /// The vote of a node that came after the attempt had failed.
    pub(crate) fn late_vote(&self, node: usize) -> Option<Vote> {
        let extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        extras.late_votes.iter().rev().find(|(voter, _)| *voter == node).map(|(_, vote)| vote.clone())
    }

    /// Stores a vote that came after the client had acquired the lock with this fence.
    pub(crate) fn add_vote_of_held(&self, node: usize, fence: u64, reply: &LockReply) {
        if *reply == LockReply::Number(fence) {
            self.granted_by.fetch_or(1_u64 << node, Ordering::Relaxed);
        } else {
            self.add_late_vote(node, Vote::from(reply.clone()));
        }
    }

    /// Adds a vote that came after an extension had failed.
    pub(crate) fn add_to_last_votes(&self, node: usize, vote: Vote) {
        let mut extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ballot) = &mut extras.last_votes {
            ballot.enter(node, vote);
        }
        drop(extras);
        self.changed.notify_waiters();
    }

    /// Waits until every node has answered the extension that has failed.
    pub(crate) async fn wait_for_last_votes(&self) {
        let is_complete = || {
            let extras = self.extras.lock().unwrap_or_else(PoisonError::into_inner);
            extras.last_votes.as_ref().is_none_or(|ballot| ballot.pending() == 0)
        };
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            if is_complete() {
                return;
            }
            changed.await;
        }
    }

    /// The last answers of the nodes: to a failed extension, otherwise to the acquire.
    pub(crate) fn last_votes(&self, quorum: Quorum) -> Ballot {
        let last_votes = self.extras.lock().unwrap_or_else(PoisonError::into_inner).last_votes.clone();
        last_votes.unwrap_or_else(|| {
            let mut ballot = Ballot::new(quorum);
            let granted_by = self.granted_by.load(Ordering::Relaxed);
            let nodes = (0..quorum.nodes()).filter(|node| granted_by >> node & 1 == 1);
            nodes.for_each(|node| ballot.enter(node, Vote::Granted { fence: self.fence() }));
            for node in (0..quorum.nodes()).filter(|node| granted_by >> node & 1 == 0) {
                ballot.enter(node, self.late_vote(node).unwrap_or_default());
            }
            ballot
        })
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}

/// How long before the end of a lease of this length the holder is notified, in nanoseconds.
fn notice_ns(lease: Duration) -> u64 {
    u64::try_from(keep_alive::notice(lease).as_nanos()).unwrap_or(u64::MAX)
}

/// How long to sleep on the runtime's clock when `left` remains on the clock of the lock.
///
/// The runtime's clock can be slewed, and it stops while the machine is suspended. So the task wakes early
/// and reads the clock of the lock again: after 7/8 of the time, and at least four times a second.
fn nap(left: Duration) -> Duration {
    if left <= Duration::from_millis(4) { left } else { (left * 7 / 8).min(Duration::from_millis(250)) }
}
