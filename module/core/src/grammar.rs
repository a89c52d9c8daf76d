//! The parser: turns the arguments of a command into a request. It does not know what a request does.
//!
//! `argv` is the whole command, its name first. A request keeps the indices of its keys in `argv`, so that
//! the caller can find the keys again.

use std::ops::Range;

use crate::command_error::{ArgProblem, CommandError};
use crate::keyspace::LockEvent;
use crate::request;
use crate::request::{OwnerArg, Ttl, WaitArg};
use redlock_contract::HighWater;
use redlock_contract::commands::{Verb, option};
use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, MAX_KEYS, MAX_REPLICATED_FENCE, MAX_TTL_LIMIT_MS};

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
    /// The secret of the client that asks for the lock.
    pub owner: OwnerArg<'a>,
    /// Time to live, in ms.
    pub ttl: Ttl,
    /// Smallest fence to grant; 0 for any.
    pub floor: u64,
    /// 0 to 256 bytes; a note for people.
    pub label: &'a [u8],
    /// The `WAIT` option; `None` refuses the request at once if the lock is held.
    pub wait: Option<WaitArg<'a>>,
    /// The `SHARED` option: the owner shares the lock with other owners that ask for it in this way.
    pub is_shared: bool,
}

/// The arguments of `EXTEND` and `MEXTEND`.
#[derive(Clone, Debug)]
pub struct Extend<'a> {
    /// The keys to extend, all or none.
    pub keys: KeyArgs,
    /// The secret of the holder.
    pub owner: OwnerArg<'a>,
    /// New time to live from now, in ms.
    pub ttl: Ttl,
    /// Smallest fence that the lock must have; 0 for any.
    pub floor: u64,
}

/// The arguments of `RELEASE` and `MRELEASE`.
#[derive(Clone, Debug)]
pub struct Release<'a> {
    /// The keys to release, all or none.
    pub keys: KeyArgs,
    /// The secret of the holder, or of a waiter that leaves the queue.
    pub owner: OwnerArg<'a>,
    /// The largest fence that the client has seen; 0 if the client sends none.
    pub floor: u64,
}

/// The arguments of `APPLY`: the state of a lock on the master, for replicas and the AOF.
#[derive(Clone, Debug)]
pub struct Apply<'a> {
    /// The secret of the holder on the master.
    pub owner: OwnerArg<'a>,
    /// The fence of the lock.
    pub fence: u64,
    /// Time until the lock expires, in ms; 0 if it has expired.
    pub left_ms: u64,
    /// Time since the grant, in ms; `None` if the lock is granted now.
    pub held_ms: Option<u64>,
    /// How often the lock was extended; `None` for never.
    pub extensions: Option<u32>,
    /// A text for people. `None` keeps the label of an extended lock; a new lock has none.
    pub label: Option<&'a [u8]>,
    /// Whether the owner is a waiter that has got the lock by a hand-off.
    pub is_handed_off: bool,
    /// Whether the owner is one of the holders of a shared lock.
    pub is_shared: bool,
}

impl Apply<'_> {
    /// What has happened to the lock on the master.
    #[must_use]
    pub fn event(&self) -> LockEvent {
        match (self.is_handed_off, self.extensions) {
            _ if self.left_ms == 0 => LockEvent::Expired,
            (true, _) => LockEvent::HandedOff,
            (false, Some(_)) => LockEvent::Extended,
            (false, None) => LockEvent::Acquired,
        }
    }
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
    let plain = Acquire { keys, owner, ttl, floor: 0, label: &[], wait: None, is_shared: false };
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
                args.set_once(&mut floor, option::FENCE, |args| args.value("FENCE floor", request::floor))?;
            } else if is(option, option::LABEL) {
                args.set_once(&mut label, option::LABEL, |args| args.value("LABEL text", request::label))?;
            } else if is(option, option::WAIT) {
                args.set_once(&mut self.wait, option::WAIT, ArgReader::wait)?;
            } else if is(option, option::STAMP) {
                let at = args.option_at;
                args.set_once(&mut stamp, option::STAMP, |args| {
                    Ok((args.value("STAMP stamp", request::stamp)?, at))
                })?;
            } else if is(option, option::CLAIM) {
                let at = args.option_at;
                args.set_once(&mut claim_ms, option::CLAIM, |args| {
                    Ok((args.value("CLAIM claim-ms", request::claim_ms)?, at))
                })?;
            } else if is(option, option::SHARED) {
                if args.verb != Verb::Acquire {
                    return Err(ArgProblem::OnlyForOneKey.at(args.option_at, option::SHARED));
                }
                args.set_flag(&mut self.is_shared, option::SHARED)?;
            } else {
                return Err(args.unknown_option());
            }
        }
        match (&mut self.wait, stamp, claim_ms) {
            (Some(wait), stamp, claim_ms) => {
                wait.stamp = stamp.map(|(stamp, _)| stamp);
                wait.claim_ms = claim_ms.map_or(0, |(claim_ms, _)| claim_ms);
            }
            (None, Some((_, at)), _) => return Err(ArgProblem::OnlyWithWait.at(at, option::STAMP)),
            (None, None, Some((_, at))) => return Err(ArgProblem::OnlyWithWait.at(at, option::CLAIM)),
            (None, None, None) => {}
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
    let fence = args.required_in(verb, "fence", 1, MAX_REPLICATED_FENCE)?;
    let left_ms = args.number(verb, "left-ms", 0)?;
    let mut apply = Apply {
        owner,
        fence,
        left_ms,
        held_ms: None,
        extensions: None,
        label: None,
        is_handed_off: false,
        is_shared: false,
    };
    while let Some(option) = args.option() {
        if is(option, option::HELD) {
            let held_ms = |text: &[u8]| request::integer_in(text, 0, u64::MAX);
            args.set_once(&mut apply.held_ms, option::HELD, |args| args.value("HELD ms", held_ms))?;
        } else if is(option, option::EXTENSIONS) {
            let count = |text: &[u8]| request::integer_in(text, 0, u64::from(u32::MAX));
            let mut extensions = apply.extensions.map(u64::from);
            args.set_once(&mut extensions, option::EXTENSIONS, |args| args.value("EXT count", count))?;
            apply.extensions = extensions.and_then(|count| u32::try_from(count).ok());
        } else if is(option, option::LABEL) {
            args.set_once(&mut apply.label, option::LABEL, |args| args.value("LABEL text", request::label))?;
        } else if is(option, option::HANDED_OFF) {
            args.set_flag(&mut apply.is_handed_off, option::HANDED_OFF)?;
        } else if is(option, option::SHARED) {
            args.set_flag(&mut apply.is_shared, option::SHARED)?;
        } else {
            return Err(args.unknown_option());
        }
    }
    Ok(apply)
}

/// Parses `DATASET`: the id of the data set and its common high-water mark.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn dataset(argv: &[&[u8]]) -> Result<(u64, u64), CommandError> {
    let verb = Verb::Dataset;
    exactly(verb, argv)?;
    let mut args = ArgReader::begin(verb, argv)?;
    Ok((args.number(verb, "dataset-id", 0)?, args.number(verb, "high-water", 0)?))
}

/// The arguments of `ADMIT`, which lets a node vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admit<'a> {
    /// The id of the node, so that the operator does not admit another node by mistake.
    pub node_id: &'a [u8],
    /// The node grants only fences above these.
    pub floor: HighWater,
    /// How long the node grants nothing after it is admitted, in ms.
    pub wait_ms: u64,
}

/// Parses `ADMIT`.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn admit<'a>(argv: &[&'a [u8]]) -> Result<Admit<'a>, CommandError> {
    let verb = Verb::Admit;
    let mut args = ArgReader::begin(verb, argv)?;
    let node_id = args.required(verb)?;
    let floor = args.at_most(verb, "floor", MAX_FLOOR)?;
    let wait_ms = args.at_most(verb, "wait-ms", MAX_TTL_LIMIT_MS)?;
    let marks = |text: &[u8]| {
        let text = std::str::from_utf8(text).ok();
        text.and_then(|text| HighWater::parse(floor, text)).ok_or(ArgProblem::FarMarks)
    };
    let mut far = None;
    while let Some(option) = args.option() {
        if !is(option, option::FAR) {
            return Err(args.unknown_option());
        }
        args.set_once(&mut far, option::FAR, |args| args.value("FAR marks", marks))?;
    }
    Ok(Admit { node_id, floor: far.unwrap_or_else(|| HighWater::new(floor)), wait_ms })
}

/// Parses `BREAK`: the fence that the lock must have, or `None` for any.
///
/// # Errors
/// The first argument that is missing, unknown or not valid.
pub fn break_lock(argv: &[&[u8]]) -> Result<Option<u64>, CommandError> {
    let mut args = ArgReader::begin(Verb::Break, argv)?;
    args.keys(Verb::Break)?;
    let mut fence = None;
    while let Some(option) = args.option() {
        if !is(option, option::FENCE) {
            return Err(args.unknown_option());
        }
        args.set_once(&mut fence, option::FENCE, |args| args.value("FENCE fence", request::floor))?;
    }
    Ok(fence)
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
/// - [`ArgProblem::Range`] if the count is not an integer, is 0 or is too large.
/// - [`ArgProblem::TooFewKeys`] if the command has fewer arguments than the count.
pub fn counted_keys(argv: &[&[u8]]) -> Result<Range<usize>, CommandError> {
    let wrong = |problem: ArgProblem| problem.at(1, "numkeys");
    let count = argv.get(1).copied().unwrap_or_default();
    let count = request::integer_in(count, 1, MAX_KEYS as u64).map_err(wrong)?;
    let words = 2..2 + usize::try_from(count).unwrap_or(MAX_KEYS);
    if words.end > argv.len() {
        return Err(wrong(ArgProblem::TooFewKeys));
    }
    Ok(words)
}

/// Whether an argument is this option. Upper and lower case are equal.
fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

/// The arguments of a command, read from left to right.
struct ArgReader<'w, 'a> {
    verb: Verb,
    argv: &'w [&'a [u8]],
    next: usize,
    /// The position of the option that was read last.
    option_at: usize,
}

impl<'w, 'a> ArgReader<'w, 'a> {
    fn begin(verb: Verb, argv: &'w [&'a [u8]]) -> Result<Self, CommandError> {
        if argv.len() < verb.min_words() {
            return Err(CommandError::WrongArity(verb.name()));
        }
        Ok(Self { verb, argv, next: 1, option_at: 0 })
    }

    fn has_more(&self) -> bool {
        self.next < self.argv.len()
    }

    fn word(&mut self) -> Option<&'a [u8]> {
        let word = self.argv.get(self.next).copied();
        self.next += 1;
        word
    }

    fn required(&mut self, verb: Verb) -> Result<&'a [u8], CommandError> {
        self.word().ok_or(CommandError::WrongArity(verb.name()))
    }

    /// A required number of at least `min`, in a command that one node sends to another.
    fn number(&mut self, verb: Verb, name: &'static str, min: u64) -> Result<u64, CommandError> {
        self.required_in(verb, name, min, MAX_FENCE)
    }

    fn at_most(&mut self, verb: Verb, name: &'static str, max: u64) -> Result<u64, CommandError> {
        self.required_in(verb, name, 0, max)
    }

    fn required_in(
        &mut self,
        verb: Verb,
        name: &'static str,
        min: u64,
        max: u64,
    ) -> Result<u64, CommandError> {
        let word = self.required(verb)?;
        request::integer_in(word, min, max).map_err(|problem| problem.at(self.next - 1, name))
    }

    fn option(&mut self) -> Option<&'a [u8]> {
        self.option_at = self.next;
        self.word()
    }

    fn unknown_option(&self) -> CommandError {
        ArgProblem::UnknownOption(self.verb).at(self.option_at, "")
    }

    /// The value after an option. `name` is the option and its value, as the reference writes them.
    fn value<T>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&'a [u8]) -> Result<T, ArgProblem>,
    ) -> Result<T, CommandError> {
        let Some(word) = self.word() else {
            let option = name.split(' ').next().unwrap_or(name);
            return Err(ArgProblem::NoValue(self.verb).at(self.option_at, option));
        };
        parse(word).map_err(|problem| problem.at(self.next - 1, name))
    }

    fn wait(&mut self) -> Result<WaitArg<'a>, CommandError> {
        let position = self.option_at;
        let ticket = self.value("WAIT ticket", request::ticket)?;
        let wait_ms = self.value("WAIT wait-ms", request::wait_ms)?;
        let channel = self.value("WAIT channel", request::channel)?;
        Ok(WaitArg { ticket, wait_ms, channel, stamp: None, claim_ms: 0, position })
    }

    /// Reads an option that may be given once.
    fn set_once<T>(
        &mut self,
        option: &mut Option<T>,
        token: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, CommandError>,
    ) -> Result<(), CommandError> {
        let at = self.option_at;
        match option.replace(read(self)?) {
            None => Ok(()),
            Some(_) => Err(ArgProblem::Repeated.at(at, token)),
        }
    }

    /// Reads an option without a value, which may be given once.
    fn set_flag(&mut self, flag: &mut bool, token: &'static str) -> Result<(), CommandError> {
        match std::mem::replace(flag, true) {
            false => Ok(()),
            true => Err(ArgProblem::Repeated.at(self.option_at, token)),
        }
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
                return Err(self.unknown_option());
            }
            self.set_once(&mut floor, option::FENCE, |args| args.value("FENCE floor", request::floor))?;
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
        for line in ["R k o 5 FENCE 9 LABEL hi SHARED", "R k o 5 shared label hi fence 9"] {
            let argv = words(line);
            let request = acquire(Verb::Acquire, &argv, 100).unwrap();
            assert_eq!((request.floor, request.label, request.is_shared), (9, &b"hi"[..], true));
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
            Verb::Admit => admit(&words(line)).unwrap_err().to_string(),
            Verb::Dataset => dataset(&words(line)).unwrap_err().to_string(),
            _ => release(verb, &words(line)).unwrap_err().to_string(),
        };
        for (verb, line, begins) in [
            (Verb::Acquire, "R k o", "ERR wrong number of arguments for 'REDLOCK.ACQUIRE' command"),
            (Verb::Acquire, "R k o 0", "REDLOCKTTL"),
            (Verb::Acquire, "R k o 101", "REDLOCKTTL"),
            (Verb::Acquire, "R k  5", "REDLOCKOWNER"),
            (Verb::Macquire, "R 2 k o 5", "ERR wrong number of arguments for 'REDLOCK.MACQUIRE'"),
            (Verb::Mrelease, "R 2 k o", "ERR wrong number of arguments for 'REDLOCK.MRELEASE'"),
        ] {
            let text = fault(verb, line);
            assert!(text.starts_with(begins), "{line}: {text}");
        }
        for (verb, line, problem) in [
            (Verb::Acquire, "R k o 5 FENCE", "argument 4 (FENCE) must be followed by: floor"),
            (
                Verb::Acquire,
                "R k o 5 FENCE -1",
                "argument 5 (FENCE floor) must be an integer from 0 to 9223372036854775807",
            ),
            (Verb::Acquire, "R k o 5 FENCE 1 FENCE 1", "argument 6 (FENCE) is given twice; once is allowed"),
            (
                Verb::Acquire,
                "R k o 5 FENCE 9223372036854775808",
                "argument 5 (FENCE floor) must be an integer from 0 to 9223372036854775807",
            ),
            (
                Verb::Acquire,
                "R k o 5 TURBO",
                "argument 4 is not an option of REDLOCK.ACQUIRE; its options are FENCE floor, LABEL text, WAIT ticket wait-ms channel, STAMP stamp, CLAIM claim-ms, SHARED",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2",
                "argument 4 (WAIT) must be followed by: ticket wait-ms channel",
            ),
            (
                Verb::Acquire,
                "R k o 5 LABEL x WAIT 0 2 c",
                "argument 7 (WAIT ticket) must be an integer from 1 to 9223372036854775807",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 9223372036854775808 2 c",
                "argument 5 (WAIT ticket) must be an integer from 1 to 9223372036854775807",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 0 c",
                "argument 6 (WAIT wait-ms) must be an integer from 1 to 86400000",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 86400001 c",
                "argument 6 (WAIT wait-ms) must be an integer from 1 to 86400000",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2 a:b",
                "argument 7 (WAIT channel) must be 1 to 64 letters, digits, - or _",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2 c WAIT 1 2 c",
                "argument 8 (WAIT) is given twice; once is allowed",
            ),
            (Verb::Acquire, "R k o 5 STAMP 1", "argument 4 (STAMP) is only allowed together with WAIT"),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2 c STAMP x",
                "argument 9 (STAMP stamp) must be an integer from 0 to 9223372036854775807",
            ),
            (Verb::Acquire, "R k o 5 CLAIM 1", "argument 4 (CLAIM) is only allowed together with WAIT"),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2 c CLAIM 0",
                "argument 9 (CLAIM claim-ms) must be an integer from 1 to 60000",
            ),
            (
                Verb::Acquire,
                "R k o 5 WAIT 1 2 c CLAIM 60001",
                "argument 9 (CLAIM claim-ms) must be an integer from 1 to 60000",
            ),
            (
                Verb::Acquire,
                "R k o 5 SHARED LABEL x shared",
                "argument 7 (SHARED) is given twice; once is allowed",
            ),
            (
                Verb::Macquire,
                "R 1 k o 5 SHARED",
                "argument 5 (SHARED) is only allowed in REDLOCK.ACQUIRE, which takes one key",
            ),
            (
                Verb::Extend,
                "R k o 5 LABEL x",
                "argument 4 is not an option of REDLOCK.EXTEND; its options are FENCE floor",
            ),
            (
                Verb::Release,
                "R k o x",
                "argument 3 is not an option of REDLOCK.RELEASE; its options are FENCE floor",
            ),
            (Verb::Macquire, "R 0 k o 5", "argument 1 (numkeys) must be an integer from 1 to 1024"),
            (Verb::Macquire, "R 1025 k o 5", "argument 1 (numkeys) must be an integer from 1 to 1024"),
            (Verb::Macquire, "R -1 k o 5", "argument 1 (numkeys) must be an integer from 1 to 1024"),
            (
                Verb::Macquire,
                "R 9 k o 5",
                "argument 1 (numkeys) must be the number of keys that follow; there are fewer arguments",
            ),
            (
                Verb::Macquire,
                "R 2 k l o 5 FENCE x",
                "argument 7 (FENCE floor) must be an integer from 0 to 9223372036854775807",
            ),
            (Verb::Apply, "R k o 0 5", "argument 3 (fence) must be an integer from 1 to 8070450532247928831"),
            (
                Verb::Apply,
                "R k o 8070450532247928832 5",
                "argument 3 (fence) must be an integer from 1 to 8070450532247928831",
            ),
            (
                Verb::Apply,
                "R k o 1 x",
                "argument 4 (left-ms) must be an integer from 0 to 9223372036854775807",
            ),
            (
                Verb::Apply,
                "R k o 1 5 HELD x",
                "argument 6 (HELD ms) must be an integer from 0 to 18446744073709551615",
            ),
            (
                Verb::Apply,
                "R k o 1 5 EXT 4294967296",
                "argument 6 (EXT count) must be an integer from 0 to 4294967295",
            ),
            (
                Verb::Apply,
                "R k o 1 5 HANDOFF HANDOFF",
                "argument 6 (HANDOFF) is given twice; once is allowed",
            ),
            (
                Verb::Apply,
                "R k o 1 5 X",
                "argument 5 is not an option of REDLOCK.APPLY; its options are HELD ms, EXT count, LABEL text, HANDOFF, SHARED",
            ),
            (Verb::Admit, "R n x 0", "argument 2 (floor) must be an integer from 0 to 6917529027641081855"),
            (Verb::Admit, "R n 0 x", "argument 3 (wait-ms) must be an integer from 0 to 31536000000"),
            (
                Verb::Admit,
                "R n 9 0 FAR 1:2",
                "argument 5 (FAR marks) must have the form of the field far-high-water of REDLOCK.NODE, with every mark above the floor",
            ),
            (
                Verb::Dataset,
                "R x 1",
                "argument 1 (dataset-id) must be an integer from 0 to 9223372036854775807",
            ),
        ] {
            assert_eq!(fault(verb, line), format!("REDLOCKARG {problem}"), "{line}");
        }
        let long = format!("R k o 5 LABEL {}", "x".repeat(257));
        assert_eq!(
            fault(Verb::Acquire, &long),
            "REDLOCKARG argument 5 (LABEL text) must have at most 256 bytes"
        );
    }
}
