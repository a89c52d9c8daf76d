//! What clients saw, and whether all of it can be true of one lock at a time.
//!
//! A holder counts from the moment it sent its request: it knows no earlier one at which the lock can have
//! been its own. A grant was made no later than its answer came. So a breach found here is one for certain,
//! whatever the machine was busy with meanwhile.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// One thing that a client knows, in the order in which the node was asked.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// Which lock.
    pub key: u64,
    /// Who asked; every acquire has an owner of its own.
    pub owner: u64,
    /// What came of it.
    pub kind: ObservationKind,
}

/// What a client knows about its request.
#[derive(Clone, Copy, Debug)]
pub enum ObservationKind {
    /// The lock was granted.
    Granted(PromisedLease),
    /// The lock was extended.
    Extended(PromisedLease),
    /// A release was sent, answered or not: from here on nobody relies on the lock.
    ReleaseSent,
}

/// What a node promised to a holder.
#[derive(Clone, Copy, Debug)]
pub struct PromisedLease {
    /// The number that came with it.
    pub fence: i64,
    /// When the request left.
    pub sent: Instant,
    /// When the answer was there.
    pub answered: Instant,
    /// How long it lasts.
    pub ttl: Duration,
}

/// Two things that clients saw and that must not both be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryViolation {
    /// A number came that is not larger than the one before.
    FenceNotLarger {
        /// Which lock.
        key: u64,
        /// The largest number so far.
        before: i64,
        /// The number that came.
        after: i64,
    },
    /// A lock was granted while somebody else relied on it.
    EarlyGrant {
        /// Which lock.
        key: u64,
        /// How long the other one could have relied on it still.
        left: Duration,
    },
}

impl fmt::Display for HistoryViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FenceNotLarger { key, before, after } => {
                write!(f, "lock {key}: fence {after} after {before}")
            }
            Self::EarlyGrant { key, left } => write!(f, "lock {key}: granted {left:?} too early"),
        }
    }
}

/// Everything that a client saw of some locks, over any number of crashes.
#[derive(Debug, Default)]
pub struct History {
    events: Vec<Observation>,
}

/// Who relies on a lock.
struct RecordedHolder {
    owner: u64,
    fence: i64,
    until: Instant,
}

/// One lock, as far as the history is read.
#[derive(Default)]
struct LockReplay {
    largest: i64,
    hold: Option<RecordedHolder>,
}

impl History {
    /// Notes what a client has seen.
    pub fn record(&mut self, event: Observation) {
        self.events.push(event);
    }

    /// How many grants there are.
    #[must_use]
    pub fn grants(&self) -> usize {
        self.events.iter().filter(|event| matches!(event.kind, ObservationKind::Granted(_))).count()
    }

    /// The largest fence that was granted.
    #[must_use]
    pub fn largest_fence(&self) -> i64 {
        let fence = |event: &Observation| match &event.kind {
            ObservationKind::Granted(promise) => promise.fence,
            _ => 0,
        };
        self.events.iter().map(fence).max().unwrap_or(0)
    }

    /// How many locks are relied on at a moment, by those who were answered until then.
    #[must_use]
    pub fn held_at(&self, moment: Instant) -> usize {
        let mut locks = HashMap::<u64, LockReplay>::new();
        self.events.iter().for_each(|event| {
            locks.entry(event.key).or_default().apply(event);
        });
        locks.values().filter(|lock| lock.hold.as_ref().is_some_and(|hold| hold.until > moment)).count()
    }

    /// Everything that is wrong.
    #[must_use]
    pub fn violations(&self) -> Vec<HistoryViolation> {
        let mut locks = HashMap::<u64, LockReplay>::new();
        self.events.iter().flat_map(|event| locks.entry(event.key).or_default().apply(event)).collect()
    }
}

impl LockReplay {
    fn apply(&mut self, event: &Observation) -> Vec<HistoryViolation> {
        match event.kind {
            ObservationKind::Granted(promise) => self.granted(event, &promise),
            ObservationKind::Extended(promise) => self.extended(event, &promise),
            ObservationKind::ReleaseSent => {
                self.hold.take_if(|hold| hold.owner == event.owner);
                Vec::new()
            }
        }
    }

    fn granted(&mut self, event: &Observation, promise: &PromisedLease) -> Vec<HistoryViolation> {
        let key = event.key;
        let mut breaches = Vec::new();
        if promise.fence <= self.largest {
            breaches.push(HistoryViolation::FenceNotLarger {
                key,
                before: self.largest,
                after: promise.fence,
            });
        }
        if let Some(hold) = &self.hold
            && hold.until > promise.answered
        {
            breaches.push(HistoryViolation::EarlyGrant { key, left: hold.until - promise.answered });
        }
        self.largest = self.largest.max(promise.fence);
        let until = promise.sent + promise.ttl;
        self.hold = Some(RecordedHolder { owner: event.owner, fence: promise.fence, until });
        breaches
    }

    fn extended(&mut self, event: &Observation, promise: &PromisedLease) -> Vec<HistoryViolation> {
        let hold = self.hold.as_mut().filter(|hold| hold.owner == event.owner);
        match hold {
            Some(hold) => {
                hold.until = hold.until.max(promise.sent + promise.ttl);
                let (before, after) = (hold.fence, promise.fence);
                if after == before {
                    return Vec::new();
                }
                vec![HistoryViolation::FenceNotLarger { key: event.key, before, after }]
            }
            // Somebody else has been granted the lock: nobody may extend the old one any more.
            None => vec![HistoryViolation::FenceNotLarger {
                key: event.key,
                before: self.largest,
                after: promise.fence,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A history of one lock from lines `owner grant fence sent answered ttl`, `owner extend …` and
    /// `owner release`, in milliseconds.
    fn breaches(lines: &[&str]) -> Vec<String> {
        let start = Instant::now();
        let mut history = History::default();
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().expect("a number");
            let promise = || PromisedLease {
                fence: number(2).cast_signed(),
                sent: start + Duration::from_millis(number(3)),
                answered: start + Duration::from_millis(number(4)),
                ttl: Duration::from_millis(number(5)),
            };
            let what = match words[1] {
                "grant" => ObservationKind::Granted(promise()),
                "extend" => ObservationKind::Extended(promise()),
                _ => ObservationKind::ReleaseSent,
            };
            history.record(Observation { key: 7, owner: number(0), kind: what });
        }
        history.violations().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_in_order_is_no_breach() {
        assert!(breaches(&["1 grant 1 0 1 100", "2 grant 2 50 100 100"]).is_empty(), "after its time");
        assert!(breaches(&["1 grant 1 0 1 100", "1 release", "2 grant 2 2 3 100"]).is_empty());
        assert!(breaches(&["1 grant 5 0 1 9", "1 extend 5 2 3 9", "2 grant 9 9 11 9"]).is_empty());
        assert!(breaches(&["1 grant 1 0 1 100", "1 extend 1 2 3 9", "2 grant 2 99 100 9"]).is_empty());
    }

    #[test]
    fn an_early_grant_is_seen() {
        let early = ["lock 7: granted 1ms too early"];
        assert_eq!(breaches(&["1 grant 1 0 1 100", "2 grant 2 50 99 100"]), early);
        assert_eq!(breaches(&["1 grant 1 0 1 9", "1 extend 1 8 8 9", "2 grant 2 9 16 9"]), early);
        let another = ["1 grant 1 0 1 100", "3 release", "2 grant 2 50 99 100"];
        assert_eq!(breaches(&another), early, "a stranger gives nothing up");
        let shorter = ["1 grant 1 0 1 100", "1 extend 1 2 3 9", "2 grant 2 99 99 9"];
        assert_eq!(breaches(&shorter), early, "an extension takes nothing away");
    }

    #[test]
    fn a_number_that_does_not_grow_is_seen() {
        assert_eq!(breaches(&["1 grant 3 0 1 5", "2 grant 3 6 7 5"]), ["lock 7: fence 3 after 3"]);
        let lower = ["1 grant 3 0 1 5", "1 release", "2 grant 4 1 1 5", "2 release", "3 grant 1 2 2 5"];
        assert_eq!(breaches(&lower), ["lock 7: fence 1 after 4"]);
        assert_eq!(breaches(&["1 grant 3 0 1 5", "1 extend 2 2 3 5"]), ["lock 7: fence 2 after 3"]);
        let overtaken = ["1 grant 3 0 1 5", "2 grant 4 6 7 5", "1 extend 3 7 8 5"];
        assert_eq!(breaches(&overtaken), ["lock 7: fence 3 after 4"]);
    }
}
