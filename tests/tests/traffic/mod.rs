//! Clients that take, extend and release a few locks without pause, and remember all that they were told.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::history::{History, Observation, ObservationKind, PromisedLease};
use redlock_tests::{Answer, Wire};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest time to live that is asked for.
pub(crate) const LONGEST_MS: u64 = 500;

/// The shortest, apart from which chance decides.
const SHORTEST_MS: u64 = 100;

/// Few enough that somebody holds most of them at any moment.
const KEYS: u64 = 8;

/// Locks below this one are never released: some are held whenever the server ends.
const KEPT: u64 = 3;

/// What the clients have done and seen, over all lives of a node.
#[derive(Debug)]
pub(crate) struct Traffic {
    random: fastrand::Rng,
    history: History,
    /// Who holds each lock, as far as is known.
    holders: Vec<Option<u64>>,
    owners: u64,
}

/// How far the clients have come; read while they run.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Answers of any kind.
    pub(crate) answers: AtomicU64,
    /// Locks granted.
    pub(crate) grants: AtomicU64,
}

/// A request, with what is needed to understand its answer.
#[derive(Clone, Copy)]
struct Request {
    key: u64,
    owner: u64,
    verb: Verb,
}

#[derive(Clone, Copy)]
enum Verb {
    Acquire(u64),
    Extend(u64),
    Release,
}

impl Traffic {
    /// The same seed asks the same questions, as long as the answers are the same.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            history: History::default(),
            holders: (0..KEYS).map(|_| None).collect(),
            owners: 0,
        }
    }

    /// All that was seen.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Works until the connection breaks.
    pub(crate) fn run(&mut self, wire: &mut Wire, progress: &Progress) {
        while self.batch(wire, progress).is_some() {}
    }

    /// Takes one lock for the longest time, so that a node and its copies know that time.
    pub(crate) fn take_for_longest(&mut self, wire: &mut Wire) {
        let owner = self.new_owner();
        let request = Request { key: 0, owner, verb: Verb::Acquire(LONGEST_MS) };
        let sent = Instant::now();
        let answer = wire.call(&request.words());
        assert!(matches!(answer, Answer::Int(1..)), "{answer:?}");
        self.understand(request, &answer, sent);
    }

    /// Sends a few requests for every lock at once and takes in the answers; nothing when the server is gone.
    fn batch(&mut self, wire: &mut Wire, progress: &Progress) -> Option<()> {
        let requests: Vec<Request> = (0..KEYS).flat_map(|key| self.requests(key)).collect();
        let words: Vec<Vec<String>> = requests.iter().map(Request::words).collect();
        let sent = Instant::now();
        let mut alive = wire.send_all(&words).ok();
        for request in requests {
            // What is given up is given up, answered or not.
            if matches!(request.verb, Verb::Release) {
                self.note(request, ObservationKind::ReleaseSent);
                self.holders[Self::index(request.key)].take_if(|holder| *holder == request.owner);
            }
            alive = alive.and_then(|()| {
                let answer = wire.receive().ok()?;
                progress.answers.fetch_add(1, Relaxed);
                if self.understand(request, &answer, sent) {
                    progress.grants.fetch_add(1, Relaxed);
                }
                Some(())
            });
        }
        alive
    }

    fn requests(&mut self, key: u64) -> Vec<Request> {
        let owner = self.new_owner();
        let holder = self.holders[Self::index(key)];
        let ttl_ms = self.random.u64(SHORTEST_MS..=LONGEST_MS);
        let releases = key >= KEPT;
        let new = |verb| Request { key, owner, verb };
        let old = |verb| holder.map(|owner| Request { key, owner, verb });
        let (acquire, extend) = (Verb::Acquire(ttl_ms), Verb::Extend(ttl_ms));
        match self.random.u8(0..8) {
            0 => vec![new(acquire), new(extend)],
            1 if releases => vec![new(acquire), new(Verb::Release)],
            2 if releases => old(Verb::Release).into_iter().collect(),
            3 if releases => old(Verb::Release).into_iter().chain([new(acquire)]).collect(),
            // Rarely, or locks that are kept would never run out.
            4 if releases || self.random.u8(..) == 0 => old(extend).into_iter().collect(),
            _ => vec![new(acquire)],
        }
    }

    /// Takes an answer in. True if it is a grant.
    fn understand(&mut self, request: Request, answer: &Answer, sent: Instant) -> bool {
        let promise = |fence, ttl_ms| PromisedLease {
            fence,
            sent,
            answered: Instant::now(),
            ttl: Duration::from_millis(ttl_ms),
        };
        match (request.verb, answer) {
            (Verb::Acquire(ttl_ms), &Answer::Int(fence)) => {
                self.note(request, ObservationKind::Granted(promise(fence, ttl_ms)));
                self.holders[Self::index(request.key)] = Some(request.owner);
                return true;
            }
            (Verb::Extend(ttl_ms), &Answer::Int(fence)) => {
                self.note(request, ObservationKind::Extended(promise(fence, ttl_ms)));
            }
            (Verb::Release, Answer::Int(0 | 1)) | (Verb::Acquire(_) | Verb::Extend(_), Answer::Nil) => {}
            (Verb::Acquire(_) | Verb::Extend(_), refused) => assert_eq!(
                refused.error_word(),
                Some("REDLOCKQUARANTINE"),
                "a lock is granted, held or in quarantine: {refused:?}"
            ),
            (_, other) => panic!("not an answer to such a request: {other:?}"),
        }
        false
    }

    fn note(&mut self, request: Request, what: ObservationKind) {
        self.history.record(Observation { key: request.key, owner: request.owner, kind: what });
    }

    fn new_owner(&mut self) -> u64 {
        self.owners += 1;
        self.owners
    }

    fn index(key: u64) -> usize {
        usize::try_from(key).expect("few keys")
    }
}

impl Request {
    fn words(&self) -> Vec<String> {
        let (key, owner) = (format!("lock:{}", self.key), format!("owner:{}", self.owner));
        match self.verb {
            Verb::Acquire(ttl_ms) => vec!["REDLOCK.ACQUIRE".into(), key, owner, ttl_ms.to_string()],
            Verb::Extend(ttl_ms) => vec!["REDLOCK.EXTEND".into(), key, owner, ttl_ms.to_string()],
            Verb::Release => vec!["REDLOCK.RELEASE".into(), key, owner],
        }
    }
}
