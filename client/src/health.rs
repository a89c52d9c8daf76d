//! How the nodes are.

use crate::Error;
use crate::driver::{Question, Sighted};
use crate::manager::LockManager;
use crate::wire::Frame;
use redlock_proto::{Failure, FailureKind, Quorum};
use std::sync::Arc;
use std::time::Duration;

/// How the nodes are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Every node, in the order in which they were configured.
    pub nodes: Vec<NodeHealth>,
    quorum: Quorum,
}

/// How one node is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's address.
    pub node: Arc<str>,
    /// What it says of itself, or why it does not.
    pub state: Result<NodeState, Failure>,
    /// How long it took to say so.
    pub latency: Duration,
}

/// What a node says of itself.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeState {
    /// Which node it is: kept over restarts.
    pub id: String,
    /// The version of the module.
    pub version: String,
    /// For how long it grants nothing, because it may have forgotten locks; zero if it does grant.
    pub quarantine: Duration,
    /// Whether it follows another server: then it grants nothing either. An older module does not say.
    pub is_replica: bool,
    /// How many locks it holds.
    pub locks: u64,
    /// How many wait for one.
    pub waiters: u64,
    /// The largest number it has granted.
    pub fence: u64,
    /// The longest time to live it has granted: how long a quarantine takes.
    pub longest_ttl: Duration,
}

impl NodeHealth {
    /// Whether the node would grant a free lock now, as far as it says: a master that answers and is not in quarantine.
    /// That its memory or its disk is full shows only when it is asked for a lock.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(|state| state.quarantine.is_zero() && !state.is_replica)
    }
}

impl Health {
    /// Whether enough nodes would grant a free lock now; see [`NodeHealth::can_grant`].
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.quorum.is_reached_by(self.nodes.iter().filter(|node| node.can_grant()).count())
    }

    /// How many nodes it takes.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.quorum.needed()
    }
}

impl LockManager {
    /// Asks every node how it is. Changes nothing. Cancel safe.
    ///
    /// # Errors
    /// Only for want of a runtime: nodes that do not answer are part of the report.
    pub async fn health(&self) -> Result<Health, Error> {
        let question = Question::Node;
        let said = self.survey(question).await?;
        let settings = &self.shared().settings;
        let named = settings.names.iter().zip(said);
        let node = |(name, said): (&Arc<str>, Sighted)| {
            let latency = said.took;
            NodeHealth { node: Arc::clone(name), state: state(said), latency }
        };
        Ok(Health { nodes: named.map(node).collect(), quorum: settings.quorum })
    }
}

fn state(said: Sighted) -> Result<NodeState, Failure> {
    let frame = said.said?;
    if let Some(complaint) = frame.complaint() {
        return Err(Failure::new(FailureKind::Rejected, complaint));
    }
    let number = |name| frame.field(name)?.as_integer().and_then(|number| u64::try_from(number).ok());
    let text = |name| Some(frame.field(name).and_then(Frame::as_text)?.to_owned());
    let state = || {
        Some(NodeState {
            id: text("node-id")?,
            version: text("version")?,
            quarantine: Duration::from_millis(number("quarantine-ms")?),
            is_replica: text("role").as_deref() == Some("replica"),
            locks: number("locks").unwrap_or_default(),
            waiters: number("waiters").unwrap_or_default(),
            fence: number("fence").unwrap_or_default(),
            longest_ttl: Duration::from_millis(number("longest-ttl-ms").unwrap_or_default()),
        })
    };
    state().ok_or_else(|| Failure::new(FailureKind::Rejected, "a reply that makes no sense"))
}
