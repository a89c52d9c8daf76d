//! Histories on virtual time: the production code of client and node, and a world that can go wrong.
//!
//! One seed is one history: what the clients want, how long messages take, which are lost, repeated or late,
//! when nodes crash, stall and are cut off, when clients pause, how fast every clock runs. The client's
//! decisions are [`redlock_proto::Session`]'s, the node's are [`redlock_core::Node`]'s; nothing of them is
//! written again here.
//!
//! | file | subject |
//! |---|---|
//! | `plan.rs` | what a seed stands for |
//! | `world/` | what happens next, what clients do with their locks, what must be true in the end |
//! | `client.rs` | a client: its clocks, its connections, the lock it is after |
//! | `network.rs` | what becomes of a message |
//! | `clocks.rs` | clocks that run at rates of their own |
//! | `storage.rs` | a storage that turns stale holders away |
//! | `checks.rs` | what must be true of every history |
//! | [`model`] | everything that can happen on a small scale, one state after the other |

// This crate is test code throughout: a broken expectation ends the test, with a message that says which.
#![allow(clippy::expect_used, clippy::panic)]

mod checks;
mod client;
mod clocks;
pub mod model;
mod network;
mod plan;
mod storage;
mod world;

pub use checks::{Checks, SessionId, Violation};
pub use plan::Plan;
pub use world::{Outcome, run, trace};

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
