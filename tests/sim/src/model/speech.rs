//! Messages as small numbers: every distinct request and reply once.

use redlock_core::{CommandError, Reply};
use redlock_proto::{AcquireOptions, Ask, Failure, LockReply, Request};
use std::time::Duration;

/// The number of a request, with the time at which it was sent on the clock of its client.
pub(super) type RequestId = u16;
/// The number of a request as the node sees it.
pub(super) type AskId = u16;
/// The number of a reply.
pub(super) type ReplyId = u16;

/// All messages so far. Number 0 is no message.
pub(super) struct Speech {
    requests: Vec<(Request, AskId)>,
    asks: Vec<Request>,
    replies: Vec<LockReply>,
}

impl Speech {
    /// A table without messages.
    pub(super) fn new() -> Self {
        Self { requests: Vec::new(), asks: Vec::new(), replies: Vec::new() }
    }

    /// The number of a request.
    pub(super) fn request(&mut self, request: Request) -> RequestId {
        let known = self.requests.iter().position(|(known, _)| *known == request);
        let place = known.unwrap_or_else(|| {
            let ask = self.asks.iter().position(|known| known.ask == request.ask).unwrap_or_else(|| {
                self.asks.push(request);
                self.asks.len() - 1
            });
            self.requests.push((request, number(ask)));
            self.requests.len() - 1
        });
        number(place)
    }

    /// The request with this number.
    pub(super) fn request_of(&self, id: RequestId) -> &Request {
        &self.requests[place(id)].0
    }

    /// Whether a request acquires the lock.
    pub(super) fn is_acquire(&self, id: RequestId) -> bool {
        matches!(self.request_of(id).ask, Ask::Acquire { .. })
    }

    /// The part of a request that a node sees.
    pub(super) fn ask_of(&self, id: RequestId) -> AskId {
        self.requests[place(id)].1
    }

    /// The request that a node sees; its `sent` is meaningless.
    pub(super) fn seen(&self, id: AskId) -> &Request {
        &self.asks[place(id)]
    }

    /// The number of a reply.
    pub(super) fn reply(&mut self, reply: LockReply) -> ReplyId {
        let known = self.replies.iter().position(|known| *known == reply);
        number(known.unwrap_or_else(|| {
            self.replies.push(reply);
            self.replies.len() - 1
        }))
    }

    /// The reply with this number.
    pub(super) fn reply_of(&self, id: ReplyId) -> &LockReply {
        &self.replies[place(id)]
    }

    /// All replies so far.
    pub(super) fn replies(&self) -> &[LockReply] {
        &self.replies
    }
}

fn number(place: usize) -> u16 {
    u16::try_from(place + 1).expect("fewer than 2^16 messages")
}

fn place(id: u16) -> usize {
    usize::from(id) - 1
}

/// The reply of a node as the client gets it. The remaining time of a quarantine is left out: a client only
/// uses it to choose when to retry, and here clients begin at any time.
pub(super) fn heard(node_reply: Result<Reply, CommandError>) -> LockReply {
    match node_reply {
        Ok(Reply::Integer(number)) => LockReply::Number(number),
        Ok(_) => LockReply::Nil,
        Err(CommandError::Quarantine { .. }) => LockReply::Quarantined { left: Duration::ZERO },
        Err(fault) => LockReply::Failed(Failure::rejected(fault.to_string())),
    }
}

/// A request as text.
pub(super) fn describe(ask: Ask) -> String {
    match ask {
        Ask::Acquire { options: AcquireOptions { hint: None, .. } } => "acquire".into(),
        Ask::Acquire { options: AcquireOptions { hint: Some(hint), .. } } => format!("acquire from {hint}"),
        Ask::Wait { .. } => "acquire, or queue".into(),
        Ask::RaiseFence { fence } => format!("raise to {fence}"),
        Ask::Extend => "extend".into(),
        Ask::Release { floor: None } => "release".into(),
        Ask::Release { floor: Some(floor) } => format!("release, next above {floor}"),
    }
}
