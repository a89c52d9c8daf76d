//! `redlock release`: frees a lock that was acquired.

use crate::args::{CommonArgs, ReleaseArgs};
use crate::config::Config;
use crate::exit::{Code, ExitError};
use crate::group_report::quorum_of;
use crate::output::Printer;
use crate::ticket::Ticket;
use redlock_client::{NodeRelease, ReleaseOutcome};
use serde_json::{Value, json};

pub(crate) async fn main(
    common: &CommonArgs,
    args: &ReleaseArgs,
    output: &Printer,
) -> Result<Code, ExitError> {
    let config = Config::load(common)?;
    let ticket = Ticket::find(&args.holder)?;
    let locks = config.manager()?;
    // Without the fence the lock is freed as well; the nodes merely count on from what each of them knows.
    let lock = locks.detached(&args.resource, ticket.owner, ticket.fence.unwrap_or(0))?;
    let report = locks.release_detached(&lock).await?;
    if !report.was_held() {
        let answered = |release: &&NodeRelease| {
            matches!(release.outcome, ReleaseOutcome::Freed | ReleaseOutcome::NotHeld)
        };
        let answers = report.nodes().iter().filter(answered).count();
        if !quorum_of(report.nodes().len()).is_reached_by(answers) {
            let message = format!("too few nodes answered for {} ({report})", args.resource);
            return Err(ExitError::new(Code::NoQuorum, "no_quorum", message));
        }
        return Err(ExitError::lost(format!("{} was not held by this owner ({report})", args.resource)));
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
