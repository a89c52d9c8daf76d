//! `redlock admit`: lets a node vote that cannot prove who it is.
//!
//! The program waits for every lease that the lost node may have granted, then asks the other nodes for their high-water
//! marks, and admits the node above the largest. The order matters: a request that the lost node has answered may reach
//! another node after that node was asked, and raise its fence beyond the floor. After the wait no such request can make
//! a holder. What the program cannot know, it says: the server that the node replaces must be stopped.

use crate::args::{AdmitArgs, CommonArgs};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, ExitError};
use crate::group_report::{GroupReport, NodeReport, explanation, remedy};
use crate::output::{Printer, tame};
use redlock_client::admission::{NodeFacts, Terms, TooFewAnswers, terms};
use redlock_client::{FailureKind, LockManager, NodeState, Origin};
use redlock_contract::NonVoting;
use redlock_contract::drift::with_drift;
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

/// A node id is named by at least so many of its digits.
const LEAST_DIGITS: usize = 8;

pub(crate) async fn main(common: &CommonArgs, args: &AdmitArgs, output: &Printer) -> Result<Code, ExitError> {
    let locks = Config::load(common)?.manager()?;
    let report = GroupReport::take(&locks).await?;
    let plan = AdmissionPlan::make(&report, args)?;
    if !output.is_json {
        output.lines(&plan.lines())?;
    }
    confirm(args, *output)?;
    if plan.alone {
        return finish(&plan, &locks, *output).await;
    }
    // Nothing has changed yet: a program that is stopped here admits no node.
    tokio::time::sleep(Duration::from_millis(with_drift(plan.terms.wait_ms))).await;
    let report = GroupReport::take(&locks).await?;
    let counted = AdmissionPlan::make(&report, args)?;
    finish(&counted, &locks, *output).await
}

/// Admits the node and says what came of it.
async fn finish(plan: &AdmissionPlan<'_>, locks: &LockManager, output: Printer) -> Result<Code, ExitError> {
    let outcome = plan.carry_out(locks).await?;
    if output.is_json {
        output.json(&plan.json(&outcome))?;
    } else {
        output.line(&plan.announcement(&outcome))?;
    }
    Ok(Code::Success)
}

/// What is about to be done.
struct AdmissionPlan<'a> {
    /// The place of the node among those that were configured.
    place: usize,
    node: &'a str,
    state: &'a NodeState,
    terms: Terms,
    /// Floor and wait are the operator's, not counted.
    alone: bool,
    /// The other nodes that vote and have answered.
    answers: Vec<(&'a str, NodeFacts)>,
    needed: usize,
}

/// What the node says afterwards.
struct AdmissionOutcome {
    fences_above: u64,
    votes_in: Duration,
}

impl<'a> AdmissionPlan<'a> {
    fn make(report: &'a GroupReport, args: &AdmitArgs) -> Result<Self, ExitError> {
        let place = find(report, &args.node)?;
        let (node, state, own) = candidate(&report.nodes[place], args.force)?;
        let facts = |report: &'a NodeReport| {
            let state = report.state.as_ref().ok()?;
            Some((&*report.node, facts(state)?))
        };
        let others =
            || report.nodes.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, other)| other);
        let all: Vec<(&str, NodeFacts)> = others().filter_map(facts).collect();
        let told: Vec<NodeFacts> = all.iter().map(|(_, facts)| facts.clone()).collect();
        let quorum = report.quorum();
        let counted = terms(quorum, &own, &told);
        let given = args.floor.zip(args.wait).filter(|_| args.alone);
        let terms = match (counted, given) {
            (Ok(terms), None) => terms,
            (Err(too_few), Some((floor, wait))) => {
                Terms { floor, wait_ms: millis(wait), answers: too_few.answers }
            }
            (Ok(terms), Some(_)) => {
                return Err(ExitError::usage(format!(
                    "--alone is for groups whose other nodes cannot be asked, and {} of them vote and answer: leave \
                     --alone, --floor and --wait out",
                    terms.answers
                )));
            }
            (Err(too_few), None) => return Err(uncounted(node, &too_few, &others().collect::<Vec<_>>())),
        };
        let answers = all.into_iter().filter(|(_, facts)| facts.votes).collect();
        Ok(Self { place, node, state, terms, alone: given.is_some(), answers, needed: quorum.needed() })
    }

    /// What is done and what is assumed, for the operator.
    fn lines(&self) -> Vec<String> {
        let Self { node, state, terms, .. } = self;
        let (floor, wait) = (terms.floor, show(Duration::from_millis(terms.wait_ms)));
        let now = match state.non_voting.as_deref() {
            Some(word) => format!("does not vote: {}", tame(&explanation(word))),
            None => "votes".to_owned(),
        };
        let mut lines = vec![format!("{node}, node id {}: {now}.", tame(&state.id))];
        if self.alone {
            lines.push(format!(
                "floor {floor} and wait {wait} are as given; the other nodes were not counted."
            ));
            lines.push(format!(
                "You vouch that this group has given out no fence above {floor} and that no lease lasts longer than \
                 {wait} from now: otherwise two clients can hold one lock."
            ));
        } else {
            let names: Vec<&str> = self.answers.iter().map(|(name, _)| *name).collect();
            lines.push(format!(
                "floor {floor}: the largest high-water mark of {} ({} vote and answer, {} are needed).",
                names.join(", "),
                terms.answers,
                self.needed
            ));
            lines.push(format!(
                "wait {wait}: the longest lease that any node of the group grants or may still hold. The program waits \
                 that long, asks the other nodes again, and then admits the node."
            ));
        }
        lines.push(
            "Assumed: the server that this node replaces is stopped and never votes again. If it runs on, two clients \
             can hold one lock."
                .to_owned(),
        );
        lines
    }

    async fn carry_out(&self, locks: &LockManager) -> Result<AdmissionOutcome, ExitError> {
        let Self { place, node, state, terms, .. } = self;
        // The program has waited itself, unless it could not ask.
        let wait_ms = if self.alone { terms.wait_ms } else { 0 };
        if let Err(failure) = locks.admit_node(*place, &state.id, &Terms { wait_ms, ..*terms }).await? {
            let words = tame(&failure.to_string());
            let message = match failure.kind {
                FailureKind::Rejected => format!("{node} is not admitted: {words}"),
                _ => format!(
                    "{node} may or may not be admitted: {words}; see `redlock status`, and run it again"
                ),
            };
            return Err(ExitError::new(Code::NoQuorum, "not_admitted", message));
        }
        let health = locks.health().await?;
        let admitted = health.nodes.get(*place).and_then(|node| node.state.as_ref().ok());
        Ok(AdmissionOutcome {
            fences_above: admitted.map_or(terms.floor, |state| state.fence),
            votes_in: admitted.map_or(Duration::from_millis(wait_ms), |state| state.quarantine),
        })
    }

    fn announcement(&self, outcome: &AdmissionOutcome) -> String {
        let when =
            if outcome.votes_in.is_zero() { "now".into() } else { format!("in {}", show(outcome.votes_in)) };
        format!("{} is admitted: it votes {when}, with fences above {}.", self.node, outcome.fences_above)
    }

    fn json(&self, outcome: &AdmissionOutcome) -> Value {
        let answer = |(node, facts): &(&str, NodeFacts)| json!({"node": node, "high_water": facts.high_water, "max_ttl_ms": facts.max_ttl_ms});
        json!({
            "node": self.node,
            "node_id": self.state.id,
            "was_voting": self.state.votes(),
            "non_voting_reason": self.state.non_voting.as_deref(),
            "alone": self.alone,
            "answers": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "needed": self.needed,
            "floor": self.terms.floor,
            "wait_ms": self.terms.wait_ms,
            "fences_above": outcome.fences_above,
            "votes_in_ms": millis(outcome.votes_in),
        })
    }
}

/// What an admission counts with; `None` from an older module, which does not say it.
fn facts(state: &NodeState) -> Option<NodeFacts> {
    Some(NodeFacts {
        id: state.id.clone(),
        votes: state.votes(),
        high_water: state.high_water?,
        max_ttl_ms: millis(state.max_ttl?),
        longest_lease_ms: millis(state.longest_lease),
    })
}

/// The place of the named node: by its address as `redlock status` shows it, by its URL, or by the beginning of its
/// node id.
fn find(report: &GroupReport, named: &str) -> Result<usize, ExitError> {
    let address = named.split_once("://").map_or(named, |(_, rest)| rest);
    let address = address.rsplit_once('@').map_or(address, |(_, rest)| rest).trim_end_matches('/');
    let is_named = |node: &NodeReport| &*node.node == named || &*node.node == address;
    if let Some(place) = report.nodes.iter().position(is_named) {
        return Ok(place);
    }
    let is_id = named.len() >= LEAST_DIGITS && named.bytes().all(|digit| digit.is_ascii_hexdigit());
    let begins = |node: &NodeReport| {
        is_id && node.state.as_ref().is_ok_and(|state| state.id.starts_with(&named.to_ascii_lowercase()))
    };
    let places: Vec<usize> = (0..report.nodes.len()).filter(|place| begins(&report.nodes[*place])).collect();
    let names: Vec<&str> = report.nodes.iter().map(|node| &*node.node).collect();
    match places.as_slice() {
        [place] => Ok(*place),
        [] => Err(ExitError::usage(format!(
            "{} is not a configured node; configured are {}. NODE is an address or at least {LEAST_DIGITS} digits of a \
             node id",
            tame(address),
            names.join(", ")
        ))),
        several => Err(ExitError::usage(format!(
            "{} nodes have an id that begins with {named}; give more digits or an address",
            several.len()
        ))),
    }
}

/// The node that is to be admitted, if it can be.
fn candidate(report: &NodeReport, force: bool) -> Result<(&str, &NodeState, NodeFacts), ExitError> {
    let node = &*report.node;
    let refuse =
        |why: String| ExitError::new(Code::Usage, "not_admitted", format!("{node} is not admitted: {why}"));
    let state = report.state.as_ref().map_err(|failure| {
        let words = tame(&failure.to_string());
        let message =
            format!("{node} is not admitted: it does not answer as a node ({words}); start it first");
        ExitError::new(Code::NoQuorum, "no_quorum", message)
    })?;
    if state.is_replica {
        return Err(refuse(
            "it is a replica; stop its master for good and promote it first: REPLICAOF NO ONE".into(),
        ));
    }
    let Some(own) = facts(state) else {
        return Err(refuse(format!(
            "its module {} does not report whether it votes; upgrade the module",
            tame(&state.version)
        )));
    };
    match state.non_voting.as_deref() {
        Some(word) if word == NonVoting::SeveralStates.name() => {
            Err(refuse(format!("{}; {}", explanation(word), remedy(word, node))))
        }
        None if !force => Err(refuse(format!(
            "it votes already (origin {}, incarnation {}); --force admits it all the same, after the wait",
            state.origin.map_or("unknown", Origin::name),
            state.incarnation.unwrap_or_default()
        ))),
        _ => Ok((node, state, own)),
    }
}

/// Too few other nodes can be asked: which ones, why, and what remains.
fn uncounted(node: &str, too_few: &TooFewAnswers, others: &[&NodeReport]) -> ExitError {
    let why = |other: &&NodeReport| {
        let why = match &other.state {
            Err(failure) => tame(&failure.to_string()),
            Ok(state) if state.is_replica => "a replica".to_owned(),
            Ok(state) => match (state.high_water, state.non_voting.as_deref()) {
                (None, _) => "its module does not report a high-water mark".to_owned(),
                (_, Some(word)) => format!("does not vote: {}", tame(&explanation(word))),
                (_, None) => return None,
            },
        };
        Some(format!("{}: {why}", other.node))
    };
    let reasons: Vec<String> = others.iter().filter_map(why).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let remedy = if too_few.needed > too_few.others {
        "A group of this size cannot be asked: name both yourself with --alone --floor NUMBER --wait TIME"
    } else {
        "Start the other nodes, or name both yourself with --alone --floor NUMBER --wait TIME"
    };
    let message =
        format!("{node} is not admitted: floor and wait cannot be counted: {too_few}{reasons}. {remedy}");
    ExitError::new(Code::NoQuorum, "no_quorum", message)
}

/// Asks the operator, on a terminal.
fn confirm(args: &AdmitArgs, output: Printer) -> Result<(), ExitError> {
    if args.yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if output.is_json || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(ExitError::usage(
            "nothing was done: without a terminal, and with --json, admit needs --yes",
        ));
    }
    let _ = write!(stderr, "Is that server stopped for good? Type yes to admit {}: ", args.node);
    let _ = stderr.flush();
    let mut answer = String::new();
    let read = stdin.lock().read_line(&mut answer);
    if read.is_ok() && answer.trim().eq_ignore_ascii_case("yes") {
        return Ok(());
    }
    Err(ExitError::new(Code::Usage, "not_admitted", "nothing was done: the answer was not yes"))
}
