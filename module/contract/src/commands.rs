//! The table of all commands. Registration, `COMMAND DOCS` and the reference use this table.

/// A command of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// `REDLOCK.ACQUIRE`: acquires a lock.
    Acquire,
    /// `REDLOCK.EXTEND`: extends a lock.
    Extend,
    /// `REDLOCK.RELEASE`: releases a lock.
    Release,
    /// `REDLOCK.INSPECT`: describes a lock.
    Inspect,
    /// `REDLOCK.MACQUIRE`: acquires several locks.
    Macquire,
    /// `REDLOCK.MEXTEND`: extends several locks.
    Mextend,
    /// `REDLOCK.MRELEASE`: releases several locks.
    Mrelease,
    /// `REDLOCK.NODE`: describes the node.
    Node,
    /// `REDLOCK.APPLY`: copies a lock from the master or the AOF.
    Apply,
    /// `REDLOCK.DATASET`: copies the id and the high-water mark of the data set.
    Dataset,
    /// `REDLOCK.MARK`: the counterpart of `Dataset` in format 1 of the AOF.
    Mark,
    /// `REDLOCK.ADMIT`: lets a node vote.
    Admit,
    /// `REDLOCK.BREAK`: frees a lock without its owner.
    Break,
}

/// How a command names its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWords {
    /// The command has no keys.
    None,
    /// The first argument is the key.
    First,
    /// The first argument counts the keys that follow.
    Counted,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The command reads the keys.
    Read,
    /// The command sets or changes the keys.
    Update,
    /// The command removes the keys.
    Delete,
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A key.
    Key,
    /// Any bytes.
    Text,
    /// A decimal integer.
    Integer,
    /// No value: the token is all there is.
    Token,
    /// Several arguments that go together.
    Block(&'static [Arg]),
}

/// An argument of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// The name of the argument.
    pub name: &'static str,
    /// The kind of the argument.
    pub kind: ArgKind,
    /// The word before the argument. An argument with a token is optional.
    pub token: Option<&'static str>,
    /// Whether the client may repeat the argument.
    pub repeats: bool,
}

/// The description of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// The command.
    pub verb: Verb,
    /// The name of the command.
    pub name: &'static str,
    /// One sentence about the command.
    pub summary: &'static str,
    /// The time complexity.
    pub complexity: &'static str,
    /// The server's flags for the command. With `getkeys-api` the server asks the module which arguments are
    /// keys: the first argument counts them.
    pub flags: &'static str,
    /// The ACL categories, for servers on which a module can set them.
    pub acl: &'static str,
    /// How the command names its keys.
    pub keys: KeyWords,
    /// What the command does to its keys.
    pub access: Access,
    /// The number of arguments, including the command name. Negative n: at least |n| arguments.
    pub arity: i32,
    /// The arguments after the name.
    pub args: &'static [Arg],
}

/// The words before optional arguments. Upper and lower case are equal.
pub mod option {
    /// A lower bound for a fence: of this grant (`ACQUIRE`), of the lock (`EXTEND`), or of the grants that follow
    /// (`RELEASE`). In `BREAK` the fence of the lock that is to be broken.
    pub const FENCE: &str = "FENCE";
    /// A text for people: `LABEL text`.
    pub const LABEL: &str = "LABEL";
    /// The client queues if the lock is held: `WAIT ticket wait-ms channel`.
    pub const WAIT: &str = "WAIT";
    /// A number that the grant push repeats: `STAMP stamp`.
    pub const STAMP: &str = "STAMP";
    /// The smallest claim window that the client needs: `CLAIM claim-ms`.
    pub const CLAIM: &str = "CLAIM";
    /// The owner shares the lock with others that ask for it in this way: `SHARED`, without a value.
    pub const SHARED: &str = "SHARED";
    /// Time since the grant, in ms: `HELD ms`.
    pub const HELD: &str = "HELD";
    /// How often the lock was extended: `EXT count`.
    pub const EXTENSIONS: &str = "EXT";
    /// The owner is a waiter that has got the lock by a hand-off: `HANDOFF`, without a value.
    pub const HANDED_OFF: &str = "HANDOFF";
    /// The floors of far stripes: `FAR marks`, as [`HighWater`](crate::HighWater) writes them.
    pub const FAR: &str = "FAR";
}

/// The version of the module that introduced the commands.
pub const SINCE: &str = "0.1.0";

const fn plain(name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: None, repeats: false }
}

const fn optional(token: &'static str, name: &'static str, kind: ArgKind) -> Arg {
    Arg { name, kind, token: Some(token), repeats: false }
}

const KEY: Arg = plain("key", ArgKind::Key);
const KEYS: Arg = Arg { name: "key", kind: ArgKind::Key, token: None, repeats: true };
const NUMKEYS: Arg = plain("numkeys", ArgKind::Integer);
const OWNER: Arg = plain("owner", ArgKind::Text);
const TTL: Arg = plain("ttl-ms", ArgKind::Integer);
const FENCE: Arg = optional(option::FENCE, "floor", ArgKind::Integer);
const LABEL: Arg = optional(option::LABEL, "text", ArgKind::Text);
const WAIT: Arg = optional(
    option::WAIT,
    "wait",
    ArgKind::Block(&[
        plain("ticket", ArgKind::Integer),
        plain("wait-ms", ArgKind::Integer),
        plain("channel", ArgKind::Text),
    ]),
);

const STAMP: Arg = optional(option::STAMP, "stamp", ArgKind::Integer);
const CLAIM: Arg = optional(option::CLAIM, "claim-ms", ArgKind::Integer);
const SHARED: Arg = optional(option::SHARED, "shared", ArgKind::Token);

/// All commands.
pub const COMMANDS: [Spec; 13] = [
    Spec {
        verb: Verb::Acquire,
        name: "REDLOCK.ACQUIRE",
        summary: "Takes a lock if it is free, or joins the holders of a shared one, and returns its fence.",
        complexity: "O(1); O(log N) to O(N) for N holders; with WAIT plus O(min(k, n-k)) for position k of n waiters",
        flags: "write deny-oom fast",
        acl: "write fast",
        keys: KeyWords::First,
        access: Access::Update,
        arity: -4,
        args: &[KEY, OWNER, TTL, FENCE, LABEL, WAIT, STAMP, CLAIM, SHARED],
    },
    Spec {
        verb: Verb::Extend,
        name: "REDLOCK.EXTEND",
        summary: "Gives a lock a new deadline, if this owner holds it.",
        complexity: "O(1); O(log N) for N holders of a shared lock, O(N) if the fence rises or after a RENAME or MOVE",
        flags: "write fast",
        acl: "write fast",
        keys: KeyWords::First,
        access: Access::Update,
        arity: -4,
        args: &[KEY, OWNER, TTL, FENCE],
    },
    Spec {
        verb: Verb::Release,
        name: "REDLOCK.RELEASE",
        summary: "Frees a lock, if this owner holds it.",
        complexity: "O(1); O(log N) for N holders of a shared lock, O(N) after a RENAME or MOVE",
        flags: "write fast",
        acl: "write fast",
        keys: KeyWords::First,
        access: Access::Delete,
        arity: -3,
        args: &[KEY, OWNER, FENCE],
    },
    Spec {
        verb: Verb::Inspect,
        name: "REDLOCK.INSPECT",
        summary: "Describes a held lock, without its owner values.",
        complexity: "O(N log N) for N holders",
        flags: "readonly fast",
        acl: "read fast",
        keys: KeyWords::First,
        access: Access::Read,
        arity: 2,
        args: &[KEY],
    },
    Spec {
        verb: Verb::Macquire,
        name: "REDLOCK.MACQUIRE",
        summary: "Takes several locks, all or none, and returns their common fence.",
        complexity: "O(N log N + M) for N keys and M holders; with WAIT plus O(min(k, n-k)) for position k of n waiters",
        flags: "write deny-oom getkeys-api",
        acl: "write",
        keys: KeyWords::Counted,
        access: Access::Update,
        arity: -5,
        args: &[NUMKEYS, KEYS, OWNER, TTL, FENCE, LABEL, WAIT, STAMP, CLAIM],
    },
    Spec {
        verb: Verb::Mextend,
        name: "REDLOCK.MEXTEND",
        summary: "Gives several locks a new deadline, if this owner holds them all.",
        complexity: "O(N log N + M) for N keys and M holders",
        flags: "write getkeys-api",
        acl: "write",
        keys: KeyWords::Counted,
        access: Access::Update,
        arity: -5,
        args: &[NUMKEYS, KEYS, OWNER, TTL, FENCE],
    },
    Spec {
        verb: Verb::Mrelease,
        name: "REDLOCK.MRELEASE",
        summary: "Frees several locks, if this owner holds them all.",
        complexity: "O(N log N + M) for N keys and M holders",
        flags: "write getkeys-api",
        acl: "write",
        keys: KeyWords::Counted,
        access: Access::Delete,
        arity: -4,
        args: &[NUMKEYS, KEYS, OWNER, FENCE],
    },
    Spec {
        verb: Verb::Node,
        name: "REDLOCK.NODE",
        summary: "Describes this node: its identity, its largest fence, what it holds and grants.",
        complexity: "O(1)",
        flags: "readonly fast",
        acl: "read fast",
        keys: KeyWords::None,
        access: Access::Read,
        arity: 1,
        args: &[],
    },
    Spec {
        verb: Verb::Apply,
        name: "REDLOCK.APPLY",
        summary: "Copies a lock from the master or the AOF; ordinary clients cannot send it.",
        complexity: "O(1); O(log N) to O(N) for N holders",
        flags: "write fast",
        acl: "write fast dangerous",
        keys: KeyWords::First,
        access: Access::Update,
        arity: -5,
        args: &[
            KEY,
            OWNER,
            plain("fence", ArgKind::Integer),
            plain("left-ms", ArgKind::Integer),
            optional(option::HELD, "ms", ArgKind::Integer),
            optional(option::EXTENSIONS, "count", ArgKind::Integer),
            LABEL,
            optional(option::HANDED_OFF, "handoff", ArgKind::Token),
            SHARED,
        ],
    },
    Spec {
        verb: Verb::Dataset,
        name: "REDLOCK.DATASET",
        summary: "Copies the id and high-water mark of a data set from master or AOF; ordinary clients cannot send it.",
        complexity: "O(1)",
        flags: "write fast",
        acl: "write fast dangerous",
        keys: KeyWords::None,
        access: Access::Update,
        arity: 3,
        args: &[plain("dataset-id", ArgKind::Integer), plain("high-water", ArgKind::Integer)],
    },
    Spec {
        verb: Verb::Mark,
        name: "REDLOCK.MARK",
        summary: "Has no effect: lets a server load an AOF from a build before 0.1.0; ordinary clients cannot send it.",
        complexity: "O(1)",
        flags: "write fast",
        acl: "write fast dangerous",
        keys: KeyWords::None,
        access: Access::Update,
        arity: 3,
        args: &[plain("mark", ArgKind::Integer), plain("longest-ttl-ms", ArgKind::Integer)],
    },
    Spec {
        verb: Verb::Admit,
        name: "REDLOCK.ADMIT",
        summary: "Lets a node vote: with fences above the floor, after the wait. For operators; see redlock admit.",
        complexity: "O(1)",
        flags: "admin deny-script",
        acl: "admin dangerous",
        keys: KeyWords::None,
        access: Access::Update,
        arity: -4,
        args: &[
            plain("node-id", ArgKind::Text),
            plain("floor", ArgKind::Integer),
            plain("wait-ms", ArgKind::Integer),
            optional(option::FAR, "marks", ArgKind::Text),
        ],
    },
    Spec {
        verb: Verb::Break,
        name: "REDLOCK.BREAK",
        summary: "Frees a lock without its owners and returns its fence. For operators; see redlock break.",
        complexity: "O(N) for N holders",
        flags: "write admin deny-script",
        acl: "admin dangerous",
        keys: KeyWords::First,
        access: Access::Delete,
        arity: -2,
        args: &[KEY, optional(option::FENCE, "fence", ArgKind::Integer)],
    },
];

impl Verb {
    /// The description of the command in [`COMMANDS`].
    #[must_use]
    pub const fn spec(self) -> &'static Spec {
        &COMMANDS[self as usize]
    }

    /// The command with this name. Upper and lower case are equal.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name)).map(|spec| spec.verb)
    }

    /// The command's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The smallest number of arguments, including the command name.
    #[must_use]
    pub fn min_words(self) -> usize {
        self.spec().arity.unsigned_abs() as usize
    }

    /// Whether the first argument counts the keys.
    #[must_use]
    pub fn counts_its_keys(self) -> bool {
        self.spec().keys == KeyWords::Counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_in_the_order_of_the_verbs() {
        for spec in COMMANDS {
            assert_eq!(spec.verb.spec().name, spec.name);
            assert_eq!(Verb::named(spec.name.to_ascii_lowercase().as_bytes()), Some(spec.verb));
        }
        assert_eq!(Verb::named(b"REDLOCK.UNKNOWN"), None);
    }

    #[test]
    fn arity_counts_the_arguments_that_must_be_there() {
        for spec in COMMANDS {
            let required = 1 + spec.args.iter().filter(|arg| arg.token.is_none()).count();
            assert_eq!(spec.verb.min_words(), required, "{}", spec.name);
            let has_options = spec.args.iter().any(|arg| arg.token.is_some() || arg.repeats);
            assert_eq!(spec.arity < 0, has_options, "{}", spec.name);
        }
    }
}
