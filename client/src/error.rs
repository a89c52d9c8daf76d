//! The errors of the client, with the answer of every node.

use crate::keys::Keys;
use crate::lease::LostReason;
use redlock_contract::ErrorCode;
use redlock_proto::fence_reach::MAX_RAISE_COMMANDS;
use redlock_proto::{Ballot, Quorum, Refusal, Vote};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a call failed.
///
/// The variants tell apart contention, an outage and a lost lock. All variants but the last three name the
/// resource and the answer of every node ([`Error::nodes`]). No variant contains an owner or a password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another client holds the lock.
    Contended(Box<QuorumReport>),
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
    /// A majority granted the lock, but the fences are so far apart that the client can raise no majority to
    /// one fence. The client released what the nodes granted.
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
}

impl QuorumReport {
    pub(crate) fn new(keys: &Keys, names: &[Arc<str>], ballot: Option<&Ballot>) -> Self {
        let votes = ballot.map(Ballot::votes).unwrap_or_default();
        let answer =
            |(name, vote): (&Arc<str>, &Vote)| NodeAnswer { node: Arc::clone(name), vote: vote.clone() };
        Self { resource: keys.to_string(), nodes: names.iter().zip(votes).map(answer).collect(), attempts: 1 }
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

    /// Whether any node has answered.
    pub(crate) fn has_answers(&self) -> bool {
        self.nodes.iter().any(|answer| answer.vote != Vote::Pending)
    }

    /// How many attempts the client made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether a majority of the nodes rejected the request itself, so that a retry cannot succeed.
    fn is_rejected_by_majority(&self) -> bool {
        let turned_down = self.nodes.iter().filter(|answer| is_request_error(&answer.vote)).count();
        Quorum::of(self.nodes.len()).is_some_and(|quorum| quorum.is_reached_by(turned_down))
    }
}

/// Whether a node rejected the request itself, so that the same request fails again. Other errors are
/// temporary: the server loads its data, runs a script, is out of memory or is a replica.
fn is_request_error(vote: &Vote) -> bool {
    use ErrorCode::{Arg, CrossSlot, Err, NoAuth, NoPerm, Owner, Ttl, UnknownCommand, WrongPass, WrongType};
    let Vote::Failed(failure) = vote else { return false };
    matches!(
        failure.code(),
        Some(Ttl | Owner | Arg | WrongType | NoPerm | NoAuth | WrongPass | CrossSlot | Err | UnknownCommand)
    )
}

impl fmt::Display for QuorumReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gap = |place| if place == 0 { " (" } else { "; " };
        for (place, answer) in self.nodes.iter().enumerate() {
            write!(f, "{}{}: {}", gap(place), answer.node, answer.vote)?;
        }
        if self.nodes.is_empty() { Ok(()) } else { f.write_str(")") }
    }
}

impl Error {
    pub(crate) fn refused(refusal: Refusal, report: QuorumReport) -> Self {
        let report = Box::new(report);
        match refusal {
            Refusal::Contended | Refusal::Yielded => Self::Contended(report),
            Refusal::Quarantined { left } => Self::Quarantined { left, report },
            Refusal::Expired => Self::Expired(report),
            Refusal::FencesApart { smallest, largest } => Self::FencesApart { smallest, largest, report },
            _ => Self::NoQuorum(report),
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
            Self::Contended(report) | Self::NoQuorum(report) | Self::Expired(report) => Some(report),
            Self::Quarantined { report, .. }
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
    /// - A majority of the nodes rejected the request itself: the time to live is above their limit, the key
    ///   has another type, the user lacks a permission.
    /// - The client sent no request.
    /// - All nodes granted the lock, but their fences are too far apart.
    /// - The lock was lost. The client can acquire it again, but the caller may first have to undo the work.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contended(_) | Self::Quarantined { .. } | Self::Expired(_) | Self::Timeout { .. } => true,
            Self::NoQuorum(report) => !report.is_rejected_by_majority(),
            // A node that has not granted yet may make up a majority with fences that agree.
            Self::FencesApart { report, .. } => {
                report.nodes.iter().any(|answer| answer.vote.fence().is_none())
            }
            Self::Lost { .. } | Self::Invalid(_) | Self::Config(_) | Self::NoRuntime => false,
        }
    }

    /// A short, stable name of the variant, for metrics and logs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Contended(_) => "contended",
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
            Self::Contended(report) => write!(f, "{resource} is held by another{report}"),
            Self::NoQuorum(report) => write!(f, "too few nodes answered for {resource}{report}"),
            Self::Quarantined { left, report } => {
                write!(
                    f,
                    "no majority can grant {resource}: nodes are in quarantine for {} ms{report}",
                    left.as_millis()
                )
            }
            Self::Expired(report) => write!(f, "{resource} was granted too late to be of use{report}"),
            Self::FencesApart { smallest, largest, report } => {
                write!(
                    f,
                    "the fences of the nodes for {resource} are too far apart, from {smallest} to {largest}: \
                     no majority can be raised to one fence with {MAX_RAISE_COMMANDS} commands per node{report}"
                )
            }
            Self::Timeout { waited, report } => {
                write!(f, "{resource} was not acquired within {} ms{report}", waited.as_millis())
            }
            Self::Lost { reason, report } => write!(f, "{resource} is no longer held: {reason}{report}"),
            Self::Invalid(what) | Self::Config(what) => f.write_str(what),
            Self::NoRuntime => f.write_str("no tokio runtime serves this lock manager"),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(last: Vote) -> Error {
        let mut ballot = Ballot::new(Quorum::of(3).unwrap());
        let largest = i64::MAX as u64;
        for (node, vote) in
            [Vote::Granted { fence: 7 }, Vote::Granted { fence: largest }, last].into_iter().enumerate()
        {
            ballot.enter(node, vote);
        }
        let names = ["a", "b", "c"].map(Arc::from);
        let keys = Keys::one(b"", b"orders:42").unwrap();
        let report = QuorumReport::new(&keys, &names, Some(&ballot));
        Error::refused(Refusal::FencesApart { smallest: 7, largest }, report)
    }

    #[test]
    fn fences_that_are_too_far_apart_are_named() {
        let error = apart(Vote::Granted { fence: 1 << 62 });
        let text = error.to_string();
        for part in [
            "too far apart, from 7 to 9223372036854775807",
            "orders:42",
            "b: granted, fence 9223372036854775807",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("too few nodes answered"), "{text}");
        assert_eq!((error.reason(), error.nodes().len()), ("fences_apart", 3));
        // Every node has answered, so the next attempt fails in the same way. A node that returns may change
        // that.
        assert!(!error.is_retryable());
        assert!(apart(Vote::Pending).is_retryable());
    }
}
