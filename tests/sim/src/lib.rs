//! Simulated histories on virtual time: the production code of client and node, and an environment that
//! injects faults.
//!
//! One seed is one history. It decides which locks the clients want, how long messages take, and which
//! messages are lost, duplicated or late; when nodes crash, stall and are cut off, when clients pause and
//! their wall clocks jump, and the rate of every clock; which replicas are promoted, which files are lost,
//! copied or replaced by older ones, and when an operator admits a node. The client decides with
//! [`redlock_proto::LockState`] and the node with [`redlock_core::LockNode`]; the simulator implements none
//! of their rules again.
//!
//! | file | subject |
//! |---|---|
//! | `plan.rs` | the numbers that a seed decides: nodes, clients, faults |
//! | `world/` | the event loop, the workload of the clients, the faults, and the final checks |
//! | `client.rs` | a client: its clocks, its connections, the lock that it acquires |
//! | `identity.rs` | what a client remembers of a node, and which nodes it refuses |
//! | `disk.rs` | the disk of a node, and what a power failure leaves on it |
//! | `network.rs` | delay and loss of messages |
//! | `clocks.rs` | clocks that run at different rates |
//! | `storage.rs` | a storage that rejects stale holders |
//! | `checks.rs` | what must be true of every history |
//! | `outcome.rs` | the counters of a history |
//! | `seed.rs` | where random tests get their seeds |
//! | [`model`] | an exhaustive search of all states of a small system |

// This crate is test code throughout: a broken expectation ends the test with a message.
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

/// A rule that a test disables on purpose, to prove that the checks notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Weakness {
    /// All rules apply.
    #[default]
    None,
    /// A node that has lost its memory grants at once.
    NoQuarantine,
    /// A node that has lost its memory restarts its fences from 1.
    FencesForgotten,
    /// Validity starts at the reply instead of at the request.
    ValidityFromAnswer,
    /// The client subtracts no allowance for clock drift.
    DriftIgnored,
    /// The client uses the largest fence that a node granted, without a majority for it.
    LargestFenceTaken,
    /// The storage does not check fences.
    FencesUnchecked,
    /// A lock that was handed off is valid from when its new holder received the push.
    GrantFromItsNews,
    /// A node takes a handed-off lock back when the connection breaks, although the new holder may have
    /// received the push.
    TakenBackAtOnce,
    /// A client that queues again after it yielded accepts a push that was meant for its first attempt.
    StampsUnchecked,
    /// A client measures the validity of its locks with its wall clock.
    WallClockBelieved,
    /// A lock that is loaded after a crash has lost half of its remaining time.
    LoadedTooShort,
    /// A node that crashes in quarantine, with all its files intact, does not resume the quarantine.
    WaitForgotten,
    /// A holder is notified when its validity ends, and not before.
    NoticeTooLate,
    /// A node serves the newest waiter first.
    LastComeFirstServed,
    /// Nodes keep locks a hundred times as long as requested.
    LivesTooLong,
    /// A promoted replica votes with fences 2^40 above the largest that it has received.
    LeapAfterPromotion,
    /// A promoted replica waits for the longest lease that it has received, and votes.
    PromotedWaitsForHeardLeases,
    /// A promoted replica votes while the old master runs and votes too.
    OldMasterVotesOn,
    /// A replica that was shut down cleanly and started as a master votes.
    RestartedReplicaVotes,
    /// A node that was shut down cleanly accepts an older data set as all its locks.
    OlderDataTaken,
    /// A server on another port ignores the state file of the same folder.
    OtherPortIsNew,
    /// One high-water mark applies to all keys, and one command may raise a fence to any value.
    OneHighWaterMark,
    /// The longest lease of all time decides how long the quarantine lasts.
    LongestLeaseKept,
    /// A node lowers the longest lease while such a lease still runs.
    LongestLeaseLoweredEarly,
    /// A node stores its state after the grant that relies on it.
    StoredAfterGrant,
    /// A node renames the draft of a state file before it has synced the draft.
    FileNotSynced,
    /// A node does not sync the folder of the state file.
    FolderNotSynced,
    /// A node accepts a copy of a state file as its own.
    CopyTaken,
    /// An admitted node waits for the leases that the asked nodes know of, and not for the largest `max-ttl`.
    AdmittedAfterKnownLeases,
    /// An admitted node starts above the high-water marks that the other nodes had before the wait.
    AdmittedAboveEarlierMarks,
    /// An admitted node starts above the fences of one other node, and not of a quorum of them.
    AdmittedAboveOneNode,
    /// An admitted node starts above the highest mark of the other nodes on all stripes, although only one
    /// stripe was raised.
    AdmittedAboveTheHighest,
    /// An operator admits a node while the server that it replaces still runs.
    AdmittedBesideOld,
    /// A client accepts any node that answers at an address, even another node or an older copy.
    AnyNodeTaken,
    // These rules have no variant, because no history can show that one is missing:
    // - Quarantine without the drift allowance (`durable::with_drift`): the client subtracts one percent and
    //   two milliseconds from its validity, which covers the clocks of client and node together. The
    //   quarantine adds the same again; without that, no two clients hold one lock as long as clocks keep
    //   within their bounds.
    // - Row 7, nodes that drift apart further than a raise reaches: a raise now reaches 2^62, and no leap
    //   moves a node.
    // - Rows 0, 9, 10 and 12 are about files, `RESTORE`, memory and `DUMP` of a real server.
}

impl Weakness {
    /// Whether clients compare the identity of a node with the one they know. Clients did not before the
    /// promises.
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

    /// Whether a promoted replica votes without an admission.
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

/// Runs a history and catches a panic of the code under test.
///
/// # Errors
/// The message of the panic, with the plan and the command that replays it.
pub fn survive(plan: &Plan) -> Result<Outcome, String> {
    told(plan, || run(plan))
}

/// Runs something for a plan. A panic becomes an error with its message, the plan and the command that
/// replays it.
fn told<T>(plan: &Plan, deed: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(deed)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text =
            text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        format!("{text}\nin {plan}\nreplay: scripts/sim {}", plan.seed)
    })
}

/// The simplest plan that still breaks a rule, and its outcome.
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
        let message = told(&plan, || panic!("nothing is {}", "left")).expect_err("it panics");
        assert!(message.starts_with("nothing is left\nin seed 4711: "), "{message}");
        assert!(message.ends_with("replay: scripts/sim 4711"), "{message}");
        assert_eq!(told(&plan, || 7), Ok(7));
    }
}
