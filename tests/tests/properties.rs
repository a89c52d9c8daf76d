//! Random histories, with time, driven through the pure core and a real server side by side.

#![allow(clippy::expect_used)]

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use redlock_tests::Answer;
use redlock_tests::subject::{Pure, Real, Subject};

const KEYS: [&str; 4] = ["a", "b", "a longer key with a blank", ""];
const OWNERS: [&str; 4] = ["x", "y", "0f8fad5b-d9cb-469f-a165-70867728950e", "c0ffee"];
const COUNTERS: [&str; 7] =
    ["grants", "refreshes", "refusals", "late_refusals", "extensions", "stale_extensions", "releases"];
/// What else is the same when both have done all that they do by themselves.
const COUNTERS_AT_REST: [&str; 4] = ["waits", "handoffs", "unclaimed", "stale_releases"];

#[derive(Clone, Debug)]
enum Step {
    Call { connection: u64, words: Vec<Vec<u8>> },
    Pass(u64),
    Delete(&'static str),
    PlantString(&'static str),
    PlantList(&'static str),
    Close(u64),
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
    (verb, any::<bool>(), keys, owner, ttl, options()).prop_map(|(verb, many, keys, owner, ttl, options)| {
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

fn take(subject: &mut dyn Subject, step: &Step) -> Option<Answer> {
    match step {
        Step::Call { connection, words } => {
            return Some(subject.call(*connection, &words.iter().map(Vec::as_slice).collect::<Vec<_>>()));
        }
        Step::Pass(ms) => subject.pass(*ms),
        Step::Delete(key) => subject.delete(key.as_bytes()),
        Step::PlantString(key) => subject.plant_string(key.as_bytes()),
        Step::PlantList(key) => subject.plant_list(key.as_bytes()),
        Step::Close(connection) => subject.close(*connection),
    }
    None
}

/// A request to stand in line, for which a refusal is turned into a place.
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

/// As [`step`], with a line at every key. No lists: to put one there takes two commands, and whoever waits is served
/// between them or is not.
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
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

#[test]
fn core_and_module_hand_on_alike() {
    // Each takes a while: what a server does by itself it does up to ten times a second.
    let mut runner = cases(12, 200);
    let history = prop::collection::vec(waiting_step(), 1..120);
    let outcome = runner.run(&history, |history| {
        let (mut pure, mut real) = (Pure::default(), Real::default());
        for (number, step) in history.iter().enumerate() {
            let (expected, answer) = (take(&mut pure, step), take(&mut real, step));
            prop_assert_eq!(answer, expected, "step {}: {:?}", number, step);
            real.settle_as(pure.settle());
            while pure.unheard() > 0 {
                prop_assert_eq!(real.heard(), pure.heard(), "step {}: {:?}", number, step);
            }
        }
        for counter in COUNTERS.iter().chain(&COUNTERS_AT_REST) {
            prop_assert_eq!(real.counter(counter), pure.counter(counter), "{}", counter);
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
        let (mut pure, mut real) = (Pure::default(), Real::default());
        for (number, step) in history.iter().enumerate() {
            let (expected, answer) = (take(&mut pure, step), take(&mut real, step));
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
