//! What came of a history, in figures.

use super::checks::Violation;
use std::collections::BTreeMap;

/// What came of a history.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What must never be, and was. Empty if all is well.
    pub violations: Vec<Violation>,
    /// How many histories these are.
    pub histories: u64,
    /// How many things happened.
    pub steps: u64,
    /// How many attempts there were.
    pub attempts: u64,
    /// How many of them held their lock.
    pub holds: u64,
    /// How many second rounds it took.
    pub promotions: u64,
    /// How many extensions succeeded.
    pub extensions: u64,
    /// How many writes the storage turned away.
    pub turned_away: u64,
    /// How many locks were handed to somebody who waited.
    pub handoffs: u64,
    /// How many attempts gave way to an older one.
    pub yields: u64,
    /// How many locks were had by somebody who had to let others go first.
    pub turns: u64,
    /// How many histories had such a lock.
    pub orderly: u64,
    /// What went wrong how often, by its kind.
    pub troubles: BTreeMap<&'static str, u64>,
}

impl Outcome {
    /// Counts another history in.
    pub fn add(&mut self, other: &Self) {
        self.violations.extend_from_slice(&other.violations);
        self.histories += other.histories;
        self.steps += other.steps;
        self.attempts += other.attempts;
        self.holds += other.holds;
        self.promotions += other.promotions;
        self.extensions += other.extensions;
        self.turned_away += other.turned_away;
        self.handoffs += other.handoffs;
        self.yields += other.yields;
        self.turns += other.turns;
        self.orderly += other.orderly;
        for (kind, times) in &other.troubles {
            *self.troubles.entry(kind).or_default() += times;
        }
    }

    /// Counts something that goes wrong.
    pub(super) fn count(&mut self, kind: &'static str) {
        *self.troubles.entry(kind).or_default() += 1;
    }
}
