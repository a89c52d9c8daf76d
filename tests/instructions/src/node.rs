//! Work for a node: the commands of clients, without the server.

use std::hint::black_box;

use redlock_contract::commands::Verb;
use redlock_core::durable::DurableState;
use redlock_core::fence::Stripes;
use redlock_core::node::Sweep;
use redlock_core::table::Database;
use redlock_core::{
    CommandError, Effect, KeyState, Keyspace, LockEvent, LockId, LockNode, Millis, Reply, grammar,
};

/// How many keys the module serves at a time.
const KEYS_PER_CALL: usize = 64;

/// How many keys the locks are spread over.
const KEYS: usize = 1_024;

/// Longer than every time to live here.
const MAX_TTL_MS: u64 = 100_000;

/// A node, its keys and its time. Keys are indexes, so that no lookup of a key adds to the count.
struct NodeBench<'a> {
    node: LockNode,
    names: &'a [String],
    table: Vec<KeyState>,
    now: Millis,
}

/// Names of keys, of a usual length.
fn names() -> Vec<String> {
    (0..KEYS).map(|key| format!("lock:{key:012}")).collect()
}

impl<'a> NodeBench<'a> {
    fn new(names: &'a [String]) -> Self {
        let node = LockNode::new(DurableState::new("0".repeat(40), 0), Stripes::default());
        Self { node, names, table: vec![KeyState::Empty; KEYS], now: Millis::START }
    }

    fn name(&self, key: usize) -> &'a [u8] {
        self.names[key % KEYS].as_bytes()
    }

    /// Sends a command with one key.
    fn send(&mut self, verb: Verb, key: usize, argv: &[&[u8]]) -> Result<Reply, CommandError> {
        self.now.0 += 1;
        let (argv, now) = (black_box(argv), &mut self.now);
        let keys = &mut SingleKeyspace {
            name: self.names[key % KEYS].as_bytes(),
            held: &mut self.table[key % KEYS],
        };
        match verb {
            Verb::Acquire => {
                let request = grammar::acquire(verb, argv, MAX_TTL_MS)?;
                self.node.acquire(keys, &request, now)
            }
            Verb::Extend => {
                let request = grammar::extend(verb, argv, MAX_TTL_MS)?;
                self.node.extend(keys, &request, now)
            }
            _ => {
                let request = grammar::release(verb, argv)?;
                self.node.release(keys, &request, now)
            }
        }
    }

    fn acquire(&mut self, key: usize, owner: &str, ttl_ms: &str) -> Result<Reply, CommandError> {
        self.send(Verb::Acquire, key, &[b"", self.name(key), owner.as_bytes(), ttl_ms.as_bytes()])
    }

    fn release(&mut self, key: usize, owner: &str) -> Result<Reply, CommandError> {
        self.send(Verb::Release, key, &[b"", self.name(key), owner.as_bytes()])
    }

    /// Sends a command with eight keys.
    fn send_eight(&mut self, verb: Verb, argv: &[&[u8]]) -> Result<Reply, CommandError> {
        self.now.0 += 1;
        let (argv, now) = (black_box(argv), &mut self.now);
        let keys = &mut EightKeys { names: self.names, table: &mut self.table };
        if verb == Verb::Macquire {
            let request = grammar::acquire(verb, argv, MAX_TTL_MS)?;
            self.node.acquire(keys, &request, now)
        } else {
            let request = grammar::release(verb, argv)?;
            self.node.release(keys, &request, now)
        }
    }

    /// Deletes expired locks. Returns how many.
    fn sweep(&mut self) -> usize {
        let mut deleted = 0;
        loop {
            match self.node.sweep(&mut self.now) {
                Sweep::Expired(lock) => {
                    let held = self
                        .table
                        .iter_mut()
                        .zip(self.names)
                        .find(|(held, _)| **held == KeyState::Lock(lock));
                    if let Some((held, name)) = held {
                        let keys = &mut SingleKeyspace { name: name.as_bytes(), held };
                        deleted += usize::from(self.node.expire(keys, lock));
                    }
                }
                Sweep::Busy => {}
                Sweep::Until(_) | Sweep::Idle => return deleted,
            }
        }
    }

    /// Hands free locks to waiters. Returns how many.
    fn serve(&mut self) -> usize {
        let (mut served, mut keys_left) = (0, KEYS_PER_CALL);
        while let Some((waiter, _, _)) = self.node.next_ready(&mut keys_left) {
            // Only the first key has waiters.
            let keys = &mut SingleKeyspace { name: self.names[0].as_bytes(), held: &mut self.table[0] };
            served += usize::from(self.node.serve(keys, waiter, &mut self.now).is_some());
        }
        served
    }
}

/// Replaces the state of a key. Returns the lock that this removes, if any.
fn replace(held: &mut KeyState, by: KeyState) -> Option<LockId> {
    match std::mem::replace(held, by) {
        KeyState::Lock(gone) => Some(gone),
        _ => None,
    }
}

struct SingleKeyspace<'a> {
    name: &'a [u8],
    held: &'a mut KeyState,
}

struct EightKeys<'a> {
    names: &'a [String],
    table: &'a mut [KeyState],
}

/// The methods that both keyspaces share.
macro_rules! alike {
    () => {
        fn database(&self) -> Database {
            0
        }
        fn connection(&self) -> Option<u64> {
            Some(1)
        }
        fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
            Ok(())
        }
        fn replicate(&mut self, effect: Effect<'_>) {
            black_box(&effect);
        }
        fn notify(&mut self, key: usize, event: LockEvent) {
            black_box((key, event));
        }
    };
}

impl Keyspace for SingleKeyspace<'_> {
    fn count(&self) -> usize {
        1
    }
    fn name(&self, _: usize) -> &[u8] {
        self.name
    }
    fn key_state(&self, _: usize) -> KeyState {
        *self.held
    }
    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        replace(self.held, KeyState::Lock(lock))
    }
    fn delete(&mut self, _: usize) -> Option<LockId> {
        replace(self.held, KeyState::Empty)
    }
    alike!();
}

impl Keyspace for EightKeys<'_> {
    fn count(&self) -> usize {
        8
    }
    fn name(&self, key: usize) -> &[u8] {
        self.names[key].as_bytes()
    }
    fn key_state(&self, key: usize) -> KeyState {
        self.table[key]
    }
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        replace(&mut self.table[key], KeyState::Lock(lock))
    }
    fn delete(&mut self, key: usize) -> Option<LockId> {
        replace(&mut self.table[key], KeyState::Empty)
    }
    alike!();
}

const OWNER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const OTHER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// The key of a repetition.
fn key(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Panics if a command had another result: the count would be of other work.
fn must(is_so: bool) {
    assert!(is_so, "the node sent another reply");
}

fn is_granted(reply: Result<Reply, CommandError>) -> bool {
    matches!(reply, Ok(Reply::Integer(1..)))
}

pub(crate) fn acquire_and_release(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    for number in 0..times {
        must(is_granted(scene.acquire(key(number), OWNER, "30000")));
        must(is_granted(scene.release(key(number), OWNER)));
    }
}

pub(crate) fn extend(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    must(is_granted(scene.acquire(0, OWNER, "90000")));
    for _ in 0..times {
        let argv: [&[u8]; 4] = [b"", scene.name(0), OWNER.as_bytes(), b"90000"];
        must(is_granted(scene.send(Verb::Extend, 0, &argv)));
    }
}

pub(crate) fn refuse(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    must(is_granted(scene.acquire(0, OWNER, "90000")));
    for _ in 0..times {
        // Time stands still, so that the lock never expires.
        scene.now.0 -= 1;
        must(scene.acquire(0, OTHER, "30000") == Ok(Reply::Nil));
    }
}

pub(crate) fn release_nothing(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    for number in 0..times {
        must(scene.release(key(number), OWNER) == Ok(Reply::Integer(0)));
    }
}

pub(crate) fn acquire_with_options(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    for number in 0..times {
        let argv: [&[u8]; 12] = [
            b"",
            scene.name(key(number)),
            OWNER.as_bytes(),
            b"30000",
            b"FENCE",
            b"7",
            b"LABEL",
            b"nightly export",
            b"WAIT",
            b"1",
            b"30000",
            b"desk-3",
        ];
        must(is_granted(scene.send(Verb::Acquire, key(number), &argv)));
        must(is_granted(scene.release(key(number), OWNER)));
    }
}

pub(crate) fn acquire_and_release_eight(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    let mut argv: Vec<&[u8]> = vec![b"", b"8"];
    argv.extend((0..8).map(|key| scene.name(key)));
    argv.push(OWNER.as_bytes());
    let release = argv.clone();
    argv.push(b"30000");
    for _ in 0..times {
        must(is_granted(scene.send_eight(Verb::Macquire, &argv)));
        must(is_granted(scene.send_eight(Verb::Mrelease, &release)));
    }
}

pub(crate) fn expire(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    for _ in 0..times {
        must(is_granted(scene.acquire(0, OWNER, "5000")));
        scene.now.0 += 6_000;
        must(scene.sweep() == 1);
    }
}

pub(crate) fn hand_on(times: u64) {
    let names = names();
    let mut scene = NodeBench::new(&names);
    must(is_granted(scene.acquire(0, OWNER, "30000")));
    let (mut holder, mut waiter) = (OWNER, OTHER);
    for _ in 0..times {
        let argv: [&[u8]; 8] =
            [b"", scene.name(0), waiter.as_bytes(), b"30000", b"WAIT", b"1", b"30000", b"desk-3"];
        must(matches!(scene.send(Verb::Acquire, 0, &argv), Ok(Reply::Queued { .. })));
        must(is_granted(scene.release(0, holder)));
        must(scene.serve() == 1);
        (holder, waiter) = (waiter, holder);
    }
}
