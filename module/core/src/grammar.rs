//! The parser: turns the arguments of a command into a request. It does not know what a request does.
//!
//! `argv` is the whole command, its name first. A request keeps the indices of its keys in `argv`, so that
//! the caller can find the keys again.

use std::ops::Range;

use crate::command_error::CommandError;
use crate::request;
use crate::request::{OwnerArg, Ttl, WaitArg};
use redlock_contract::commands::{Verb, option};
use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, MAX_KEYS, MAX_TTL_LIMIT_MS};

/// The indices of a command's keys in `argv`, each key once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyArgs {
    /// One key: the argument after the name.
    One,
    /// Several keys, at these indices.
    Many(Vec<usize>),
}

impl KeyArgs {
    /// The number of keys.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "there is always a key")]
    pub fn len(&self) -> usize {
        match self {
            Self::One => 1,
            Self::Many(words) => words.len(),
        }
    }

    /// The index in `argv` of the key with this number, counted from 0.
    #[must_use]
    pub fn index(&self, number: usize) -> usize {
        match self {
            Self::One => 1,
            Self::Many(words) => words.get(number).copied().unwrap_or(0),
        }
    }

    /// The indices of all keys in `argv`.
    pub fn indices(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.len()).map(|number| self.index(number))
    }
}

/// The arguments of `ACQUIRE` and `MACQUIRE`.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    /// The keys to lock, all or none.
    pub keys: KeyArgs,
    /// The owner.
    pub owner: OwnerArg<'a>,
    /// Time to live, in ms.
    pub ttl: Ttl,
    /// Smallest fence to grant; 0 for any.
    pub floor: u64,
    /// A text for people.
    pub label: &'a [u8],
    /// The `WAIT` option; `None` refuses the request at once if the lock is held.
    pub wait: Option<WaitArg<'a>>,
}

/// The arguments of `EXTEND` and `MEXTEND`.
#[derive(Clone, Debug)]
pub struct Extend<'a> {
    /// The keys to extend, all or none.
    pub keys: KeyArgs,
    /// The owner.
    pub owner: OwnerArg<'a>,
    /// New time to live from now, in ms.
    pub ttl: Ttl,
    /// Smallest fence that the lock shall have; 0 for any.
    pub floor: u64,
}

/// The arguments of `RELEASE` and `MRELEASE`.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// The keys to release, all or none.
    pub keys: KeyArgs,
    /// The owner.
    pub owner: OwnerArg<'a>,
    /// The largest fence that the client has seen; 0 if the client sends none.
    pub floor: u64,
}

/// The arguments of `APPLY`: the state of a lock on the master, for replicas and the AOF.
#[derive(Clone, Debug)]
pub struct Apply<'a> {
    /// The owner.
    pub owner: OwnerArg<'a>,
    /// The fence of the lock.
    pub fence: u64,
    /// Time until the lock expires, in ms.
    pub left_ms: u64,
    /// Time since the grant, in ms; `None` if the lock is granted now.
    pub held_ms: Option<u64>,
    /// How often the lock was extended; `None` for never.
    pub extensions: Option<u32>,
    /// A text for people. `None` keeps the label of an extended lock; a new lock has none.
    pub label: Option<&'a [u8]>,
}

/// Parses `ACQUIRE` or `MACQUIRE`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
#[inline(always)]
pub fn acquire<'a>(verb: Verb, argv: &[&'a [u8]], max_ttl_ms: u64) -> Result<Acquire<'a>, CommandError> {
    let mut args = ArgReader::begin(verb, argv)?;
    let keys = args.keys(verb)?;
    let owner = OwnerArg::parse(args.required(verb)?)?;
    let ttl = Ttl::parse(args.required(verb)?, max_ttl_ms)?;
    let plain = Acquire { keys, owner, ttl, floor: 0, label: &[], wait: None };
    if args.has_more() { plain.with_options(args) } else { Ok(plain) }
}

impl<'a> Acquire<'a> {
    /// Parses the options. Not inlined, because most requests have none.
    #[inline(never)]
    fn with_options(mut self, mut args: ArgReader<'_, 'a>) -> Result<Self, CommandError> {
        let mut floor = None;
        let mut label = None;
        let mut stamp = None;
        let mut claim_ms = None;
        while let Some(option) = args.option() {
            if is(option, option::FENCE) {
                set_once(&mut floor, request::floor(args.value()?)?)?;
            } else if is(option, option::LABEL) {
                set_once(&mut label, request::label(args.value()?)?)?;
            } else if is(option, option::WAIT) {
                set_once(&mut self.wait, WaitArg::parse(args.value()?, args.value()?, args.value()?)?)?;
            } else if is(option, option::STAMP) {
                set_once(&mut stamp, request::stamp(args.value()?)?)?;
            } else if is(option, option::CLAIM) {
                set_once(&mut claim_ms, request::claim_ms(args.value()?)?)?;
            } else {
                return Err(UNKNOWN_OPTION);
            }
        }
        match &mut self.wait {
            Some(wait) => (wait.stamp, wait.claim_ms) = (stamp, claim_ms.unwrap_or(0)),
            None if stamp.is_some() => return Err(CommandError::Arg("STAMP goes with WAIT")),
            None if claim_ms.is_some() => return Err(CommandError::Arg("CLAIM goes with WAIT")),
            None => {}
        }
        (self.floor, self.label) = (floor.unwrap_or(0), label.unwrap_or(&[]));
        Ok(self)
    }
}

/// Parses `EXTEND` or `MEXTEND`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
#[inline(always)]
pub fn extend<'a>(verb: Verb, argv: &[&'a [u8]], max_ttl_ms: u64) -> Result<Extend<'a>, CommandError> {
    let mut args = ArgReader::begin(verb, argv)?;
    let keys = args.keys(verb)?;
    let owner = OwnerArg::parse(args.required(verb)?)?;
    let ttl = Ttl::parse(args.required(verb)?, max_ttl_ms)?;
    let floor = if args.has_more() { args.only_a_floor()? } else { 0 };
    Ok(Extend { keys, owner, ttl, floor })
}

/// Parses `RELEASE` or `MRELEASE`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
#[inline(always)]
pub fn release<'a>(verb: Verb, argv: &[&'a [u8]]) -> Result<Release<'a>, CommandError> {
    let mut args = ArgReader::begin(verb, argv)?;
    let keys = args.keys(verb)?;
    let owner = OwnerArg::parse(args.required(verb)?)?;
    let floor = if args.has_more() { args.only_a_floor()? } else { 0 };
    Ok(Release { keys, owner, floor })
}

/// Parses `APPLY`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn apply<'a>(argv: &[&'a [u8]]) -> Result<Apply<'a>, CommandError> {
    let verb = Verb::Apply;
    let mut args = ArgReader::begin(verb, argv)?;
    args.keys(verb)?;
    let owner = OwnerArg::parse(args.required(verb)?)?;
    let fence = request::integer(args.required(verb)?)
        .filter(|fence| (1..=MAX_FENCE).contains(fence))
        .ok_or(NUMBER)?;
    let left_ms = number(args.required(verb)?)?;
    let mut apply = Apply { owner, fence, left_ms, held_ms: None, extensions: None, label: None };
    while let Some(option) = args.option() {
        let value = args.value()?;
        if is(option, option::HELD) {
            set_once(&mut apply.held_ms, request::integer(value).ok_or(NUMBER)?)?;
        } else if is(option, option::EXTENSIONS) {
            let count = request::integer(value).and_then(|count| u32::try_from(count).ok()).ok_or(NUMBER)?;
            set_once(&mut apply.extensions, count)?;
        } else if is(option, option::LABEL) {
            set_once(&mut apply.label, request::label(value)?)?;
        } else {
            return Err(UNKNOWN_OPTION);
        }
    }
    Ok(apply)
}

/// Parses `DATASET`: the id of the data set and its high-water mark.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn dataset(argv: &[&[u8]]) -> Result<(u64, u64), CommandError> {
    exactly(Verb::Dataset, argv)?;
    Ok((number(argv[1])?, number(argv[2])?))
}

/// The arguments of `ADMIT`, which lets a node vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admit<'a> {
    /// The id of the node, so that the operator does not admit another node by mistake.
    pub node_id: &'a [u8],
    /// The node grants only fences above this one.
    pub floor: u64,
    /// How long the node grants nothing after it is admitted, in ms.
    pub wait_ms: u64,
}

/// Parses `ADMIT`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn admit<'a>(argv: &[&'a [u8]]) -> Result<Admit<'a>, CommandError> {
    exactly(Verb::Admit, argv)?;
    let floor = request::integer(argv[2])
        .filter(|floor| *floor <= MAX_FLOOR)
        .ok_or(CommandError::range("floor", 0, MAX_FLOOR))?;
    let wait_ms = request::integer(argv[3])
        .filter(|wait_ms| *wait_ms <= MAX_TTL_LIMIT_MS)
        .ok_or(CommandError::range("wait-ms", 0, MAX_TTL_LIMIT_MS))?;
    Ok(Admit { node_id: argv[1], floor, wait_ms })
}

/// Parses a number in a command that one node sends to another.
fn number(word: &[u8]) -> Result<u64, CommandError> {
    request::integer(word).filter(|number| *number <= MAX_FENCE).ok_or(NUMBER)
}

/// Checks the number of arguments of a command without options.
///
/// # Errors
/// [`CommandError::WrongArity`] for more or fewer arguments.
pub fn exactly(verb: Verb, argv: &[&[u8]]) -> Result<(), CommandError> {
    if argv.len() == verb.min_words() { Ok(()) } else { Err(CommandError::WrongArity(verb.name())) }
}

/// The indices of the keys in `argv`, for a command whose first argument counts the keys. A key that the
/// client repeats has several indices.
///
/// # Errors
/// - [`CommandError::Range`] if the count is not an integer, is 0 or is too large.
/// - [`CommandError::Arg`] if the command has fewer arguments than the count.
pub fn counted_keys(argv: &[&[u8]]) -> Result<Range<usize>, CommandError> {
    let count = argv
        .get(1)
        .and_then(|count| request::integer(count))
        .and_then(|count| usize::try_from(count).ok())
        .filter(|count| (1..=MAX_KEYS).contains(count))
        .ok_or(CommandError::range("numkeys", 1, MAX_KEYS as u64))?;
    let words = 2..2 + count;
    if words.end > argv.len() {
        return Err(CommandError::Arg("numkeys is larger than the number of arguments"));
    }
    Ok(words)
}

/// Whether an argument is this option. Upper and lower case are equal.
fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

const NUMBER: CommandError = CommandError::Arg("a number is not an integer, or is out of range");
const UNKNOWN_OPTION: CommandError = CommandError::Arg("unknown option");

fn set_once<T>(option: &mut Option<T>, value: T) -> Result<(), CommandError> {
    match option.replace(value) {
        None => Ok(()),
        Some(_) => Err(CommandError::Arg("an option is given twice")),
    }
}

/// The arguments of a command, read from left to right.
struct ArgReader<'w, 'a> {
    argv: &'w [&'a [u8]],
    next: usize,
}

impl<'w, 'a> ArgReader<'w, 'a> {
    fn begin(verb: Verb, argv: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        if argv.len() < verb.min_words() {
            return Err(CommandError::WrongArity(verb.name()));
        }
        Ok(Self { argv, next: 1 })
    }

    fn has_more(&self) -> bool {
        self.next < self.argv.len()
    }

    fn option(&mut self) -> Option<&'a [u8]> {
        let word = self.argv.get(self.next).copied();
        self.next += 1;
        word
    }

    fn required(&mut self, verb: Verb) -> Result<&'a [u8], CommandError> {
        self.option().ok_or(CommandError::WrongArity(verb.name()))
    }

    fn value(&mut self) -> Result<&'a [u8], CommandError> {
        self.option().ok_or(CommandError::Arg("an option lacks its value"))
    }

    #[inline(always)]
    fn keys(&mut self, verb: Verb) -> Result<KeyArgs, CommandError> {
        if verb.counts_its_keys() {
            return self.counted_keys();
        }
        self.next += 1;
        Ok(KeyArgs::One)
    }

    fn counted_keys(&mut self) -> Result<KeyArgs, CommandError> {
        let words = counted_keys(self.argv)?;
        self.next = words.end;
        // The same key twice is one key: a lock of `a` and `a` is a lock of `a`.
        let mut unique: Vec<usize> = words.collect();
        unique.sort_by_key(|word| self.argv[*word]);
        unique.dedup_by_key(|word| self.argv[*word]);
        unique.sort_unstable();
        Ok(KeyArgs::Many(unique))
    }

    #[inline(never)]
    fn only_a_floor(mut self) -> Result<u64, CommandError> {
        let mut floor = None;
        while let Some(option) = self.option() {
            if !is(option, option::FENCE) {
                return Err(UNKNOWN_OPTION);
            }
            set_once(&mut floor, request::floor(self.value()?)?)?;
        }
        Ok(floor.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<&[u8]> {
        line.split(' ').map(str::as_bytes).collect()
    }

    #[test]
    fn options_come_in_any_order_and_case() {
        for line in ["R k o 5 FENCE 9 LABEL hi", "R k o 5 label hi fence 9"] {
            let argv = words(line);
            let request = acquire(Verb::Acquire, &argv, 100).unwrap();
            assert_eq!((request.floor, request.label), (9, &b"hi"[..]));
        }
    }

    #[test]
    fn repeated_keys_count_once() {
        let argv = words("R 4 b a b a o 5");
        let request = acquire(Verb::Macquire, &argv, 100).unwrap();
        assert_eq!(request.keys, KeyArgs::Many(vec![2, 3]));
        assert_eq!(request.owner.bytes(), b"o");
    }

    #[test]
    fn bad_words_are_named() {
        let fault = |verb, line| match verb {
            Verb::Acquire | Verb::Macquire => acquire(verb, &words(line), 100).unwrap_err().to_string(),
            Verb::Extend | Verb::Mextend => extend(verb, &words(line), 100).unwrap_err().to_string(),
            Verb::Apply => apply(&words(line)).unwrap_err().to_string(),
            _ => release(verb, &words(line)).unwrap_err().to_string(),
        };
        for (verb, line, begins) in [
            (Verb::Acquire, "R k o", "ERR wrong number of arguments for 'REDLOCK.ACQUIRE' command"),
            (Verb::Acquire, "R k o 0", "REDLOCKTTL"),
            (Verb::Acquire, "R k o 101", "REDLOCKTTL"),
            (Verb::Acquire, "R k  5", "REDLOCKOWNER"),
            (Verb::Acquire, "R k o 5 FENCE", "REDLOCKARG an option lacks"),
            (Verb::Acquire, "R k o 5 FENCE -1", "REDLOCKARG FENCE"),
            (Verb::Acquire, "R k o 5 FENCE 1 FENCE 1", "REDLOCKARG an option is given twice"),
            (Verb::Acquire, "R k o 5 FENCE 9223372036854775808", "REDLOCKARG FENCE"),
            (Verb::Acquire, "R k o 5 TURBO", "REDLOCKARG unknown option"),
            (Verb::Acquire, "R k o 5 WAIT 1 2", "REDLOCKARG an option lacks"),
            (Verb::Acquire, "R k o 5 WAIT 0 2 c", "REDLOCKARG the ticket of WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 9223372036854775808 2 c", "REDLOCKARG the ticket of WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 0 c", "REDLOCKARG the wait-ms of WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 86400001 c", "REDLOCKARG the wait-ms of WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 2 a:b", "REDLOCKARG the channel of WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 2 c WAIT 1 2 c", "REDLOCKARG an option is given twice"),
            (Verb::Acquire, "R k o 5 STAMP 1", "REDLOCKARG STAMP goes with WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 2 c STAMP x", "REDLOCKARG STAMP"),
            (Verb::Acquire, "R k o 5 CLAIM 1", "REDLOCKARG CLAIM goes with WAIT"),
            (Verb::Acquire, "R k o 5 WAIT 1 2 c CLAIM 0", "REDLOCKARG CLAIM"),
            (Verb::Acquire, "R k o 5 WAIT 1 2 c CLAIM 60001", "REDLOCKARG CLAIM"),
            (Verb::Extend, "R k o 5 LABEL x", "REDLOCKARG unknown option"),
            (Verb::Release, "R k o x", "REDLOCKARG unknown option"),
            (Verb::Macquire, "R 0 k o 5", "REDLOCKARG numkeys"),
            (Verb::Macquire, "R 1025 k o 5", "REDLOCKARG numkeys"),
            (Verb::Macquire, "R -1 k o 5", "REDLOCKARG numkeys"),
            (Verb::Macquire, "R 9 k o 5", "REDLOCKARG numkeys is larger"),
            (Verb::Macquire, "R 2 k o 5", "ERR wrong number of arguments for 'REDLOCK.MACQUIRE'"),
            (Verb::Mrelease, "R 2 k o", "ERR wrong number of arguments for 'REDLOCK.MRELEASE'"),
            (Verb::Apply, "R k o 0 5", "REDLOCKARG a number"),
            (Verb::Apply, "R k o 1 5 HELD x", "REDLOCKARG a number"),
        ] {
            let text = fault(verb, line);
            assert!(text.starts_with(begins), "{line}: {text}");
        }
    }
}
