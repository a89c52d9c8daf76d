//! Histories on virtual time: the production code of client and node, and a world that can go wrong.
//!
//! One seed is one history: what the clients want, how long messages take, which are lost, repeated or late,
//! when nodes crash, stall and are cut off, when clients pause and their wall clocks jump, how fast every clock
//! runs; which replicas are promoted, which files are lost, copied or set back, and when an operator admits a node.
//! The client's decisions are [`redlock_proto::LockState`]'s, the node's are [`redlock_core::LockNode`]'s; nothing of them is
//! written again here.
//!
//! | file | subject |
//! |---|---|
//! | `plan.rs` | what a seed stands for |
//! | `world/` | what happens next, what clients do with their locks, what must be true in the end |
//! | `client.rs` | a client: its clocks, its connections, the lock it is after |
//! | `identity.rs` | what a client remembers of a node, and which nodes it refuses |
//! | `disk.rs` | the disk of a node, and what a power failure leaves on it |
//! | `network.rs` | what becomes of a message |
//! | `clocks.rs` | clocks that run at rates of their own |
//! | `storage.rs` | a storage that turns stale holders away |
//! | `checks.rs` | what must be true of every history |
//! | `outcome.rs` | what came of it, in figures |
//! | `seed.rs` | where random tests get their seeds |
//! | [`model`] | everything that can happen on a small scale, one state after the other |

// This crate is test code throughout: a broken expectation ends the test, with a message that says which.
#![allow(clippy::expect_used, clippy::panic)]

mod checks;
mod client;
mod clocks;
mod disk;
mod identity;
pub mod model;
mod network;
mod outcome;
mod plan;
mod seed;
mod storage;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

pub use checks::{Checks, SessionId, Violation};
pub use outcome::Outcome;
pub use plan::Plan;
pub use seed::seed;
pub use world::{run, trace};

/// A rule that is left out on purpose, to see that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Weakness {
    /// All rules are kept.
    #[default]
    None,
    /// A node that has lost its memory grants at once.
    NoQuarantine,
    /// A node that has lost its memory counts from one again.
    FencesForgotten,
    /// Validity counts from the answer instead of from the request.
    ValidityFromAnswer,
    /// Nothing is taken off for clocks that drift apart.
    DriftIgnored,
    /// The largest number that a node said is taken, without a majority for it.
    LargestFenceTaken,
    /// The storage does not look at the number.
    FencesUnchecked,
    /// A lock that was handed on counts from when its new holder heard of it.
    GrantFromItsNews,
    /// A lock that was handed on is taken back when the connection breaks, although its new holder may have
    /// heard of it.
    TakenBackAtOnce,
    /// A client that asks again after it gave way takes news meant for its first attempt for its own.
    StampsUnchecked,
    /// A client counts the time of its locks by its wall clock.
    WallClockBelieved,
    /// A lock that is loaded after a crash has lost half of the time that it had left.
    LoadedTooShort,
    /// A node that crashes while it waits, with all that it has in its files, takes that for everything.
    WaitForgotten,
    /// A holder is told when its time is over, and not before.
    NoticeTooLate,
    /// Of those in line the youngest comes first.
    LastComeFirstServed,
    /// Nodes keep locks a hundred times as long as they were asked for.
    LivesTooLong,
    /// A promoted replica votes with fences 2^40 above the largest that it has heard of (row 1 of the promises).
    LeapAfterPromotion,
    /// A promoted replica waits for the longest lease that it has heard of, and votes (row 2).
    PromotedWaitsForHeardLeases,
    /// A promoted replica votes beside the old master, which lives (row 3).
    OldMasterVotesOn,
    /// A replica that was shut down in order and started as a master votes (row 4).
    RestartedReplicaVotes,
    /// A node that was shut down in order takes an older data set for all its locks (row 5).
    OlderDataTaken,
    /// A server on another port does not look at the state file of the same folder (row 6).
    OtherPortIsNew,
    /// One high-water mark for all keys, and a raise to any fence at once (row 8).
    OneHighWaterMark,
    /// The longest lease of all time decides about the quarantine (row 11).
    LongestLeaseKept,
    /// The longest lease is lowered while such a lease still runs.
    LongestLeaseLoweredEarly,
    /// A state is stored after the grant that relies on it.
    StoredAfterGrant,
    /// The draft of a state is not synced before it takes the name of the file.
    FileNotSynced,
    /// The folder of the state file is not synced.
    FolderNotSynced,
    /// A copy of a state file is taken for the file.
    CopyTaken,
    /// An admitted node waits for the leases that the asked nodes know of, and not for the largest `max-ttl`.
    AdmittedAfterKnownLeases,
    /// An admitted node begins above the marks that the others had before the wait.
    AdmittedAboveEarlierMarks,
    /// An admitted node begins above the fences of one other node, and not of a quorum of them.
    AdmittedAboveOneNode,
    /// A node is admitted while the server that it replaces lives.
    AdmittedBesideOld,
    /// A client takes any node that answers under an address, be it another one or an older one.
    AnyNodeTaken,
    // Not here, because no history can show it:
    // - Quarantine without the drift allowance (`durable::with_drift`): the client takes one percent and two
    //   milliseconds off its validity, which covers the clocks of client and node together. The quarantine adds the
    //   same again; without that, no lock is held twice as long as clocks keep within their bounds.
    // - Row 7, nodes that drift apart further than a raise reaches: a raise now reaches 2^62, and no leap moves a node.
    // - Rows 0, 9, 10 and 12 are about files, `RESTORE`, memory and `DUMP` of a real server.
}

impl Weakness {
    /// Whether clients compare who answers with whom they know. The rules before the promises had no such clients.
    fn has_careful_clients(self) -> bool {
        !matches!(
            self,
            Self::LeapAfterPromotion
                | Self::PromotedWaitsForHeardLeases
                | Self::OldMasterVotesOn
                | Self::RestartedReplicaVotes
                | Self::OtherPortIsNew
                | Self::CopyTaken
                | Self::AnyNodeTaken
        )
    }

    /// Whether a promoted replica votes although nobody has admitted it.
    fn promoted_votes(self) -> bool {
        matches!(
            self,
            Self::LeapAfterPromotion
                | Self::PromotedWaitsForHeardLeases
                | Self::OldMasterVotesOn
                | Self::RestartedReplicaVotes
        )
    }
}

/// Runs a history that may end in a panic: where the code under test panics, which history it was in.
///
/// # Errors
/// What the panic said, with the plan and how to see it again.
pub fn survive(plan: &Plan) -> Result<Outcome, String> {
    told(plan, || run(plan))
}

/// Does something for a plan; of a panic it tells what it said, in which plan, and how to see it again.
fn told<T>(plan: &Plan, deed: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(deed)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a word");
        format!("{text}\nin {plan}\nreplay: scripts/sim {}", plan.seed)
    })
}

/// The simplest plan that still goes wrong, and what goes wrong in it.
#[must_use]
pub fn shrink(plan: &Plan) -> (Plan, Outcome) {
    let mut plan = plan.clone();
    let mut outcome = run(&plan);
    'simpler: loop {
        for simpler in plan.simpler() {
            let found = run(&simpler);
            if !found.violations.is_empty() {
                (plan, outcome) = (simpler, found);
                continue 'simpler;
            }
        }
        return (plan, outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_does_not_lose_its_seed() {
        let plan = Plan::of(4711);
        let said = told(&plan, || panic!("nothing is {}", "left")).expect_err("it panics");
        assert!(said.starts_with("nothing is left\nin seed 4711: "), "{said}");
        assert!(said.ends_with("replay: scripts/sim 4711"), "{said}");
        assert_eq!(told(&plan, || 7), Ok(7));
    }
}
