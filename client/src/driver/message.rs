//! What callers ask of the driver.

use super::broadcast::{BroadcastCommand, NodeResponse};
use crate::hold::Hold;
use redlock_proto::{Ballot, Moment, NodeSet, Refusal, ReleaseProgress};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// The way to a driver. Never blocks: what is sent is small, and the caller waits for the answer.
pub(crate) type Inbox = mpsc::UnboundedSender<Message>;

/// A lock that a driver keeps, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId {
    pub(super) index: usize,
    pub(super) serial: u64,
}

/// One call.
#[derive(Debug)]
pub(crate) enum Message {
    /// Try once to take a lock. If nobody waits for the answer any more, it is given back.
    Acquire { hold: Arc<Hold>, ttl: Duration, wait: Option<WaitPlan>, answer: oneshot::Sender<Acquired> },
    /// Nobody waits any more for the lock that was asked for with this ticket.
    Cancel { ticket: u64 },
    /// The time allowed for it is up: to be answered at once, with what the nodes have said so far.
    DeadlinePassed { ticket: u64 },
    /// Extend a lock that is held.
    Extend { lock: EntryId, ttl: Duration, answer: oneshot::Sender<Extended> },
    /// Free a lock; the answer may be of no interest.
    Release { lock: EntryId, answer: Option<oneshot::Sender<ReleaseProgress>> },
    /// Forget a lock without freeing it.
    Detach { lock: EntryId },
    /// Free a lock that no driver keeps: its own has ended with its runtime.
    ReleaseUntracked { hold: Arc<Hold>, ttl: Duration },
    /// Ask some nodes something that is no vote.
    Broadcast { command: BroadcastCommand, to: NodeSet, answer: oneshot::Sender<Vec<NodeResponse>> },
    /// Say when nothing is left to be freed.
    Close { answer: oneshot::Sender<()> },
}

/// A call that may take longer than one round of questions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaitPlan {
    /// Names the call, and is its place in line.
    pub(crate) ticket: u64,
    /// Until when to wait in line for a lock that is held, if at all.
    pub(crate) queue_until: Option<Moment>,
    /// How often earlier attempts of the same call have given way.
    pub(crate) yields: u32,
}

/// What became of an attempt: the lock, or why it is not held.
pub(crate) type Acquired = Result<EntryId, NotAcquired>;

/// Why a lock is not held.
#[derive(Debug)]
pub(crate) struct NotAcquired {
    pub(crate) refusal: Refusal,
    /// What the nodes said.
    pub(crate) ballot: Ballot,
    /// Whether it was waited for in line.
    pub(crate) has_waited: bool,
}

/// What became of an extension.
#[derive(Debug)]
pub(crate) enum Extended {
    /// Held for longer.
    Yes,
    /// Held for as long as before.
    No(Ballot),
    /// No longer held.
    Lost,
    /// It was over before anybody was asked.
    Over,
}
