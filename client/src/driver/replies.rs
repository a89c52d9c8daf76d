//! The meaning of replies and pushes: from frames to what a lock state understands.

use crate::wire::Frame;
use redlock_contract::grant::{GrantMessage, Stamped};
use redlock_contract::{ErrorCode, Quarantine};
use redlock_proto::{Ask, Failure, FailureKind, Grant, LockReply, Request};
use std::time::Duration;

/// The meaning of a node's reply to a request of a lock.
pub(crate) fn lock_reply(outcome: Result<Frame, Failure>, request: &Request) -> LockReply {
    let is_queueing = matches!(request.ask, Ask::Wait { .. });
    let failure = match outcome {
        Ok(Frame::Integer(number)) => {
            return u64::try_from(number)
                .map_or_else(|_| malformed("the number is negative"), LockReply::Number);
        }
        Ok(Frame::Nil) => return LockReply::Nil,
        Ok(Frame::Array(parts)) if is_queueing => return queued(&parts),
        Ok(frame) => match frame.error_message() {
            Some(error) => Failure::rejected(error),
            None => return malformed("the reply is of an unexpected type"),
        },
        Err(failure) => failure,
    };
    match (failure.code(), Quarantine::parse(failure.detail.as_bytes())) {
        (Some(ErrorCode::Quarantine), Some(Quarantine { left_ms })) => {
            LockReply::Quarantined { left: Duration::from_millis(left_ms) }
        }
        // The queue is full: refused, as a client that does not queue is.
        (Some(ErrorCode::Waiters), _) if is_queueing => LockReply::Nil,
        _ => LockReply::Failed(failure),
    }
}

/// A position in the wait queue: the holder's time left, the position, the holder's ticket.
fn queued(parts: &[Frame]) -> LockReply {
    match parts {
        [_, position, ticket] => match (position.as_count(), ticket.as_count()) {
            (Some(position), Some(ticket)) => LockReply::Queued { position, ticket },
            _ => malformed("the position in the wait queue is not a number"),
        },
        _ => malformed("the reply to WAIT does not have 3 elements"),
    }
}

/// The grant in a verified message; `None` if the message has no stamp.
pub(super) fn grant_of(message: &GrantMessage<'_>) -> Option<Grant> {
    let Stamped { stamp, waited_ms, claim_ms } = message.stamped?;
    let (waited, claim) = (Duration::from_millis(waited_ms), Duration::from_millis(claim_ms));
    Some(Grant { fence: message.fence, stamp, waited, claim })
}

/// A malformed reply: the client cannot know what the node did.
fn malformed(why: &str) -> LockReply {
    LockReply::Failed(Failure::new(FailureKind::Cut, why))
}
