//! One trait for the pure core over a hash map and for a real server with the module. Both must behave the same.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use redlock_core::reply::{Fields, Value};
use redlock_core::{KeyState, MemoryNode, Millis, Reply};

use crate::cases::push_line;
use crate::{Answer, FakeClock, SOON, Server, Wire, eventually};

/// A node that takes the commands of the contract on several connections. Its clock moves only with `advance`.
pub trait NodeUnderTest {
    /// Runs a command on a connection.
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer;
    /// Advances the clock.
    fn advance(&mut self, ms: u64);
    /// Deletes a key as an administrator would.
    fn delete(&mut self, key: &[u8]);
    /// Puts a string under a key, as a client that locks with `SET` would.
    fn set_string(&mut self, key: &[u8]);
    /// Puts a value of another type under a key.
    fn set_list(&mut self, key: &[u8]);
    /// Closes a connection. A later connection may have the same number.
    fn close(&mut self, connection: u64);
    /// The next grant push to a waiter, in the order in which the node made them, as [`push_line`] writes it.
    fn next_push(&mut self) -> String;
    /// A counter of `INFO redlock`.
    fn counter(&mut self, name: &str) -> u64;
}

/// The node id of the pure core.
const CORE_ID: &str = "pure";

/// The pure core.
#[derive(Debug)]
pub struct CoreNode {
    node: MemoryNode,
    now: Millis,
    pushes: VecDeque<String>,
    /// How often each connection number was closed, so that every connection has its own id in the core.
    closed: HashMap<u64, u64>,
    words: SentWords,
}

/// A running server with the module, its clock frozen.
#[derive(Debug)]
pub struct ServerNode {
    server: Server,
    clock: FakeClock,
    connections: HashMap<u64, Wire>,
    subscription: Wire,
    node_id: String,
    words: SentWords,
}

/// The words of all commands so far: any of them may be the owner that signs a push.
#[derive(Debug, Default)]
struct SentWords(BTreeSet<Vec<u8>>);

impl SentWords {
    fn add(&mut self, words: &[&[u8]]) {
        self.0.extend(words.iter().map(|word| word.to_vec()));
    }

    fn push_line(&self, node_id: &str, channel: &[u8], message: &[u8]) -> String {
        push_line(node_id, self.0.iter().map(Vec::as_slice), channel, message)
    }
}

impl Default for CoreNode {
    fn default() -> Self {
        Self {
            node: MemoryNode::new(CORE_ID),
            now: Millis::START,
            pushes: VecDeque::new(),
            closed: HashMap::new(),
            words: SentWords::default(),
        }
    }
}

impl CoreNode {
    /// Runs the node's background work. Returns the number of held locks, of waiters and of hand-offs.
    pub fn settle(&mut self) -> [u64; 3] {
        self.node.sweep(self.now);
        let made = self.node.take_pushes().into_iter();
        self.pushes.extend(made.map(|made| self.words.push_line(CORE_ID, &made.channel, &made.message)));
        [self.node.node().held(), self.node.node().waiters(), self.counter("handoffs")]
    }

    /// How many pushes the test has not read yet.
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
        self.words.add(words);
        match self.node.execute(words, self.id(connection), self.now) {
            Ok(Reply::Integer(number)) => Answer::Int(i64::try_from(number).expect("fences fit a reply")),
            Ok(Reply::Nil) => Answer::Nil,
            Ok(Reply::Map(pairs)) => flat(pairs),
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
        self.node.plant(key, KeyState::ForeignString);
    }

    fn set_list(&mut self, key: &[u8]) {
        self.node.plant(key, KeyState::OtherType);
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

/// A map as RESP2 sends it.
fn flat(pairs: Fields) -> Answer {
    Answer::List(pairs.into_iter().flat_map(|(name, value)| [Answer::text(name), answer(value)]).collect())
}

fn answer(value: Value) -> Answer {
    match value {
        Value::Integer(number) => Answer::Int(i64::try_from(number).expect("numbers fit a reply")),
        Value::Bytes(bytes) => Answer::Text(bytes),
        Value::Maps(maps) => Answer::List(maps.into_iter().map(flat).collect()),
    }
}

impl Default for ServerNode {
    fn default() -> Self {
        let (server, clock) = Server::start_frozen();
        let mut subscription = server.connect();
        let node_id = subscription.call_strs("REDLOCK.NODE").field("node-id").expect("an id").string();
        subscription.call_strs("PSUBSCRIBE redlock:grant:*");
        Self {
            server,
            clock,
            connections: HashMap::new(),
            subscription,
            node_id,
            words: SentWords::default(),
        }
    }
}

impl ServerNode {
    fn wire(&mut self, connection: u64) -> &mut Wire {
        self.connections.entry(connection).or_insert_with(|| self.server.connect())
    }

    /// Waits until the server has as many held locks, waiters and hand-offs as the core.
    ///
    /// # Panics
    /// When the numbers still differ at the deadline.
    pub fn wait_until_settled(&mut self, expected: [u64; 3]) {
        let mut seen = [0; 3];
        let is_so = || {
            seen = ["locks", "waiters", "handoffs"].map(|name| self.counter(name));
            (seen == expected).then_some(())
        };
        let has_settled = crate::within(SOON, is_so);
        assert!(has_settled.is_some(), "locks, waiters, hand-offs: {seen:?}, expected {expected:?}");
    }
}

impl NodeUnderTest for ServerNode {
    fn call(&mut self, connection: u64, words: &[&[u8]]) -> Answer {
        self.words.add(words);
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
        self.words.push_line(&self.node_id, parts[2].string().as_bytes(), parts[3].string().as_bytes())
    }

    fn counter(&mut self, name: &str) -> u64 {
        let value = self.server.info("redlock", &format!("redlock_{name}"));
        value.and_then(|value| value.parse().ok()).expect("a counter of the module")
    }
}
