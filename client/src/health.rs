//! The health of the nodes.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::node_state::{NodeState, read_state};
use crate::query::Query;
use redlock_proto::{Failure, Quorum};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The health of all nodes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Each node, in the configured order.
    pub nodes: Vec<NodeHealth>,
    /// How many nodes must grant a lock.
    pub quorum: Quorum,
}

/// The health of one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's address.
    pub node: Arc<str>,
    /// What the node reports, or why it does not answer.
    pub state: Result<NodeState, Failure>,
    /// The time from the request to the reply.
    pub latency: Duration,
}

impl NodeHealth {
    /// Whether the node answers and would grant a free lock now: see [`NodeState::can_grant`].
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(NodeState::can_grant)
    }
}

/// Whether a group of nodes can grant locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupStanding {
    /// How many nodes must grant a lock.
    pub quorum: Quorum,
    /// How many nodes would grant a free lock now.
    pub granting: usize,
    /// The time until a majority may grant, zero if it can grant now. `None` if the nodes that vote are no majority:
    /// waiting does not help.
    pub grants_in: Option<Duration>,
}

impl GroupStanding {
    /// The standing of a group with this quorum, from what each node reports.
    pub fn of<'a>(quorum: Quorum, nodes: impl IntoIterator<Item = &'a Result<NodeState, Failure>>) -> Self {
        let answers = nodes.into_iter().filter_map(|state| state.as_ref().ok());
        let mut waits: Vec<Duration> = answers.filter_map(|state| state.standing().grants_in()).collect();
        waits.sort_unstable();
        let granting = waits.iter().filter(|wait| wait.is_zero()).count();
        Self { quorum, granting, grants_in: waits.get(quorum.needed() - 1).copied() }
    }

    /// Whether a majority would grant a free lock now.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.quorum.is_reached_by(self.granting)
    }
}

impl Health {
    /// Whether the nodes can grant locks.
    #[must_use]
    pub fn standing(&self) -> GroupStanding {
        GroupStanding::of(self.quorum, self.nodes.iter().map(|node| &node.state))
    }

    /// Whether a majority of the nodes would grant a free lock now; see [`NodeHealth::can_grant`].
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.standing().can_grant()
    }
}

/// How many nodes grant, and how many are needed.
impl fmt::Display for GroupStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (granting, of, needed) = (self.granting, self.quorum.nodes(), self.quorum.needed());
        write!(f, "{granting} of {of} nodes grant, {needed} are needed")
    }
}

/// How many nodes grant, then one line per node.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.standing())?;
        self.nodes.iter().try_for_each(|node| write!(f, "\n  {node}"))
    }
}

impl fmt::Display for NodeHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.node)?;
        match &self.state {
            Ok(state) => write!(f, "{state}, {:.1} ms", self.latency.as_secs_f64() * 1e3),
            Err(failure) => failure.fmt(f),
        }
    }
}

impl LockManager {
    /// Asks every node for its state. Read-only. Cancel safe.
    ///
    /// # Errors
    /// [`Error::NoRuntime`]. A node that does not answer is a failure in [`Health::nodes`].
    pub async fn health(&self) -> Result<Health, Error> {
        let replies = self.broadcast(Query::node().into_words()).await?;
        let settings = &self.shared().settings;
        let named = settings.names.iter().zip(replies);
        let node = |(name, reply): (&Arc<str>, NodeResponse)| {
            let latency = reply.latency;
            NodeHealth { node: Arc::clone(name), state: read_state(reply), latency }
        };
        Ok(Health { nodes: named.map(node).collect(), quorum: settings.quorum })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::{NonVoting, NonVotingReason};
    use redlock_proto::FailureKind;

    /// A node that is this many ms in quarantine.
    fn voting(quarantine_ms: u64) -> Result<NodeState, Failure> {
        Ok(NodeState { quarantine: Duration::from_millis(quarantine_ms), ..NodeState::default() })
    }

    fn down() -> Result<NodeState, Failure> {
        Err(Failure::new(FailureKind::Down, "gone"))
    }

    fn standing(nodes: &[Result<NodeState, Failure>]) -> GroupStanding {
        GroupStanding::of(Quorum::of(nodes.len()).expect("a node"), nodes)
    }

    #[test]
    fn a_majority_of_all_nodes_must_grant() {
        let table = [
            (standing(&[voting(0), voting(0), down()]), Some(0)),
            (standing(&[voting(0), down(), down()]), None),
            (standing(&[voting(0), voting(700), voting(300), down(), down()]), Some(700)),
            (standing(&[voting(0), voting(700), voting(300), voting(900), down()]), Some(700)),
            // Half of the nodes are no majority.
            (standing(&[voting(0), voting(0), down(), down()]), None),
        ];
        for (standing, ms) in table {
            assert_eq!(standing.grants_in, ms.map(Duration::from_millis), "{standing}");
            assert_eq!(standing.can_grant(), ms == Some(0), "{standing}");
        }
        let few = standing(&[voting(0), voting(0), down(), down()]);
        assert_eq!(few.to_string(), "2 of 4 nodes grant, 3 are needed");
    }

    #[test]
    fn waiting_does_not_help_a_non_voting_node() {
        let non_voting = Some(NonVotingReason::Known(NonVoting::CopiedState));
        let copied = || Ok(NodeState { non_voting: non_voting.clone(), ..NodeState::default() });
        let replica = || Ok(NodeState { is_replica: true, ..NodeState::default() });
        for no_voter in [copied(), replica()] {
            assert_eq!(
                standing(&[voting(0), no_voter.clone(), voting(500)]).grants_in,
                Some(Duration::from_millis(500))
            );
            assert_eq!(standing(&[voting(0), no_voter, down()]).grants_in, None);
        }
    }
}
