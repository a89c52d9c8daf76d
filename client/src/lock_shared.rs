//! The state of one lock, shared by its guard, its views and the driver.

use crate::Error;
use crate::keys::Keys;
use crate::lease::{Lease, LostReason};
use crate::observe;
use crate::owner::Owner;
use crate::settings::Settings;
use redlock_proto::{Ballot, NodeSet, Quorum, Vote};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The state of one attempt to acquire a lock, and of the lock if the attempt succeeds.
#[derive(Debug)]
pub(crate) struct LockShared {
    pub(crate) keys: Keys,
    pub(crate) owner: Owner,
    pub(crate) lease: Lease,
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
}

impl LockShared {
    /// Starts an attempt with a new owner. A new owner keeps attempts apart: this attempt neither counts nor
    /// releases what an earlier attempt left on the nodes.
    pub(crate) fn new(keys: Keys, ttl: Duration, settings: &Settings) -> Self {
        let lease = Lease::new(settings.clock);
        lease.give_notice_for(settings.drift.lease(ttl));
        Self {
            keys,
            owner: Owner::random(),
            lease,
            fence: AtomicU64::new(0),
            granted_by: AtomicU64::new(0),
            ttl_ms: AtomicU64::new(millis(ttl)),
            loss_reported: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
            extending: tokio::sync::Mutex::new(()),
            extras: Mutex::default(),
        }
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
        self.lease.give_notice_for(lease);
    }

    /// Resolves when the lock is no longer held, a little before its validity ends. Needs no network.
    pub(crate) async fn lost(&self) -> LostReason {
        let reason = self.lease.lost().await;
        self.report_loss();
        reason
    }

    /// Reports the loss of the lock to metrics and tracing, once, if the lock has ended without a release.
    /// Called wherever the client may find that the lock has ended.
    pub(crate) fn report_loss(&self) {
        if let Some(reason @ (LostReason::Expired | LostReason::Gone)) = self.lease.ended()
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
        let is_watched = |token: &&CancellationToken| !token.is_cancelled() || self.lease.ended().is_some();
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

    /// The last answers of the nodes: to a failed extension, otherwise to the acquire.
    pub(crate) fn last_votes(&self, quorum: Quorum) -> Ballot {
        let last_votes = self.extras.lock().unwrap_or_else(PoisonError::into_inner).last_votes.clone();
        last_votes.unwrap_or_else(|| {
            let mut ballot = Ballot::new(quorum);
            let granted_by = self.granted_by.load(Ordering::Relaxed);
            let nodes = (0..quorum.nodes()).filter(|node| granted_by >> node & 1 == 1);
            nodes.for_each(|node| ballot.enter(node, Vote::Granted { fence: self.fence() }));
            ballot
        })
    }
}

fn millis(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)
}
