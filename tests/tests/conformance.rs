//! The table of cases, against the pure core and against a real server: they cannot drift apart.

#![allow(clippy::expect_used, clippy::panic)]

use redlock_tests::cases::{CASES, Case};
use redlock_tests::node_under_test::{CoreNode, NodeUnderTest, ServerNode};
use redlock_tests::{Answer, Server};

fn run(case: &Case, subject: &mut dyn NodeUnderTest) {
    let (shows, lines) = case;
    for line in *lines {
        let context = format!("{shows}: {line}");
        if let Some((command, expected)) = line.split_once(" = ") {
            let (connection, words) = command.split_once("> ").expect("a line names its connection");
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let answer = subject.call(connection.parse().expect("a connection is a number"), &words);
            assert!(is(&answer, expected), "{context}\nanswer: {answer:?}");
            continue;
        }
        match line.split_once(' ') {
            Some(("pass", ms)) => subject.advance(ms.parse().expect("milliseconds")),
            Some(("del", key)) => subject.delete(key.as_bytes()),
            Some(("string", key)) => subject.set_string(key.as_bytes()),
            Some(("list", key)) => subject.set_list(key.as_bytes()),
            Some(("close", connection)) => subject.close(connection.parse().expect("a number")),
            Some(("heard", push)) => assert_eq!(subject.next_push(), push, "{context}"),
            _ => panic!("{context}: not a line of a case"),
        }
    }
}

fn is(answer: &Answer, expected: &str) -> bool {
    match answer {
        Answer::Int(number) => number.to_string() == expected,
        Answer::Nil => expected == "nil",
        Answer::Error(_) => answer.error_word() == Some(expected),
        Answer::List(parts) => {
            let text = |part: &Answer| match part {
                Answer::Int(number) => number.to_string(),
                // An empty label is written as a dash.
                other if other.string().is_empty() => "-".to_owned(),
                other => other.string(),
            };
            parts.iter().map(text).collect::<Vec<_>>().join(" ") == expected
        }
        _ => false,
    }
}

#[test]
fn the_core_keeps_the_contract() {
    for case in CASES {
        run(case, &mut CoreNode::default());
    }
}

#[test]
fn the_module_keeps_the_contract() {
    for case in CASES {
        run(case, &mut ServerNode::default());
    }
}

/// Errors are the same to the letter.
#[test]
fn both_say_the_same() {
    let (mut pure, mut real) = (CoreNode::default(), ServerNode::default());
    for line in CASES.iter().flat_map(|(_, lines)| lines.iter()) {
        let Some((command, _)) = line.split_once(" = ") else { continue };
        let (_, words) = command.split_once("> ").expect("a line names its connection");
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        if words[0].eq_ignore_ascii_case(b"REDLOCK.NODE") {
            continue;
        }
        assert_eq!(real.call(0, &words), pure.call(0, &words), "{line}");
    }
}

/// `REDLOCK.NODE` differs in its identity; everything else is told alike.
#[test]
fn both_describe_themselves_alike() {
    let (mut pure, mut real) = (CoreNode::default(), ServerNode::default());
    let mut described = Vec::new();
    for subject in [&mut pure as &mut dyn NodeUnderTest, &mut real] {
        subject.call(0, &[b"REDLOCK.ACQUIRE", b"k", b"a", b"1000", b"FENCE", b"12"]);
        subject.call(0, &[b"REDLOCK.ACQUIRE", b"j", b"a", b"4000"]);
        let node = subject.call(0, &[b"REDLOCK.NODE"]);
        let told: Vec<(String, Answer)> = node
            .pairs()
            .into_iter()
            .map(|(name, value)| (name.string(), value.clone()))
            // Only a server has a file, and starts with a reserve of fences.
            .filter(|(name, _)| !["node-id", "incarnation", "high-water"].contains(&name.as_str()))
            .collect();
        described.push(told);
    }
    assert_eq!(described[0], described[1]);
    let names: Vec<&str> = described[1].iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        names,
        [
            "origin",
            "voting",
            "non-voting-reason",
            "fence",
            "quarantine-ms",
            "locks",
            "waiters",
            "longest-lease-ms",
            "max-ttl-ms",
            "claim-window-ms",
            "started",
            "role",
            "version"
        ]
    );
}

/// Two servers never have the same identity.
#[test]
fn nodes_tell_themselves_apart() {
    let id = || Server::start().connect().call_strs("REDLOCK.NODE").field("node-id").map(Answer::string);
    let (one, other) = (id().expect("an id"), id().expect("an id"));
    assert_eq!(one.len(), 40);
    assert_ne!(one, other);
}
