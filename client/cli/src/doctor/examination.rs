//! What is wrong, by what the nodes say. Nobody is asked anything here.

mod nodes;
mod servers;

use super::facts::GroupFacts;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    /// Good to know.
    Note,
    /// Will hurt some day.
    Warning,
    /// Hurts.
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

/// Something that would hurt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    /// A short, stable name of what was looked for.
    pub(super) check: &'static str,
    /// Where; `None` if it concerns all nodes together.
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

/// Looks for all that is known to hurt; the worst comes first.
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
