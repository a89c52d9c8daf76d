//! The contract of one node, on the core alone: the same table of cases that runs against real servers, in a crate
//! that compiles fast.

#![allow(clippy::expect_used, clippy::panic)]

#[allow(unreachable_pub, reason = "the table is public where it belongs to a library")]
#[path = "../../src/cases.rs"]
mod cases;

use redlock_core::node::GrantPush;
use redlock_core::reply::{Fields, Value};
use redlock_core::{KeyState, MemoryNode, Millis, Reply};
use std::collections::VecDeque;

const NODE_ID: &str = "pure";

/// Runs a case. Returns the first line that fails, with its reply.
fn broken_by(lines: &[&str]) -> Option<String> {
    let mut node = MemoryNode::new(NODE_ID);
    let mut now = Millis::START;
    let mut said = VecDeque::new();
    // Any word of the case may be the owner that signs a push.
    let words: Vec<&[u8]> = lines.iter().flat_map(|line| line.split(' ')).map(str::as_bytes).collect();
    for line in lines {
        if let Some((command, expected)) = line.split_once(" = ") {
            let (connection, words) = command.split_once("> ").expect("a line names its connection");
            let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
            let connection = connection.parse().expect("a connection is a number");
            let answer = match node.execute(&words, connection, now) {
                Ok(reply) => spelled(reply),
                Err(fault) => fault.to_string().split(' ').next().unwrap_or_default().to_owned(),
            };
            if answer != expected {
                return Some(format!("{line}, not {answer}"));
            }
            continue;
        }
        match line.split_once(' ').expect("a line has two words") {
            ("pass", ms) => now = Millis(now.0 + ms.parse::<u64>().expect("milliseconds")),
            ("del", key) => drop(node.delete(key.as_bytes())),
            ("string", key) => node.plant(key.as_bytes(), KeyState::ForeignString),
            ("list", key) => node.plant(key.as_bytes(), KeyState::OtherType),
            ("close", connection) => node.close(connection.parse().expect("a number"), now),
            ("heard", push) => {
                node.sweep(now);
                said.extend(node.take_pushes());
                let told = |said: GrantPush| {
                    cases::push_line(NODE_ID, words.iter().copied(), &said.channel, &said.message)
                };
                let heard = said.pop_front().map_or_else(|| "nothing".to_owned(), told);
                if heard != push {
                    return Some(format!("{line}, not {heard}"));
                }
            }
            _ => panic!("not a line of a case: {line}"),
        }
    }
    None
}

fn value(value: Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Bytes(text) if text.is_empty() => "-".to_owned(),
        Value::Bytes(text) => String::from_utf8_lossy(&text).into_owned(),
        Value::Maps(maps) => {
            let map = |fields: Fields| format!("[{}]", fields_text(fields));
            format!("[{}]", maps.into_iter().map(map).collect::<Vec<_>>().join(" "))
        }
    }
}

fn fields_text(fields: Fields) -> String {
    fields.into_iter().map(|(name, of)| format!("{name} {}", value(of))).collect::<Vec<_>>().join(" ")
}

/// A reply in the notation of the table.
fn spelled(reply: Reply) -> String {
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Nil => "nil".to_owned(),
        Reply::Queued { left_ms, position, ticket } => format!("{left_ms} {position} {ticket}"),
        Reply::Map(pairs) => fields_text(pairs),
    }
}

#[test]
fn the_core_keeps_the_contract() {
    let broken: Vec<_> = cases::CASES
        .iter()
        .filter_map(|(shows, lines)| Some(format!("BROKEN: {shows}: {}", broken_by(lines)?)))
        .collect();
    broken.iter().for_each(|case| println!("{case}"));
    assert!(broken.is_empty(), "{} cases", broken.len());
}
