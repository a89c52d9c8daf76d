//! What is said, as small numbers: every distinct request and reply once.

use redlock_core::{CommandError, Reply};
use redlock_proto::{Ask, Failure, LockReply, Request};
use std::time::Duration;

/// A request, with the moment at which it was sent on its client's own clock.
pub(super) type RequestId = u16;
/// A request as the node sees it.
pub(super) type AskId = u16;
/// A reply.
pub(super) type ReplyId = u16;

/// Everything that was said so far. Number 0 is nothing.
pub(super) struct Speech {
    requests: Vec<(Request, AskId)>,
    asks: Vec<Request>,
    replies: Vec<LockReply>,
}

impl Speech {
    /// Nothing was said.
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

    /// The request with a number.
    pub(super) fn request_of(&self, id: RequestId) -> &Request {
        &self.requests[place(id)].0
    }

    /// Whether a request asks for the lock.
    pub(super) fn is_acquire(&self, id: RequestId) -> bool {
        matches!(self.request_of(id).ask, Ask::Acquire { .. })
    }

    /// What a node sees of a request.
    pub(super) fn ask_of(&self, id: RequestId) -> AskId {
        self.requests[place(id)].1
    }

    /// What a node sees; when it was sent is not to be relied on.
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

    /// The reply with a number.
    pub(super) fn reply_of(&self, id: ReplyId) -> &LockReply {
        &self.replies[place(id)]
    }

    /// All replies so far.
    pub(super) fn replies(&self) -> &[LockReply] {
        &self.replies
    }
}

fn number(place: usize) -> u16 {
    u16::try_from(place + 1).expect("few things are said")
}

fn place(id: u16) -> usize {
    usize::from(id) - 1
}

/// What a node's answer is to a client. How long a quarantine lasts is left out: it only tells a client when to
/// try again, and here clients begin at any time.
pub(super) fn heard(said: Result<Reply, CommandError>) -> LockReply {
    match said {
        Ok(Reply::Integer(number)) => LockReply::Number(number),
        Ok(_) => LockReply::Nil,
        Err(CommandError::Quarantine { .. }) => LockReply::Quarantined { left: Duration::ZERO },
        Err(fault) => LockReply::Failed(Failure::rejected(fault.to_string())),
    }
}

/// A request in few words.
pub(super) fn in_words(ask: Ask) -> String {
    match ask {
        Ask::Acquire { hint: None } => "acquire".into(),
        Ask::Acquire { hint: Some(hint) } => format!("acquire from {hint}"),
        Ask::Wait { .. } => "acquire, or wait in line".into(),
        Ask::RaiseFence { fence } => format!("raise to {fence}"),
        Ask::Extend => "extend".into(),
        Ask::Release { floor: None } => "release".into(),
        Ask::Release { floor: Some(floor) } => format!("release, next above {floor}"),
    }
}
