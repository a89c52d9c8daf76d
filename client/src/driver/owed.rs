//! Releases that a node still has to get.

use super::entry::{Aim, Owed};
use crate::hold::Hold;
use crate::wire;
use bytes::BytesMut;
use redlock_proto::{Failure, Request};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// How much longer than its time to live a lock may linger on a node that we could not reach: as long as a
/// node bars late requests.
const OWED_BEYOND_TTL: Duration = Duration::from_secs(10);

/// Whether a release has to be sent again: the node did not get it, or could not do it just then.
pub(super) fn is_to_be_repeated(outcome: &Result<wire::Frame, Failure>) -> bool {
    const PASSING: [&[u8]; 8] = [
        b"BUSY ",
        b"LOADING ",
        b"MASTERDOWN ",
        b"READONLY ",
        b"TRYAGAIN ",
        b"CLUSTERDOWN ",
        b"MISCONF ",
        b"NOREPLICAS ",
    ];
    match outcome {
        Err(_) => true,
        Ok(wire::Frame::Error(text)) => PASSING.iter().any(|word| text.starts_with(word)),
        Ok(_) => false,
    }
}

/// A release of some keys of a lock, as a node shall get it when it is back.
pub(super) fn owed_release(
    aim: Aim,
    keys: Range<usize>,
    hold: &Arc<Hold>,
    request: &Request,
    scratch: &mut BytesMut,
) -> Box<Owed> {
    scratch.clear();
    let names = hold.keys.names().get(keys.clone()).unwrap_or_default();
    request.with_words(names, hold.owner.as_bytes(), &[], |words| wire::command(scratch, words));
    let pointless_from = request.sent.plus(request.ttl.saturating_add(OWED_BEYOND_TTL));
    Box::new(Owed {
        aim,
        hold: Arc::clone(hold),
        keys,
        request: *request,
        command: scratch.clone().freeze(),
        due: request.sent,
        sent: request.sent,
        pointless_from,
    })
}
