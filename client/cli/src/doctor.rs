//! `redlock doctor`: finds problems in the setup.

mod examination;
mod facts;

use crate::args::CommonArgs;
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::output::{Printer, Tone, counted, tame};
use examination::{Finding, Severity, examine};
use facts::GroupFacts;
use redlock_client::LockManager;
use serde_json::{Value, json};

pub(crate) async fn main(common: &CommonArgs, output: &Printer) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let locks = config.manager()?;
    let facts = GroupFacts::gather(&locks, &config).await?;
    let findings = examine(&facts);
    if output.is_json {
        output.json(&json(&facts, &findings))?;
    } else {
        text(&facts, &findings, *output)?;
    }
    Ok(match findings.iter().map(|finding| finding.severity).max() {
        Some(Severity::Error) => Code::DoctorErrors,
        Some(Severity::Warning) => Code::DoctorWarnings,
        Some(Severity::Note) | None => Code::Success,
    })
}

/// The findings as JSON.
pub(crate) async fn report(locks: &LockManager, config: &Config) -> Result<Value, ExitError> {
    let facts = GroupFacts::gather(locks, config).await?;
    Ok(json(&facts, &examine(&facts)))
}

fn json(facts: &GroupFacts, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        json!({
            "severity": finding.severity.name(),
            "check": finding.check,
            "node": finding.node.as_deref(),
            "reason": finding.reason,
            "remedy": finding.remedy,
        })
    };
    json!({
        "worst": findings.iter().map(|finding| finding.severity).max().map_or("none", Severity::name),
        "nodes": facts.nodes.iter().map(|node| &*node.report.node).collect::<Vec<_>>(),
        "findings": findings.iter().map(finding).collect::<Vec<_>>(),
    })
}

fn text(facts: &GroupFacts, findings: &[Finding], output: Printer) -> Result<(), ExitError> {
    for finding in findings {
        let tone = match finding.severity {
            Severity::Error => Tone::Bad,
            Severity::Warning => Tone::Doubtful,
            Severity::Note => Tone::Faint,
        };
        let place = finding.node.as_deref().map_or_else(|| "all nodes".to_owned(), tame);
        let severity = output.paint(tone, finding.severity.name());
        output.line(&format!("{severity} [{}] {place}: {}", finding.check, tame(&finding.reason)))?;
        output.line(&format!("    {}", tame(&finding.remedy)))?;
    }
    let count =
        |severity| findings.iter().map(|finding| u64::from(finding.severity == severity)).sum::<u64>();
    let (errors, warnings) = (count(Severity::Error), count(Severity::Warning));
    let notes = count(Severity::Note);
    let nodes = u64::try_from(facts.nodes.len()).unwrap_or(u64::MAX);
    if errors + warnings == 0 {
        let word = output.paint(Tone::Good, "No problems found");
        output.line(&format!("{word}: {}, {}.", counted(nodes, "node"), counted(notes, "note")))
    } else {
        output.line(&format!(
            "{}: {}, {}, {}.",
            counted(nodes, "node"),
            counted(errors, "error"),
            counted(warnings, "warning"),
            counted(notes, "note")
        ))
    }
}
