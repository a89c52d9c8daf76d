//! A client driven by hand: each line of a test is one reply, command or timeout.

mod acquire;
mod extend;
mod raise;
mod release;

use super::testing::{LockOutput, sent};
use super::*;
use crate::fence_reach::{MAX_FENCE, RAISE_CAP, RAISE_STEP};

const TTL: Duration = Duration::from_millis(10_000);
/// What is left of it with the default drift, counted from the send.
const LEASE_MS: u64 = 9_898;

fn at(ms: u64) -> Moment {
    Moment::on_one_clock(ms * 1_000_000)
}

/// A client, what it asked last, and a clock to move.
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

    /// Five nodes hold the lock with fence 7, granted one millisecond after it was asked for.
    fn held() -> Self {
        let mut run = Self::of(5);
        run.now_ms = 1;
        for node in 0..5 {
            run.voted(node, Reply::Number(7));
        }
        assert_eq!(run.lock.fence(), Some(7));
        run
    }

    fn voted(&mut self, node: usize, reply: Reply) -> Option<LockOutput> {
        let acquire = self.acquire;
        self.lock.on_reply(node, &acquire, reply, at(self.now_ms))
    }

    fn answered(&mut self, node: usize, request: &Request, reply: Reply) -> Option<LockOutput> {
        self.lock.on_reply(node, request, reply, at(self.now_ms))
    }

    fn extend(&mut self) -> Request {
        self.lock.on_extend(TTL, at(self.now_ms)).expect("the lock is held").0
    }

    fn valid_until_ms(&self) -> Option<u64> {
        self.lock.valid_until().map(|until| until.nanoseconds().0 / 1_000_000)
    }
}

fn silent() -> Reply {
    Reply::Failed(Failure::new(FailureKind::Silent, ""))
}

fn down() -> Reply {
    Reply::Failed(Failure::new(FailureKind::Down, ""))
}
