//! Exit codes, and the errors that lead to them.
//!
//! Scripts depend on the codes, so they do not change. `run` passes on the status of its command, so its own codes are
//! in a range that few programs use: above `sysexits.h` (64 to 78) and Rust's code for a panic (101), and below the
//! codes of shells, `env` and `timeout` (124 to 127) and of signals (from 128).

use crate::duration::millis;
use redlock_client::{Error, LockInfo, NodeAnswer, Quorum, QuorumReport, Vote};
use serde_json::{Value, json};
use std::borrow::Cow;

/// The exit code of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// The program did what was asked.
    Success,
    /// `inspect`, `break`: the lock is free.
    Free,
    /// An option, a setting or the settings file is invalid, or the operator did not confirm. Nothing was done.
    Usage,
    /// Another client holds the lock.
    NotAcquired,
    /// The lock was held and is no longer.
    Lost,
    /// Too few nodes gave a usable answer.
    NoQuorum,
    /// Too many nodes are in quarantine.
    Quarantined,
    /// The nodes that did not reject the request are no majority.
    Rejected,
    /// A file, a socket or stdout cannot be used.
    Internal,
    /// `doctor`: there are warnings, but no errors.
    DoctorWarnings,
    /// `doctor`: there are errors.
    DoctorErrors,
    /// The status of the command that `run` ran, or the code that the caller chose.
    Given(u8),
}

impl Code {
    pub(crate) fn number(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Free => 1,
            Self::Usage => 110,
            Self::NotAcquired => 111,
            Self::Lost => 112,
            Self::NoQuorum => 113,
            Self::Quarantined => 114,
            Self::Internal => 115,
            Self::DoctorWarnings => 116,
            Self::DoctorErrors => 117,
            Self::Rejected => 118,
            Self::Given(number) => number,
        }
    }
}

/// The exit codes, for `--help` and the manual pages.
pub(crate) const HELP: &str = "\
TIME is 500ms, 30s, 1.5s, 2m, 1h, 1d, or several of these: 1m30s.

Exit codes:
    0  success
    1  inspect, break: the lock is free
  110  usage: an invalid option, setting or settings file; nothing was done
  111  not acquired: another client holds the lock (run: see --conflict-exit-code)
  112  lost: the lock was held and is no longer
  113  no quorum: too few nodes gave a usable answer
  114  quarantined: too many nodes may have forgotten locks and grant nothing yet
  115  a file, a socket or stdout cannot be used
  116  doctor: warnings
  117  doctor: errors
  118  rejected: the nodes that did not reject the request are no majority
  126  run, elect: the command cannot be executed
  127  run, elect: the command was not found
  128+ run, elect: signal n ended the command, or redlock while it waited: 128 + n
run and elect pass on the status of their command. Their own codes are in a range that few programs use.";

/// An error that ends the program.
#[derive(Clone, Debug)]
pub(crate) struct ExitError {
    pub(crate) code: Code,
    /// A short, stable word for programs.
    pub(crate) reason: Cow<'static, str>,
    /// One sentence for people.
    pub(crate) message: String,
    resource: Option<String>,
    nodes: Vec<NodeAnswerText>,
}

/// What a node answered, for people and programs.
#[derive(Clone, Debug)]
struct NodeAnswerText {
    node: String,
    answer: String,
    /// What the node says about the lock of the other client.
    holder: Option<LockInfo>,
    /// The resource of this lock, if the call was for several.
    held_resource: Option<String>,
}

impl ExitError {
    pub(crate) fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), resource: None, nodes: Vec::new() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::Usage, "usage", message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, "internal", message)
    }

    /// Names the resource that the error is about, unless it is named already.
    pub(crate) fn about(mut self, resource: Option<String>) -> Self {
        self.resource = self.resource.or(resource);
        self
    }

    /// Adds the answers of the nodes.
    pub(crate) fn with_nodes(mut self, nodes: impl IntoIterator<Item = (String, String)>) -> Self {
        let text = |(node, answer)| NodeAnswerText { node, answer, holder: None, held_resource: None };
        self.nodes = nodes.into_iter().map(text).collect();
        self
    }

    /// Too few nodes gave a usable answer, and `refused` nodes refused the request itself. If the nodes that did not
    /// refuse are a majority, the cause is elsewhere.
    pub(crate) fn too_few(message: impl Into<String>, quorum: Quorum, refused: usize) -> Self {
        if quorum.is_reached_by(quorum.nodes().saturating_sub(refused)) {
            Self::new(Code::NoQuorum, "no_quorum", message)
        } else {
            Self::new(Code::Rejected, "rejected", message)
        }
    }

    /// The error of an extension. A node that does not extend a lock does not say whether another client holds it.
    pub(crate) fn of_extension(error: Error) -> Self {
        let (refused, words) = (Vote::Refused.to_string(), "not held by this owner");
        let mut failure = Self::from(error);
        failure.message = failure.message.replace(&refused, words);
        failure.nodes.iter_mut().for_each(|node| node.answer = node.answer.replace(&refused, words));
        failure
    }

    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new(Code::Lost, "lost", message)
    }

    /// Replaces the code for a lock that another client holds.
    pub(crate) fn with_conflict_code(mut self, code: Option<u8>) -> Self {
        if let (Code::NotAcquired, Some(code)) = (self.code, code) {
            self.code = Code::Given(code);
        }
        self
    }

    pub(crate) fn json(&self) -> Value {
        let mut error = json!({
            "reason": self.reason,
            "message": self.message,
            "exit_code": self.code.number(),
        });
        if let Some(resource) = &self.resource {
            error["resource"] = json!(resource);
        }
        if !self.nodes.is_empty() {
            error["nodes"] = self.nodes.iter().map(NodeAnswerText::json).collect();
        }
        json!({ "error": error })
    }
}

impl NodeAnswerText {
    fn json(&self) -> Value {
        let mut node = json!({"node": self.node, "answer": self.answer});
        if let Some(holder) = &self.holder {
            node["label"] = json!(holder.label);
            node["left_ms"] = json!(millis(holder.left));
        }
        if let Some(resource) = &self.held_resource {
            node["resource"] = json!(resource);
        }
        node
    }
}

impl From<Error> for ExitError {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Contended(_) => Code::NotAcquired,
            Error::Timeout { report, .. } if report.is_rejected() => Code::Rejected,
            Error::Timeout { report, .. } => of_timeout(report),
            Error::Lost { .. } => Code::Lost,
            Error::Rejected(_) => Code::Rejected,
            Error::Quarantined { .. } => Code::Quarantined,
            Error::NoQuorum(_) | Error::Expired(_) | Error::FencesApart { .. } => Code::NoQuorum,
            Error::Invalid(_) | Error::Config(_) => Code::Usage,
            _ => Code::Internal,
        };
        let resource = Some(error.resource().to_owned()).filter(|resource| !resource.is_empty());
        let text = |answer: &NodeAnswer| NodeAnswerText {
            node: answer.node.to_string(),
            answer: answer.vote.to_string(),
            holder: answer.holder.clone(),
            held_resource: answer.held_resource.clone(),
        };
        let nodes = error.nodes().iter().map(text).collect();
        Self { code, reason: error.reason().into(), message: error.to_string(), resource, nodes }
    }
}

/// The code for a wait that timed out. The cause is another client, unless in the last attempt too few nodes answered
/// or too few nodes could grant the lock.
fn of_timeout(report: &QuorumReport) -> Code {
    let count = |test: fn(&Vote) -> bool| report.nodes().iter().filter(|answer| test(&answer.vote)).count();
    let quorum = report.quorum();
    let answered = count(|vote| !matches!(vote, Vote::Failed(_) | Vote::Pending));
    let granting = count(|vote| matches!(vote, Vote::Granted { .. } | Vote::Refused));
    if !quorum.is_reached_by(answered) {
        Code::NoQuorum
    } else if !quorum.is_reached_by(granting) {
        Code::Quarantined
    } else {
        Code::NotAcquired
    }
}
