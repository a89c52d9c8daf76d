//! The errors of the client, with the answer of every node.

use crate::keys::Keys;
use crate::lock_shared::LostReason;
use crate::settings::Settings;
use redlock_contract::limits::MAX_FLOOR;
use redlock_proto::ballot::is_impossible_without;
use redlock_proto::inspection::LockInfo;
use redlock_proto::{Ballot, Failure, FailureKind, Quorum, Refusal, Vote};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed.
///
/// The variants distinguish contention, an outage and a lost lock. All variants but the last three name the
/// resource and the answer of every node ([`Error::nodes`]). No variant contains an owner or a password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another client holds the lock.
    Contended(Box<QuorumReport>),
    /// The nodes that did not reject the request itself are no majority: the time to live is above
    /// their limit, the user lacks a permission, the module is missing, or the nodes do not vote. The answers
    /// quote the nodes. After a failed [`extend`](crate::Guard::extend) the lock keeps the validity that it
    /// has.
    Rejected(Box<QuorumReport>),
    /// Too few nodes gave a usable answer. After a failed [`extend`](crate::Guard::extend) the lock keeps the
    /// validity that it has.
    NoQuorum(Box<QuorumReport>),
    /// Too many nodes are in quarantine: they may have forgotten locks, and grant nothing until those have
    /// expired.
    Quarantined {
        /// How long until a majority of the nodes may grant again.
        left: Duration,
        /// The answers of the nodes.
        report: Box<QuorumReport>,
    },
    /// A majority granted the lock, but too late: no validity was left. The client released what the nodes
    /// granted.
    Expired(Box<QuorumReport>),
    /// A majority granted the lock, but with fences so far apart that the client raised no majority to one fence
    /// within the time to live. The client released what the nodes granted. The next attempt continues from the
    /// fences that the nodes have reached.
    FencesApart {
        /// The smallest fence that a node answered.
        smallest: u64,
        /// The largest fence that a node answered.
        largest: u64,
        /// The answers of the nodes.
        report: Box<QuorumReport>,
    },
    /// The client did not acquire the lock within the time limit.
    Timeout {
        /// The time limit of the call.
        waited: Duration,
        /// The last answers of the nodes.
        report: Box<QuorumReport>,
    },
    /// The client held the lock and no longer holds it.
    Lost {
        /// Why the lock ended.
        reason: LostReason,
        /// The last answers of the nodes.
        report: Box<QuorumReport>,
    },
    /// The arguments of the call are invalid. The client sent nothing.
    Invalid(Arc<str>),
    /// The configuration of the manager is invalid.
    Config(Arc<str>),
    /// There is no tokio runtime, or the runtime that served the manager has shut down.
    NoRuntime,
}

/// The resource of a call, and the answer of every node.
#[derive(Clone, Debug)]
pub struct QuorumReport {
    resource: String,
    quorum: Quorum,
    nodes: Vec<NodeAnswer>,
    attempts: u32,
}

/// The answer of one node.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The node's address, as in [`Node`](crate::Node)'s `Display`.
    pub node: Arc<str>,
    /// The vote of the node.
    pub vote: Vote,
    /// What the node reports about the lock of the other client. The client asks for it once, after a call has
    /// failed, if [`vote`](Self::vote) is [`Vote::Refused`]. `None` if the node did not answer in time, if
    /// the holder has released the lock meanwhile, and for a plain key. For several resources, the client asks for
    /// the first 16 in sorted order, and this is the lock on the first one that is held.
    pub holder: Option<LockInfo>,
    /// The resource that [`holder`](Self::holder) is about, if the call is for several resources. Bytes that are not
    /// printable ASCII are escaped.
    pub held_resource: Option<String>,
}

impl QuorumReport {
    pub(crate) fn new(keys: &Keys, settings: &Settings, ballot: Option<&Ballot>) -> Self {
        let votes = ballot.map(Ballot::votes).unwrap_or_default();
        let answer = |(name, vote): (&Arc<str>, &Vote)| NodeAnswer {
            node: Arc::clone(name),
            vote: vote.clone(),
            holder: None,
            held_resource: None,
        };
        let nodes = settings.names.iter().zip(votes).map(answer).collect();
        Self { resource: keys.to_string(), quorum: settings.quorum, nodes, attempts: 1 }
    }

    /// Sets the number of attempts.
    pub(crate) fn after(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The resource as the caller named it, or all resources. Bytes that are not printable ASCII are escaped.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The answers of all nodes to the last attempt, in the order of configuration. Empty if the client sent
    /// no request.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        &self.nodes
    }

    /// How many nodes must grant a lock.
    #[must_use]
    pub fn quorum(&self) -> Quorum {
        self.quorum
    }

    /// Whether any node has answered.
    pub(crate) fn has_answers(&self) -> bool {
        self.nodes.iter().any(|answer| answer.vote != Vote::Pending)
    }

    /// How many attempts the client made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The two addresses of one node, if the configuration names a node twice.
    pub(crate) fn same_node(&self) -> Option<(&str, &str)> {
        self.nodes.iter().find_map(|answer| match &answer.vote {
            Vote::Failed(failure) if failure.kind == FailureKind::SameNode => {
                Some((&*answer.node, &*failure.detail))
            }
            _ => None,
        })
    }

    /// Whether the nodes that did not reject the request itself are no majority: see
    /// [`Error::Rejected`].
    #[must_use]
    pub fn is_rejected(&self) -> bool {
        self.is_impossible_without(Failure::is_rejection)
    }

    /// Whether the nodes without such a failure are no majority. `false` if the client sent no request.
    fn is_impossible_without(&self, test: fn(&Failure) -> bool) -> bool {
        let votes = self.nodes.iter().map(|answer| &answer.vote);
        !self.nodes.is_empty() && is_impossible_without(self.quorum, votes, test)
    }

    /// The nodes with this vote.
    pub(crate) fn with_vote(&self, vote: &Vote) -> Vec<usize> {
        let nodes = self.nodes.iter().enumerate();
        nodes.filter(|(_, answer)| answer.vote == *vote).map(|(node, _)| node).collect()
    }

    /// Adds the vote of a node that came after the attempt had failed.
    pub(crate) fn add_late_vote(&mut self, node: usize, late: Option<Vote>) {
        if let (Some(answer), Some(late)) = (self.nodes.get_mut(node), late) {
            answer.vote = late;
        }
    }

    /// Adds what a node knows about the holder, unless it knows about a holder already. The resource is `None` if the
    /// call is for one resource.
    pub(crate) fn add_holder(&mut self, node: usize, resource: Option<&[u8]>, holder: LockInfo) {
        if let Some(answer) = self.nodes.get_mut(node).filter(|answer| answer.holder.is_none()) {
            answer.holder = Some(holder);
            answer.held_resource = resource.map(|resource| resource.escape_ascii().to_string());
        }
    }
}

/// The resource, and the answer of every node.
impl fmt::Display for QuorumReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.resource)?;
        if self.nodes.is_empty() {
            return f.write_str("no node was asked");
        }
        self.nodes.iter().enumerate().try_for_each(|(place, answer)| {
            let gap = if place == 0 { "" } else { "; " };
            write!(f, "{gap}{answer}")
        })
    }
}

impl fmt::Display for NodeAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.node, self.vote)?;
        let Some(holder) = &self.holder else { return Ok(()) };
        if let Some(resource) = &self.held_resource {
            write!(f, ": {resource}")?;
        }
        if !holder.label.is_empty() {
            write!(f, ", \"{}\"", holder.label.escape_debug())?;
        }
        write!(f, ", {} ms left", holder.left.as_millis())
    }
}

/// The answers of all nodes in parentheses, for the end of an error.
struct Answers<'a>(&'a QuorumReport);

impl fmt::Display for Answers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, answer) in self.0.nodes.iter().enumerate() {
            let gap = if place == 0 { " (" } else { "; " };
            write!(f, "{gap}{answer}")?;
        }
        if self.0.nodes.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl Error {
    pub(crate) fn refused(refusal: Refusal, report: QuorumReport) -> Self {
        if let Some((one, other)) = report.same_node() {
            return Self::Config(
                format!(
                    "{one} and {other} are the same node, which has one vote: configure each node with one address"
                )
                .into(),
            );
        }
        let report = Box::new(report);
        match refusal {
            Refusal::Contended | Refusal::Yielded => Self::Contended(report),
            Refusal::Quarantined { left } => Self::Quarantined { left, report },
            Refusal::Rejected => Self::Rejected(report),
            Refusal::Expired => Self::Expired(report),
            Refusal::FencesApart { smallest, largest } => Self::FencesApart { smallest, largest, report },
            _ => Self::NoQuorum(report),
        }
    }

    /// The error of an extension for which too few nodes answered.
    pub(crate) fn not_extended(report: QuorumReport) -> Self {
        let refusal = if report.is_rejected() { Refusal::Rejected } else { Refusal::NoQuorum };
        Self::refused(refusal, report)
    }

    /// Whether the error is a lack of a quorum, some node rejected the request, and others have not answered.
    pub(crate) fn may_be_rejected(&self) -> bool {
        let Self::NoQuorum(report) = self else { return false };
        let mut votes = report.nodes.iter().map(|answer| &answer.vote);
        votes.any(Vote::is_rejection) && report.nodes.iter().any(|answer| answer.vote == Vote::Pending)
    }

    /// The error that all answers give, those that came late included.
    pub(crate) fn settled(self) -> Self {
        match self {
            Self::NoQuorum(report) if report.is_rejected() => Self::Rejected(report),
            error => error,
        }
    }

    /// The answers of the nodes, to add to them.
    pub(crate) fn report_mut(&mut self) -> Option<&mut QuorumReport> {
        match self {
            Self::Contended(report) | Self::Rejected(report) | Self::NoQuorum(report) => Some(report),
            Self::Expired(report)
            | Self::Quarantined { report, .. }
            | Self::FencesApart { report, .. }
            | Self::Timeout { report, .. }
            | Self::Lost { report, .. } => Some(report),
            Self::Invalid(_) | Self::Config(_) | Self::NoRuntime => None,
        }
    }

    pub(crate) fn invalid(what: impl Into<Arc<str>>) -> Self {
        Self::Invalid(what.into())
    }

    /// The error of a call whose time limit has passed, with the last answers.
    pub(crate) fn timed_out(waited: Duration, report: QuorumReport) -> Self {
        Self::Timeout { waited, report: Box::new(report) }
    }

    /// The answers of the nodes; `None` if the client sent no request.
    #[must_use]
    pub fn report(&self) -> Option<&QuorumReport> {
        match self {
            Self::Contended(report) | Self::Rejected(report) | Self::NoQuorum(report) => Some(report),
            Self::Expired(report)
            | Self::Quarantined { report, .. }
            | Self::FencesApart { report, .. }
            | Self::Timeout { report, .. }
            | Self::Lost { report, .. } => Some(report),
            Self::Invalid(_) | Self::Config(_) | Self::NoRuntime => None,
        }
    }

    /// The resource of the call, or all resources; empty if the client sent no request.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.report().map(QuorumReport::resource).unwrap_or_default()
    }

    /// The answers of all nodes; empty if the client sent no request.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        self.report().map(QuorumReport::nodes).unwrap_or_default()
    }

    /// Whether the same call may succeed later.
    ///
    /// False in these cases:
    ///
    /// - Too many nodes rejected the request itself: the others are no majority. The same request fails again:
    ///   the time to live is above the limit of the nodes, the key has another type, the user lacks a
    ///   permission, the module is missing. A node that does not vote does not count here: the same request
    ///   succeeds as soon as an operator has admitted the node.
    /// - The client sent no request.
    /// - All nodes granted the lock, but one replied with a fence that no node can grant: it is broken.
    /// - The lock was lost. The client can acquire it again, but the caller may first have to undo the work.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contended(_) | Self::Quarantined { .. } | Self::Expired(_) | Self::Timeout { .. } => true,
            Self::NoQuorum(_) => true,
            Self::Rejected(report) => !report.is_impossible_without(Failure::is_lasting_rejection),
            // A node that has not granted yet may make up a majority with fences that agree.
            Self::FencesApart { largest, report, .. } => {
                *largest <= MAX_FLOOR || report.nodes.iter().any(|answer| answer.vote.fence().is_none())
            }
            Self::Lost { .. } | Self::Invalid(_) | Self::Config(_) | Self::NoRuntime => false,
        }
    }

    /// A short, stable name of the variant, for metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Contended(_) => "contended",
            Self::Rejected(_) => "rejected",
            Self::NoQuorum(_) => "no_quorum",
            Self::Quarantined { .. } => "quarantined",
            Self::Expired(_) => "expired",
            Self::FencesApart { .. } => "fences_apart",
            Self::Timeout { .. } => "timeout",
            Self::Lost { .. } => "lost",
            Self::Invalid(_) => "invalid",
            Self::Config(_) => "config",
            Self::NoRuntime => "no_runtime",
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resource = self.resource();
        match self {
            Self::Contended(_) => write!(f, "{resource} is held by another client"),
            Self::Rejected(_) => write!(f, "no majority can grant {resource}: nodes rejected the request"),
            Self::NoQuorum(report) => {
                let (needed, nodes) = (report.quorum.needed(), report.quorum.nodes());
                write!(f, "too few nodes gave a usable answer for {resource}; {needed} of {nodes} are needed")
            }
            Self::Quarantined { left, .. } => {
                let left = left.as_millis();
                write!(f, "no majority can grant {resource}: nodes are in quarantine for {left} ms")
            }
            Self::Expired(_) => write!(
                f,
                "{resource} was granted too late: no validity was left; ask for a longer time to live, or find out why \
                 nodes answer slowly"
            ),
            Self::FencesApart { smallest, largest, .. } => {
                let end = match self.is_retryable() {
                    true => "was raised to one fence within the time to live; the next attempt continues",
                    false => "can be raised to one fence, because no healthy node grants the largest one",
                };
                write!(
                    f,
                    "the fences of the nodes for {resource} are far apart, from {smallest} to {largest}: no majority {end}"
                )
            }
            Self::Timeout { waited, .. } => {
                write!(f, "{resource} was not acquired within {} ms", waited.as_millis())
            }
            Self::Lost { reason, .. } => write!(f, "{resource} is no longer held: {reason}"),
            Self::Invalid(what) | Self::Config(what) => f.write_str(what),
            Self::NoRuntime => f.write_str(
                "there is no tokio runtime, or the runtime of this lock manager has shut down; call from a tokio \
                 runtime that runs until the lock is released",
            ),
        }?;
        self.report().map_or(Ok(()), |report| Answers(report).fmt(f))
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LockManager;

    fn apart(last: Vote) -> Error {
        let mut ballot = Ballot::new(Quorum::of(3).unwrap());
        let largest = i64::MAX as u64;
        for (node, vote) in
            [Vote::Granted { fence: 7 }, Vote::Granted { fence: largest }, last].into_iter().enumerate()
        {
            ballot.enter(node, vote);
        }
        let keys = Keys::one(b"", b"orders:42").unwrap();
        let report = QuorumReport::new(&keys, LockManager::in_memory(3).settings(), Some(&ballot));
        Error::refused(Refusal::FencesApart { smallest: 7, largest }, report)
    }

    #[test]
    fn fences_that_are_far_apart_are_named() {
        let error = apart(Vote::Granted { fence: 1 << 62 });
        let text = error.to_string();
        for part in [
            "are far apart, from 7 to 9223372036854775807",
            "no healthy node grants the largest one",
            "orders:42",
            "memory-1: granted, fence 9223372036854775807",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("too few nodes"), "{text}");
        assert_eq!((error.reason(), error.nodes().len()), ("fences_apart", 3));
        // Every node has answered, so the next attempt fails in the same way. A node that returns may change
        // that.
        assert!(!error.is_retryable());
        let pending = apart(Vote::Pending);
        assert!(
            pending.is_retryable() && pending.to_string().contains("the next attempt continues"),
            "{pending}"
        );
    }
}
