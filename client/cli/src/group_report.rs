//! The state of all nodes, as they report it.

use crate::duration::millis;
use crate::exit::ExitError;
use redlock_client::{Failure, FailureKind, GroupStanding, LockManager, NodeState, Query, Quorum, Response};
use redlock_contract::fields::info;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The report of one node.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    pub(crate) node: Arc<str>,
    /// The reply to `REDLOCK.NODE`, or the failure.
    pub(crate) state: Result<NodeState, Failure>,
    /// How long that reply took, over an open connection.
    pub(crate) latency: Duration,
    /// The numbers of `INFO redlock`, without the prefix `redlock_`. Empty if this user may not read them.
    pub(crate) numbers: BTreeMap<String, u64>,
    pub(crate) server: Option<ServerVersion>,
}

/// Redis or Valkey, and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerVersion {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// Different after each start of the server.
    pub(crate) run_id: String,
}

/// The reports of all configured nodes.
#[derive(Clone, Debug)]
pub(crate) struct GroupReport {
    pub(crate) nodes: Vec<NodeReport>,
    /// How many nodes must grant a lock.
    pub(crate) quorum: Quorum,
}

impl GroupReport {
    /// Asks all nodes concurrently, over open connections.
    pub(crate) async fn take(locks: &LockManager) -> Result<Self, ExitError> {
        // The first request waits for the connections, so its latency would include connecting.
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
        Ok(Self { nodes: nodes.collect(), quorum: health.quorum })
    }

    /// Whether the nodes can grant locks.
    pub(crate) fn standing(&self) -> GroupStanding {
        GroupStanding::of(self.quorum, self.nodes.iter().map(|node| &node.state))
    }
}

impl NodeReport {
    /// The other address of this node, if the client found that two addresses lead to it. One of the two has no vote.
    pub(crate) fn twin(&self) -> Option<&str> {
        let failure = self.state.as_ref().err()?;
        (failure.kind == FailureKind::SameNode).then_some(&*failure.detail)
    }

    pub(crate) fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(NodeState::can_grant)
    }

    /// The latency in milliseconds, with fractions down to a microsecond.
    pub(crate) fn latency_ms(&self) -> f64 {
        (self.latency.as_secs_f64() * 1e6).round() / 1e3
    }

    /// How long the node grants nothing, in milliseconds.
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

    /// The major and the minor version.
    pub(crate) fn major_minor(&self) -> Option<(u32, u32)> {
        let mut numbers = self.version.split('.').map(str::parse);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
    }
}

/// The value of one field of an `INFO` reply.
pub(crate) fn field(info: &str, name: &str) -> Option<String> {
    info.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
}

fn numbers(response: &Response) -> BTreeMap<String, u64> {
    let lines = response.text().unwrap_or_default().lines();
    let number = |line: &str| {
        let (name, value) = line.strip_prefix(info::PREFIX)?.split_once(':')?;
        Some((name.to_owned(), value.trim().parse().ok()?))
    };
    lines.filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_of_info_is_found_by_its_whole_name() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(field(info, "valkey_version").as_deref(), Some("9.1.2"));
        assert_eq!(field(info, "version"), None);
    }
}
