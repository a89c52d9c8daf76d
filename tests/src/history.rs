//! The history of the clients of one node, and the check that no two of them held a lock at the same time.
//!
//! A holder relies on its lease from the moment it sent its request. The node made a grant no later than its reply
//! arrived. So every violation found here is certain, however slow the machine was.

use std::collections::HashMap;
use std::fmt;
use std::time::{Duration, Instant};

/// What a client observed of one request. A history has them in the order in which the node got the requests.
#[derive(Clone, Copy, Debug)]
pub struct Observation {
    /// The number of the lock.
    pub key: u64,
    /// The owner; every acquire has its own.
    pub owner: u64,
    /// The outcome.
    pub kind: ObservationKind,
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
pub enum ObservationKind {
    /// The lock was granted.
    Granted(PromisedLease),
    /// The lock was extended.
    Extended(PromisedLease),
    /// The client sent a release: it no longer relies on the lock, with or without a reply.
    ReleaseSent,
}

/// The lease that a node granted or extended.
#[derive(Clone, Copy, Debug)]
pub struct PromisedLease {
    /// The fence of the reply.
    pub fence: i64,
    /// When the client sent the request.
    pub sent: Instant,
    /// When the client had the reply.
    pub answered: Instant,
    /// The time to live that the client requested.
    pub ttl: Duration,
}

/// Two observations that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HistoryViolation {
    /// A grant has a fence that is not larger than an earlier one, or an extension has another fence than its grant.
    FenceNotLarger {
        /// The number of the lock.
        key: u64,
        /// The earlier fence.
        before: i64,
        /// The fence of the later grant, or of the extension.
        after: i64,
    },
    /// A lock was granted while another client relied on it.
    EarlyGrant {
        /// The number of the lock.
        key: u64,
        /// How long the other client could still rely on it.
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

/// Observations of clients about several locks, over any number of crashes.
#[derive(Debug, Default)]
pub struct History {
    events: Vec<Observation>,
}

/// The client that relies on a lock.
struct RecordedHolder {
    owner: u64,
    fence: i64,
    until: Instant,
}

/// The state of one lock during the replay of a history.
#[derive(Default)]
struct LockReplay {
    largest: i64,
    hold: Option<RecordedHolder>,
}

impl History {
    /// Appends an observation.
    pub fn record(&mut self, event: Observation) {
        self.events.push(event);
    }

    /// The number of grants.
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

    /// How many locks are still held at `moment`, after all observations.
    #[must_use]
    pub fn held_at(&self, moment: Instant) -> usize {
        let mut locks = HashMap::<u64, LockReplay>::new();
        self.events.iter().for_each(|event| {
            locks.entry(event.key).or_default().apply(event);
        });
        locks.values().filter(|lock| lock.hold.as_ref().is_some_and(|hold| hold.until > moment)).count()
    }

    /// Every violation of the lock's promises in this history.
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
        let mut violations = Vec::new();
        if promise.fence <= self.largest {
            violations.push(HistoryViolation::FenceNotLarger {
                key,
                before: self.largest,
                after: promise.fence,
            });
        }
        if let Some(hold) = &self.hold
            && hold.until > promise.answered
        {
            violations.push(HistoryViolation::EarlyGrant { key, left: hold.until - promise.answered });
        }
        self.largest = self.largest.max(promise.fence);
        let until = promise.sent + promise.ttl;
        self.hold = Some(RecordedHolder { owner: event.owner, fence: promise.fence, until });
        violations
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
            // Another owner got the lock, or it was released: the node may no longer extend the old lock.
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
    fn violations(lines: &[&str]) -> Vec<String> {
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
    fn a_correct_history_has_no_violations() {
        assert!(
            violations(&["1 grant 1 0 1 100", "2 grant 2 50 100 100"]).is_empty(),
            "granted after the expiry"
        );
        assert!(violations(&["1 grant 1 0 1 100", "1 release", "2 grant 2 2 3 100"]).is_empty());
        assert!(violations(&["1 grant 5 0 1 9", "1 extend 5 2 3 9", "2 grant 9 9 11 9"]).is_empty());
        assert!(violations(&["1 grant 1 0 1 100", "1 extend 1 2 3 9", "2 grant 2 99 100 9"]).is_empty());
    }

    #[test]
    fn a_grant_before_the_expiry_is_a_violation() {
        let early = ["lock 7: granted 1ms too early"];
        assert_eq!(violations(&["1 grant 1 0 1 100", "2 grant 2 50 99 100"]), early);
        assert_eq!(violations(&["1 grant 1 0 1 9", "1 extend 1 8 8 9", "2 grant 2 9 16 9"]), early);
        let another = ["1 grant 1 0 1 100", "3 release", "2 grant 2 50 99 100"];
        assert_eq!(violations(&another), early, "only its owner releases a lock");
        let shorter = ["1 grant 1 0 1 100", "1 extend 1 2 3 9", "2 grant 2 99 99 9"];
        assert_eq!(violations(&shorter), early, "an extension never shortens a lock");
    }

    #[test]
    fn a_fence_that_does_not_grow_is_a_violation() {
        assert_eq!(violations(&["1 grant 3 0 1 5", "2 grant 3 6 7 5"]), ["lock 7: fence 3 after 3"]);
        let lower = ["1 grant 3 0 1 5", "1 release", "2 grant 4 1 1 5", "2 release", "3 grant 1 2 2 5"];
        assert_eq!(violations(&lower), ["lock 7: fence 1 after 4"]);
        assert_eq!(violations(&["1 grant 3 0 1 5", "1 extend 2 2 3 5"]), ["lock 7: fence 2 after 3"]);
        let overtaken = ["1 grant 3 0 1 5", "2 grant 4 6 7 5", "1 extend 3 7 8 5"];
        assert_eq!(violations(&overtaken), ["lock 7: fence 3 after 4"]);
    }
}
