//! Error codes: the first word of an error reply.

/// The code of an error reply.
///
/// The first group has the module's own codes. The others are codes of the server that a client
/// distinguishes. The text after the code is for people; no program decides by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorCode {
    /// The time to live is not an integer from 1 to `redlock.max-ttl`.
    Ttl,
    /// The owner is empty or too long.
    Owner,
    /// Another argument is wrong.
    Arg,
    /// The node may have forgotten locks: see [`Quarantine`](crate::Quarantine).
    Quarantine,
    /// The server cannot prove which node it is, and does not vote.
    NoVote,
    /// The node cannot store what must survive a crash.
    State,
    /// A wait queue is full.
    Waiters,

    /// The key holds a value of another type.
    WrongType,
    /// The server is a replica.
    ReadOnly,
    /// The server does not know the command: it has not loaded the module. Servers have no code for that
    /// error. Only [`ErrorCode::of`] depends on its text.
    UnknownCommand,
    /// Any other error: `ERR`.
    Err,
    /// A script blocks the server.
    Busy,
    /// The server loads its data set.
    Loading,
    /// The replica has lost the connection to its master.
    MasterDown,
    /// The server refuses writes because it cannot save its data set.
    Misconf,
    /// The server refuses writes because too few replicas are connected.
    NoReplicas,
    /// The server has no memory left.
    OutOfMemory,
    /// The user lacks a permission.
    NoPerm,
    /// The connection is not logged in.
    NoAuth,
    /// The user or the password is wrong.
    WrongPass,
    /// The keys belong to several slots of a cluster.
    CrossSlot,
}

/// The first word of each code.
const WORDS: [(ErrorCode, &str); 20] = [
    (ErrorCode::Ttl, "REDLOCKTTL"),
    (ErrorCode::Owner, "REDLOCKOWNER"),
    (ErrorCode::Arg, "REDLOCKARG"),
    (ErrorCode::Quarantine, "REDLOCKQUARANTINE"),
    (ErrorCode::NoVote, "REDLOCKNOVOTE"),
    (ErrorCode::State, "REDLOCKSTATE"),
    (ErrorCode::Waiters, "REDLOCKWAITERS"),
    (ErrorCode::WrongType, "WRONGTYPE"),
    (ErrorCode::ReadOnly, "READONLY"),
    (ErrorCode::Err, "ERR"),
    (ErrorCode::Busy, "BUSY"),
    (ErrorCode::Loading, "LOADING"),
    (ErrorCode::MasterDown, "MASTERDOWN"),
    (ErrorCode::Misconf, "MISCONF"),
    (ErrorCode::NoReplicas, "NOREPLICAS"),
    (ErrorCode::OutOfMemory, "OOM"),
    (ErrorCode::NoPerm, "NOPERM"),
    (ErrorCode::NoAuth, "NOAUTH"),
    (ErrorCode::WrongPass, "WRONGPASS"),
    (ErrorCode::CrossSlot, "CROSSSLOT"),
];

/// The start of every server's error for an unknown command.
const UNKNOWN_COMMAND: &[u8] = b"ERR unknown command";

/// What precedes the arguments that a server quotes in that error.
const QUOTED_ARGUMENTS: &str = "with args";

/// An error without the arguments that a server quotes: they may contain an owner or a password.
#[must_use]
pub fn without_quoted_arguments(error: &str) -> &str {
    error.split(QUOTED_ARGUMENTS).next().unwrap_or_default().trim_end_matches([' ', ','])
}

impl ErrorCode {
    /// The first word of the error reply.
    #[must_use]
    pub fn word(self) -> &'static str {
        WORDS.iter().find(|(code, _)| *code == self).map_or("ERR", |(_, word)| word)
    }

    /// The code of an error reply, without the `-` of the protocol; `None` for a code that is not listed
    /// here.
    #[must_use]
    pub fn of(message: &[u8]) -> Option<Self> {
        if message.starts_with(UNKNOWN_COMMAND) {
            return Some(Self::UnknownCommand);
        }
        let first = message.split(|byte| byte.is_ascii_whitespace()).next()?;
        WORDS.iter().find(|(_, word)| word.as_bytes() == first).map(|(code, _)| *code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_read_from_its_own_error() {
        for (code, word) in WORDS {
            assert_eq!(code.word(), word);
            assert_eq!(ErrorCode::of(word.as_bytes()), Some(code));
            assert_eq!(ErrorCode::of(format!("{word} more words").as_bytes()), Some(code));
            assert_eq!(ErrorCode::of(format!("{word}X more words").as_bytes()), None);
        }
    }

    #[test]
    fn an_unknown_command_is_told_from_other_errors() {
        let unknown = ErrorCode::of(b"ERR unknown command 'REDLOCK.NODE', with args beginning with: ");
        assert_eq!(unknown, Some(ErrorCode::UnknownCommand));
        assert_eq!(ErrorCode::of(b"ERR wrong number of arguments"), Some(ErrorCode::Err));
        assert_eq!(ErrorCode::of(b""), None);
        assert_eq!(ErrorCode::UnknownCommand.word(), "ERR");
    }
}
