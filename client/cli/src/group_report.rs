//! What all nodes say of themselves.

use crate::duration::millis;
use crate::exit::ExitError;
use redlock_client::{Failure, FailureKind, LockManager, NodeState, Query, Response};
use redlock_contract::NonVoting;
use redlock_proto::Quorum;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What one node says of itself.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    pub(crate) node: Arc<str>,
    /// `REDLOCK.NODE`, or why it was not answered.
    pub(crate) state: Result<NodeState, Failure>,
    /// How long that took, over a connection that was there.
    pub(crate) latency: Duration,
    /// `INFO redlock` without the prefix of its names, as far as this user may read it.
    pub(crate) numbers: BTreeMap<String, u64>,
    pub(crate) server: Option<ServerVersion>,
}

/// Why a server does not vote, as a clause. A later module may have reasons that are not known here.
pub(crate) fn explanation(word: &str) -> String {
    NonVoting::named(word)
        .map_or_else(|| format!("its reason is {word:?}"), |reason| reason.explanation().to_owned())
}

/// What the operator does about a node that does not vote.
pub(crate) fn remedy(word: &str, node: &str) -> String {
    match NonVoting::named(word) {
        Some(reason @ NonVoting::SeveralStates) => reason.remedy().to_owned(),
        _ => format!("run `redlock admit {node}` once the server that it replaces is stopped"),
    }
}

/// Redis or Valkey, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerVersion {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// New with every start.
    pub(crate) run_id: String,
}

/// The quorum of that many configured nodes. The program refuses settings without a node, so there is at least one.
pub(crate) fn quorum_of(nodes: usize) -> Quorum {
    Quorum::of(nodes).unwrap_or(Quorum::SINGLE)
}

/// What all configured nodes report.
#[derive(Clone, Debug)]
pub(crate) struct GroupReport {
    pub(crate) nodes: Vec<NodeReport>,
}

impl GroupReport {
    /// Asks all nodes. What they say comes in one go over connections that are there.
    pub(crate) async fn take(locks: &LockManager) -> Result<Self, ExitError> {
        // The first question of all waits for the connections, and would measure that.
        let _ = locks.health().await?;
        let (redlock, server) = (Query::info("redlock"), Query::info("server"));
        let health = locks.health().await?;
        let (redlock, server) = tokio::join!(locks.ask(&redlock), locks.ask(&server));
        let each = redlock?.into_iter().zip(server?).zip(health.nodes);
        let nodes = each.map(|((redlock, server), health)| NodeReport {
            node: health.node,
            latency: health.latency,
            state: health.state,
            numbers: redlock.response.ok().as_ref().map(numbers).unwrap_or_default(),
            server: server.response.ok().as_ref().and_then(ServerVersion::read),
        });
        Ok(Self { nodes: nodes.collect() })
    }

    pub(crate) fn quorum(&self) -> Quorum {
        quorum_of(self.nodes.len())
    }

    /// How many nodes would grant a free lock now.
    pub(crate) fn granting(&self) -> usize {
        self.nodes.iter().filter(|node| node.can_grant()).count()
    }

    pub(crate) fn can_grant(&self) -> bool {
        self.quorum().is_reached_by(self.granting())
    }

    /// The nodes that answer and vote, whether they are in quarantine or not.
    fn voting(&self) -> impl Iterator<Item = &NodeState> {
        self.nodes.iter().filter_map(|node| node.state.as_ref().ok()).filter(|state| state.votes())
    }

    /// Whether quarantine alone is in the way of a majority. Nodes that do not vote do not begin to by waiting.
    pub(crate) fn waits_for_quarantine(&self) -> bool {
        !self.can_grant() && self.quorum().is_reached_by(self.voting().count())
    }

    /// When a majority may grant again, as far as only quarantine is in its way.
    pub(crate) fn quarantine_left(&self) -> Duration {
        let mut left: Vec<Duration> = self.voting().map(|state| state.quarantine).collect();
        left.sort_unstable();
        left.get(self.quorum().needed() - 1).copied().unwrap_or_default()
    }
}

impl NodeReport {
    /// The address that leads to the same node, if the client has found that out: one of the two has no vote.
    pub(crate) fn twin(&self) -> Option<&str> {
        let failure = self.state.as_ref().err()?;
        (failure.kind == FailureKind::SameNode).then_some(&*failure.detail)
    }

    pub(crate) fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(NodeState::can_grant)
    }

    /// In milliseconds, with their parts.
    pub(crate) fn latency_ms(&self) -> f64 {
        (self.latency.as_secs_f64() * 1e6).round() / 1e3
    }

    /// How long it grants nothing, in milliseconds.
    pub(crate) fn quarantine_ms(&self) -> u64 {
        self.state.as_ref().map_or(0, |state| millis(state.quarantine))
    }
}

impl ServerVersion {
    fn read(response: &Response) -> Option<Self> {
        let info = response.text()?;
        let run_id = field(info, "run_id").unwrap_or_default();
        let of = |name, version| Self { name, version, run_id: run_id.clone() };
        field(info, "valkey_version")
            .map(|version| of("valkey", version))
            .or_else(|| Some(of("redis", field(info, "redis_version")?)))
    }

    /// The first two numbers of the version.
    pub(crate) fn major_minor(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// One field of an `INFO` text.
pub(crate) fn field(info: &str, name: &str) -> Option<String> {
    info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

fn numbers(response: &Response) -> BTreeMap<String, u64> {
    let lines = response.text().unwrap_or_default().lines();
    let number = |line: &str| {
        let (name, value) = line.strip_prefix("redlock_")?.split_once(':')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    lines.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: Result<u64, ()>) -> NodeReport {
        let state = state.map(|quarantine_ms| {
            let mut state = NodeState::default();
            state.quarantine = Duration::from_millis(quarantine_ms);
            state
        });
        let down = || Failure::new(FailureKind::Down, "gone");
        NodeReport {
            node: "a:1".into(),
            state: state.map_err(|()| down()),
            latency: Duration::from_micros(1_234),
            numbers: BTreeMap::new(),
            server: None,
        }
    }

    #[test]
    fn a_majority_of_all_nodes_decides() {
        let report =
            |states: &[Result<u64, ()>]| GroupReport { nodes: states.iter().map(|s| report(*s)).collect() };
        let down = Err(());
        assert!(report(&[Ok(0), Ok(0), down]).can_grant());
        assert!(!report(&[Ok(0), down, down]).can_grant());
        assert!(!report(&[Ok(0), down, down]).waits_for_quarantine());
        let waiting = report(&[Ok(0), Ok(700), Ok(300), down, down]);
        assert!(!waiting.can_grant() && waiting.waits_for_quarantine());
        assert_eq!(waiting.quarantine_left(), Duration::from_millis(700));
        assert!(!report(&[Ok(0), Ok(0), down, down]).can_grant(), "a tie is a refusal");
    }

    #[test]
    fn a_node_that_does_not_vote_grants_nothing_and_does_not_begin_to_by_waiting() {
        let mut report = GroupReport { nodes: vec![report(Ok(0)), report(Ok(500)), report(Ok(0))] };
        assert!(report.can_grant());
        if let Ok(state) = &mut report.nodes[2].state {
            state.non_voting = Some("copied-state-file".to_owned());
        }
        assert!(!report.nodes[2].can_grant());
        assert!(!report.can_grant() && report.waits_for_quarantine());
        assert_eq!(report.quarantine_left(), Duration::from_millis(500));
        report.nodes.remove(1);
        assert!(!report.waits_for_quarantine());
    }

    #[test]
    fn reasons_of_nodes_that_do_not_vote() {
        assert_eq!(explanation("copied-state-file"), "its state file is a copy");
        assert_eq!(explanation("a-later-one"), "its reason is \"a-later-one\"");
        assert!(remedy("replica", "a:1").contains("`redlock admit a:1`"));
        assert!(remedy("several-state-files", "a:1").contains("move the others out of its dir"));
    }

    #[test]
    fn fields_of_info() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(field(info, "valkey_version").as_deref(), Some("9.1.2"));
        assert_eq!(field(info, "version"), None);
    }
}
