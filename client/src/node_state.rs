//! What a node reports about itself, and whether it grants locks.

use crate::driver::NodeResponse;
use crate::wire::Frame;
use redlock_contract::fields::node as fields;
use redlock_contract::{HighWater, NonVotingReason, Origin, Role};
use redlock_proto::{Failure, FailureKind};
use std::fmt;
use std::time::Duration;

/// Why a client does not count a node whose reply to `REDLOCK.NODE` is incomplete.
pub(crate) const INCOMPLETE_REPLY: &str =
    "REDLOCK.NODE: the reply lacks node-id, version or quarantine-ms: upgrade the module";

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
    /// How many waiters the node's wait queues have, for all keys together.
    pub waiters: u64,
    /// The largest fence that the node has granted.
    pub fence: u64,
    /// The longest lease that may still run: how long a quarantine after a crash lasts. An older module
    /// reports the longest time to live that it has ever granted.
    pub longest_lease: Duration,
    /// The longest time to live that the node grants; `None` if an older module does not report it.
    pub max_ttl: Option<Duration>,
    /// A number that grows at every start of the node; `None` if an older module does not report it.
    pub incarnation: Option<u64>,
    /// The highest high-water mark: no fence of the node is above it. `None` if an older module does not report
    /// it.
    pub high_water: Option<u64>,
    /// The high-water marks by stripe. `None` if an older module reports no high-water mark.
    pub high_water_marks: Option<HighWater>,
    /// Why the node does not vote; `None` if it votes, or if an older module does not report it.
    pub non_voting: Option<NonVotingReason>,
    /// Whether the node started as a new node or was admitted; `None` if an older module does not report it.
    pub origin: Option<Origin>,
    /// The claim window, within which a waiter confirms a grant; `None` if an older module has no wait
    /// queues.
    pub claim_window: Option<Duration>,
    /// `new`, or `resumed` if the node started with the state of an earlier start.
    pub started: String,
}

/// What a node does with requests for locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeStanding<'a> {
    /// The node grants free locks. Whether memory or disk is full shows only when a client acquires a lock.
    Grants,
    /// The node grants nothing for this time, because it may have forgotten locks.
    Quarantine(Duration),
    /// The node grants nothing until an operator acts, for this reason.
    NonVoting(&'a NonVotingReason),
    /// The server is a replica, which grants nothing.
    Replica,
}

impl NodeState {
    /// What the node does with requests for locks. Every master with an older module votes.
    #[must_use]
    pub fn standing(&self) -> NodeStanding<'_> {
        match &self.non_voting {
            _ if self.is_replica => NodeStanding::Replica,
            Some(reason) => NodeStanding::NonVoting(reason),
            None if self.quarantine.is_zero() => NodeStanding::Grants,
            None => NodeStanding::Quarantine(self.quarantine),
        }
    }

    /// Whether the node is a master that votes, in quarantine or not.
    #[must_use]
    pub fn votes(&self) -> bool {
        self.standing().grants_in().is_some()
    }

    /// Whether the node would grant a free lock now.
    #[must_use]
    pub fn can_grant(&self) -> bool {
        self.standing() == NodeStanding::Grants
    }
}

impl NodeStanding<'_> {
    /// One word for programs: `grants`, `quarantine`, `non-voting` or `replica`.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Grants => "grants",
            Self::Quarantine(_) => "quarantine",
            Self::NonVoting(_) => "non-voting",
            Self::Replica => "replica",
        }
    }

    /// The time until the node grants, zero if it grants now. `None` if it does not vote: waiting does not help.
    #[must_use]
    pub fn grants_in(&self) -> Option<Duration> {
        match self {
            Self::Grants => Some(Duration::ZERO),
            Self::Quarantine(left) => Some(*left),
            Self::NonVoting(_) | Self::Replica => None,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.standing() {
            NodeStanding::Grants => f.write_str("can grant")?,
            NodeStanding::Quarantine(left) => write!(f, "in quarantine for {} ms", left.as_millis())?,
            NodeStanding::NonVoting(reason) => write!(f, "does not vote: {}", reason.explanation())?,
            NodeStanding::Replica => f.write_str("a replica, which grants nothing")?,
        }
        let Self { locks, waiters, fence, version, .. } = self;
        write!(f, ", {locks} locks, {waiters} waiters, largest fence {fence}, version {version}")
    }
}

/// The high-water marks in a reply to `REDLOCK.NODE`. An older module reports only the highest one.
fn high_water_marks(frame: &Frame) -> Option<HighWater> {
    let number = |name| frame.field(name)?.as_count();
    let far = frame.field(fields::FAR_HIGH_WATER).and_then(Frame::as_text);
    match (number(fields::COMMON_HIGH_WATER), far) {
        (Some(common), Some(far)) => HighWater::parse(common, far),
        _ => number(fields::HIGH_WATER).map(HighWater::new),
    }
}

/// Reads the reply to `REDLOCK.NODE`.
pub(crate) fn read_state(reply: NodeResponse) -> Result<NodeState, Failure> {
    let frame = reply.frame?;
    let number = |name| frame.field(name)?.as_count();
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
            high_water_marks: high_water_marks(&frame),
            non_voting: (number(fields::VOTING) == Some(0))
                .then(|| NonVotingReason::read(&text(fields::NON_VOTING_REASON).unwrap_or_default())),
            origin: text(fields::ORIGIN).and_then(|origin| Origin::named(&origin)),
            claim_window: milliseconds(fields::CLAIM_WINDOW_MS),
            started: text(fields::STARTED).unwrap_or_default(),
        })
    };
    state().ok_or_else(|| Failure::new(FailureKind::Rejected, INCOMPLETE_REPLY))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use redlock_contract::NonVoting;

    fn node_with(fields: &[(&'static str, Result<i64, &'static str>)]) -> NodeState {
        let bulk = |text: &'static str| Frame::Bulk(Bytes::from_static(text.as_bytes()));
        let usual =
            [("node-id", Err("n1")), ("version", Err("0.2.0")), ("quarantine-ms", Ok(0)), ("locks", Ok(3))];
        // The first field of a name counts.
        let fields = fields
            .iter()
            .chain(&usual)
            .map(|(name, value)| (bulk(name), value.map_or_else(bulk, Frame::Integer)));
        let reply = NodeResponse { frame: Ok(Frame::Map(fields.collect())), latency: Duration::ZERO };
        read_state(reply).expect("a complete reply")
    }

    #[test]
    fn the_module_reports_all_fields() {
        let state = node_with(&[
            ("incarnation", Ok(4)),
            ("high-water", Ok(900)),
            ("common-high-water", Ok(30)),
            ("far-high-water", Err("7:900")),
            ("voting", Ok(1)),
            ("non-voting-reason", Err("")),
            ("max-ttl-ms", Ok(60_000)),
            ("longest-lease-ms", Ok(30)),
            ("longest-ttl-ms", Ok(86_400_000)),
        ]);
        assert_eq!((state.incarnation, state.high_water, state.locks), (Some(4), Some(900), 3));
        assert_eq!(state.high_water_marks, HighWater::parse(30, "7:900"));
        assert_eq!(state.max_ttl, Some(Duration::from_secs(60)));
        assert_eq!(state.longest_lease, Duration::from_millis(30));
        assert_eq!(state.standing(), NodeStanding::Grants);
    }

    #[test]
    fn an_older_module_votes_and_reports_fewer_fields() {
        let state = node_with(&[("longest-ttl-ms", Ok(500))]);
        assert_eq!(state.longest_lease, Duration::from_millis(500));
        assert_eq!((state.incarnation, state.high_water, state.max_ttl), (None, None, None));
        assert_eq!(state.high_water_marks, None);
        assert_eq!(state.standing(), NodeStanding::Grants);
        assert_eq!(node_with(&[("high-water", Ok(900))]).high_water_marks, Some(HighWater::new(900)));
    }

    #[test]
    fn a_node_grants_or_has_one_reason_not_to() {
        use NonVotingReason::{Known, Unknown};
        let copied = Known(NonVoting::CopiedState);
        let (later, none) = (Unknown("a later one".into()), Unknown(String::new()));
        let (waits, silent) = (("quarantine-ms", Ok(700)), ("voting", Ok(0)));
        let why = |word| ("non-voting-reason", Err(word));
        let table = [
            (node_with(&[]), NodeStanding::Grants, "can grant"),
            (
                node_with(&[waits]),
                NodeStanding::Quarantine(Duration::from_millis(700)),
                "in quarantine for 700 ms",
            ),
            (
                node_with(&[waits, silent, why("copied-state-file")]),
                NodeStanding::NonVoting(&copied),
                "does not vote: its state file is a copy",
            ),
            (
                node_with(&[silent, why("a later one")]),
                NodeStanding::NonVoting(&later),
                "does not vote: its reason is \"a later one\"",
            ),
            (node_with(&[silent]), NodeStanding::NonVoting(&none), "does not vote: it gives no reason"),
            (
                node_with(&[waits, silent, why("replica"), ("role", Err("replica"))]),
                NodeStanding::Replica,
                "a replica",
            ),
        ];
        for (state, standing, words) in table {
            assert_eq!(state.standing(), standing);
            assert!(state.to_string().starts_with(words), "{state}");
            let votes = matches!(standing, NodeStanding::Grants | NodeStanding::Quarantine(_));
            assert_eq!((state.votes(), standing.grants_in().is_some()), (votes, votes), "{state}");
            assert_eq!(state.can_grant(), standing == NodeStanding::Grants, "{state}");
        }
    }
}
