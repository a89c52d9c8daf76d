//! What all nodes say of themselves.

use crate::duration::millis;
use crate::exit::Failure as Stop;
use redlock_client::{Failure, LockManager, NodeReply, Query, Response};
use redlock_core::durable::NonVoting;
use redlock_proto::Quorum;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// What one node says of itself.
#[derive(Clone, Debug)]
pub(crate) struct NodeReport {
    pub(crate) node: Arc<str>,
    /// `REDLOCK.NODE`, or why it was not answered.
    pub(crate) state: Result<State, Failure>,
    /// How long that took, over a connection that was there.
    pub(crate) latency: Duration,
    /// `INFO redlock` without the prefix of its names, as far as this user may read it.
    pub(crate) numbers: BTreeMap<String, u64>,
    pub(crate) server: Option<Server>,
}

/// What a node says with `REDLOCK.NODE`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) id: String,
    pub(crate) version: String,
    pub(crate) fence: u64,
    pub(crate) quarantine: Duration,
    pub(crate) is_replica: bool,
    pub(crate) locks: u64,
    pub(crate) waiters: u64,
    /// At least every lease that may still run there.
    pub(crate) longest_ttl: Duration,
    /// Why the server does not vote: a word of the module; `None` if it votes or its module does not say.
    pub(crate) non_voting: Option<String>,
    /// What only a module says that knows about votes and admission.
    pub(crate) identity: Option<Identity>,
    /// How long a lock that was handed on waits to be claimed; `None` if nobody can wait there.
    pub(crate) claim_window: Option<Duration>,
    pub(crate) started: String,
}

/// Who a node is, and what it must not forget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// How often the node has started.
    pub(crate) incarnation: u64,
    /// How the node began: `new` or `admitted`.
    pub(crate) origin: String,
    /// At least every fence that it has given out.
    pub(crate) high_water: u64,
    /// The longest lease that it grants.
    pub(crate) max_ttl: Duration,
}

impl Identity {
    /// From the reply to `REDLOCK.NODE`; `None` from an older module.
    fn read(reply: &NodeReply) -> Option<Self> {
        Some(Self {
            incarnation: number(reply, "incarnation")?,
            origin: text(reply, "origin"),
            high_water: number(reply, "high-water")?,
            max_ttl: Duration::from_millis(number(reply, "max-ttl-ms")?),
        })
    }
}

/// All reasons that the present module knows.
const REASONS: [NonVoting; 6] = [
    NonVoting::Replica,
    NonVoting::CopiedState,
    NonVoting::ForeignData,
    NonVoting::NoState,
    NonVoting::SeveralStates,
    NonVoting::Asked,
];

fn reason(word: &str) -> Option<NonVoting> {
    REASONS.into_iter().find(|reason| reason.name() == word)
}

/// Why a server does not vote, as a clause. A later module may have reasons that are not known here.
pub(crate) fn explanation(word: &str) -> String {
    reason(word).map_or_else(|| format!("its reason is {word:?}"), |reason| reason.explanation().to_owned())
}

/// What the operator does about a node that does not vote.
pub(crate) fn remedy(word: &str, node: &str) -> String {
    match reason(word) {
        Some(reason @ NonVoting::SeveralStates) => reason.remedy().to_owned(),
        _ => format!("run `redlock admit {node}` once the server that it replaces is stopped"),
    }
}

/// Redis or Valkey, and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
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
pub(crate) struct Survey {
    pub(crate) nodes: Vec<NodeReport>,
}

impl Survey {
    /// Asks all nodes. What they say comes in one go over connections that are there.
    pub(crate) async fn take(locks: &LockManager) -> Result<Self, Stop> {
        // The first question of all waits for the connections, and would measure that.
        let _ = locks.health().await?;
        let (node, redlock, server) = (Query::node(), Query::info("redlock"), Query::info("server"));
        let health = locks.health().await?;
        let (redlock, server, full) = tokio::join!(locks.ask(&redlock), locks.ask(&server), locks.ask(&node));
        let (redlock, server, full) = (redlock?, server?, full?);
        let each = redlock.into_iter().zip(server).zip(full).zip(health.nodes);
        let nodes = each.map(|(((redlock, server), full), health)| NodeReport {
            node: health.node,
            latency: health.latency,
            state: health.state.map(|state| State {
                id: state.id,
                version: state.version,
                fence: state.fence,
                quarantine: state.quarantine,
                is_replica: state.is_replica,
                locks: state.locks,
                waiters: state.waiters,
                longest_ttl: state.longest_lease,
                non_voting: state.non_voting,
                identity: Identity::read(&full),
                claim_window: number(&full, "claim-window-ms").map(Duration::from_millis),
                started: text(&full, "started"),
            }),
            numbers: redlock.response.ok().as_ref().map(numbers).unwrap_or_default(),
            server: server.response.ok().as_ref().and_then(Server::read),
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
    fn voting(&self) -> impl Iterator<Item = &State> {
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

impl State {
    /// Why the server does not vote, as a word of the module; `None` if it votes or its module does not say.
    pub(crate) fn non_voting(&self) -> Option<&str> {
        self.non_voting.as_deref()
    }

    /// Whether it is a master that votes, in quarantine or not. Every master with an older module votes.
    pub(crate) fn votes(&self) -> bool {
        !self.is_replica && self.non_voting().is_none()
    }
}

impl NodeReport {
    /// The address that leads to the same node, if the client has found that out: one of the two has no vote.
    pub(crate) fn twin(&self) -> Option<&str> {
        Some(self.state.as_ref().err()?.detail.split_once("the same node as ")?.1)
    }

    pub(crate) fn can_grant(&self) -> bool {
        self.state.as_ref().is_ok_and(|state| state.quarantine.is_zero() && state.votes())
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

impl Server {
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

fn number(reply: &NodeReply, name: &str) -> Option<u64> {
    u64::try_from(reply.response.as_ref().ok()?.field(name)?.integer()?).ok()
}

fn text(reply: &NodeReply, name: &str) -> String {
    let field = reply.response.as_ref().ok().and_then(|response| response.field(name));
    field.and_then(|field| field.text().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(state: Result<u64, ()>) -> NodeReport {
        let state = state.map(|quarantine_ms| State {
            id: "id".into(),
            version: "0.1.0".into(),
            fence: 1,
            quarantine: Duration::from_millis(quarantine_ms),
            is_replica: false,
            locks: 0,
            waiters: 0,
            longest_ttl: Duration::ZERO,
            non_voting: None,
            identity: None,
            claim_window: None,
            started: "new".into(),
        });
        let down = || Failure::new(redlock_client::FailureKind::Down, "gone");
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
        let survey =
            |states: &[Result<u64, ()>]| Survey { nodes: states.iter().map(|s| report(*s)).collect() };
        let down = Err(());
        assert!(survey(&[Ok(0), Ok(0), down]).can_grant());
        assert!(!survey(&[Ok(0), down, down]).can_grant());
        assert!(!survey(&[Ok(0), down, down]).waits_for_quarantine());
        let waiting = survey(&[Ok(0), Ok(700), Ok(300), down, down]);
        assert!(!waiting.can_grant() && waiting.waits_for_quarantine());
        assert_eq!(waiting.quarantine_left(), Duration::from_millis(700));
        assert!(!survey(&[Ok(0), Ok(0), down, down]).can_grant(), "a tie is a refusal");
    }

    #[test]
    fn a_node_that_does_not_vote_grants_nothing_and_does_not_begin_to_by_waiting() {
        let mut survey = Survey { nodes: vec![report(Ok(0)), report(Ok(500)), report(Ok(0))] };
        assert!(survey.can_grant());
        if let Ok(state) = &mut survey.nodes[2].state {
            state.non_voting = Some("copied-state-file".to_owned());
        }
        assert!(!survey.nodes[2].can_grant());
        assert!(!survey.can_grant() && survey.waits_for_quarantine());
        assert_eq!(survey.quarantine_left(), Duration::from_millis(500));
        survey.nodes.remove(1);
        assert!(!survey.waits_for_quarantine());
    }

    #[test]
    fn reasons_of_nodes_that_do_not_vote() {
        assert_eq!(explanation("copied-state-file"), "its state file is a copy");
        assert_eq!(explanation("a-later-one"), "its reason is \"a-later-one\"");
        assert!(remedy("replica", "a:1").contains("`redlock admit a:1`"));
        assert!(remedy("several-state-files", "a:1").contains("move the others out of its dir"));
        assert!(REASONS.iter().all(|known| reason(known.name()) == Some(*known)));
    }

    #[test]
    fn fields_of_info() {
        let info = "# Server\r\nredis_version:7.2.4\r\nvalkey_version:9.1.2\r\n";
        assert_eq!(field(info, "valkey_version").as_deref(), Some("9.1.2"));
        assert_eq!(field(info, "version"), None);
    }
}
