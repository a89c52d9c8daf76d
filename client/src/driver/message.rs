//! Messages of callers to the driver.

use super::broadcast::NodeResponse;
use crate::lock_shared::LockShared;
use redlock_proto::{Ballot, Moment, NodeSet, Refusal, ReleaseProgress};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The sender to a driver. Sending never blocks.
pub(crate) type Inbox = mpsc::UnboundedSender<Message>;

/// Names a lock or a broadcast that a driver tracks. The driver reuses an index; it never reuses a serial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(super) index: usize,
    pub(super) serial: u64,
}

/// One call. Calls, requests and events have no `Debug`: they contain owners.
pub(crate) enum Message {
    /// Makes one attempt to acquire a lock.
    Acquire(AcquireCall),
    /// The caller of the acquire with this ticket has stopped waiting.
    Cancel { ticket: u64 },
    /// The deadline of the acquire with this ticket has passed: the driver answers with the votes so far.
    DeadlinePassed { ticket: u64 },
    /// Extends a held lock.
    Extend { lock: EntryId, ttl: Duration, answer: oneshot::Sender<Extended> },
    /// Releases a lock. `answer` is `None` if the caller does not wait.
    Release { lock: EntryId, answer: Option<oneshot::Sender<ReleaseProgress>> },
    /// Stops tracking a lock without releasing it.
    Detach { lock: EntryId },
    /// Releases a lock that no driver tracks: its driver has ended with its runtime.
    ReleaseUntracked { shared: Arc<LockShared>, ttl: Duration },
    /// Sends a command that is not a vote to the nodes `to`.
    Broadcast { words: Vec<Vec<u8>>, to: NodeSet, answer: oneshot::Sender<Vec<NodeResponse>> },
    /// Answers once every release that was begun before has been answered or has timed out.
    Flush { answer: oneshot::Sender<()> },
}

/// One attempt to acquire a lock. If the caller stops waiting, the driver releases the lock.
pub(crate) struct AcquireCall {
    pub(crate) shared: Arc<LockShared>,
    pub(crate) ttl: Duration,
    /// `None` for a call of one attempt.
    pub(crate) wait: Option<WaitPlan>,
    pub(crate) answer: oneshot::Sender<Acquired>,
}

impl AcquireCall {
    pub(super) fn ticket(&self) -> Option<u64> {
        self.wait.map(|wait| wait.ticket)
    }

    /// Until when the call wants to queue on the nodes; `None` to not queue.
    pub(super) fn queue_until(&self) -> Option<Moment> {
        self.wait.and_then(|wait| wait.queue_until)
    }
}

/// How a call waits for a lock that another client holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPlan {
    /// Names the call, and orders it in the nodes' wait queues.
    pub(crate) ticket: u64,
    /// Until when to queue on the nodes; `None` to not queue.
    pub(crate) queue_until: Option<Moment>,
    /// How many times earlier attempts of the same call have yielded to an older ticket.
    pub(crate) yields: u32,
}

/// The result of one attempt.
pub(crate) type Acquired = Result<EntryId, NotAcquired>;

/// Why an attempt failed.
#[derive(Debug)]
pub(crate) struct NotAcquired {
    pub(crate) refusal: Refusal,
    /// The nodes' votes.
    pub(crate) ballot: Ballot,
    /// Whether the client queued on the nodes.
    pub(crate) has_waited: bool,
}

/// The result of an extension.
#[derive(Debug)]
pub(crate) enum Extended {
    /// The lock is held for longer.
    Yes,
    /// The validity of the lock is unchanged. The votes are in [`LockShared::last_votes`].
    No,
    /// The lock is lost.
    Lost,
    /// The lock had expired before the client asked the nodes.
    Ended,
}
