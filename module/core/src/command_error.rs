//! Error replies: a stable first word for programs, a sentence for people.

use std::fmt;

use redlock_contract::limits::{MAX_CHANNEL_BYTES, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_WAIT_KEY_BYTES};
use redlock_contract::{ErrorCode, NonVoting, Quarantine};

/// Why the node refused a command. A refused command changes nothing.
///
/// Contention is not an error: if another owner holds the lock, the node sends a normal reply. No variant
/// contains bytes of the request, so no error can repeat a secret or break the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CommandError {
    /// Too few arguments for the named command.
    WrongArity(&'static str),
    /// The time to live is not an integer from 1 to the node's limit.
    Ttl {
        /// The node's limit, `redlock.max-ttl`, in ms.
        max_ms: u64,
    },
    /// The owner is empty or too long.
    Owner,
    /// The label is too long.
    Label,
    /// The channel of `WAIT` is empty, too long, or has characters other than letters, digits, - and _.
    Channel,
    /// An argument is not an integer in its range.
    Range {
        /// The name of the argument.
        what: &'static str,
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// Another argument error; the text describes it.
    Arg(&'static str),
    /// The key holds a value that is neither a lock nor a string.
    WrongType,
    /// The node is in quarantine: it may have forgotten locks, and grants nothing until the quarantine ends.
    Quarantine {
        /// Time until the node grants again, in ms.
        left_ms: u64,
    },
    /// The server cannot prove which node it is, and does not vote.
    NonVoting(NonVoting),
    /// The node-id argument is not the id of this node.
    OtherNode,
    /// The stripe of this key has no fences left.
    FenceExhausted,
    /// The node cannot store its durable state.
    NotStored,
    /// A key of a request with `WAIT` is too long.
    WaitKeyTooLong,
    /// The module failed inside; the server's log has the details.
    Panicked,
    /// A wait queue is full; the text names the limit.
    TooManyWaiters(&'static str),
    /// The server is a replica. Only its master grants locks.
    Replica,
    /// The command is internal: only replication and AOF loading may send it.
    Internal,
}

impl CommandError {
    pub(crate) fn range(what: &'static str, min: u64, max: u64) -> Self {
        Self::Range { what, min, max }
    }

    /// The first word of the error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Ttl { .. } => ErrorCode::Ttl,
            Self::Owner => ErrorCode::Owner,
            Self::Label | Self::Channel | Self::Range { .. } | Self::Arg(_) | Self::OtherNode => {
                ErrorCode::Arg
            }
            Self::WrongType => ErrorCode::WrongType,
            Self::Quarantine { .. } => ErrorCode::Quarantine,
            Self::NonVoting(_) => ErrorCode::NoVote,
            Self::NotStored => ErrorCode::State,
            Self::TooManyWaiters(_) | Self::WaitKeyTooLong => ErrorCode::Waiters,
            Self::Replica => ErrorCode::ReadOnly,
            Self::WrongArity(_) | Self::FenceExhausted | Self::Internal | Self::Panicked => ErrorCode::Err,
        }
    }
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Quarantine { left_ms } = *self {
            return Quarantine { left_ms }.fmt(f);
        }
        write!(f, "{} ", self.code().word())?;
        match self {
            // Already written above: the contract crate formats this error.
            Self::Quarantine { .. } => Ok(()),
            Self::WrongArity(command) => write!(f, "wrong number of arguments for '{command}' command"),
            Self::Ttl { max_ms } => {
                write!(f, "the time to live must be an integer from 1 to {max_ms} milliseconds")
            }
            Self::Owner => write!(f, "the owner must have 1 to {MAX_OWNER_BYTES} bytes"),
            Self::Label => write!(f, "LABEL must have at most {MAX_LABEL_BYTES} bytes"),
            Self::Channel => {
                write!(f, "the channel of WAIT must be 1 to {MAX_CHANNEL_BYTES} letters, digits, - or _")
            }
            Self::Range { what, min, max } => write!(f, "{what} must be an integer from {min} to {max}"),
            Self::Arg(what) => f.write_str(what),
            Self::WrongType => f.write_str("the key holds a value that is neither a lock nor a string"),
            Self::NonVoting(reason) => write!(
                f,
                "this server does not vote and grants nothing: {}; {}",
                reason.explanation(),
                reason.remedy()
            ),
            Self::OtherNode => f.write_str("node-id is not the id of this node; REDLOCK.NODE shows its id"),
            Self::FenceExhausted => {
                f.write_str("the fence numbers of this key are used up; nothing was granted")
            }
            Self::NotStored => f.write_str(
                "this node cannot store what it must remember and grants nothing; see the server's log",
            ),
            Self::TooManyWaiters(scope) => {
                write!(f, "the queue {scope} is full; ask again without WAIT")
            }
            Self::WaitKeyTooLong => {
                write!(f, "a key has more than {MAX_WAIT_KEY_BYTES} bytes; ask again without WAIT")
            }
            Self::Panicked => f.write_str("redlock: internal error; see the server's log"),
            Self::Replica => f.write_str("a replica grants no locks; ask its master"),
            Self::Internal => f.write_str("this command is for replication and AOF loading only"),
        }
    }
}

impl std::error::Error for CommandError {}
