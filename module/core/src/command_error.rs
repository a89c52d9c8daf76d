//! Error replies: a stable first word for programs, a sentence for people.

use std::fmt;

use redlock_contract::commands::{Arg, ArgKind, Verb};
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
    /// Another argument is wrong.
    Arg {
        /// Its position: the first argument after the name of the command is 1.
        position: usize,
        /// Its name, as the reference of the commands writes it; empty for an argument without a name.
        name: &'static str,
        /// What is wrong with it.
        problem: ArgProblem,
    },
    /// The key holds a value that is neither a lock nor a string.
    WrongType,
    /// The node is in quarantine: it may have forgotten locks, and grants nothing until the quarantine ends.
    Quarantine {
        /// Time until the node grants again, in ms.
        left_ms: u64,
    },
    /// The server cannot prove which node it is, and does not vote.
    NonVoting(NonVoting),
    /// The stripe of this key has no fences left.
    FenceExhausted,
    /// The node cannot store its durable state.
    NotStored,
    /// A key of a request with `WAIT` is too long.
    WaitKeyTooLong,
    /// The node can hold no more locks.
    Full,
    /// The database has a number above 65535.
    Database,
    /// Another command of the module runs already: a handler of the server has called this one.
    Nested,
    /// No command of the module has this name.
    UnknownCommand,
    /// The module failed inside; the server's log has the details.
    Panicked,
    /// A wait queue is full; the text names the limit.
    TooManyWaiters(&'static str),
    /// The server is a replica. Only its master grants locks.
    Replica,
    /// The command is internal: only replication and AOF loading may send it.
    Internal,
}

/// What is wrong with an argument, and what is allowed instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgProblem {
    /// It is not an integer from `min` to `max`.
    Range {
        /// The smallest value.
        min: u64,
        /// The largest value.
        max: u64,
    },
    /// `numkeys` is larger than the number of arguments after it.
    TooFewKeys,
    /// The label is too long.
    Label,
    /// The channel of `WAIT` is empty, too long, or has characters other than letters, digits, - and _.
    Channel,
    /// It is not an option of this command.
    UnknownOption(Verb),
    /// The values of this option are missing, or some of them.
    NoValue(Verb),
    /// The option was given before.
    Repeated,
    /// The option is only allowed with `WAIT`.
    OnlyWithWait,
    /// Only the command for one key has the option.
    OnlyForOneKey,
    /// `WAIT` is only allowed on a connection, and a script has none.
    InScript,
    /// The marks of `FAR` are not valid.
    FarMarks,
    /// It is not the id of this node.
    OtherNode,
}

impl ArgProblem {
    /// The error for the argument at `position` with this name.
    #[must_use]
    pub(crate) fn at(self, position: usize, name: &'static str) -> CommandError {
        CommandError::Arg { position, name, problem: self }
    }

    fn write(self, option: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Range { min, max } => write!(f, "must be an integer from {min} to {max}"),
            Self::TooFewKeys => f.write_str("must be the number of keys that follow; there are fewer arguments"),
            Self::Label => write!(f, "must have at most {MAX_LABEL_BYTES} bytes"),
            Self::Channel => write!(f, "must be 1 to {MAX_CHANNEL_BYTES} letters, digits, - or _"),
            Self::UnknownOption(verb) => {
                write!(f, "is not an option of {}; its options are", verb.name())?;
                options(verb).enumerate().try_for_each(|(number, (token, arg))| {
                    write!(f, "{} {token}", if number == 0 { "" } else { "," })?;
                    if arg.kind == ArgKind::Token {
                        return Ok(());
                    }
                    f.write_str(" ")?;
                    write_values(arg, f)
                })
            }
            Self::NoValue(verb) => {
                f.write_str("must be followed by: ")?;
                options(verb)
                    .filter(|(token, _)| *token == option)
                    .try_for_each(|(_, arg)| write_values(arg, f))
            }
            Self::Repeated => f.write_str("is given twice; once is allowed"),
            Self::OnlyWithWait => f.write_str("is only allowed together with WAIT"),
            Self::OnlyForOneKey => {
                write!(f, "is only allowed in {}, which takes one key", Verb::Acquire.name())
            }
            Self::InScript => f.write_str("is not allowed in a script; send the command on a connection"),
            Self::FarMarks => {
                f.write_str("must have the form of the field far-high-water of REDLOCK.NODE, with every mark above the floor")
            }
            Self::OtherNode => f.write_str("must be the id of this node, as REDLOCK.NODE returns it"),
        }
    }
}

/// The options of a command, each with its token.
fn options(verb: Verb) -> impl Iterator<Item = (&'static str, &'static Arg)> {
    verb.spec().args.iter().filter_map(|arg| arg.token.map(|token| (token, arg)))
}

/// Writes the values of an option, as the reference of the commands does.
fn write_values(arg: &Arg, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match arg.kind {
        ArgKind::Block(values) => values.iter().enumerate().try_for_each(|(number, value)| {
            write!(f, "{}{}", if number == 0 { "" } else { " " }, value.name)
        }),
        _ => f.write_str(arg.name),
    }
}

impl CommandError {
    /// The first word of the error.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Ttl { .. } => ErrorCode::Ttl,
            Self::Owner => ErrorCode::Owner,
            Self::Arg { .. } => ErrorCode::Arg,
            Self::WrongType => ErrorCode::WrongType,
            Self::Quarantine { .. } => ErrorCode::Quarantine,
            Self::NonVoting(_) => ErrorCode::NoVote,
            Self::NotStored => ErrorCode::State,
            Self::TooManyWaiters(_) | Self::WaitKeyTooLong => ErrorCode::Waiters,
            Self::Replica => ErrorCode::ReadOnly,
            Self::WrongArity(_)
            | Self::FenceExhausted
            | Self::Full
            | Self::Database
            | Self::Nested
            | Self::UnknownCommand
            | Self::Internal
            | Self::Panicked => ErrorCode::Err,
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
            Self::Arg { position, name, problem } => {
                write!(f, "argument {position} ")?;
                if !name.is_empty() {
                    write!(f, "({name}) ")?;
                }
                problem.write(name, f)
            }
            Self::WrongType => f.write_str("the key holds a value that is neither a lock nor a string"),
            Self::NonVoting(reason) => reason.fmt(f),
            Self::FenceExhausted => {
                f.write_str("no larger fence is left for this key; nothing was granted; use another key")
            }
            Self::NotStored => f.write_str(
                "this node cannot write its state file, which this request needs first; see the server's log",
            ),
            Self::TooManyWaiters(scope) => {
                write!(f, "too many waiters {scope}; ask again without WAIT, or raise the limit")
            }
            Self::WaitKeyTooLong => {
                write!(f, "a key has more than {MAX_WAIT_KEY_BYTES} bytes; ask again without WAIT")
            }
            Self::Full => f.write_str(
                "this node has no room for another lock: at most 2^31, or fewer with long keys; release some, or ask \
                 another node",
            ),
            Self::Database => f.write_str("locks can be held in databases 0 to 65535"),
            Self::Nested => f.write_str("a command cannot run inside another one of this module"),
            Self::UnknownCommand => f.write_str("unknown command"),
            Self::Panicked => f.write_str("redlock: internal error; see the server's log"),
            Self::Replica => f.write_str("a replica grants no locks; ask its master"),
            Self::Internal => f.write_str("this command is for replication and AOF loading only"),
        }
    }
}

impl std::error::Error for CommandError {}
