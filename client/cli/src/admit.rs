//! `redlock admit`: lets a node vote that cannot prove who it is.
//!
//! The program waits for every lease that the lost node may have granted, then asks the other nodes for their high-water
//! marks, and admits the node above the largest. The order matters: a request that the lost node has answered may reach
//! another node after that node was asked, and raise its fence beyond the floor. After the wait no such request can make
//! a holder. What the program cannot know, it says: the server that the node replaces must be stopped.

use crate::args::{Admit, Common};
use crate::config::Config;
use crate::duration::{millis, show};
use crate::exit::{Code, Failure};
use crate::output::{Output, tame};
use crate::survey::{Identity, NodeReport, State, Survey, explanation, remedy};
use redlock_client::admission::{NodeFacts, Terms, TooFewAnswers, terms};
use redlock_client::{FailureKind, LockManager, Query};
use redlock_core::durable::{NonVoting, with_drift};
use serde_json::{Value, json};
use std::io::{BufRead, IsTerminal, Write};
use std::time::Duration;

/// A node id is named by at least so many of its digits.
const LEAST_DIGITS: usize = 8;

pub(crate) async fn main(common: &Common, args: &Admit, output: &Output) -> Result<Code, Failure> {
    let locks = Config::load(common)?.manager()?;
    let survey = Survey::take(&locks).await?;
    let plan = Plan::make(&survey, args)?;
    if !output.is_json {
        output.lines(&plan.lines())?;
    }
    confirm(args, *output)?;
    if plan.alone {
        return finish(&plan, &locks, *output).await;
    }
    // Nothing has changed yet: a program that is stopped here admits no node.
    tokio::time::sleep(Duration::from_millis(with_drift(plan.terms.wait_ms))).await;
    let survey = Survey::take(&locks).await?;
    let counted = Plan::make(&survey, args)?;
    finish(&counted, &locks, *output).await
}

/// Admits the node and says what came of it.
async fn finish(plan: &Plan<'_>, locks: &LockManager, output: Output) -> Result<Code, Failure> {
    let outcome = plan.carry_out(locks).await?;
    if output.is_json {
        output.json(&plan.json(&outcome))?;
    } else {
        output.line(&plan.announcement(&outcome))?;
    }
    Ok(Code::Success)
}

/// What is about to be done.
struct Plan<'a> {
    /// The place of the node among those that were configured.
    place: usize,
    node: &'a str,
    state: &'a State,
    terms: Terms,
    /// Floor and wait are the operator's, not counted.
    alone: bool,
    /// The other nodes that vote and have answered.
    answers: Vec<(&'a str, NodeFacts)>,
    needed: usize,
}

/// What the node says afterwards.
struct Outcome {
    fences_above: u64,
    votes_in: Duration,
}

impl<'a> Plan<'a> {
    fn make(survey: &'a Survey, args: &Admit) -> Result<Self, Failure> {
        let place = find(survey, &args.node)?;
        let (node, state, identity) = candidate(&survey.nodes[place], args.force)?;
        let facts = |report: &'a NodeReport| {
            let state = report.state.as_ref().ok()?;
            Some((&*report.node, facts(state, state.identity.as_ref()?)))
        };
        let others =
            || survey.nodes.iter().enumerate().filter(|(at, _)| *at != place).map(|(_, other)| other);
        let all: Vec<(&str, NodeFacts)> = others().filter_map(facts).collect();
        let told: Vec<NodeFacts> = all.iter().map(|(_, facts)| facts.clone()).collect();
        let quorum = survey.quorum();
        let counted = terms(quorum, &self::facts(state, identity), &told);
        let given = args.floor.zip(args.wait).filter(|_| args.alone);
        let terms = match (counted, given) {
            (Ok(terms), None) => terms,
            (Err(too_few), Some((floor, wait))) => {
                Terms { floor, wait_ms: millis(wait), answers: too_few.answers }
            }
            (Ok(terms), Some(_)) => {
                return Err(Failure::usage(format!(
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
        let now = match state.non_voting() {
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

    async fn carry_out(&self, locks: &LockManager) -> Result<Outcome, Failure> {
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
            return Err(Failure::new(Code::NoQuorum, "not_admitted", message));
        }
        let told = locks.ask_node(*place, &Query::node()).await?.response.ok();
        let number = |name: &str| u64::try_from(told.as_ref()?.field(name)?.integer()?).ok();
        Ok(Outcome {
            fences_above: number("fence").unwrap_or(terms.floor),
            votes_in: Duration::from_millis(number("quarantine-ms").unwrap_or(wait_ms)),
        })
    }

    fn announcement(&self, outcome: &Outcome) -> String {
        let when =
            if outcome.votes_in.is_zero() { "now".into() } else { format!("in {}", show(outcome.votes_in)) };
        format!("{} is admitted: it votes {when}, with fences above {}.", self.node, outcome.fences_above)
    }

    fn json(&self, outcome: &Outcome) -> Value {
        let answer = |(node, facts): &(&str, NodeFacts)| json!({"node": node, "high_water": facts.high_water, "max_ttl_ms": facts.max_ttl_ms});
        json!({
            "node": self.node,
            "node_id": self.state.id,
            "was_voting": self.state.votes(),
            "non_voting_reason": self.state.non_voting(),
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

fn facts(state: &State, identity: &Identity) -> NodeFacts {
    NodeFacts {
        id: state.id.clone(),
        votes: state.votes(),
        high_water: identity.high_water,
        max_ttl_ms: millis(identity.max_ttl),
        longest_lease_ms: millis(state.longest_ttl),
    }
}

/// The place of the named node: by its address as `redlock status` shows it, by its URL, or by the beginning of its
/// node id.
fn find(survey: &Survey, named: &str) -> Result<usize, Failure> {
    let address = named.split_once("://").map_or(named, |(_, rest)| rest);
    let address = address.rsplit_once('@').map_or(address, |(_, rest)| rest).trim_end_matches('/');
    let is_named = |node: &NodeReport| &*node.node == named || &*node.node == address;
    if let Some(place) = survey.nodes.iter().position(is_named) {
        return Ok(place);
    }
    let is_id = named.len() >= LEAST_DIGITS && named.bytes().all(|digit| digit.is_ascii_hexdigit());
    let begins = |node: &NodeReport| {
        is_id && node.state.as_ref().is_ok_and(|state| state.id.starts_with(&named.to_ascii_lowercase()))
    };
    let places: Vec<usize> = (0..survey.nodes.len()).filter(|place| begins(&survey.nodes[*place])).collect();
    let names: Vec<&str> = survey.nodes.iter().map(|node| &*node.node).collect();
    match places.as_slice() {
        [place] => Ok(*place),
        [] => Err(Failure::usage(format!(
            "{} is not a configured node; configured are {}. NODE is an address or at least {LEAST_DIGITS} digits of a \
             node id",
            tame(address),
            names.join(", ")
        ))),
        several => Err(Failure::usage(format!(
            "{} nodes have an id that begins with {named}; give more digits or an address",
            several.len()
        ))),
    }
}

/// The node that is to be admitted, if it can be.
fn candidate(report: &NodeReport, force: bool) -> Result<(&str, &State, &Identity), Failure> {
    let node = &*report.node;
    let refuse =
        |why: String| Failure::new(Code::Usage, "not_admitted", format!("{node} is not admitted: {why}"));
    let state = report.state.as_ref().map_err(|failure| {
        let words = tame(&failure.to_string());
        let message =
            format!("{node} is not admitted: it does not answer as a node ({words}); start it first");
        Failure::new(Code::NoQuorum, "no_quorum", message)
    })?;
    if state.is_replica {
        return Err(refuse(
            "it is a replica; stop its master for good and promote it first: REPLICAOF NO ONE".into(),
        ));
    }
    let Some(identity) = &state.identity else {
        return Err(refuse(format!(
            "its module {} does not report whether it votes; upgrade the module",
            tame(&state.version)
        )));
    };
    match state.non_voting() {
        Some(word) if word == NonVoting::SeveralStates.name() => {
            Err(refuse(format!("{}; {}", explanation(word), remedy(word, node))))
        }
        None if !force => Err(refuse(format!(
            "it votes already (origin {}, incarnation {}); --force admits it all the same, after the wait",
            tame(&identity.origin),
            identity.incarnation
        ))),
        _ => Ok((node, state, identity)),
    }
}

/// Too few other nodes can be asked: which ones, why, and what remains.
fn uncounted(node: &str, too_few: &TooFewAnswers, others: &[&NodeReport]) -> Failure {
    let why = |other: &&NodeReport| {
        let why = match &other.state {
            Err(failure) => tame(&failure.to_string()),
            Ok(state) if state.is_replica => "a replica".to_owned(),
            Ok(state) => match (&state.identity, state.non_voting()) {
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
    Failure::new(Code::NoQuorum, "no_quorum", message)
}

/// Asks the operator, on a terminal.
fn confirm(args: &Admit, output: Output) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if output.is_json || !stdin.is_terminal() || !stderr.is_terminal() {
        return Err(Failure::usage(
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
    Err(Failure::new(Code::Usage, "not_admitted", "nothing was done: the answer was not yes"))
}
