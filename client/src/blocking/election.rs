//! Leader election for programs without an async runtime.

use super::engine::Engine;
use super::manager::LockManager;
use crate::{Error, Leader, LockHandle, LostReason, ReleaseReport};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// An election; the blocking form of [`crate::Election`].
///
/// ```
/// # use redlock_client::LockManager;
/// # use redlock_client::memory::MemoryNodes;
/// let locks = LockManager::builder().memory(&MemoryNodes::new(5)).build_blocking()?;
/// let election = locks.election("scheduler");
/// let leadership = election.campaign("host-1")?;
/// assert_eq!(election.leader()?.expect("a leader").candidate, "host-1");
/// leadership.resign();
/// assert_eq!(election.leader()?, None);
/// # Ok::<(), redlock_client::Error>(())
/// ```
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    engine: Arc<Engine>,
}

impl LockManager {
    /// Returns the election with this name; see [`crate::LockManager::election`]. Does not block.
    #[must_use]
    pub fn election(&self, name: impl AsRef<[u8]>) -> Election {
        let engine = Arc::clone(self.engine());
        Election { election: engine.locks.election(name), engine }
    }
}

impl Election {
    /// Sets the lease of a leader; see [`crate::Election::lease`].
    #[must_use]
    pub fn lease(self, lease: Duration) -> Self {
        Self { election: self.election.lease(lease), engine: self.engine }
    }

    /// Blocks until this candidate leads; see [`crate::Election::campaign`].
    ///
    /// # Errors
    /// As [`crate::Election::campaign`].
    pub fn campaign(&self, candidate: impl Into<String>) -> Result<Leadership, Error> {
        let (election, candidate) = (self.election.clone(), candidate.into());
        self.leads(async move { election.campaign(candidate).await })
    }

    /// As [`Election::campaign`], and waits at most `wait`.
    ///
    /// # Errors
    /// As [`crate::Election::campaign_timeout`].
    pub fn campaign_timeout(
        &self,
        candidate: impl Into<String>,
        wait: Duration,
    ) -> Result<Leadership, Error> {
        let (election, candidate) = (self.election.clone(), candidate.into());
        self.leads(async move { election.campaign_timeout(candidate, wait).await })
    }

    fn leads(
        &self,
        campaign: impl Future<Output = Result<crate::Leadership, Error>> + Send + 'static,
    ) -> Result<Leadership, Error> {
        let leadership = self.engine.wait(campaign)??;
        Ok(Leadership { leadership, engine: Arc::clone(&self.engine) })
    }

    /// Asks the nodes once who leads. Blocks until the nodes have answered or timed out.
    ///
    /// # Errors
    /// As [`crate::Election::leader`].
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        let election = self.election.clone();
        self.engine.wait(async move { election.leader().await })?
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.election.fmt(f)
    }
}

/// The leadership of one term; the blocking form of [`crate::Leadership`]. Dropping it resigns in the background.
#[must_use = "dropping the leadership resigns"]
pub struct Leadership {
    /// Declared before the engine, so that its drop sends the release before the engine stops.
    leadership: crate::Leadership,
    engine: Arc<Engine>,
}

impl Leadership {
    /// The term; see [`crate::Leadership::term`].
    #[must_use]
    pub fn term(&self) -> u64 {
        self.leadership.term()
    }

    /// Whether this candidate leads now. Reads the local clock and sends nothing.
    ///
    /// The client cannot interrupt a thread that works as the leader. The thread must call this method before every
    /// step that only a leader may take.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.leadership.is_leader()
    }

    /// Returns a view of the lock for the work of the leader. It cannot resign.
    #[must_use]
    pub fn held(&self) -> LockHandle {
        self.leadership.held()
    }

    /// Waits until the term is over, at most for `at_most`. Returns `None` if this candidate still leads.
    #[must_use = "`None` says that this candidate still leads"]
    pub fn wait_lost(&self, at_most: Duration) -> Option<LostReason> {
        let held = self.held();
        let lost = async move { tokio::time::timeout(at_most, held.lost()).await.ok() };
        // Without a runtime nothing extends the lease.
        self.engine.wait(lost).unwrap_or(Some(LostReason::Expired))
    }

    /// Ends the term, and hands over to the candidate that has waited longest. Blocks until a majority of the nodes has
    /// freed the lock, or until every node has answered or timed out.
    pub fn resign(self) -> ReleaseReport {
        let Self { leadership, engine } = self;
        let was_leader = leadership.is_leader();
        let report = engine.wait(leadership.resign());
        report.unwrap_or_else(|_| ReleaseReport::new(was_leader, engine.settings(), None))
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.leadership.fmt(f)
    }
}
