//! What the nodes together make of a key, and how long one lasts that others have locked with `SET NX PX`.

use crate::exit::ExitError;
use crate::group_report::quorum_of;
use redlock_client::{Failure, LockInfo, LockManager, LockStatus, NodeInspection, NodeReply, Query};
use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

/// What a majority makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ResourceState {
    Held(LockInfo),
    /// A plain key is there, which counts as held.
    Foreign(TimeLeft),
    Free,
    Unclear,
}

/// One node's part.
#[derive(Clone, Debug)]
pub(super) struct NodeView {
    pub(super) name: Arc<str>,
    pub(super) state: NodeLock,
}

#[derive(Clone, Debug)]
pub(super) enum NodeLock {
    Held(LockInfo),
    Foreign(TimeLeft),
    /// There is no lock; and perhaps why it cannot be seen whether there is a plain key.
    Free(Option<Failure>),
    Unknown(Failure),
}

/// How long a plain key lasts. What has no end is longer than all else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimeLeft {
    For(Duration),
    Endless,
}

#[derive(Clone, Debug)]
pub(super) struct ResourceView {
    pub(super) verdict: ResourceState,
    pub(super) nodes: Vec<NodeView>,
}

impl ResourceView {
    /// Asks all nodes, and how long plain keys last where there are some.
    pub(super) async fn take(locks: &LockManager, prefix: &str, resource: &str) -> Result<Self, ExitError> {
        let inspection = locks.inspect(resource).await?;
        let mut times = Vec::new();
        if inspection.nodes.iter().any(|node| matches!(node.is_foreign, Ok(true))) {
            times = locks.ask(&Query::time_left(format!("{prefix}{resource}"))).await?;
        }
        let each = inspection.nodes.into_iter().enumerate();
        let nodes: Vec<NodeView> = each.map(|(place, node)| sighted(node, times.get(place))).collect();
        Ok(Self { verdict: verdict(inspection.status, &nodes), nodes })
    }

    /// Why it cannot be seen whether there are plain keys, if that is so anywhere.
    pub(super) fn blindness(&self) -> Option<&Failure> {
        self.nodes.iter().find_map(|node| match &node.state {
            NodeLock::Free(why) => why.as_ref(),
            _ => None,
        })
    }
}

fn sighted(node: NodeInspection, time: Option<&NodeReply>) -> NodeView {
    let state = match (node.lock, node.is_foreign) {
        (Ok(Some(record)), _) => NodeLock::Held(record),
        (Err(failure), _) => NodeLock::Unknown(failure),
        // It may be gone by now.
        (Ok(None), Ok(true)) => time.map_or(NodeLock::Foreign(TimeLeft::Endless), foreign),
        (Ok(None), is_foreign) => NodeLock::Free(is_foreign.err()),
    };
    NodeView { name: node.node, state }
}

/// A plain key, by what `PTTL` says: -1 if it has no end, -2 if it is gone.
fn foreign(time: &NodeReply) -> NodeLock {
    match time.response.as_ref().ok().and_then(redlock_client::Response::integer) {
        Some(-2) => NodeLock::Free(None),
        Some(ms) => NodeLock::Foreign(
            u64::try_from(ms).map_or(TimeLeft::Endless, |ms| TimeLeft::For(Duration::from_millis(ms))),
        ),
        // It is there; how long it lasts is not for us to know.
        None => NodeLock::Foreign(TimeLeft::Endless),
    }
}

fn verdict(holding: LockStatus, nodes: &[NodeView]) -> ResourceState {
    let quorum = quorum_of(nodes.len());
    if let LockStatus::Held(record) = holding {
        return ResourceState::Held(record);
    }
    let mut foreign: Vec<TimeLeft> = nodes
        .iter()
        .filter_map(|node| match node.state {
            NodeLock::Foreign(left) => Some(left),
            _ => None,
        })
        .collect();
    foreign.sort_unstable_by_key(|left| Reverse(*left));
    // For as long as a majority has it.
    if let Some(left) = foreign.get(quorum.needed() - 1) {
        return ResourceState::Foreign(*left);
    }
    let free = nodes.iter().filter(|node| matches!(node.state, NodeLock::Free(_))).count();
    if quorum.is_reached_by(free) { ResourceState::Free } else { ResourceState::Unclear }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(states: &[NodeLock]) -> ResourceState {
        let nodes: Vec<NodeView> =
            states.iter().map(|state| NodeView { name: "a:1".into(), state: state.clone() }).collect();
        verdict(LockStatus::Free, &nodes)
    }

    #[test]
    fn a_majority_of_plain_keys_is_a_lock_of_somebody_else() {
        let plain = |ms| NodeLock::Foreign(TimeLeft::For(Duration::from_millis(ms)));
        let (free, endless) = (NodeLock::Free(None), NodeLock::Foreign(TimeLeft::Endless));
        let for_ms = |ms| ResourceState::Foreign(TimeLeft::For(Duration::from_millis(ms)));
        assert_eq!(of(&[plain(10), plain(20), plain(30)]), for_ms(20), "for as long as two have it");
        assert_eq!(of(&[plain(10), endless.clone(), free.clone()]), for_ms(10));
        assert_eq!(of(&[endless.clone(), endless, free.clone()]), ResourceState::Foreign(TimeLeft::Endless));
        assert_eq!(of(&[plain(10), free.clone(), free.clone()]), ResourceState::Free);
        let away = NodeLock::Unknown(Failure::new(redlock_client::FailureKind::Down, "gone"));
        assert_eq!(of(&[plain(10), free, away]), ResourceState::Unclear, "neither the one nor the other");
    }
}
