//! Combines the answers of the nodes about one key, plain keys included: those that a client has set with `SET NX PX`.

use crate::exit::ExitError;
use redlock_client::{
    Failure, FailureKind, LockInfo, LockManager, LockStatus, NodeInspection, NodeReply, Query, Quorum,
};
use redlock_proto::inspection::{NodeStatus, lock_status};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// The state of the resource on a majority of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ResourceState {
    Held(LockInfo),
    /// A plain key exists, which counts as held.
    Foreign(TimeLeft),
    Free,
    Unclear,
}

/// The answer of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeView {
    pub(crate) name: Arc<str>,
    pub(crate) state: NodeLock,
}

impl NodeView {
    /// Whether the node refused to show the lock.
    pub(crate) fn is_rejected(&self) -> bool {
        matches!(&self.state, NodeLock::Unknown(failure) if failure.kind == FailureKind::Rejected)
    }
}

#[derive(Clone, Debug)]
pub(crate) enum NodeLock {
    Held(LockInfo),
    Foreign(TimeLeft),
    /// There is no lock. With a failure, this user could not check for a plain key.
    Free(Option<Failure>),
    Unknown(Failure),
}

/// The time that a plain key has left. `Endless` sorts after every duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TimeLeft {
    For(Duration),
    Endless,
}

#[derive(Clone, Debug)]
pub(crate) struct ResourceView {
    pub(crate) verdict: ResourceState,
    pub(crate) nodes: Vec<NodeView>,
    /// How many nodes are a majority.
    pub(crate) quorum: Quorum,
}

impl ResourceView {
    /// Asks all nodes for the lock, and for the time left of plain keys if there are any.
    pub(crate) async fn take(locks: &LockManager, prefix: &str, resource: &str) -> Result<Self, ExitError> {
        let inspection = locks.inspect(resource).await?;
        let mut times = Vec::new();
        if inspection.nodes.iter().any(|node| matches!(node.is_foreign, Ok(true))) {
            times = locks.ask(&Query::time_left(format!("{prefix}{resource}"))).await?;
        }
        let each = inspection.nodes.into_iter().enumerate();
        let nodes: Vec<NodeView> = each.map(|(place, node)| node_view(node, times.get(place))).collect();
        let quorum = inspection.quorum;
        Ok(Self { verdict: verdict(quorum, &nodes), nodes, quorum })
    }

    /// The failure of the first node on which this user could not check for a plain key.
    pub(crate) fn hidden_plain_keys(&self) -> Option<&Failure> {
        self.nodes.iter().find_map(|node| match &node.state {
            NodeLock::Free(why) => why.as_ref(),
            _ => None,
        })
    }
}

fn node_view(node: NodeInspection, time: Option<&NodeReply>) -> NodeView {
    let state = match (node.lock, node.is_foreign) {
        (Ok(Some(record)), _) => NodeLock::Held(record),
        (Err(failure), _) => NodeLock::Unknown(failure),
        // The key may be gone by now.
        (Ok(None), Ok(true)) => time.map_or(NodeLock::Foreign(TimeLeft::Endless), foreign),
        (Ok(None), is_foreign) => NodeLock::Free(is_foreign.err()),
    };
    NodeView { name: node.node, state }
}

/// A plain key, by the reply of `PTTL`: -1 if the key never expires, -2 if it is gone.
fn foreign(time: &NodeReply) -> NodeLock {
    match time.response.as_ref().ok().and_then(redlock_client::Response::integer) {
        Some(-2) => NodeLock::Free(None),
        Some(ms) => NodeLock::Foreign(
            u64::try_from(ms).map_or(TimeLeft::Endless, |ms| TimeLeft::For(Duration::from_millis(ms))),
        ),
        // The key exists, but its time left is unknown.
        None => NodeLock::Foreign(TimeLeft::Endless),
    }
}

/// The state on a majority, by the rule of the client.
fn verdict(quorum: Quorum, nodes: &[NodeView]) -> ResourceState {
    let status = |node: &NodeView| match &node.state {
        NodeLock::Held(record) => NodeStatus::Held(record.clone()),
        NodeLock::Foreign(_) => NodeStatus::Foreign,
        NodeLock::Free(_) => NodeStatus::Free,
        NodeLock::Unknown(_) => NodeStatus::Unknown,
    };
    let statuses: Vec<NodeStatus> = nodes.iter().map(status).collect();
    match lock_status(quorum, &statuses) {
        LockStatus::Held(record) => ResourceState::Held(record),
        LockStatus::Foreign => ResourceState::Foreign(left_on_a_majority(quorum, nodes)),
        LockStatus::Free => ResourceState::Free,
        _ => ResourceState::Unclear,
    }
}

/// The time for which a majority has a plain key, if a majority has one.
fn left_on_a_majority(quorum: Quorum, nodes: &[NodeView]) -> TimeLeft {
    let left = |node: &NodeView| match node.state {
        NodeLock::Foreign(left) => Some(left),
        _ => None,
    };
    let mut foreign: Vec<TimeLeft> = nodes.iter().filter_map(left).collect();
    foreign.sort_unstable_by_key(|left| Reverse(*left));
    foreign.get(quorum.needed() - 1).copied().unwrap_or(TimeLeft::Endless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(states: &[NodeLock]) -> ResourceState {
        let nodes: Vec<NodeView> =
            states.iter().map(|state| NodeView { name: "a:1".into(), state: state.clone() }).collect();
        verdict(Quorum::of(states.len()).expect("a node"), &nodes)
    }

    #[test]
    fn a_plain_key_on_a_majority_counts_as_held() {
        let plain = |ms| NodeLock::Foreign(TimeLeft::For(Duration::from_millis(ms)));
        let (free, endless) = (NodeLock::Free(None), NodeLock::Foreign(TimeLeft::Endless));
        let for_ms = |ms| ResourceState::Foreign(TimeLeft::For(Duration::from_millis(ms)));
        assert_eq!(of(&[plain(10), plain(20), plain(30)]), for_ms(20), "as long as two nodes hold the key");
        assert_eq!(of(&[plain(10), endless.clone(), free.clone()]), for_ms(10));
        assert_eq!(of(&[endless.clone(), endless, free.clone()]), ResourceState::Foreign(TimeLeft::Endless));
        assert_eq!(of(&[plain(10), free.clone(), free.clone()]), ResourceState::Free);
        let away = NodeLock::Unknown(Failure::new(FailureKind::Down, "gone"));
        assert_eq!(
            of(&[plain(10), free, away]),
            ResourceState::Unclear,
            "neither held nor free on a majority"
        );
    }
}
