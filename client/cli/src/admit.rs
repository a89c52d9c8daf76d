//! `redlock admit`: lets a node vote although it cannot prove which node it is.
//!
//! The program waits for every lease that the lost node may have granted, then asks the other nodes for their
//! high-water marks, and admits the node above the largest. If a node grants longer leases by then, the
//! program continues to wait. The program must wait before it asks. Otherwise a client with a grant of the
//! lost node could complete its majority on a node that was already asked, with a fence above the floor.
//! After the wait, such a grant has expired. The program cannot check that the replaced server is stopped; it
//! reminds the operator.

use crate::args::{AdmitArgs, CommonArgs};
use crate::config::Config;
use crate::confirm::confirm;
use crate::duration::{millis, show};
use crate::exit::{Code, ExitError};
use crate::group_report::{GroupReport, NodeReport};
use crate::output::{Printer, tame};
use redlock_client::admission::{NodeFacts, Terms, TooFewAnswers, terms};
use redlock_client::{
    FailureKind, HighWater, LockManager, NodeStanding, NodeState, NonVoting, NonVotingReason, Origin,
};
use redlock_contract::drift::with_drift;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The smallest number of digits that identify a node by its node id.
const LEAST_DIGITS: usize = 8;

pub(crate) async fn main(common: &CommonArgs, args: &AdmitArgs, output: &Printer) -> Result<Code, ExitError> {
    let locks = Config::load(common)?.manager()?;
    let report = GroupReport::take(&locks).await?;
    let plan = AdmissionPlan::make(&report, args)?;
    if !output.is_json {
        output.lines(&plan.lines())?;
    }
    if !args.yes {
        let question = format!("Is that server stopped for good? Type yes to admit {}", tame(&args.node));
        confirm(&question, "admit", "not_admitted", *output)?;
    }
    if plan.alone {
        return finish(&plan, &locks, *output).await;
    }
    // Nothing has changed yet: a program that is stopped here admits no node.
    let began = Instant::now();
    let mut wait = plan.wait();
    loop {
        tokio::time::sleep(wait.saturating_sub(began.elapsed())).await;
        let report = GroupReport::take(&locks).await?;
        let counted = AdmissionPlan::make(&report, args)?;
        counted.refuse_another_start(plan.state)?;
        // A node may grant longer leases than before.
        wait = counted.wait();
        if began.elapsed() >= wait {
            return finish(&counted, &locks, *output).await;
        }
    }
}

/// Admits the node and prints the outcome.
async fn finish(plan: &AdmissionPlan<'_>, locks: &LockManager, output: Printer) -> Result<Code, ExitError> {
    let outcome = plan.carry_out(locks).await?;
    if output.is_json {
        output.json(&plan.json(&outcome))?;
    } else {
        output.line(&plan.announcement(&outcome))?;
    }
    Ok(Code::Success)
}

/// A planned admission.
struct AdmissionPlan<'a> {
    /// The index of the node among the configured nodes.
    place: usize,
    node: &'a str,
    state: &'a NodeState,
    terms: Terms,
    /// Whether floor and wait come from the operator instead of the other nodes.
    alone: bool,
    /// The other nodes that vote and answered.
    answers: Vec<(&'a str, NodeFacts)>,
    needed: usize,
}

/// The state of the node after its admission.
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
        let known: Vec<NodeFacts> = all.iter().map(|(_, facts)| facts.clone()).collect();
        let quorum = report.quorum;
        let counted = terms(quorum, &own, &known);
        let given = args.floor.zip(args.wait).filter(|_| args.alone);
        let terms = match (counted, given) {
            (Ok(terms), None) => terms,
            (Err(too_few), Some((floor, wait))) => {
                Terms { floor: HighWater::new(floor), wait_ms: millis(wait), answers: too_few.answers }
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

    /// How long the program waits: the wait of the terms, and the drift between two clocks meanwhile.
    fn wait(&self) -> Duration {
        Duration::from_millis(with_drift(self.terms.wait_ms))
    }

    /// Refuses a node that has started again since an earlier plan: the time of the locks that it has loaded begins
    /// with its start, and may last longer than the wait.
    fn refuse_another_start(&self, before: &NodeState) -> Result<(), ExitError> {
        if (&self.state.id, self.state.incarnation) == (&before.id, before.incarnation) {
            return Ok(());
        }
        let message = format!(
            "{} is not admitted: it was started again during the wait; run redlock admit again",
            self.node
        );
        Err(ExitError::new(Code::Usage, "not_admitted", message))
    }

    /// The plan and its assumptions, for the operator.
    fn lines(&self) -> Vec<String> {
        let Self { node, state, terms, .. } = self;
        let (floor, wait) = (show_floor(&terms.floor), show(Duration::from_millis(terms.wait_ms)));
        let now = match &state.non_voting {
            Some(reason) => format!("does not vote: {}", tame(&reason.explanation())),
            None => "votes".to_owned(),
        };
        let mut lines = vec![format!("{node}, node id {}: {now}.", tame(&state.id))];
        if self.alone {
            lines.push(format!(
                "floor {floor} and wait {wait} are the values that you gave; they do not come from the other nodes."
            ));
            lines.push(format!(
                "You vouch that this group has granted no fence above {floor} and that no lease lasts longer than \
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
        // The program has already waited; with --alone, the node waits.
        let wait_ms = if self.alone { terms.wait_ms } else { 0 };
        if let Err(failure) = locks.admit_node(*place, &state.id, &Terms { wait_ms, ..terms.clone() }).await?
        {
            let words = tame(&failure.to_string());
            let (code, message) = match failure.kind {
                FailureKind::Rejected => (Code::Rejected, format!("{node} is not admitted: {words}")),
                _ => (
                    Code::NoQuorum,
                    format!(
                        "{node} may or may not be admitted: {words}; check `redlock status`, and run redlock admit again"
                    ),
                ),
            };
            let answer = [((*node).to_owned(), words)];
            return Err(ExitError::new(code, "not_admitted", message).with_nodes(answer));
        }
        let own = state.high_water_marks.as_ref().map_or(0, HighWater::common);
        let health = locks.health().await?;
        let admitted = health.nodes.get(*place).and_then(|node| node.state.as_ref().ok());
        Ok(AdmissionOutcome {
            fences_above: own.max(terms.floor.common()),
            votes_in: admitted.map_or(Duration::from_millis(wait_ms), |state| state.quarantine),
        })
    }

    fn announcement(&self, outcome: &AdmissionOutcome) -> String {
        let when =
            if outcome.votes_in.is_zero() { "now".into() } else { format!("in {}", show(outcome.votes_in)) };
        format!("{} is admitted: it votes {when}, with fences above {}.", self.node, outcome.fences_above)
    }

    fn json(&self, outcome: &AdmissionOutcome) -> Value {
        let answer = |(node, facts): &(&str, NodeFacts)| json!({"node": node, "high_water": facts.high_water.highest(), "max_ttl_ms": facts.max_ttl_ms});
        json!({
            "node": self.node,
            "node_id": self.state.id,
            "was_voting": self.state.votes(),
            "non_voting_reason": self.state.non_voting.as_ref().map(NonVotingReason::name),
            "alone": self.alone,
            "answers": self.answers.iter().map(answer).collect::<Vec<_>>(),
            "needed": self.needed,
            "floor": self.terms.floor.common(),
            "far_floors": self.terms.floor.far().map(|(stripe, floor)| json!({"stripe": stripe, "floor": floor})).collect::<Vec<_>>(),
            "wait_ms": self.terms.wait_ms,
            "fences_above": outcome.fences_above,
            "votes_in_ms": millis(outcome.votes_in),
        })
    }
}

/// The floor for people: the common floor, and how many stripes have a larger one.
fn show_floor(floor: &HighWater) -> String {
    match floor.far().len() {
        0 => floor.common().to_string(),
        far => format!("{} (larger for {far} raised stripes of keys)", floor.common()),
    }
}

/// The facts that an admission needs; `None` from an older module, which does not report them.
fn facts(state: &NodeState) -> Option<NodeFacts> {
    Some(NodeFacts {
        id: state.id.clone(),
        votes: state.votes(),
        high_water: state.high_water_marks.clone()?,
        max_ttl_ms: millis(state.max_ttl?),
        longest_lease_ms: millis(state.longest_lease),
    })
}

/// The index of the named node: by its address as `redlock status` shows it, by its URL, or by the beginning of its
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
            "{} is not a configured node; configured nodes: {}. NODE is an address or at least the first {LEAST_DIGITS} \
             digits of a node id",
            tame(address),
            names.join(", ")
        ))),
        several => Err(ExitError::usage(format!(
            "{} nodes have an id that begins with {named}; give more digits or an address",
            several.len()
        ))),
    }
}

/// The node to admit, or the reason why it cannot be admitted.
fn candidate(report: &NodeReport, force: bool) -> Result<(&str, &NodeState, NodeFacts), ExitError> {
    let node = &*report.node;
    let refuse =
        |why: String| ExitError::new(Code::Usage, "not_admitted", format!("{node} is not admitted: {why}"));
    let state = report.state.as_ref().map_err(|failure| {
        let words = tame(&failure.to_string());
        let message = format!(
            "{node} is not admitted: it does not answer as a node ({words}); start it with the module first"
        );
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
    match &state.non_voting {
        Some(reason @ NonVotingReason::Known(NonVoting::SeveralStates)) => {
            Err(refuse(format!("{}; {}", reason.explanation(), reason.remedy(node))))
        }
        None if !force => Err(refuse(format!(
            "it already votes (origin {}, incarnation {}); --force admits it anyway, after the wait",
            state.origin.map_or("unknown", Origin::name),
            state.incarnation.unwrap_or_default()
        ))),
        _ => Ok((node, state, own)),
    }
}

/// The error for too few other nodes that vote and answer: it names these nodes, the reasons and the remedy.
fn uncounted(node: &str, too_few: &TooFewAnswers, others: &[&NodeReport]) -> ExitError {
    let why = |other: &&NodeReport| {
        let why = match &other.state {
            Err(failure) => tame(&failure.to_string()),
            Ok(state) => match (state.standing(), &state.high_water_marks) {
                (NodeStanding::Replica, _) => "a replica".to_owned(),
                (_, None) => "its module does not report a high-water mark".to_owned(),
                (NodeStanding::NonVoting(reason), _) => {
                    format!("does not vote: {}", tame(&reason.explanation()))
                }
                _ => return None,
            },
        };
        Some((other.node.to_string(), why))
    };
    let answers: Vec<(String, String)> = others.iter().filter_map(why).collect();
    let reasons: Vec<String> = answers.iter().map(|(node, why)| format!("{node}: {why}")).collect();
    let reasons = if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) };
    let remedy = if too_few.needed > too_few.others {
        "This group has too few other nodes: give both yourself with --alone --floor NUMBER --wait TIME"
    } else {
        "Start the other nodes, or give both yourself with --alone --floor NUMBER --wait TIME"
    };
    let message =
        format!("{node} is not admitted: floor and wait cannot be determined: {too_few}{reasons}. {remedy}");
    ExitError::new(Code::NoQuorum, "no_quorum", message).with_nodes(answers)
}
