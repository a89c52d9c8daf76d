//! The checks. They work on the gathered facts and send no requests.

mod nodes;
mod servers;

use super::facts::GroupFacts;

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Locks work; the operator may want to know this.
    Note,
    /// Locks work, and may fail later or after another failure.
    Warning,
    /// Something is broken or unsafe now.
    Error,
}

impl Severity {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// A problem, with its reason and its remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// The short, stable name of the check.
    pub(super) check: &'static str,
    /// The node; `None` if the finding concerns all nodes together.
    pub(super) node: Option<String>,
    pub(super) reason: String,
    pub(super) remedy: String,
}

/// All findings so far.
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    fn add(
        &mut self,
        severity: Severity,
        check: &'static str,
        node: Option<&str>,
        reason: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        let node = node.map(str::to_owned);
        self.0.push(Finding { severity, check, node, reason: reason.into(), remedy: remedy.into() });
    }
}

/// Runs all checks. The most severe findings come first.
pub(super) fn examine(facts: &GroupFacts) -> Vec<Finding> {
    let mut findings = Findings(Vec::new());
    nodes::examine(facts, &mut findings);
    for node in &facts.nodes {
        servers::examine(node, &mut findings);
    }
    let mut findings = findings.0;
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}

#[cfg(test)]
mod tests;
