//! Watches one node, and reports to `tracing` and `metrics` when the node comes up, goes down, is in quarantine
//! or rejects requests.
//!
//! Without these features a [`NodeWatch`] is empty and its methods do nothing.

#![cfg_attr(
    not(all(feature = "tracing", feature = "metrics")),
    allow(unused_variables, unused_imports, dead_code)
)]

use redlock_contract::ErrorCode;
use redlock_proto::{Failure, FailureKind, LockReply, Moment};
use std::sync::Arc;

/// What the client knows about one node.
pub(crate) struct NodeWatch {
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    name: Arc<str>,
    /// Why the node is of no use at the moment; `None` if there is no reason.
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    problem: Option<Problem>,
    #[cfg(any(feature = "tracing", feature = "metrics"))]
    has_connected: bool,
    #[cfg(feature = "metrics")]
    round_trip: metrics::Histogram,
}

#[cfg(not(any(feature = "tracing", feature = "metrics")))]
impl NodeWatch {
    pub(crate) fn new(_: &Arc<str>) -> Self {
        Self {}
    }

    pub(crate) fn connected(&mut self) {}

    pub(crate) fn failed(&mut self, _: &Failure) {}

    pub(crate) fn answered(&mut self) {}

    pub(crate) fn round_trip(&self, _: Moment, _: Moment) {}

    pub(crate) fn voted(&mut self, _: &LockReply) {}

    pub(crate) fn votes_again(&mut self) {}
}

#[cfg(any(feature = "tracing", feature = "metrics"))]
impl NodeWatch {
    pub(crate) fn new(name: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(name),
            problem: None,
            has_connected: false,
            #[cfg(feature = "metrics")]
            round_trip: metrics::Histogram::noop(),
        }
    }

    /// The client uses a new connection to the node.
    #[cold]
    pub(crate) fn connected(&mut self) {
        let is_back = std::mem::replace(&mut self.has_connected, true);
        self.problem = None;
        self.set_up(true);
        #[cfg(feature = "metrics")]
        {
            let node = self.label();
            self.round_trip =
                metrics::histogram!("redlock_client_node_round_trip_seconds", "node" => node.clone());
            metrics::counter!("redlock_client_node_reconnects_total", "node" => node)
                .increment(u64::from(is_back));
        }
        #[cfg(feature = "tracing")]
        if is_back {
            tracing::info!(node = &*self.name, "connected to a node again");
        } else {
            tracing::debug!(node = &*self.name, "connected to a node");
        }
    }

    /// The node failed: it is unreachable, does not answer, or must not be used.
    #[cold]
    pub(crate) fn failed(&mut self, failure: &Failure) {
        let problem = Problem::of(failure.kind);
        let is_news = self.begin(problem);
        self.set_up(false);
        #[cfg(feature = "tracing")]
        if is_news {
            tracing::warn!(node = &*self.name, reason = problem.name(), %failure, "a node is down");
        }
    }

    /// The node has answered after a time without answers.
    #[cold]
    pub(crate) fn answered(&mut self) {
        self.problem = None;
        self.set_up(true);
        #[cfg(feature = "tracing")]
        tracing::info!(node = &*self.name, "a node answers again");
    }

    /// A reply to a request that was sent at `sent`.
    pub(crate) fn round_trip(&self, sent: Moment, now: Moment) {
        #[cfg(feature = "metrics")]
        self.round_trip.record(now.since(sent).as_secs_f64());
    }

    /// The node's reply to a request for a lock.
    pub(crate) fn voted(&mut self, reply: &LockReply) {
        match reply {
            LockReply::Quarantined { left } => {
                if self.begin(Problem::Quarantined) {
                    #[cfg(feature = "tracing")]
                    tracing::warn!(node = &*self.name, ?left, "a node is in quarantine");
                }
            }
            LockReply::Failed(failure) if failure.kind == FailureKind::Rejected => {
                let is_non_voting = failure.code() == Some(ErrorCode::NoVote);
                if self.begin(if is_non_voting { Problem::NonVoting } else { Problem::Rejected }) {
                    #[cfg(feature = "tracing")]
                    tracing::warn!(node = &*self.name, %failure, "a node rejects requests");
                }
            }
            LockReply::Failed(_) => {}
            LockReply::Number(_) | LockReply::Nil | LockReply::Queued { .. } => {
                self.votes_again();
            }
        }
    }

    /// The node has voted: a quarantine or a rejection is over.
    pub(crate) fn votes_again(&mut self) {
        if self.problem.is_some_and(Problem::ends_with_a_vote) {
            self.problem = None;
            #[cfg(feature = "tracing")]
            tracing::info!(node = &*self.name, "a node votes again");
        }
    }

    /// Notes a problem, and counts it if it is a new one.
    fn begin(&mut self, problem: Problem) -> bool {
        if self.problem.replace(problem) == Some(problem) {
            return false;
        }
        #[cfg(feature = "metrics")]
        metrics::counter!(
            "redlock_client_node_failures_total",
            "node" => self.label(),
            "reason" => problem.name()
        )
        .increment(1);
        true
    }

    #[cfg(feature = "metrics")]
    fn label(&self) -> metrics::SharedString {
        metrics::SharedString::from_shared(Arc::clone(&self.name))
    }

    fn set_up(&self, is_up: bool) {
        #[cfg(feature = "metrics")]
        metrics::gauge!("redlock_client_node_up", "node" => self.label()).set(if is_up { 1.0 } else { 0.0 });
    }
}

/// Why a node is of no use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Problem {
    Unreachable,
    NoModule,
    LoginRefused,
    SameNode,
    NoAnswer,
    ConnectionLost,
    Rejected,
    Quarantined,
    NonVoting,
}

impl Problem {
    /// The problem of a node that failed.
    fn of(kind: FailureKind) -> Self {
        match kind {
            FailureKind::NoModule => Self::NoModule,
            FailureKind::LoginRefused => Self::LoginRefused,
            FailureKind::SameNode => Self::SameNode,
            FailureKind::Silent => Self::NoAnswer,
            FailureKind::Cut => Self::ConnectionLost,
            FailureKind::Rejected => Self::Rejected,
            _ => Self::Unreachable,
        }
    }

    /// The value of `reason` in metrics and events.
    fn name(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::NoModule => "no_module",
            Self::LoginRefused => "login_refused",
            Self::SameNode => "same_node",
            Self::NoAnswer => "no_answer",
            Self::ConnectionLost => "connection_lost",
            Self::Rejected => "rejected",
            Self::Quarantined => "quarantined",
            Self::NonVoting => "non_voting",
        }
    }

    /// Whether a vote shows that the problem is over. Other problems end with a new connection or an answer.
    fn ends_with_a_vote(self) -> bool {
        matches!(self, Self::Quarantined | Self::NonVoting | Self::Rejected)
    }
}
