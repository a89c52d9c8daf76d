//! The counters of a history.

use super::checks::Violation;
use std::collections::BTreeMap;

/// The result of a history, or the sum over several.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The broken invariants; empty if all hold.
    pub violations: Vec<Violation>,
    /// The number of histories.
    pub histories: u64,
    /// The number of events.
    pub steps: u64,
    /// The number of attempts.
    pub attempts: u64,
    /// The number of attempts that held their lock.
    pub holds: u64,
    /// The number of shared locks that a session held together with another one.
    pub shared_holds: u64,
    /// The number of second rounds that raised a fence.
    pub promotions: u64,
    /// The number of successful extensions.
    pub extensions: u64,
    /// The number of writes that the storage rejected.
    pub turned_away: u64,
    /// The number of locks that nodes handed off to a waiter.
    pub handoffs: u64,
    /// The number of attempts that yielded to an older ticket.
    pub yields: u64,
    /// The number of locks that a session held after earlier waiters were served.
    pub turns: u64,
    /// The number of histories in which a session held a lock after earlier waiters were served.
    pub orderly: u64,
    /// How often each kind of fault was injected.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// Adds the counters of another history.
    pub fn add(&mut self, other: &Self) {
        self.violations.extend_from_slice(&other.violations);
        self.histories += other.histories;
        self.steps += other.steps;
        self.attempts += other.attempts;
        self.holds += other.holds;
        self.shared_holds += other.shared_holds;
        self.promotions += other.promotions;
        self.extensions += other.extensions;
        self.turned_away += other.turned_away;
        self.handoffs += other.handoffs;
        self.yields += other.yields;
        self.turns += other.turns;
        self.orderly += other.orderly;
        for (kind, times) in &other.faults {
            *self.faults.entry(kind).or_default() += times;
        }
    }

    /// Counts a fault.
    pub(super) fn count(&mut self, kind: &'static str) {
        *self.faults.entry(kind).or_default() += 1;
    }
}
