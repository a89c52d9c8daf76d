//! Why a call failed, with what every node had to say.

use crate::keys::Keys;
use crate::lease::LostReason;
use redlock_contract::ErrorCode;
use redlock_proto::fence_reach::MOST_COMMANDS;
use redlock_proto::{Ballot, FailureKind, Quorum, Refusal, Vote};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a lock is not held.
///
/// The variants tell contention from outage from a lock that was lost. Each but the last three names the
/// resource and what every node answered ([`Error::nodes`]); none ever contains an owner or a password.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the lock.
    Contended(Box<QuorumReport>),
    /// Too few nodes gave a usable answer. After a failed [`extend`](crate::Guard::extend) the lock is still
    /// held for as long as it was.
    NoQuorum(Box<QuorumReport>),
    /// Too many nodes may have forgotten locks and wait until those are over.
    Quarantined {
        /// After so long a majority may grant again.
        left: Duration,
        /// What the nodes said.
        report: Box<QuorumReport>,
    },
    /// A majority granted, but so late that nothing of the time to live was left. All of it was given back.
    Expired(Box<QuorumReport>),
    /// A majority granted, under fences so far apart that no majority can be raised to one fence. All of it was given
    /// back.
    FencesApart {
        /// The smallest fence that a node answered.
        smallest: u64,
        /// The largest.
        largest: u64,
        /// What the nodes said.
        report: Box<QuorumReport>,
    },
    /// The lock was not acquired within the time allowed.
    Timeout {
        /// How long that was.
        waited: Duration,
        /// What the nodes said last.
        report: Box<QuorumReport>,
    },
    /// The lock was held and is no longer.
    Lost {
        /// How it was lost.
        reason: LostReason,
        /// What the nodes said last.
        report: Box<QuorumReport>,
    },
    /// The call cannot be carried out as it was made; nothing was sent.
    Invalid(Arc<str>),
    /// The manager cannot be built like this.
    Config(Arc<str>),
    /// There is no tokio runtime here, or the one that served the manager has shut down.
    NoRuntime,
}

/// What was tried, and what every node answered.
#[derive(Clone, Debug)]
pub struct QuorumReport {
    resource: String,
    nodes: Vec<NodeAnswer>,
    attempts: u32,
}

/// What one node answered.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct NodeAnswer {
    /// The node's address, as in [`Node`](crate::Node)'s `Display`.
    pub node: Arc<str>,
    /// How it stands.
    pub vote: Vote,
}

impl QuorumReport {
    pub(crate) fn new(keys: &Keys, names: &[Arc<str>], ballot: Option<&Ballot>) -> Self {
        let votes = ballot.map(Ballot::votes).unwrap_or_default();
        let answer =
            |(name, vote): (&Arc<str>, &Vote)| NodeAnswer { node: Arc::clone(name), vote: vote.clone() };
        Self { resource: keys.to_string(), nodes: names.iter().zip(votes).map(answer).collect(), attempts: 1 }
    }

    /// The same after so many attempts.
    pub(crate) fn after(mut self, attempts: u32) -> Self {
        self.attempts = attempts;
        self
    }

    /// The resource, or all of them, as the caller named them; bytes that are no text are escaped.
    #[must_use]
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// What every node answered to the last attempt, in the order in which they were configured. Empty if it
    /// did not come to an answer.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        &self.nodes
    }

    /// Whether any node has said anything.
    pub(crate) fn has_answers(&self) -> bool {
        self.nodes.iter().any(|answer| answer.vote != Vote::Pending)
    }

    /// How many attempts were made.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.attempts
    }

    /// Whether so many nodes turned the request itself down that asking again would be no use.
    fn is_turned_down(&self) -> bool {
        let turned_down = self.nodes.iter().filter(|answer| is_the_requests_fault(&answer.vote)).count();
        Quorum::of(self.nodes.len()).is_some_and(|quorum| quorum.is_reached_by(turned_down))
    }
}

/// Whether an error says that the request is wrong, and will be tomorrow. Other errors pass: a server that loads, is
/// busy with a script, has no memory left or is a replica.
fn is_the_requests_fault(vote: &Vote) -> bool {
    use ErrorCode::{Arg, CrossSlot, Err, NoAuth, NoPerm, Owner, Ttl, UnknownCommand, WrongPass, WrongType};
    let Vote::Failed(failure) = vote else { return false };
    failure.kind == FailureKind::Rejected
        && matches!(
            failure.code,
            Some(
                Ttl | Owner
                    | Arg
                    | WrongType
                    | NoPerm
                    | NoAuth
                    | WrongPass
                    | CrossSlot
                    | Err
                    | UnknownCommand
            )
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

    /// The same as the last word when the time allowed is up.
    pub(crate) fn timed_out(waited: Duration, report: QuorumReport) -> Self {
        Self::Timeout { waited, report: Box::new(report) }
    }

    /// What the nodes said, if it came to asking them.
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

    /// The resource that was asked for, or all of them; empty if it did not come to asking.
    #[must_use]
    pub fn resource(&self) -> &str {
        self.report().map(QuorumReport::resource).unwrap_or_default()
    }

    /// What every node answered; empty if it did not come to asking.
    #[must_use]
    pub fn nodes(&self) -> &[NodeAnswer] {
        self.report().map(QuorumReport::nodes).unwrap_or_default()
    }

    /// Whether the same call may succeed later.
    ///
    /// Not if the request itself is at fault: a majority of the nodes turned it down (a time to live beyond
    /// their limit, a key of another type, missing rights), or it never left. Nor if all nodes granted it under
    /// fences that are too far apart. A lock that was lost may be
    /// taken again, but what was done under it may have to be undone first: not by trying again blindly.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Contended(_) | Self::Quarantined { .. } | Self::Expired(_) | Self::Timeout { .. } => true,
            Self::NoQuorum(report) => !report.is_turned_down(),
            // A node that has not granted may bring a majority that agrees.
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
                    "too many nodes wait for {} ms before they grant {resource}{report}",
                    left.as_millis()
                )
            }
            Self::Expired(report) => write!(f, "{resource} was granted too late to be of use{report}"),
            Self::FencesApart { smallest, largest, report } => {
                write!(
                    f,
                    "the fences of the nodes for {resource} are too far apart, from {smallest} to {largest}: \
                     {MOST_COMMANDS} commands a node raise no majority to one fence{report}"
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
        // Every node has answered: the next attempt ends alike. A node that comes back may bring a majority.
        assert!(!error.is_retryable());
        assert!(apart(Vote::Pending).is_retryable());
    }
}
