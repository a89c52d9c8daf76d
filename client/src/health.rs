//! How the nodes are.

use crate::Error;
use crate::driver::{Question, Sighted};
use crate::manager::LockManager;
use crate::wire::Frame;
use redlock_contract::fields::node as fields;
use redlock_contract::{Origin, Role};
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
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The longest lease that may still be running: how long a quarantine takes. An older module says the longest time
    /// to live it has ever granted.
    pub longest_lease: Duration,
    /// The longest time to live that it grants; `None` if an older module does not say.
    pub max_ttl: Option<Duration>,
    /// Grows at every start of the node; `None` if an older module does not say.
    pub incarnation: Option<u64>,
    /// At least every fence that it has given out; `None` if an older module does not say.
    pub high_water: Option<u64>,
    /// Why it grants nothing until an operator admits it; `None` if it votes, or if an older module does not say.
    pub non_voting: Option<String>,
    /// How the node began; `None` if an older module does not say.
    pub origin: Option<Origin>,
    /// How long a lock that was handed over waits for its claim; `None` if the module has no queues.
    pub claim_window: Option<Duration>,
    /// `new`, or `resumed` if it started with the state of an earlier start.
    pub started: String,
}

impl NodeState {
    /// Whether the node is a master that votes, in quarantine or not. Every master with an older module votes.
    #[must_use]
    pub fn votes(&self) -> bool {
        !self.is_replica && self.non_voting.is_none()
    }

    /// Whether the node would grant a free lock now, as far as it says: it votes and is not in quarantine. That its
    /// memory or its disk is full shows only when it is asked for a lock.
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
        return Err(Failure::rejected(complaint));
    }
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
    state().ok_or_else(|| Failure::new(FailureKind::Rejected, "a reply that makes no sense"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn said(fields: &[(&'static str, Result<i64, &'static str>)]) -> NodeHealth {
        let bulk = |text: &'static str| Frame::Bulk(Bytes::from_static(text.as_bytes()));
        let usual =
            [("node-id", Err("n1")), ("version", Err("0.2.0")), ("quarantine-ms", Ok(0)), ("locks", Ok(3))];
        let fields = usual
            .iter()
            .chain(fields)
            .map(|(name, value)| (bulk(name), value.map_or_else(bulk, Frame::Integer)));
        let said = Sighted { said: Ok(Frame::Map(fields.collect())), took: Duration::ZERO };
        NodeHealth { node: "a".into(), state: state(said), latency: Duration::ZERO }
    }

    #[test]
    fn a_newer_module_says_more() {
        let node = said(&[
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
    fn an_older_module_votes_and_says_less() {
        let node = said(&[("longest-ttl-ms", Ok(500))]);
        let state = node.state.as_ref().expect("a state");
        assert_eq!(state.longest_lease, Duration::from_millis(500));
        assert_eq!((state.incarnation, state.high_water, state.max_ttl), (None, None, None));
        assert!(state.non_voting.is_none() && node.can_grant());
    }

    #[test]
    fn a_node_that_does_not_vote_grants_nothing() {
        let node = said(&[("voting", Ok(0)), ("non-voting-reason", Err("it was promoted"))]);
        assert_eq!(node.state.as_ref().expect("a state").non_voting.as_deref(), Some("it was promoted"));
        assert!(!node.can_grant());
        assert!(!said(&[("voting", Ok(0))]).can_grant(), "also without a reason");
    }
}
