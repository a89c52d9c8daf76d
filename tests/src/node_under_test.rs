//! Two things that must be the same: the pure core over a hash map, and a real server with the module.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use redlock_core::reply::Value;
use redlock_core::{MemoryNode, Millis, Occupant, Reply};

use crate::{Answer, FakeClock, SOON, Server, Wire, eventually};

/// Something that takes the commands of the contract, on several connections, and whose time stands still
/// unless it is moved.
pub trait NodeUnderTest {
    /// Runs a command on a connection.
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer;
    /// Lets time pass.
    fn advance(&mut self, ms: u64);
    /// Deletes a key as an administrator would.
    fn delete(&mut self, key: &[u8]);
    /// Puts a string under a key, as a client that locks with `SET` would.
    fn set_string(&mut self, key: &[u8]);
    /// Puts a value of another type under a key.
    fn set_list(&mut self, key: &[u8]);
    /// Ends a connection. Its number may be used again, for another one.
    fn close(&mut self, connection: u64);
    /// The next announcement to those who wait, in the order in which they were made: channel and message.
    fn next_push(&mut self) -> String;
    /// A counter of `INFO redlock`.
    fn counter(&mut self, name: &str) -> u64;
}

/// The pure core.
#[derive(Debug)]
pub struct CoreNode {
    node: MemoryNode,
    now: Millis,
    pushes: VecDeque<String>,
    /// How often each connection was closed: no two are the same.
    closed: HashMap<u64, u64>,
}

/// A running server with the module, its clock frozen.
#[derive(Debug)]
pub struct ServerNode {
    server: Server,
    clock: FakeClock,
    connections: HashMap<u64, Wire>,
    subscription: Wire,
}

impl Default for CoreNode {
    fn default() -> Self {
        Self {
            node: MemoryNode::new("pure"),
            now: Millis::START,
            pushes: VecDeque::new(),
            closed: HashMap::new(),
        }
    }
}

/// What every channel of an announcement begins with.
const CHANNELS: &str = "redlock:grant:";

fn push_text(channel: &[u8], message: &[u8]) -> String {
    let (channel, message) = (String::from_utf8_lossy(channel), String::from_utf8_lossy(message));
    format!("{} {message}", channel.strip_prefix(CHANNELS).expect("a channel of the module"))
}

impl CoreNode {
    /// Does what a node does by itself, and tells what can be seen of it: how many locks are held, how many wait,
    /// and how many locks were handed on.
    pub fn settle(&mut self) -> [u64; 3] {
        self.node.sweep(self.now);
        let made = self.node.take_announcements().into_iter();
        self.pushes.extend(made.map(|made| push_text(&made.channel, &made.message)));
        [self.node.node().held(), self.node.node().waiters(), self.counter("handoffs")]
    }

    /// What was announced and not heard yet.
    pub fn unread_pushes(&mut self) -> usize {
        self.settle();
        self.pushes.len()
    }

    fn id(&self, connection: u64) -> u64 {
        connection + 1_000 * self.closed.get(&connection).copied().unwrap_or(0)
    }
}

impl NodeUnderTest for CoreNode {
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer {
        match self.node.execute(words, self.id(connection), self.now) {
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

    fn advance(&mut self, ms: u64) {
        self.now = Millis(self.now.0 + ms);
    }

    fn delete(&mut self, key: &[u8]) {
        self.node.delete(key);
    }

    fn set_string(&mut self, key: &[u8]) {
        self.node.plant(key, Occupant::ForeignString);
    }

    fn set_list(&mut self, key: &[u8]) {
        self.node.plant(key, Occupant::OtherType);
    }

    fn close(&mut self, connection: u64) {
        self.node.close(self.id(connection), self.now);
        *self.closed.entry(connection).or_default() += 1;
    }

    fn next_push(&mut self) -> String {
        self.settle();
        self.pushes.pop_front().unwrap_or_default()
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

impl Default for ServerNode {
    fn default() -> Self {
        let (server, clock) = Server::start_frozen();
        let mut news = server.connect();
        news.call(&["PSUBSCRIBE", &format!("{CHANNELS}*")]);
        Self { server, clock, connections: HashMap::new(), subscription: news }
    }
}

impl ServerNode {
    fn wire(&mut self, connection: u64) -> &mut Wire {
        self.connections.entry(connection).or_insert_with(|| self.server.connect())
    }

    /// Waits until the server has done by itself what can be seen of the core.
    ///
    /// # Panics
    /// When it does something else, with what it has done.
    pub fn wait_until_settled(&mut self, expected: [u64; 3]) {
        let mut seen = [0; 3];
        let is_so = || {
            seen = ["locks", "waiters", "handoffs"].map(|name| self.counter(name));
            (seen == expected).then_some(())
        };
        let has_settled = crate::within(SOON, is_so);
        assert!(has_settled.is_some(), "locks, waiters, hand-offs: {seen:?} and not {expected:?}");
    }
}

impl NodeUnderTest for ServerNode {
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer {
        self.wire(connection).call(words)
    }

    fn advance(&mut self, ms: u64) {
        self.clock.advance_module(Duration::from_millis(ms));
    }

    fn delete(&mut self, key: &[u8]) {
        self.wire(0).call(&[b"DEL", key]);
    }

    fn set_string(&mut self, key: &[u8]) {
        self.wire(0).call(&[b"SET", key, b"a plain client's value"]);
    }

    fn set_list(&mut self, key: &[u8]) {
        self.delete(key);
        self.wire(0).call(&[b"RPUSH", key, b"item"]);
    }

    fn close(&mut self, connection: u64) {
        let Some(mut wire) = self.connections.remove(&connection) else { return };
        let id = wire.call(&["CLIENT", "ID"]).int().to_string();
        drop(wire);
        let mut witness = self.server.connect();
        eventually("the server has noticed that the connection is closed", SOON, || {
            witness.call(&["CLIENT", "LIST", "ID", &id]).string().is_empty().then_some(())
        });
    }

    fn next_push(&mut self) -> String {
        let message = self.subscription.receive().expect("a message");
        let parts = message.list();
        push_text(parts[2].string().as_bytes(), parts[3].string().as_bytes())
    }

    fn counter(&mut self, name: &str) -> u64 {
        let value = self.server.info("redlock", &format!("redlock_{name}"));
        value.and_then(|value| value.parse().ok()).expect("a counter of the module")
    }
}
