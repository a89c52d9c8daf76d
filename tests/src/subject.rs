//! Two things that must be the same: the pure core over a hash map, and a real server with the module.

use std::collections::HashMap;
use std::time::Duration;

use redlock_core::reply::Value;
use redlock_core::{MemoryNode, Millis, Occupant, Reply};

use crate::{Answer, Clock, Server, Wire};

/// Something that takes the commands of the contract, on several connections, and whose time stands still
/// unless it is moved.
pub trait Subject {
    /// Runs a command on a connection.
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer;
    /// Lets time pass.
    fn pass(&mut self, ms: u64);
    /// Deletes a key as an administrator would.
    fn delete(&mut self, key: &[u8]);
    /// Puts a string under a key, as a client that locks with `SET` would.
    fn plant_string(&mut self, key: &[u8]);
    /// Puts a value of another type under a key.
    fn plant_list(&mut self, key: &[u8]);
    /// A counter of `INFO redlock`.
    fn counter(&mut self, name: &str) -> u64;
}

/// The pure core.
#[derive(Debug)]
pub struct Pure {
    node: MemoryNode,
    now: Millis,
}

/// A running server with the module, its clock frozen.
#[derive(Debug)]
pub struct Real {
    server: Server,
    clock: Clock,
    wires: HashMap<u64, Wire>,
}

impl Default for Pure {
    fn default() -> Self {
        Self { node: MemoryNode::new("pure"), now: Millis::START }
    }
}

impl Subject for Pure {
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer {
        match self.node.execute(words, connection, self.now) {
            Ok(Reply::Integer(number)) => Answer::Int(i64::try_from(number).expect("fences fit a reply")),
            Ok(Reply::Nil) => Answer::Nil,
            // As RESP2 has it.
            Ok(Reply::Map(pairs)) => Answer::List(
                pairs.into_iter().flat_map(|(name, value)| [Answer::text(name), answer(value)]).collect(),
            ),
            Ok(Reply::Queued { left_ms, position, ticket }) => {
                let number = |number: u64| Answer::Int(i64::try_from(number).expect("a small number"));
                Answer::List(vec![Answer::Int(left_ms), number(position), number(ticket)])
            }
            Err(fault) => Answer::Error(fault.to_string()),
        }
    }

    fn pass(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
    }

    fn delete(&mut self, key: &[u8]) {
        self.node.delete(key);
    }

    fn plant_string(&mut self, key: &[u8]) {
        self.node.plant(key, Occupant::ForeignString);
    }

    fn plant_list(&mut self, key: &[u8]) {
        self.node.plant(key, Occupant::OtherType);
    }

    fn counter(&mut self, name: &str) -> u64 {
        let counters = self.node.node().counters().named();
        counters.into_iter().find(|(known, _)| *known == name).expect("a counter of the core").1
    }
}

fn answer(value: Value) -> Answer {
    match value {
        Value::Integer(number) => Answer::Int(i64::try_from(number).expect("numbers fit a reply")),
        Value::Bytes(bytes) => Answer::Text(bytes),
    }
}

impl Default for Real {
    fn default() -> Self {
        let (server, clock) = Server::start_frozen();
        Self { server, clock, wires: HashMap::new() }
    }
}

impl Real {
    fn wire(&mut self, connection: u64) -> &mut Wire {
        self.wires.entry(connection).or_insert_with(|| self.server.connect())
    }
}

impl Subject for Real {
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer {
        self.wire(connection).call(words)
    }

    fn pass(&mut self, ms: u64) {
        self.clock.advance_module(Duration::from_millis(ms));
    }

    fn delete(&mut self, key: &[u8]) {
        self.wire(0).call(&[b"DEL", key]);
    }

    fn plant_string(&mut self, key: &[u8]) {
        self.wire(0).call(&[b"SET", key, b"a plain client's value"]);
    }

    fn plant_list(&mut self, key: &[u8]) {
        self.delete(key);
        self.wire(0).call(&[b"RPUSH", key, b"item"]);
    }

    fn counter(&mut self, name: &str) -> u64 {
        let value = self.server.info("redlock", &format!("redlock_{name}"));
        value.and_then(|value| value.parse().ok()).expect("a counter of the module")
    }
}
