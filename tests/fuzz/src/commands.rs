//! The command grammar and the node: any sequence of commands with any arguments, at any times.
//!
//! No command makes the node panic. A refused command changes nothing. Every reply is one of the command's replies.
//! No sequence leads to two holders at once, or to a fence that goes back.

use crate::byte_reader::ByteReader;
use crate::model::{GrantedLock, KeyOwnership, Mode, Model};
use crate::vocabulary;
use redlock_contract::ErrorCode;
use redlock_contract::commands::Verb;
use redlock_contract::fields::{lock, node};
use redlock_contract::limits::{MAX_FENCE, MAX_FLOOR, MAX_LABEL_BYTES, MAX_OWNER_BYTES, MAX_TTL_LIMIT_MS};
use redlock_core::command_error::ArgProblem;
use redlock_core::durable::{DurableState, LocksDigest};
use redlock_core::fence::Stripe;
use redlock_core::grammar::{self, KeyArgs};
use redlock_core::reply::Value;
use redlock_core::{CommandError, KeyState, MemoryNode, Millis, Reply};
use std::collections::BTreeSet;

/// A node under test: the real one, or one with a planted mistake.
pub trait NodeUnderFuzz {
    /// The underlying node.
    fn memory(&mut self) -> &mut MemoryNode;

    /// Runs a command.
    ///
    /// # Errors
    /// The errors of the node.
    fn execute(&mut self, argv: &[&[u8]], connection: u64, now: Millis) -> Result<Reply, CommandError> {
        self.memory().execute(argv, connection, now)
    }
}

impl NodeUnderFuzz for MemoryNode {
    fn memory(&mut self) -> &mut MemoryNode {
        self
    }
}

/// The most steps in one history.
const LONGEST_HISTORY: usize = 200;
/// Time stops here, thousands of years after the start, so that every deadline fits into the table of locks.
const END: Millis = Millis(1 << 47);

/// The time `step_ms` later, at most the end of time.
pub(crate) fn later(now: Millis, step_ms: u64) -> Millis {
    Millis(now.0.saturating_add(step_ms)).min(END)
}

/// Runs the target on the real node.
pub fn run(bytes: &[u8]) {
    check(bytes, &mut new_node());
}

/// A new node without locks.
#[must_use]
pub fn new_node() -> MemoryNode {
    MemoryNode::new("0123456789abcdef0123456789abcdef01234567")
}

/// Runs the target on a node.
///
/// # Panics
/// If the node breaks a rule.
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
    /// Every key of any command so far.
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
        // The model has no wait queues; other tests cover them.
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
            assert_eq!(before, self.summary(subject.memory()), "a refused command changed the state");
        }
        match (request, outcome) {
            (None, outcome) => assert!(outcome.is_err(), "an unknown command succeeded: {outcome:?}"),
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
                assert!(refused.contains(&outcome), "{verb:?}: expected {fault:?}, got {outcome:?}");
                return;
            }
        };
        let ParsedCommand { keys, owner, ttl_ms, floor, mode } = &request;
        let standing = self.model.standing(keys, owner, *mode, self.now);
        match (verb, outcome) {
            (Verb::Apply | Verb::Dataset | Verb::Mark, outcome) => {
                assert_eq!(outcome, Err(CommandError::Internal))
            }
            // No generated argument is the node id.
            (Verb::Admit, outcome) => {
                let is_refused =
                    matches!(outcome, Err(CommandError::Arg { problem: ArgProblem::OtherNode, .. }));
                assert!(is_refused, "admitted another node: {outcome:?}");
            }
            (Verb::Acquire | Verb::Macquire, Ok(Reply::Integer(fence @ 1..=MAX_FENCE))) => {
                let grant = GrantedLock { owner, fence, ttl_ms: *ttl_ms, has_floor: *floor > 0, mode: *mode };
                self.model.granted(keys, &grant, self.now);
            }
            (Verb::Acquire | Verb::Macquire, Ok(Reply::Nil)) => {
                assert!(standing == KeyOwnership::Barred || is_late, "refused a free lock");
            }
            (Verb::Acquire | Verb::Macquire, Err(CommandError::Quarantine { left_ms: 1.. })) => {
                assert_ne!(
                    standing,
                    KeyOwnership::Holder,
                    "a holder must wait for the end of the quarantine"
                );
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
            (Verb::Break, Ok(Reply::Integer(fence))) => self.model.broken(keys, fence, self.now),
            (Verb::Inspect | Verb::Break, Ok(Reply::Nil)) => {}
            (Verb::Inspect, Ok(Reply::Map(fields))) => {
                check_fields(&fields, &lock::ALL);
            }
            (Verb::Node, Ok(Reply::Map(fields))) => {
                check_fields(&fields, &node::ALL);
            }
            (Verb::Node, outcome) => panic!("REDLOCK.NODE has no such reply: {outcome:?}"),
            (_, Err(CommandError::WrongType)) => {}
            (verb, outcome) => panic!("{verb:?} has no such reply: {outcome:?}"),
        }
    }

    /// The state that a refused command must not change.
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

/// A parsed command.
struct ParsedCommand<'a> {
    keys: Vec<&'a [u8]>,
    owner: &'a [u8],
    ttl_ms: u64,
    floor: u64,
    /// How an acquire asks for the lock; `None` for other commands.
    mode: Option<Mode>,
}

/// Parses the arguments as the node does, and checks the result of the grammar.
fn read<'a>(verb: Verb, argv: &[&'a [u8]], max_ttl_ms: u64) -> Result<ParsedCommand<'a>, CommandError> {
    let nothing = |owner| ParsedCommand { keys: vec![], owner, ttl_ms: 1, floor: 0, mode: None };
    let mut mode = None;
    let (keys, owner, ttl_ms, floor, label) = match verb {
        Verb::Acquire | Verb::Macquire => {
            let request = grammar::acquire(verb, argv, max_ttl_ms)?;
            mode = Some(if request.is_shared { Mode::Shared } else { Mode::Exclusive });
            assert!(!request.is_shared || verb == Verb::Acquire, "several keys cannot be shared");
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
        Verb::Break => {
            let fence = grammar::break_lock(argv)?;
            (KeyArgs::One, &b"nobody"[..], 1, fence.unwrap_or(0), &[][..])
        }
        Verb::Dataset => {
            let (id, high_water) = grammar::dataset(argv)?;
            assert!(id.max(high_water) <= MAX_FENCE);
            return Ok(nothing(b"nobody"));
        }
        Verb::Admit => {
            let request = grammar::admit(argv)?;
            assert!(request.floor.common() <= MAX_FLOOR && request.floor.highest() <= MAX_FENCE);
            return Ok(nothing(b"nobody"));
        }
        Verb::Node | Verb::Mark => {
            grammar::exactly(verb, argv)?;
            return Ok(nothing(b"nobody"));
        }
    };
    assert!((1..=MAX_OWNER_BYTES).contains(&owner.len()) && label.len() <= MAX_LABEL_BYTES);
    assert!((1..=max_ttl_ms).contains(&ttl_ms) && floor <= MAX_FENCE);
    let words: Vec<usize> = keys.indices().collect();
    let first = if verb.counts_its_keys() { 2 } else { 1 };
    assert!(words.is_sorted() && words.iter().all(|word| (first..argv.len()).contains(word)), "{words:?}");
    let named: Vec<&[u8]> = words.iter().map(|word| argv[*word]).collect();
    assert_eq!(named.iter().collect::<BTreeSet<_>>().len(), named.len(), "a key occurs twice");
    Ok(ParsedCommand { keys: named, owner, ttl_ms, floor, mode })
}

/// Checks that an error is one line that begins with a known error code.
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
