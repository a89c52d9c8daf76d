//! Sessions in line, driven by hand: each line of a history is an answer or news.

mod asking_again;
mod giving_way;
mod grants;

use super::*;
use crate::{Drift, Failure, FailureKind, Quorum};

const TTL: Duration = Duration::from_secs(10);
const OWN: u64 = 50;

fn at(ms: u64) -> Moment {
    Moment::on_one_clock(ms * 1_000_000)
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn line() -> Line {
    Line { ticket: OWN, stamp: 100, wait: Duration::ZERO, channel: [b'c'; 16], claim: None }
}

fn queued(ticket: u64) -> Reply {
    Reply::Queued { position: 1, ticket }
}

fn grant(fence: u64, stamp: u64, waited_ms: u64) -> Grant {
    Grant { fence, stamp, waited: ms(waited_ms), claim: ms(100) }
}

/// A session that begins to wait at so many nodes, and its first request.
fn waiting(nodes: usize, from: Moment, until: Moment) -> (Session, Request) {
    let (session, _) = Session::begin(Quorum::of(nodes).unwrap(), Drift::default(), TTL, None, from);
    session.waiting(line(), until)
}

/// Five nodes, all of which have us in line behind a holder with ticket 40; a round trip takes a millisecond.
fn in_line() -> (Session, Request) {
    let (mut session, request) = waiting(5, at(0), at(60_000));
    for node in 0..5 {
        assert!(session.answered(node, &request, queued(40), at(1)).is_none());
    }
    (session, request)
}

fn nodes(set: NodeSet) -> Vec<usize> {
    set.iter().collect()
}

fn failed(kind: FailureKind) -> Reply {
    Reply::Failed(Failure::new(kind, ""))
}
