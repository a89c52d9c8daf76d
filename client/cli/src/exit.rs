//! Exit codes, and what leads to them.
//!
//! They are a promise to scripts. `run` passes the status of its command on, so its own codes lie where few
//! programs have theirs: above `sysexits.h` (64 to 78) and Rust's code for a panic (101), below those that shells,
//! `env` and `timeout` give (124 to 127) and those of signals (from 128 on).

use crate::group_report::quorum_of;
use redlock_client::{Error, NodeAnswer, Vote};
use serde_json::{Value, json};
use std::borrow::Cow;

/// How the program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    /// As asked.
    Success,
    /// `inspect`: the lock is free.
    Free,
    /// Options or settings that make no sense.
    Usage,
    /// Somebody else holds the lock.
    NotAcquired,
    /// The lock was held, and is no longer.
    Lost,
    /// Too few nodes gave a usable answer.
    NoQuorum,
    /// Too many nodes wait after a restart.
    Quarantined,
    /// A file, a terminal or a socket is not as needed.
    Internal,
    /// `doctor`: something should be looked at.
    Warning,
    /// `doctor`: something is wrong.
    Ill,
    /// As the command that was run, or as the caller wants it.
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
            Self::Warning => 116,
            Self::Ill => 117,
            Self::Given(number) => number,
        }
    }
}

/// For `--help` and the manual page.
pub(crate) const HELP: &str = "\
Exit codes:
    0  done as asked
    1  inspect: the lock is free
  110  usage: options, settings or a file of settings that make no sense
  111  not acquired: somebody else holds the lock (run: see --conflict-exit-code)
  112  lost: the lock was held, and is no longer
  113  no quorum: too few nodes gave a usable answer
  114  quarantined: too many nodes may have forgotten locks, and wait
  115  a file, a terminal or a socket is not as needed
  116  doctor: warnings
  117  doctor: errors
  126  run: the command cannot be executed
  127  run: the command was not found
  128+ run: the command, or redlock while it waited, was ended by signal number 128+n
run passes the status of its command on. Its own codes are in a range that few programs use.";

/// Why the program did not do as asked.
#[derive(Debug)]
pub(crate) struct ExitError {
    pub(crate) code: Code,
    /// A short, stable word for programs.
    pub(crate) reason: Cow<'static, str>,
    /// For people.
    pub(crate) message: String,
    resource: Option<String>,
    nodes: Vec<NodeAnswer>,
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

    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new(Code::Lost, "lost", message)
    }

    /// The same, with another code for the case that somebody else holds the lock.
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
            let node =
                |answer: &NodeAnswer| json!({"node": &*answer.node, "answer": answer.vote.to_string()});
            error["nodes"] = self.nodes.iter().map(node).collect();
        }
        json!({ "error": error })
    }
}

impl From<Error> for ExitError {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Contended(_) => Code::NotAcquired,
            Error::Timeout { report, .. } => of_timeout(report.nodes()),
            Error::Lost { .. } => Code::Lost,
            Error::Quarantined { .. } => Code::Quarantined,
            Error::NoQuorum(_) | Error::Expired(_) | Error::FencesApart { .. } => Code::NoQuorum,
            Error::Invalid(_) | Error::Config(_) => Code::Usage,
            _ => Code::Internal,
        };
        let resource = Some(error.resource().to_owned()).filter(|resource| !resource.is_empty());
        let nodes = error.nodes().to_vec();
        Self { code, reason: error.reason().into(), message: error.to_string(), resource, nodes }
    }
}

/// A wait that was in vain ended so because somebody held the lock, unless the last attempt says that there was no
/// majority to have it from.
fn of_timeout(nodes: &[NodeAnswer]) -> Code {
    let count = |test: fn(&Vote) -> bool| nodes.iter().filter(|answer| test(&answer.vote)).count();
    let quorum = quorum_of(nodes.len());
    let there = count(|vote| !matches!(vote, Vote::Failed(_) | Vote::Pending));
    let granting = count(|vote| matches!(vote, Vote::Granted { .. } | Vote::Refused));
    if !quorum.is_reached_by(there) {
        Code::NoQuorum
    } else if !quorum.is_reached_by(granting) {
        Code::Quarantined
    } else {
        Code::NotAcquired
    }
}
