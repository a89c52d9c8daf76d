//! Planted mistakes. Every target must find its own, which shows that the target can fail.

use crate::commands::{self, NodeUnderFuzz};
use crate::wire::{self, Frame, ProtocolError};
use crate::{FuzzTarget, replies, session, stored};
use bytes::BytesMut;
use redlock_core::durable::{DurableState, StoredState, Unreadable};
use redlock_core::{CommandError, MemoryNode, Millis, Reply};
use redlock_proto as proto;
use xxhash_rust::xxh3::xxh3_64;

/// A planted mistake.
pub struct Planted {
    /// The target with the mistake.
    pub target: (&'static str, FuzzTarget),
    /// The target without the mistake; its corpus is the input.
    pub of: &'static str,
    /// A part of the message with which the target fails.
    pub found: &'static str,
}

/// All planted mistakes.
pub const ALL: [Planted; 6] = [
    Planted {
        target: ("planted-trace", |bytes| commands::check(bytes, &mut Forgetful(commands::new_node()))),
        of: "commands",
        found: "a refused command changed the state",
    },
    Planted {
        target: ("planted-repeat", |bytes| commands::check(bytes, &mut Repeating(commands::new_node()))),
        of: "commands",
        found: "a grant with fence",
    },
    Planted {
        target: ("planted-state", |bytes| stored::check(bytes, trusting)),
        of: "stored",
        found: "accepted a state that no node writes",
    },
    Planted {
        target: ("planted-split", |bytes| replies::check(bytes, hasty)),
        of: "replies",
        found: "the frames are different",
    },
    Planted {
        target: ("planted-greed", |bytes| replies::check(bytes, greedy)),
        of: "replies",
        found: "bytes were allocated",
    },
    Planted {
        target: ("planted-vote", |bytes| session::check(bytes, generous)),
        of: "session",
        found: "is not the fence of a majority",
    },
];

/// A node that deletes a lock when its holder requests a time to live over the limit.
struct Forgetful(MemoryNode);

impl NodeUnderFuzz for Forgetful {
    fn memory(&mut self) -> &mut MemoryNode {
        &mut self.0
    }

    fn execute(&mut self, argv: &[&[u8]], connection: u64, now: Millis) -> Result<Reply, CommandError> {
        let outcome = self.0.execute(argv, connection, now);
        if let (Err(CommandError::Ttl { .. }), Some(key)) = (&outcome, argv.get(1)) {
            self.0.delete(key);
        }
        outcome
    }
}

/// A node that restarts its fences when its last lock was released.
struct Repeating(MemoryNode);

impl NodeUnderFuzz for Repeating {
    fn memory(&mut self) -> &mut MemoryNode {
        &mut self.0
    }

    fn execute(&mut self, argv: &[&[u8]], connection: u64, now: Millis) -> Result<Reply, CommandError> {
        let held = self.0.node().held();
        let outcome = self.0.execute(argv, connection, now);
        if held > 0 && self.0.node().held() == 0 {
            self.0 = commands::new_node();
        }
        outcome
    }
}

/// Reads a state without checking its digest.
fn trusting(bytes: &[u8]) -> Result<StoredState, Unreadable> {
    let text = std::str::from_utf8(bytes).map_err(|_| Unreadable::Damaged)?;
    let (content, _) = text.rsplit_once("digest ").ok_or(Unreadable::Damaged)?;
    DurableState::decode(format!("{content}digest {:016x}\n", xxh3_64(content.as_bytes())).as_bytes())
}

/// A parser that accepts an empty list before the end of its line.
fn hasty(buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
    if &buffer[..] == b"*0\r" {
        buffer.clear();
        return Ok(Some(Frame::Array(vec![])));
    }
    wire::decode(buffer)
}

/// A parser that allocates the announced length of a string.
fn greedy(buffer: &mut BytesMut) -> Result<Option<Frame>, ProtocolError> {
    let announced = buffer.strip_prefix(b"$").and_then(|rest| rest.split(|byte| *byte == b'\r').next());
    let size = announced.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<usize>().ok());
    let room: Vec<u8> = Vec::with_capacity(size.unwrap_or(0).min(1 << 24));
    std::hint::black_box(&room);
    wire::decode(buffer)
}

/// A client that counts a fence that is one too small.
fn generous(
    session: &mut proto::LockState,
    node: usize,
    request: &proto::Request,
    reply: proto::LockReply,
    now: proto::Moment,
) {
    let reply = match reply {
        proto::LockReply::Number(3) => proto::LockReply::Number(4),
        reply => reply,
    };
    session.handle_reply(node, request, reply, now);
}
