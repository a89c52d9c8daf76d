//! Property tests: the pure core and a real server run the same random history, with time, and must agree.

#![allow(clippy::expect_used, clippy::panic)]

use std::collections::HashSet;
use std::fmt;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use redlock_core::fence::Stripe;
use redlock_tests::node_under_test::{CoreNode, NodeUnderTest, ServerNode};
use redlock_tests::{Answer, SOON, seed, within};

const KEYS: [&str; 4] = ["a", "b", "a longer key with a blank", ""];
const OWNERS: [&str; 4] = ["x", "y", "0f8fad5b-d9cb-469f-a165-70867728950e", "c0ffee"];
const COUNTERS: [&str; 7] =
    ["grants", "refreshes", "refusals", "late_refusals", "extensions", "stale_extensions", "releases"];
/// Counters that agree only when both sides have finished their background work. The module counts an unclaimed lock
/// when it removes the record, which may happen at the server's next cron, a tenth of a second after the key is gone.
const COUNTERS_AT_REST: [&str; 4] = ["waits", "handoffs", "unclaimed", "stale_releases"];

#[derive(Clone)]
enum Step {
    Call { connection: u64, words: Vec<Vec<u8>> },
    Pass(u64),
    Delete(&'static str),
    PlantString(&'static str),
    PlantList(&'static str),
    Close(u64),
}

/// Prints commands as text, so that a failing history is readable.
impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call { connection, words } => {
                let words: Vec<_> = words.iter().map(|word| String::from_utf8_lossy(word)).collect();
                write!(f, "{connection}> {words:?}")
            }
            Self::Pass(ms) => write!(f, "pass {ms} ms"),
            Self::Delete(key) => write!(f, "DEL {key:?}"),
            Self::PlantString(key) => write!(f, "SET {key:?}"),
            Self::PlantList(key) => write!(f, "RPUSH {key:?}"),
            Self::Close(connection) => write!(f, "{connection}> closes"),
        }
    }
}

fn words(parts: &[&str]) -> Vec<Vec<u8>> {
    parts.iter().map(|part| part.as_bytes().to_vec()).collect()
}

fn options() -> impl Strategy<Value = Vec<String>> {
    let floor = prop_oneof![Just(0), 1_u64..40, Just(1 << 33), Just(u64::MAX)];
    let floor = prop_oneof![3 => Just(vec![]), 1 => floor.prop_map(|floor| vec!["FENCE".to_owned(), floor.to_string()])];
    let label = prop_oneof![4 => Just(vec![]), 1 => Just(vec!["LABEL".to_owned(), "who".to_owned()])];
    (floor, label).prop_map(|(floor, label)| [floor, label].concat())
}

fn command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let key = prop::sample::select(&KEYS[..]);
    let keys = prop::collection::vec(key.clone(), 1..4);
    let owner = prop::sample::select(&OWNERS[..]);
    let ttl =
        prop_oneof![8 => prop::sample::select(&[1_i64, 5, 30, 500][..]), 1 => Just(0), 1 => Just(86_400_001)];
    let verb = prop::sample::select(&["ACQUIRE", "ACQUIRE", "EXTEND", "RELEASE", "INSPECT"][..]);
    let modes = (prop::bool::weighted(0.4), prop::bool::ANY);
    let parts = (verb, modes, keys, owner, ttl, options());
    parts.prop_map(|(verb, (many, is_shared), keys, owner, ttl, options)| {
        if verb == "INSPECT" {
            return words(&["REDLOCK.INSPECT", keys[0]]);
        }
        let name = format!("REDLOCK.{}{verb}", if many { "M" } else { "" });
        let count = keys.len().to_string();
        let ttl = ttl.to_string();
        let mut parts = vec![name.as_str()];
        if many {
            parts.push(&count);
            parts.extend(&keys);
        } else {
            parts.push(keys[0]);
        }
        parts.push(owner);
        if verb != "RELEASE" {
            parts.push(&ttl);
        }
        parts.extend(options.iter().map(String::as_str));
        if is_shared && verb == "ACQUIRE" {
            parts.push("SHARED");
        }
        words(&parts)
    })
}

fn step() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(&KEYS[..]);
    prop_oneof![
        14 => (0_u64..3, command()).prop_map(|(connection, words)| Step::Call { connection, words }),
        4 => prop_oneof![0_u64..8, 0_u64..40, 0_u64..12_000].prop_map(Step::Pass),
        1 => key.clone().prop_map(Step::Delete),
        1 => prop_oneof![key.clone().prop_map(Step::PlantString), key.prop_map(Step::PlantList)],
    ]
}

fn run_step(subject: &mut dyn NodeUnderTest, step: &Step) -> Option<Answer> {
    match step {
        Step::Call { connection, words } => {
            return Some(subject.call(*connection, &words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        }
        Step::Pass(ms) => subject.advance(*ms),
        Step::Delete(key) => subject.delete(key.as_bytes()),
        Step::PlantString(key) => subject.set_string(key.as_bytes()),
        Step::PlantList(key) => subject.set_list(key.as_bytes()),
        Step::Close(connection) => subject.close(*connection),
    }
    None
}

/// A command, with WAIT if it is an acquire: instead of a refusal, the node queues it.
fn waiting_command() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let wait_ms = prop::sample::select(&[5_u64, 200, 60_000][..]);
    let extra = prop_oneof![
        3 => Just(vec![]),
        1 => (0_u64..9).prop_map(|stamp| vec!["STAMP".to_owned(), stamp.to_string()]),
        1 => Just(vec!["CLAIM".to_owned(), "250".to_owned()]),
    ];
    (command(), 1_u64..7, wait_ms, extra).prop_map(|(mut command, ticket, wait_ms, extra)| {
        if command[0].ends_with(b"ACQUIRE") {
            let (ticket, wait_ms) = (ticket.to_string(), wait_ms.to_string());
            command.extend(words(&["WAIT", &ticket, &wait_ms, "channel"]));
            command.extend(extra.into_iter().map(String::into_bytes));
        }
        command
    })
}

/// As [`step`], with requests that wait. No lists: to set one takes two commands, and the server may or may not serve
/// a waiter between them.
fn waiting_step() -> impl Strategy<Value = Step> {
    let key = prop::sample::select(&KEYS[..]);
    let call = |words| (0_u64..4, words).prop_map(|(connection, words)| Step::Call { connection, words });
    prop_oneof![
        8 => call(waiting_command().boxed()),
        4 => call(command().boxed()),
        3 => prop_oneof![0_u64..8, 0_u64..300].prop_map(Step::Pass),
        1 => key.clone().prop_map(Step::Delete),
        1 => key.prop_map(Step::PlantString),
        1 => (0_u64..4).prop_map(Step::Close),
    ]
}

fn cases(usual: u32, long: u32) -> TestRunner {
    let cases = if std::env::var_os("REDLOCK_LONG").is_some() { long } else { usual };
    let rng_seed = RngSeed::Fixed(seed(1));
    TestRunner::new(Config { cases, rng_seed, failure_persistence: None, ..Config::default() })
}

/// The key of a push: its last field, which may contain spaces.
fn key_of(push: &str) -> &str {
    let words_before = match push.split(' ').nth(1) {
        Some("grant") => 4,
        Some("stamped") => 7,
        other => panic!("a push is \"grant\" or \"stamped\", not {other:?}"),
    };
    push.splitn(words_before + 1, ' ').last().unwrap_or_default()
}

/// Pushes in the order of their keys, and for each key in the order in which the node made them.
///
/// A node guarantees no other order. When two keys become free together, because two locks expire in the same
/// millisecond, the order depends on how the timer wheel advances: step by step on a virtual clock, and on a server
/// whenever its timer fires. No outcome depends on it. Two waiters that can be served at the same time are each first
/// for all of their keys, so they have no key in common. Either order gives both the same locks, fences and deadlines,
/// as long as each key has a fence stripe of its own.
fn by_key(mut pushes: Vec<String>) -> Vec<String> {
    pushes.sort_by(|one, other| key_of(one).cmp(key_of(other)));
    pushes
}

#[test]
fn core_and_module_hand_off_locks_alike() {
    // Each case is slow: a server runs its background work about ten times a second.
    let mut runner = cases(12, 200);
    let stripes: HashSet<Stripe> = KEYS.iter().map(|key| Stripe::of(key.as_bytes())).collect();
    assert_eq!(stripes.len(), KEYS.len(), "by_key needs a stripe for each key");
    let history = prop::collection::vec(waiting_step(), 1..120);
    let outcome = runner.run(&history, |history| {
        let (mut pure, mut real) = (CoreNode::default(), ServerNode::default());
        for (number, step) in history.iter().enumerate() {
            let (expected, answer) = (run_step(&mut pure, step), run_step(&mut real, step));
            prop_assert_eq!(answer, expected, "step {}: {:?}", number, step);
            real.wait_until_settled(pure.settle());
            let count = pure.unread_pushes();
            let expected = by_key((0..count).map(|_| pure.next_push()).collect());
            let received = by_key((0..count).map(|_| real.next_push()).collect());
            prop_assert_eq!(received, expected, "step {}: {:?}", number, step);
        }
        for counter in COUNTERS {
            prop_assert_eq!(real.counter(counter), pure.counter(counter), "{}", counter);
        }
        for counter in COUNTERS_AT_REST {
            let expected = pure.counter(counter);
            within(SOON, || (real.counter(counter) == expected).then_some(()));
            prop_assert_eq!(real.counter(counter), expected, "{}", counter);
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}

#[test]
fn core_and_module_answer_alike() {
    let mut runner = cases(60, 2_000);
    let history = prop::collection::vec(step(), 1..250);
    let outcome = runner.run(&history, |history| {
        let (mut pure, mut real) = (CoreNode::default(), ServerNode::default());
        for (number, step) in history.iter().enumerate() {
            let (expected, answer) = (run_step(&mut pure, step), run_step(&mut real, step));
            prop_assert_eq!(answer, expected, "step {}: {:?}", number, step);
        }
        for counter in COUNTERS {
            prop_assert_eq!(real.counter(counter), pure.counter(counter), "{}", counter);
        }
        Ok(())
    });
    if let Err(failure) = outcome {
        panic!("{failure}");
    }
}
