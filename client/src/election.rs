//! Leader election: one leader among candidates, each with a term that increases.
//!
//! A leader holds an exclusive lock that the client extends until the leader resigns or loses it. The fence of the
//! lock is the term, and its label is the name of the candidate.

use crate::acquire::{AcquireSpec, RetryMode};
use crate::guard::Guard;
use crate::lock_handle::LockHandle;
use crate::manager::LockManager;
use crate::report::ReleaseReport;
use crate::{Error, LostReason};
use redlock_contract::limits::MAX_LABEL_BYTES;
use redlock_proto::inspection::{LockInfo, LockStatus};
use redlock_proto::{Ballot, LockMode, Vote};
use std::fmt;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The default lease of a leader.
const DEFAULT_LEASE: Duration = Duration::from_secs(10);

/// How often an observer asks the nodes by default.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);

/// How long a candidate waits, and how long a leader leads: 30 years, which count as for ever.
const FOREVER: Duration = Duration::from_secs(30 * 365 * 86_400);

/// An election. Candidates that use the same name on the same nodes compete for one leadership.
///
/// At most one candidate leads at a time, and a leader learns of the end of its term before another candidate can lead,
/// unless an operator breaks the lock or the process is paused: the same promise, with the same assumptions and
/// exceptions, as that of a lock (`DESIGN.md` in the directory of this crate lists them). Work of a leader that was
/// paused may still arrive late: pass the [term](Leadership::term) to your storage with every write, as the fence of a
/// lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), redlock_client::Error> {
/// # let locks = redlock_client::LockManager::in_memory(5);
/// let election = locks.election("scheduler");
/// let leadership = election.campaign("host-1").await?;
/// assert_eq!(leadership.term(), 1);
/// let leader = election.leader().await?.expect("a leader");
/// assert_eq!((leader.candidate.as_str(), leader.term), ("host-1", 1));
///
/// leadership.resign().await;
/// assert_eq!(election.leader().await?, None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Election {
    locks: LockManager,
    name: Vec<u8>,
    lease: Duration,
}

/// The leader of an election, as a majority of the nodes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The name that the leader gave to [`Election::campaign`].
    pub candidate: String,
    /// The term. A later leader has a larger one.
    pub term: u64,
    /// The time until the term ends, unless the leader extends it.
    pub left: Duration,
    /// The time since the term began.
    pub since: Duration,
}

impl LockManager {
    /// Returns the election with this name. It is a lock: the resource `name` on the same nodes, with the same
    /// prefix. Sends nothing.
    #[must_use]
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        Election { locks: self.clone(), name: name.as_ref().to_vec(), lease: DEFAULT_LEASE }
    }
}

impl Election {
    /// Sets the lease of a leader: how long no other candidate can lead after the leader's machine has crashed. The
    /// default is 10 s. The client extends the lease whenever a third of its validity has passed.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Waits until this candidate leads. Candidates are served in the order of their calls, as accurately as their clocks
    /// agree; a leader that resigns hands over at once.
    ///
    /// The client extends the lease in the background until the leadership is dropped, resigned or lost. `candidate` is
    /// a text of at most 256 bytes that [`Election::leader`] returns, such as an address.
    ///
    /// Cancel safe: if the future is dropped, the candidate no longer waits.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a candidate that is too long, a name that is empty or a lease out of range, and errors
    /// that no retry cures, such as [`Error::Rejected`]. Unreachable nodes are not an error: the call waits for them.
    pub async fn campaign(&self, candidate: impl Into<String>) -> Result<Leadership, Error> {
        self.acquire(candidate.into(), RetryMode::Within(FOREVER)).await
    }

    /// As [`Election::campaign`], and waits at most `wait`. Cancel safe.
    ///
    /// # Errors
    /// As [`Election::campaign`], and [`Error::Timeout`] after `wait`.
    pub async fn campaign_timeout(
        &self,
        candidate: impl Into<String>,
        wait: Duration,
    ) -> Result<Leadership, Error> {
        self.acquire(candidate.into(), RetryMode::Within(wait)).await
    }

    async fn acquire(&self, candidate: String, retry: RetryMode) -> Result<Leadership, Error> {
        if candidate.len() > MAX_LABEL_BYTES {
            let length = candidate.len();
            return Err(Error::invalid(format!(
                "the candidate has {length} bytes; the limit is {MAX_LABEL_BYTES}: use a shorter name"
            )));
        }
        let keys = self.locks.key(&self.name)?;
        let label = Some(candidate.into_boxed_str());
        let spec = AcquireSpec { keys, mode: LockMode::Exclusive, label, ttl: self.lease, retry };
        let mut guard = self.locks.acquire_spec(spec).await?;
        guard.keep_alive(FOREVER)?;
        Ok(Leadership { guard })
    }

    /// Asks the nodes once who leads; `None` if no candidate leads. The answer may be out of date when the call
    /// returns: do not write because of it. Cancel safe.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if no majority of the nodes agrees on a leader or on none: too few answer, or a candidate is
    /// just being elected. [`Error::Rejected`] if too many reject the request. [`Error::Invalid`] for an empty name.
    pub async fn leader(&self) -> Result<Option<Leader>, Error> {
        match self.look().await? {
            LeaderView::Leads(leader) => Ok(Some(leader)),
            LeaderView::Nobody => Ok(None),
            LeaderView::Unclear(error) => Err(error),
        }
    }

    /// Asks the nodes once.
    async fn look(&self) -> Result<LeaderView, Error> {
        let inspection = self.locks.inspect(&self.name).await?;
        match &inspection.status {
            LockStatus::Held(info) => return Ok(LeaderView::Leads(leader(info))),
            LockStatus::Free | LockStatus::Foreign => return Ok(LeaderView::Nobody),
            _ => {}
        }
        let mut ballot = Ballot::new(inspection.quorum);
        for (place, node) in inspection.nodes.iter().enumerate() {
            let vote = match &node.lock {
                Ok(Some(info)) => Vote::Granted { fence: info.fence },
                Ok(None) => Vote::Free,
                Err(failure) => Vote::Failed(failure.clone()),
            };
            ballot.enter(place, vote);
        }
        let answers = inspection.nodes.iter().filter(|node| node.lock.is_ok()).count();
        let keys = self.locks.key(&self.name)?;
        let error = Error::not_extended(self.locks.shared().report(&keys, Some(&ballot)));
        if inspection.quorum.is_reached_by(answers) { Ok(LeaderView::Unclear(error)) } else { Err(error) }
    }

    /// Returns an observer that follows who leads.
    #[must_use]
    pub fn observe(&self) -> Observer {
        Observer { election: self.clone(), interval: DEFAULT_INTERVAL, next_at: None, last: None }
    }
}

/// What the nodes know about the leader.
enum LeaderView {
    Leads(Leader),
    /// No candidate leads.
    Nobody,
    /// A majority has answered, and no majority agrees.
    Unclear(Error),
}

fn leader(info: &LockInfo) -> Leader {
    Leader { candidate: info.label.clone(), term: info.fence, left: info.left, since: info.held }
}

/// The leadership of one term. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    guard: Guard,
}

impl Leadership {
    /// The term: the fence of the lock. Pass it to your storage with every write, and let the storage reject smaller
    /// ones.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.guard.fence()
    }

    /// Whether this candidate leads now. Reads the local clock and sends nothing.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.guard.is_valid()
    }

    /// Resolves when the term is over, a little before another candidate can lead, unless an operator breaks the lock or
    /// the process is paused. Cancel safe.
    ///
    /// # Panics
    /// Without a tokio runtime with a timer.
    pub async fn lost(&self) -> LostReason {
        self.guard.lost().await
    }

    /// Returns a token that is cancelled when the term is over.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] without a tokio runtime.
    pub fn cancellation_token(&self) -> Result<CancellationToken, Error> {
        self.guard.cancellation_token()
    }

    /// Returns a view of the lock for the work of the leader. It cannot resign.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        self.guard.held()
    }

    /// Ends the term, and hands over to the candidate that has waited longest. Waits until a majority of the nodes has
    /// freed the lock, or until every node has answered or timed out.
    pub async fn resign(self) -> ReleaseReport {
        self.guard.release().await
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leadership")
            .field("term", &self.term())
            .field("remaining", &self.guard.remaining())
            .finish()
    }
}

/// Follows who leads: see [`Election::observe`].
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), redlock_client::Error> {
/// # let locks = redlock_client::LockManager::in_memory(5);
/// let mut observer = locks.election("scheduler").observe();
/// assert_eq!(observer.next().await?, None);
/// let leadership = locks.election("scheduler").campaign("host-1").await?;
/// assert_eq!(observer.next().await?.expect("a leader").candidate, "host-1");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Observer {
    election: Election,
    interval: Duration,
    /// When the observer may ask again; `None` before the first question.
    next_at: Option<Instant>,
    /// The last reported term: `None` before the first report, and `Some(None)` without a leader.
    last: Option<Option<u64>>,
}

impl Observer {
    /// Sets how often the observer asks the nodes, which is how late it may learn of a change. The default is 1 s.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }

    /// Returns the leader: at once at the first call, then whenever the term has changed or no candidate leads any more.
    /// The observer may miss a term that ends between two questions. While no majority of the nodes agrees, as while a
    /// candidate is being elected, it waits.
    ///
    /// Cancel safe: a change that the caller did not get is reported by the next call. The observer asks at most once
    /// in its interval, however often it is called.
    ///
    /// # Errors
    /// [`Error::NoQuorum`] if too few nodes answer, [`Error::Rejected`] if too many reject the request, and
    /// [`Error::Invalid`] for an empty name. The next call asks again.
    pub async fn next(&mut self) -> Result<Option<Leader>, Error> {
        loop {
            if let Some(at) = self.next_at {
                tokio::time::sleep_until(at).await;
            }
            self.next_at = Some(Instant::now() + self.interval);
            let leader = match self.election.look().await? {
                LeaderView::Leads(leader) => Some(leader),
                LeaderView::Nobody => None,
                LeaderView::Unclear(_) => continue,
            };
            let term = leader.as_ref().map(|leader| leader.term);
            if self.last != Some(term) {
                self.last = Some(term);
                return Ok(leader);
            }
        }
    }
}
