//! The health of the nodes.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::query::Query;
use crate::wire::Frame;
use redlock_contract::fields::node as fields;
use redlock_contract::{Origin, Role};
use redlock_proto::{Failure, FailureKind, Quorum};
use std::sync::Arc;
use std::time::Duration;

/// The health of all nodes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Health {
    /// Each node, in the configured order.
    pub nodes: Vec<NodeHealth>,
    quorum: Quorum,
}

/// The health of one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeHealth {
    /// The node's address.
    pub node: Arc<str>,
    /// What the node reports, or why it does not answer.
    pub state: Result<NodeState, Failure>,
    /// The time until the reply.
    pub latency: Duration,
}

/// What a node reports about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeState {
    /// The id of the node. A restart does not change it.
    pub id: String,
    /// The version of the module.
    pub version: String,
    /// The time left in quarantine, during which the node grants nothing because it may have forgotten locks.
    pub quarantine: Duration,
    /// Whether the server is a replica, which grants nothing. `false` if an older module does not report it.
    pub is_replica: bool,
    /// How many locks the node holds.
    pub locks: u64,
    /// How many waiters its wait queues have.
    pub waiters: u64,
    /// The largest fence that the node has granted.
    pub fence: u64,
    /// The longest lease that may still be running, which is how long a quarantine takes. An older module
    /// reports the longest time to live that it has ever granted.
    pub longest_lease: Duration,
    /// The longest time to live that the node grants; `None` if an older module does not report it.
    pub max_ttl: Option<Duration>,
    /// A number that grows at every start of the node; `None` if an older module does not report it.
    pub incarnation: Option<u64>,
    /// The high-water mark: no fence of the node is above it. `None` if an older module does not report it.
    pub high_water: Option<u64>,
    /// Why the node does not vote; `None` if it votes, or if an older module does not report it.
    pub non_voting: Option<String>,
    /// How the node began; `None` if an older module does not report it.
    pub origin: Option<Origin>,
    /// The claim window, within which a waiter confirms a grant; `None` if an older module has no wait
    /// queues.
    pub claim_window: Option<Duration>,
    /// `new`, or `resumed` if the node started with the state of an earlier start.
    pub started: String,
}

impl NodeState {
    /// Whether the node is a master that votes, in quarantine or not. Every master with an older module votes.
    #[must_use]
    pub fn votes(&self) -> bool {
        !self.is_replica && self.non_voting.is_none()
    }

    /// Whether the node would grant a free lock now: it votes and is not in quarantine. A full memory or disk
    /// shows only when a client acquires a lock.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.votes() && self.quarantine.is_zero()
    }
}

impl NodeHealth {
    /// Whether the node answers and would grant a free lock now: see [`NodeState::can_grant`].
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(NodeState::can_grant)
    }
}

impl Health {
    /// Whether a majority of the nodes would grant a free lock now; see [`NodeHealth::can_grant`].
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.quorum.is_reached_by(self.nodes.iter().filter(|node| node.can_grant()).count())
    }

    /// How many nodes are a majority.
    #[must_use]
    pub fn needed(&self) -> usize {
        self.quorum.needed()
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
            NodeHealth { node: Arc::clone(name), state: state(reply), latency }
        };
        Ok(Health { nodes: named.map(node).collect(), quorum: settings.quorum })
    }
}

fn state(reply: NodeResponse) -> Result<NodeState, Failure> {
    let frame = reply.frame?;
    let number = |name| frame.field(name)?.as_integer().and_then(|number| u64::try_from(number).ok());
    let milliseconds = |name| number(name).map(Duration::from_millis);
    let text = |name| Some(frame.field(name).and_then(Frame::as_text)?.to_owned());
    let state = || {
        Some(NodeState {
            id: text(fields::ID)?,
            version: text(fields::VERSION)?,
            quarantine: Duration::from_millis(number(fields::QUARANTINE_MS)?),
            is_replica: text(fields::ROLE).as_deref() == Some(Role::Replica.name()),
            locks: number(fields::LOCKS).unwrap_or_default(),
            waiters: number(fields::WAITERS).unwrap_or_default(),
            fence: number(fields::FENCE).unwrap_or_default(),
            longest_lease: milliseconds(fields::LONGEST_LEASE_MS)
                .or_else(|| milliseconds("longest-ttl-ms"))
                .unwrap_or_default(),
            max_ttl: milliseconds(fields::MAX_TTL_MS),
            incarnation: number(fields::INCARNATION),
            high_water: number(fields::HIGH_WATER),
            non_voting: (number(fields::VOTING) == Some(0))
                .then(|| text(fields::NON_VOTING_REASON).unwrap_or_default()),
            origin: text(fields::ORIGIN).and_then(|origin| Origin::named(&origin)),
            claim_window: milliseconds(fields::CLAIM_WINDOW_MS),
            started: text(fields::STARTED).unwrap_or_default(),
        })
    };
    state().ok_or_else(|| {
        Failure::new(
            FailureKind::Rejected,
            "the reply to REDLOCK.NODE lacks the id, the version or the quarantine",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn node_with(fields: &[(&'static str, Result<i64, &'static str>)]) -> NodeHealth {
        let bulk = |text: &'static str| Frame::Bulk(Bytes::from_static(text.as_bytes()));
        let usual =
            [("node-id", Err("n1")), ("version", Err("0.2.0")), ("quarantine-ms", Ok(0)), ("locks", Ok(3))];
        let fields = usual
            .iter()
            .chain(fields)
            .map(|(name, value)| (bulk(name), value.map_or_else(bulk, Frame::Integer)));
        let reply = NodeResponse { frame: Ok(Frame::Map(fields.collect())), latency: Duration::ZERO };
        NodeHealth { node: "a".into(), state: state(reply), latency: Duration::ZERO }
    }

    #[test]
    fn the_module_reports_all_fields() {
        let node = node_with(&[
            ("incarnation", Ok(4)),
            ("high-water", Ok(900)),
            ("voting", Ok(1)),
            ("non-voting-reason", Err("")),
            ("max-ttl-ms", Ok(60_000)),
            ("longest-lease-ms", Ok(30)),
            ("longest-ttl-ms", Ok(86_400_000)),
        ]);
        let state = node.state.as_ref().expect("a state");
        assert_eq!((state.incarnation, state.high_water, state.locks), (Some(4), Some(900), 3));
        assert_eq!(state.max_ttl, Some(Duration::from_secs(60)));
        assert_eq!(state.longest_lease, Duration::from_millis(30));
        assert_eq!(state.non_voting, None);
        assert!(node.can_grant());
    }

    #[test]
    fn an_older_module_votes_and_reports_fewer_fields() {
        let node = node_with(&[("longest-ttl-ms", Ok(500))]);
        let state = node.state.as_ref().expect("a state");
        assert_eq!(state.longest_lease, Duration::from_millis(500));
        assert_eq!((state.incarnation, state.high_water, state.max_ttl), (None, None, None));
        assert!(state.non_voting.is_none() && node.can_grant());
    }

    #[test]
    fn a_node_that_does_not_vote_grants_nothing() {
        let node = node_with(&[("voting", Ok(0)), ("non-voting-reason", Err("it was promoted"))]);
        assert_eq!(node.state.as_ref().expect("a state").non_voting.as_deref(), Some("it was promoted"));
        assert!(!node.can_grant());
        assert!(!node_with(&[("voting", Ok(0))]).can_grant(), "a reason is optional");
    }
}
