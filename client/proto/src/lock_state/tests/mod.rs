//! A client driven by hand: each line of a test is one reply, command or timeout.

mod acquire;
mod extend;
mod raise;
mod release;

use super::testing::{LockOutput, assert_failed, assert_held, sent};
use super::*;
use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, RAISE_CAP, RAISE_STEP, raise_limit};

const TTL: Duration = Duration::from_millis(10_000);
/// The lease for this time to live with the default drift, counted from the send.
const LEASE_MS: u64 = 9_898;

fn at(ms: u64) -> Moment {
    Moment::on_one_clock(ms * 1_000_000)
}

/// A client, its first request, and its clock.
struct TestClient {
    lock: LockState,
    acquire: Request,
    now_ms: u64,
}

impl TestClient {
    fn of(nodes: usize) -> Self {
        let (lock, acquire) =
            LockState::begin(Quorum::of(nodes).unwrap(), Drift::default(), TTL, None, at(0));
        Self { lock, acquire, now_ms: 0 }
    }

    /// A client that holds the lock on five nodes with fence 7, granted 1 ms after the request.
    fn held() -> Self {
        let mut client = Self::of(5);
        client.now_ms = 1;
        for node in 0..5 {
            client.vote(node, LockReply::Number(7));
        }
        assert_eq!(client.lock.fence(), Some(7));
        client
    }

    fn vote(&mut self, node: usize, reply: LockReply) -> Option<LockOutput> {
        let acquire = self.acquire;
        self.lock.on_reply(node, &acquire, reply, at(self.now_ms))
    }

    fn reply(&mut self, node: usize, request: &Request, reply: LockReply) -> Option<LockOutput> {
        self.lock.on_reply(node, request, reply, at(self.now_ms))
    }

    fn extend(&mut self) -> Request {
        self.lock.on_extend(TTL, at(self.now_ms)).expect("the lock is held").0
    }

    fn valid_until_ms(&self) -> Option<u64> {
        self.lock.valid_until().map(|until| until.nanoseconds().0 / 1_000_000)
    }
}

fn silent() -> LockReply {
    LockReply::Failed(Failure::new(FailureKind::Silent, ""))
}

fn down() -> LockReply {
    LockReply::Failed(Failure::new(FailureKind::Down, ""))
}
