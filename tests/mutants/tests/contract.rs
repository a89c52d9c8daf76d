//! The contract of one node, on the core alone: the same table that runs against real servers, in a crate
//! that is built in a moment.

#![allow(clippy::expect_used, clippy::panic)]

#[allow(unreachable_pub, reason = "the table is public where it belongs to a library")]
#[path = "../../src/cases.rs"]
mod cases;

use redlock_contract::CHANNEL_PREFIX;
use redlock_core::node::Announcement;
use redlock_core::reply::Value;
use redlock_core::{MemoryNode, Millis, Occupant, Reply};
use std::collections::VecDeque;

/// Runs a case; what the first line that goes wrong was answered.
fn broken_by(lines: &[&str]) -> Option<String> {
    let mut node = MemoryNode::new("pure");
    let mut now = Millis::START;
    let mut said = VecDeque::new();
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
            ("string", key) => node.plant(key.as_bytes(), Occupant::ForeignString),
            ("list", key) => node.plant(key.as_bytes(), Occupant::OtherType),
            ("close", connection) => node.close(connection.parse().expect("a number"), now),
            ("heard", announcement) => {
                node.sweep(now);
                said.extend(node.take_announcements());
                let heard = said.pop_front().map_or_else(|| "nothing".to_owned(), |said| told(&said));
                if heard != announcement {
                    return Some(format!("{line}, not {heard}"));
                }
            }
            _ => panic!("not a line of a case: {line}"),
        }
    }
    None
}

/// An announcement as the table has it.
fn told(said: &Announcement) -> String {
    let channel = said.channel.strip_prefix(CHANNEL_PREFIX).unwrap_or_default();
    format!("{} {}", String::from_utf8_lossy(channel), String::from_utf8_lossy(&said.message))
}

/// A reply as the table has it.
fn spelled(reply: Reply) -> String {
    let value = |value| match value {
        Value::Integer(number) => number.to_string(),
        Value::Bytes(text) if text.is_empty() => "-".to_owned(),
        Value::Bytes(text) => String::from_utf8_lossy(&text).into_owned(),
    };
    match reply {
        Reply::Integer(number) => number.to_string(),
        Reply::Nil => "nil".to_owned(),
        Reply::Queued { left_ms, position, ticket } => format!("{left_ms} {position} {ticket}"),
        Reply::Map(pairs) => {
            let fields = pairs.into_iter().map(|(name, of)| format!("{name} {}", value(of)));
            fields.collect::<Vec<_>>().join(" ")
        }
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
