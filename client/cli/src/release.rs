//! `redlock release`: releases a lock that `redlock acquire` left held.

use crate::args::{CommonArgs, ReleaseArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::holder::HolderSecret;
use crate::output::Printer;
use redlock_client::{FailureKind, NodeRelease, ReleaseOutcome, ReleaseReport};
use serde_json::{Value, json};
use std::io::ErrorKind;
use std::path::Path;

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ReleaseArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let secret = HolderSecret::find(&args.holder)?;
    let locks = config.manager()?;
    // The fence is optional: it only makes the nodes agree on the fence of the next holder.
    let lock = locks.detached(&args.resource, secret.owner, secret.fence.unwrap_or(0))?;
    let report = locks.release_detached(&lock).await?;
    if !report.was_held() {
        let answered = |release: &&NodeRelease| {
            matches!(release.outcome, ReleaseOutcome::Freed | ReleaseOutcome::NotHeld)
        };
        let answers = report.nodes().iter().filter(answered).count();
        if !report.quorum().is_reached_by(answers) {
            let message = format!(
                "too few nodes gave a usable answer to the release of {} ({report}): remove the cause, and run release again",
                args.resource
            );
            let refused = report.nodes().iter().filter(|release| is_rejected(&release.outcome)).count();
            return Err(ExitError::too_few(message, report.quorum(), refused).with_nodes(answers_of(&report)));
        }
        let message = format!("{} was not held by this owner ({report})", args.resource);
        return Err(ExitError::lost(message).with_nodes(answers_of(&report)));
    }
    if let Some(path) = &args.holder.owner_file {
        // The owner holds nothing any more, and the next `acquire --owner-file` needs the name.
        remove(path, *output);
    }
    if output.is_json {
        let node =
            |release: &NodeRelease| json!({"node": &*release.node, "answer": release.outcome.to_string()});
        let nodes: Vec<Value> = report.nodes().iter().map(node).collect();
        output.json(&json!({"resource": args.resource, "freed": report.freed(), "nodes": nodes}))?;
    } else {
        let of = report.nodes().len();
        output.line(&format!("{} is free on {} of {of} nodes", args.resource, report.freed()))?;
    }
    Ok(Code::Success)
}

fn is_rejected(outcome: &ReleaseOutcome) -> bool {
    matches!(outcome, ReleaseOutcome::Failed(failure) if failure.kind == FailureKind::Rejected)
}

fn answers_of(report: &ReleaseReport) -> Vec<(String, String)> {
    report.nodes().iter().map(|release| (release.node.to_string(), release.outcome.to_string())).collect()
}

/// Removes the owner file. The lock is released already, so a failure is only a note.
fn remove(path: &Path, output: Printer) {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            output.note(&format!("cannot remove {}: {error}", path.display()));
        }
        _ => {}
    }
}
