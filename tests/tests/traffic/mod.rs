//! Simulated clients that take, extend and release a few locks without pause, and record every reply.

#![allow(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use redlock_tests::history::{History, Observation, ObservationKind, PromisedLease};
use redlock_tests::{Answer, Wire};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The longest time to live that the clients request, in milliseconds.
pub(crate) const LONGEST_MS: u64 = 500;

/// The shortest time to live, in milliseconds. The actual one is random between the two.
const SHORTEST_MS: u64 = 100;

/// The number of locks: so few that most of them are held at any moment.
const KEYS: u64 = 8;

/// Locks with a smaller number than this are never released, so that some are held whenever the server ends.
const KEPT: u64 = 3;

/// The clients and the history of their requests and replies, over all restarts of a node.
#[derive(Debug)]
pub(crate) struct Traffic {
    random: fastrand::Rng,
    history: History,
    /// The holder of each lock, as far as the clients know.
    holders: Vec<Option<u64>>,
    owners: u64,
}

/// Counters of the running clients.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Replies of any kind.
    pub(crate) answers: AtomicU64,
    /// Locks granted.
    pub(crate) grants: AtomicU64,
}

/// A request, kept until its reply arrives.
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
    /// The same seed leads to the same requests, as long as the replies are the same.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed),
            history: History::default(),
            holders: (0..KEYS).map(|_| None).collect(),
            owners: 0,
        }
    }

    /// All requests and replies so far.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Sends requests until the connection breaks.
    pub(crate) fn run(&mut self, wire: &mut Wire, progress: &Progress) {
        while self.batch(wire, progress).is_some() {}
    }

    /// Takes one lock for [`LONGEST_MS`], so that a node and its copies store that time.
    pub(crate) fn take_for_longest(&mut self, wire: &mut Wire) {
        let owner = self.new_owner();
        let request = Request { key: 0, owner, verb: Verb::Acquire(LONGEST_MS) };
        let sent = Instant::now();
        let answer = wire.call(&request.words());
        assert!(matches!(answer, Answer::Int(1..)), "{answer:?}");
        self.understand(request, &answer, sent);
    }

    /// Sends a few requests for every lock at once and reads the replies. `None` when the connection is broken.
    fn batch(&mut self, wire: &mut Wire, progress: &Progress) -> Option<()> {
        let requests: Vec<Request> = (0..KEYS).flat_map(|key| self.requests(key)).collect();
        let words: Vec<Vec<String>> = requests.iter().map(Request::words).collect();
        let sent = Instant::now();
        let mut alive = wire.send_all(&words).ok();
        for request in requests {
            // A client that has sent a release no longer holds the lock, even without a reply.
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
            // Rarely for kept locks: otherwise they would never expire.
            4 if releases || self.random.u8(..) == 0 => old(extend).into_iter().collect(),
            _ => vec![new(acquire)],
        }
    }

    /// Records a reply. Returns whether it is a grant.
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
                "the node grants, refuses or is in quarantine: {refused:?}"
            ),
            (_, other) => panic!("not a valid reply to a release: {other:?}"),
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
