//! A client that queues, driven by hand: each line of a test is one reply, push or timeout.

mod grants;
mod refresh;
mod yielding;

use super::*;
use crate::lock_state::testing::{LockOutput, assert_failed, assert_held, sent};
use crate::lock_state::{Event, Transmit};
use crate::{Drift, Failure, FailureKind, Quorum};

const TTL: Duration = Duration::from_secs(10);
/// The ticket of the client.
const OWN_TICKET: u64 = 50;

fn at(ms: u64) -> Moment {
    Moment::on_one_clock(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn queue_request() -> QueueRequest {
    QueueRequest { ticket: OWN_TICKET, stamp: 100, wait: Duration::ZERO, channel: [b'c'; 16], claim: None }
}

fn queued(ticket: u64) -> LockReply {
    LockReply::Queued { position: 1, ticket }
}

fn grant(fence: u64, stamp: u64, waited_ms: u64) -> Grant {
    Grant { fence, stamp, waited: ms(waited_ms), claim: ms(100) }
}

/// A client that begins to queue on this number of nodes, and its first request.
fn start_queueing(nodes: usize, from: Moment, until: Moment) -> (LockState, Request) {
    let (lock, _) = LockState::begin(Quorum::of(nodes).unwrap(), Drift::default(), TTL, None, from);
    lock.begin_queueing(queue_request(), until)
}

/// A client that five nodes have queued behind a holder with ticket 40. A round trip takes 1 ms.
fn queued_everywhere() -> (LockState, Request) {
    let (mut lock, request) = start_queueing(5, at(0), at(60_000));
    for node in 0..5 {
        assert!(lock.on_reply(node, &request, queued(40), at(1)).is_none());
    }
    (lock, request)
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

fn failed(kind: FailureKind) -> LockReply {
    LockReply::Failed(Failure::new(kind, ""))
}
