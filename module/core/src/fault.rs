//! Errors on the wire: a stable first word for programs, a sentence for people.

use std::fmt;

use crate::durable::NonVoting;

/// Why a command was refused without changing anything.
///
/// Contention is not here: a lock held by someone else is a reply, not an error. No variant carries
/// bytes of the request, so no error can repeat a secret or break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Too few arguments for the named command.
    WrongArity(&'static str),
    /// The time to live is no integer from 1 to the node's limit.
    Ttl {
        /// The node's limit, `redlock.max-ttl`.
        max_ms: u64,
    },
    /// The owner is empty or too long.
    Owner,
    /// Anything else about the arguments; the text says what.
    Arg(&'static str),
    /// The key holds a value that is neither a lock nor a string.
    WrongType,
    /// The node may have forgotten locks and grants nothing for a while.
    Quarantine {
        /// Time until the node grants again.
        left_ms: u64,
    },
    /// The server cannot prove which node it is, and does not vote.
    NonVoting(NonVoting),
    /// The node has another id than the one that was named.
    OtherNode,
    /// The number space of this key's stripe is used up.
    FenceExhausted,
    /// What must survive a crash cannot be stored.
    NotStored,
    /// Too many wait already; the text says where.
    TooManyWaiters(&'static str),
    /// A replica grants nothing; only its master does.
    Replica,
    /// A command that only replication and AOF loading may send.
    Internal,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongArity(command) => {
                write!(f, "ERR wrong number of arguments for '{command}' command")
            }
            Self::Ttl { max_ms } => {
                write!(f, "REDLOCKTTL the time to live must be an integer from 1 to {max_ms} milliseconds")
            }
            Self::Owner => f.write_str("REDLOCKOWNER the owner must have 1 to 256 bytes"),
            Self::Arg(what) => write!(f, "REDLOCKARG {what}"),
            Self::WrongType => {
                f.write_str("WRONGTYPE the key holds a value that is neither a lock nor a string")
            }
            Self::Quarantine { left_ms } => write!(
                f,
                "REDLOCKQUARANTINE this node may have forgotten locks and grants none for {left_ms}"
            ),
            Self::NonVoting(reason) => write!(
                f,
                "REDLOCKNOVOTE this server does not vote and grants nothing: {}; {}",
                reason.explanation(),
                reason.remedy()
            ),
            Self::OtherNode => f.write_str(
                "REDLOCKARG node-id is not the id of this node; REDLOCK.NODE shows its id",
            ),
            Self::FenceExhausted => {
                f.write_str("ERR the fence numbers of this key are used up; nothing was granted")
            }
            Self::NotStored => f.write_str(
                "REDLOCKSTATE this node cannot store what it must remember and grants nothing; see the server's log",
            ),
            Self::TooManyWaiters(scope) => {
                write!(f, "REDLOCKWAITERS the queue {scope} is full; ask again without WAIT")
            }
            Self::Replica => f.write_str("READONLY a replica grants no locks; ask its master"),
            Self::Internal => f.write_str("ERR this command is for replication and AOF loading only"),
        }
    }
}

impl std::error::Error for Fault {}
