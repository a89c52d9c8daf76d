//! The commands, as the server and its users see them: the one table behind registration,
//! `COMMAND DOCS` and the reference.

/// A command of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verb {
    /// Take a lock.
    Acquire,
    /// Hold it longer.
    Extend,
    /// Free it.
    Release,
    /// Look at it.
    Inspect,
    /// Take several.
    Macquire,
    /// Hold several longer.
    Mextend,
    /// Free several.
    Mrelease,
    /// Look at the node.
    Node,
    /// Copy a lock from the master or the AOF.
    Apply,
    /// Copy what the data set says about itself.
    Dataset,
    /// What an earlier format had in the place of `Dataset`.
    Mark,
    /// Let a node vote.
    Admit,
}

/// How a command names its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyWords {
    /// It has none.
    None,
    /// The first argument.
    First,
    /// The first argument counts the keys that follow.
    Counted,
}

/// What a command does to its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads.
    Read,
    /// Sets or changes.
    Update,
    /// Removes.
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
    /// Several arguments that go together.
    Block(&'static [Arg]),
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// Its name.
    pub name: &'static str,
    /// Its kind.
    pub kind: ArgKind,
    /// The word that introduces it; such an argument may be left out.
    pub token: Option<&'static str>,
    /// Whether it may be repeated.
    pub repeats: bool,
}

/// A command as users know it.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Which one it is.
    pub verb: Verb,
    /// Its name.
    pub name: &'static str,
    /// One sentence.
    pub summary: &'static str,
    /// How its cost grows.
    pub complexity: &'static str,
    /// The server's flags for it. Where keys are counted the server asks the command itself which words
    /// are keys (`getkeys-api`).
    pub flags: &'static str,
    /// The ACL categories, for servers that let modules choose.
    pub acl: &'static str,
    /// Where its keys are.
    pub keys: KeyWords,
    /// What happens to them.
    pub access: Access,
    /// The number of words, the name included; negative: at least so many.
    pub arity: i32,
    /// Its arguments.
    pub args: &'static [Arg],
}

/// The words that introduce optional arguments, in any case.
pub mod option {
    /// The least fence that the client wants: `FENCE floor`.
    pub const FENCE: &str = "FENCE";
    /// A text for people: `LABEL text`.
    pub const LABEL: &str = "LABEL";
    /// Queue if the lock is held: `WAIT ticket wait-ms channel`.
    pub const WAIT: &str = "WAIT";
    /// A number that the grant message repeats: `STAMP stamp`.
    pub const STAMP: &str = "STAMP";
    /// The least claim window that the client needs: `CLAIM claim-ms`.
    pub const CLAIM: &str = "CLAIM";
    /// Time since the grant: `HELD ms`.
    pub const HELD: &str = "HELD";
    /// How often the lock was extended: `EXT count`.
    pub const EXTENSIONS: &str = "EXT";
}

/// The version in which all commands of the catalogue appeared.
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

/// All commands.
pub const COMMANDS: [Spec; 12] = [
    Spec {
        verb: Verb::Acquire,
        name: "REDLOCK.ACQUIRE",
        summary: "Takes a lock if it is free and returns its fence.",
        complexity: "O(1); with WAIT and others in line O(W) where W is the way to the nearer end of the line",
        flags: "write deny-oom fast",
        acl: "write fast",
        keys: KeyWords::First,
        access: Access::Update,
        arity: -4,
        args: &[KEY, OWNER, TTL, FENCE, LABEL, WAIT, STAMP, CLAIM],
    },
    Spec {
        verb: Verb::Extend,
        name: "REDLOCK.EXTEND",
        summary: "Gives a lock a new deadline, if this owner holds it.",
        complexity: "O(1)",
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
        complexity: "O(1)",
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
        summary: "Describes a held lock, without its owner value.",
        complexity: "O(1)",
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
        complexity: "O(N log N) where N is the number of keys; with WAIT and others in line plus O(W) as for REDLOCK.ACQUIRE",
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
        complexity: "O(N log N) where N is the number of keys",
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
        complexity: "O(N log N) where N is the number of keys",
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
        summary: "Copies a lock from the master or the AOF; refused from ordinary clients.",
        complexity: "O(1)",
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
        ],
    },
    Spec {
        verb: Verb::Dataset,
        name: "REDLOCK.DATASET",
        summary: "Copies the id of the data set from the master or the AOF; refused from ordinary clients.",
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
        summary: "Reads an AOF of format 1 and changes nothing; refused from ordinary clients.",
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
        arity: 4,
        args: &[
            plain("node-id", ArgKind::Text),
            plain("floor", ArgKind::Integer),
            plain("wait-ms", ArgKind::Integer),
        ],
    },
];

impl Verb {
    /// What the catalogue says of the command.
    #[must_use]
    pub const fn spec(self) -> &'static Spec {
        &COMMANDS[self as usize]
    }

    /// The command with this name, in any case.
    #[must_use]
    pub fn named(name: &[u8]) -> Option<Self> {
        COMMANDS.iter().find(|spec| spec.name.as_bytes().eq_ignore_ascii_case(name)).map(|spec| spec.verb)
    }

    /// The command's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.spec().name
    }

    /// The fewest words that make this command.
    #[must_use]
    pub fn least_words(self) -> usize {
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
            assert_eq!(spec.verb.least_words(), required, "{}", spec.name);
            let has_options = spec.args.iter().any(|arg| arg.token.is_some() || arg.repeats);
            assert_eq!(spec.arity < 0, has_options, "{}", spec.name);
        }
    }
}
