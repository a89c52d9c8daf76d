//! Conformance: the same cases run against the pure core and against a real server, so the two cannot diverge.

#![allow(clippy::expect_used, clippy::panic)]

use redlock_tests::Answer;
use redlock_tests::cases::{CASES, Case};
use redlock_tests::node_under_test::{CoreNode, NodeUnderTest, ServerNode};

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
        Answer::List(parts) => parts.iter().map(part).collect::<Vec<_>>().join(" ") == expected,
        _ => false,
    }
}

/// An element of a list. A list in it is in brackets, and an empty text is a dash.
fn part(answer: &Answer) -> String {
    match answer {
        Answer::Int(number) => number.to_string(),
        Answer::List(parts) => format!("[{}]", parts.iter().map(part).collect::<Vec<_>>().join(" ")),
        other if other.string().is_empty() => "-".to_owned(),
        other => other.string(),
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

/// The replies are equal, including the text of errors.
#[test]
fn core_and_module_give_the_same_replies() {
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

/// The replies to `REDLOCK.NODE` differ in the identity and are equal in everything else.
#[test]
fn core_and_module_describe_their_node_alike() {
    let (mut pure, mut real) = (CoreNode::default(), ServerNode::default());
    let mut described = Vec::new();
    for subject in [&mut pure as &mut dyn NodeUnderTest, &mut real] {
        subject.call(0, &[b"REDLOCK.ACQUIRE", b"k", b"a", b"1000", b"FENCE", b"12"]);
        subject.call(0, &[b"REDLOCK.ACQUIRE", b"j", b"a", b"4000"]);
        let node = subject.call(0, &[b"REDLOCK.NODE"]);
        let fields: Vec<(String, Answer)> = node
            .pairs()
            .into_iter()
            .map(|(name, value)| (name.string(), value.clone()))
            // Only a server has a state file, and it reserves fences when it starts.
            .filter(|(name, _)| {
                !["node-id", "incarnation", "high-water", "common-high-water"].contains(&name.as_str())
            })
            .collect();
        described.push(fields);
    }
    assert_eq!(described[0], described[1]);
    assert!(described[0].len() > 10, "{described:?}");
}
