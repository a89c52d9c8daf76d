//! One lock, as its guard, its views and the driver share it.

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

/// What belongs to one attempt to hold a lock.
#[derive(Debug)]
pub(crate) struct LockShared {
    pub(crate) keys: Keys,
    pub(crate) owner: Owner,
    pub(crate) lease: Lease,
    fence: AtomicU64,
    /// The nodes that had granted it when it was held, a bit each.
    granted_by: AtomicU64,
    ttl_ms: AtomicU64,
    is_loss_told: AtomicBool,
    was_refused: AtomicBool,
    /// Extensions of one lock go one after the other.
    pub(crate) extending: tokio::sync::Mutex<()>,
    extras: Mutex<Extras>,
}

/// What most locks never need.
#[derive(Debug, Default)]
struct Extras {
    token: Option<CancellationToken>,
    /// What the nodes said to an extension that failed.
    last_words: Option<Ballot>,
}

impl LockShared {
    /// An attempt, with an owner of its own: what an earlier one left behind is neither taken for it nor
    /// freed by it.
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
            is_loss_told: AtomicBool::new(false),
            was_refused: AtomicBool::new(false),
            extending: tokio::sync::Mutex::new(()),
            extras: Mutex::default(),
        }
    }

    /// The lock is held under this number.
    pub(crate) fn granted(&self, fence: u64) {
        self.fence.store(fence, Ordering::Release);
    }

    /// These nodes have granted it.
    pub(crate) fn granted_by(&self, nodes: NodeSet) {
        let bits = nodes.iter().fold(0, |bits, node| bits | 1_u64 << node);
        self.granted_by.store(bits, Ordering::Relaxed);
    }

    /// Somebody else held it when it was asked for.
    pub(crate) fn refused(&self) {
        self.was_refused.store(true, Ordering::Relaxed);
    }

    /// Whether somebody else held it when it was asked for.
    pub(crate) fn was_refused(&self) -> bool {
        self.was_refused.load(Ordering::Relaxed)
    }

    /// The number it is held under; 0 before it is held.
    pub(crate) fn fence(&self) -> u64 {
        self.fence.load(Ordering::Acquire)
    }

    /// The time to live that was asked for last.
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_millis(self.ttl_ms.load(Ordering::Relaxed))
    }

    /// An extension by a time to live has succeeded, of which so much is counted on.
    pub(crate) fn set_ttl(&self, ttl: Duration, lease: Duration) {
        self.ttl_ms.store(millis(ttl), Ordering::Relaxed);
        self.lease.give_notice_for(lease);
    }

    /// Resolves when the lock is no longer held, a little before its time is up. Needs no network.
    pub(crate) async fn lost(&self) -> LostReason {
        let reason = self.lease.lost().await;
        self.tell_loss();
        reason
    }

    /// Tells whoever observes, once, that the lock is over and was not released, if it is so. To be called where
    /// that may be found out.
    pub(crate) fn tell_loss(&self) {
        if let Some(reason @ (LostReason::Expired | LostReason::Gone)) = self.lease.ended()
            && !self.is_loss_told.swap(true, Ordering::Relaxed)
        {
            observe::lost(&self.keys, self.fence(), reason);
        }
    }

    /// Somebody else looks after the lock now: how it ends here is nobody's loss.
    pub(crate) fn keep_silent(&self) {
        self.is_loss_told.store(true, Ordering::Relaxed);
    }

    /// A token that is cancelled when the lock is no longer held. The same one for everybody who asks, unless the
    /// runtime that watched the clock for it has shut down: that cancels it too, for nobody would do so later.
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

    /// Keeps what the nodes said to a failed extension, for the error that may follow; nothing after one that
    /// succeeded.
    pub(crate) fn remember(&self, said: Option<Ballot>) {
        self.extras.lock().unwrap_or_else(PoisonError::into_inner).last_words = said;
    }

    /// What the nodes said last: to an extension that failed, or else when they granted the lock.
    pub(crate) fn last_words(&self, quorum: Quorum) -> Ballot {
        let last_words = self.extras.lock().unwrap_or_else(PoisonError::into_inner).last_words.clone();
        last_words.unwrap_or_else(|| {
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
