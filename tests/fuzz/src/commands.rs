//! The command grammar and what a node does: any sequence of words, over any stretch of time.
//!
//! No words make a node panic. A refusal changes nothing. A reply is one that the command has. And no sequence
//! leads to two holders, or to a number that goes back.

use crate::byte_reader::ByteReader;
use crate::model::{KeyOwnership, Model};
use crate::vocabulary;
use redlock_contract::ErrorCode;
use redlock_contract::commands::Verb;
use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_TTL_LIMIT_MS};
use redlock_core::durable::{DurableState, LocksDigest};
use redlock_core::fence::Stripe;
use redlock_core::grammar::{self, KeyArgs};
use redlock_core::reply::Value;
use redlock_core::{CommandError, KeyState, MemoryNode, Millis, Reply};
use std::collections::BTreeSet;

/// A node that can be tried, or one with a planted mistake.
pub trait NodeUnderFuzz {
    /// The node itself.
    fn memory(&mut self) -> &mut MemoryNode;

    /// Runs a command.
    ///
    /// # Errors
    /// As the node does.
    fn execute(&mut self, argv: &[&[u8]], connection: u64, now: Millis) -> Result<Reply, CommandError> {
        self.memory().execute(argv, connection, now)
    }
}

impl NodeUnderFuzz for MemoryNode {
    fn memory(&mut self) -> &mut MemoryNode {
        self
    }
}

/// Steps in one history: enough for everything to meet everything.
const LONGEST_HISTORY: usize = 200;
/// When time stops, so that all deadlines lie within what a table can tell: thousands of years after the start.
const END: Millis = Millis(1 << 47);

/// The moment so much later, if there is one.
pub(crate) fn later(now: Millis, step_ms: u64) -> Millis {
    Millis(now.0.saturating_add(step_ms)).min(END)
}

/// Tries the node.
pub fn run(bytes: &[u8]) {
    check(bytes, &mut new_node());
}

/// A node that holds nothing.
#[must_use]
pub fn new_node() -> MemoryNode {
    MemoryNode::new("0123456789abcdef0123456789abcdef01234567")
}

/// Tries a subject.
///
/// # Panics
/// When it breaks a promise.
pub fn check(bytes: &[u8], subject: &mut impl NodeUnderFuzz) {
    let mut reader = ByteReader::new(bytes);
    let mut history = CommandHistory::default();
    for _ in 0..LONGEST_HISTORY {
        if reader.is_over() {
            break;
        }
        history.step(&mut reader, subject);
        subject.memory().sweep(history.now);
        assert_eq!(subject.memory().node().held(), history.model.known(history.now), "locks held");
    }
}

struct CommandHistory {
    model: Model,
    now: Millis,
    /// Every key that was ever named.
    keys: BTreeSet<Vec<u8>>,
}

impl Default for CommandHistory {
    fn default() -> Self {
        Self { model: Model::default(), now: Millis::START, keys: BTreeSet::new() }
    }
}

impl CommandHistory {
    fn step(&mut self, reader: &mut ByteReader<'_>, subject: &mut impl NodeUnderFuzz) {
        match reader.below(20) {
            0..=11 => {
                let argv = vocabulary::command(reader);
                let connection = reader.below(3) as u64;
                self.command(&argv, connection, subject);
            }
            12..=14 => self.now = later(self.now, reader.sized_number()),
            15 => {
                let key = vocabulary::key(reader);
                subject.memory().delete(&key);
                self.model.overruled(&key, false);
            }
            16 => {
                let key = vocabulary::key(reader);
                let key_state = *reader.pick(&[KeyState::ForeignString, KeyState::OtherType]);
                subject.memory().plant(&key, key_state);
                self.model.overruled(&key, true);
                self.keys.insert(key);
            }
            17 => {
                subject.memory().crash(self.now);
                self.model.crashed();
            }
            18 => {
                let max_ttl_ms = reader.sized_number().clamp(1, MAX_TTL_LIMIT_MS);
                subject.memory().node_mut().set_max_ttl_ms(max_ttl_ms);
            }
            _ => {
                let window_ms = reader.sized_number().min(MAX_TTL_LIMIT_MS);
                subject.memory().node_mut().set_late_window_ms(window_ms);
            }
        }
    }

    fn command(&mut self, argv: &[Vec<u8>], connection: u64, subject: &mut impl NodeUnderFuzz) {
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let max_ttl_ms = subject.memory().node().max_ttl_ms();
        let request =
            argv.first().and_then(|name| Verb::named(name)).map(|verb| (verb, read(verb, &argv, max_ttl_ms)));
        // The model knows no lines; what is in them is tried where they are decided on.
        if argv.iter().any(|word| word.eq_ignore_ascii_case(b"WAIT")) {
            return;
        }
        if let Some((_, Ok(request))) = &request {
            self.keys.extend(request.keys.iter().map(|key| key.to_vec()));
        }
        subject.memory().sweep(self.now);
        let before = self.summary(subject.memory());
        let late_before = subject.memory().node().counters().late_refusals;
        let outcome = subject.execute(&argv, connection, self.now);
        let is_late = subject.memory().node().counters().late_refusals > late_before;

        let is_refusal = matches!(outcome, Err(_) | Ok(Reply::Nil | Reply::Map(_) | Reply::Integer(0)));
        if is_refusal {
            assert_eq!(before, self.summary(subject.memory()), "a refusal has changed something");
        }
        match (request, outcome) {
            (None, outcome) => assert!(outcome.is_err(), "an unknown command was answered: {outcome:?}"),
            (Some((verb, request)), outcome) => self.judge(verb, request, outcome, is_late),
        }
    }

    fn judge(
        &mut self,
        verb: Verb,
        request: Result<ParsedCommand<'_>, CommandError>,
        outcome: Result<Reply, CommandError>,
        is_late: bool,
    ) {
        if let Err(fault) = &outcome {
            check_text(*fault);
        }
        let request = match request {
            Ok(request) => request,
            Err(fault) => {
                let refused = [Err(fault), Err(CommandError::Internal)];
                assert!(refused.contains(&outcome), "{verb:?} is {fault:?}, and yet {outcome:?}");
                return;
            }
        };
        let ParsedCommand { keys, owner, ttl_ms, .. } = &request;
        let standing = self.model.standing(keys, owner, self.now);
        match (verb, outcome) {
            (Verb::Apply | Verb::Dataset | Verb::Mark, outcome) => {
                assert_eq!(outcome, Err(CommandError::Internal))
            }
            // No word of the tape is the id of the node.
            (Verb::Admit, outcome) => assert_eq!(outcome, Err(CommandError::OtherNode)),
            (Verb::Acquire | Verb::Macquire, Ok(Reply::Integer(fence @ 1..=MAX_FENCE))) => {
                self.model.granted(keys, owner, fence, *ttl_ms, self.now);
            }
            (Verb::Acquire | Verb::Macquire, Ok(Reply::Nil)) => {
                assert!(standing == KeyOwnership::Barred || is_late, "refused what nobody holds");
            }
            (Verb::Acquire | Verb::Macquire, Err(CommandError::Quarantine { left_ms: 1.. })) => {
                assert_ne!(standing, KeyOwnership::Holder, "a holder is kept waiting");
            }
            (Verb::Acquire | Verb::Macquire, Err(CommandError::FenceExhausted)) => {}
            (Verb::Extend | Verb::Mextend, Ok(Reply::Integer(fence @ 1..=MAX_FENCE))) => {
                self.model.extended(keys, owner, fence, *ttl_ms, self.now);
            }
            (Verb::Extend | Verb::Mextend, Ok(Reply::Nil)) => {
                assert_ne!(standing, KeyOwnership::Holder, "a holder could not extend");
            }
            (Verb::Release | Verb::Mrelease, Ok(Reply::Integer(1))) => {
                self.model.released(keys, owner, self.now);
            }
            (Verb::Release | Verb::Mrelease, Ok(Reply::Integer(0))) => {
                assert_ne!(standing, KeyOwnership::Holder, "a holder could not release");
            }
            (Verb::Inspect, Ok(Reply::Nil)) => {}
            (Verb::Inspect, Ok(Reply::Map(fields))) => {
                check_fields(&fields, &["fence", "label", "pttl", "held-ms", "extensions", "waiters"]);
            }
            (Verb::Node, Ok(Reply::Map(fields))) => {
                let names = [
                    "node-id",
                    "incarnation",
                    "origin",
                    "voting",
                    "non-voting-reason",
                    "fence",
                    "high-water",
                    "quarantine-ms",
                    "locks",
                    "waiters",
                    "longest-lease-ms",
                    "max-ttl-ms",
                    "claim-window-ms",
                    "started",
                    "role",
                    "version",
                ];
                check_fields(&fields, &names);
            }
            (Verb::Node, outcome) => panic!("REDLOCK.NODE has no such reply: {outcome:?}"),
            (_, Err(CommandError::WrongType)) => {}
            (verb, outcome) => panic!("{verb:?} has no such reply: {outcome:?}"),
        }
    }

    /// Everything that a command could change and a refusal must not.
    fn summary(&self, memory: &mut MemoryNode) -> Summary {
        let keys = self.keys.iter().map(|key| {
            let told = memory.execute(&[b"REDLOCK.INSPECT", key], 0, self.now);
            let last = memory.node().stripes().last(Stripe::of(key));
            (memory.exists(key, self.now), told, last)
        });
        let keys = keys.collect();
        let node = memory.node();
        Summary {
            keys,
            locks: node.locks_digest(),
            largest: node.largest_fence(),
            state: node.state().clone(),
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Summary {
    keys: Vec<(bool, Result<Reply, CommandError>, u64)>,
    locks: LocksDigest,
    largest: u64,
    state: DurableState,
}

/// What the words of a command say.
struct ParsedCommand<'a> {
    keys: Vec<&'a [u8]>,
    owner: &'a [u8],
    ttl_ms: u64,
}

/// Reads the words as the node does, and looks at what the grammar made of them.
fn read<'a>(verb: Verb, argv: &[&'a [u8]], max_ttl_ms: u64) -> Result<ParsedCommand<'a>, CommandError> {
    let (keys, owner, ttl_ms, floor, label) = match verb {
        Verb::Acquire | Verb::Macquire => {
            let request = grammar::acquire(verb, argv, max_ttl_ms)?;
            (request.keys, request.owner.bytes(), request.ttl.ms(), request.floor, request.label)
        }
        Verb::Extend | Verb::Mextend => {
            let request = grammar::extend(verb, argv, max_ttl_ms)?;
            (request.keys, request.owner.bytes(), request.ttl.ms(), request.floor, &[][..])
        }
        Verb::Release | Verb::Mrelease => {
            let request = grammar::release(verb, argv)?;
            (request.keys, request.owner.bytes(), 1, request.floor, &[][..])
        }
        Verb::Apply => {
            let request = grammar::apply(argv)?;
            (KeyArgs::One, request.owner.bytes(), 1, request.fence, request.label.unwrap_or(&[]))
        }
        Verb::Inspect => {
            grammar::exactly(verb, argv)?;
            (KeyArgs::One, &b"nobody"[..], 1, 0, &[][..])
        }
        Verb::Dataset => {
            let (id, high_water) = grammar::dataset(argv)?;
            assert!(id.max(high_water) <= MAX_FENCE);
            return Ok(ParsedCommand { keys: vec![], owner: b"nobody", ttl_ms: 1 });
        }
        Verb::Admit => {
            let request = grammar::admit(argv)?;
            assert!(request.floor <= MAX_FLOOR);
            return Ok(ParsedCommand { keys: vec![], owner: b"nobody", ttl_ms: 1 });
        }
        Verb::Node | Verb::Mark => {
            grammar::exactly(verb, argv)?;
            return Ok(ParsedCommand { keys: vec![], owner: b"nobody", ttl_ms: 1 });
        }
    };
    assert!((1..=MAX_OWNER_BYTES).contains(&owner.len()) && label.len() <= MAX_LABEL_BYTES);
    assert!((1..=max_ttl_ms).contains(&ttl_ms) && floor <= MAX_FENCE);
    let words: Vec<usize> = keys.indices().collect();
    let first = if verb.counts_its_keys() { 2 } else { 1 };
    assert!(words.is_sorted() && words.iter().all(|word| (first..argv.len()).contains(word)), "{words:?}");
    let named: Vec<&[u8]> = words.iter().map(|word| argv[*word]).collect();
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "every key once");
    Ok(ParsedCommand { keys: named, owner, ttl_ms })
}

/// An error is one line that begins with a word that programs know.
fn check_text(fault: CommandError) {
    let text = fault.to_string();
    assert_eq!(ErrorCode::of(text.as_bytes()), Some(fault.code()), "{text:?}");
    assert!(!text.contains(['\r', '\n']), "{text:?}");
}

fn check_fields(fields: &[(&'static str, Value)], names: &[&str]) {
    assert!(fields.iter().map(|(name, _)| *name).eq(names.iter().copied()), "{fields:?}");
    for (name, value) in fields {
        // Replies are signed 64-bit integers.
        assert!(!matches!(value, Value::Integer(number) if *number > MAX_FENCE), "{name} is {value:?}");
    }
}
