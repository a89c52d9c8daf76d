//! How the nodes are.

use crate::Error;
use crate::driver::NodeResponse;
use crate::manager::LockManager;
use crate::query::Query;
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
}

impl NodeHealth {
    /// Whether the node would grant a free lock now, as far as it says: a master that answers, votes and is not in
    /// quarantine.
    /// That its memory or its disk is full shows only when it is asked for a lock.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        let grants =
            |state: &NodeState| state.quarantine.is_zero() && !state.is_replica && state.non_voting.is_none();
        self.state.as_ref().is_ok_and(grants)
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
            id: text("node-id")?,
            version: text("version")?,
            quarantine: Duration::from_millis(number("quarantine-ms")?),
            is_replica: text("role").as_deref() == Some("replica"),
            locks: number("locks").unwrap_or_default(),
            waiters: number("waiters").unwrap_or_default(),
            fence: number("fence").unwrap_or_default(),
            longest_lease: milliseconds("longest-lease-ms")
                .or_else(|| milliseconds("longest-ttl-ms"))
                .unwrap_or_default(),
            max_ttl: milliseconds("max-ttl-ms"),
            incarnation: number("incarnation"),
            high_water: number("high-water"),
            non_voting: (number("voting") == Some(0)).then(|| text("non-voting-reason").unwrap_or_default()),
        })
    };
    state().ok_or_else(|| Failure::new(FailureKind::Rejected, "a reply that makes no sense"))
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
    fn a_newer_module_says_more() {
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
    fn an_older_module_votes_and_says_less() {
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
        assert!(!node_with(&[("voting", Ok(0))]).can_grant(), "also without a reason");
    }
}
