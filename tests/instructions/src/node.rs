//! Work for a node: what comes to a server, without the server.

use std::hint::black_box;

use redlock_contract::commands::Verb;
use redlock_core::durable::DurableState;
use redlock_core::fence::Stripes;
use redlock_core::node::Sweep;
use redlock_core::table::Database;
use redlock_core::{Effect, Fault, Keyspace, LockId, Millis, Node, Occupant, Reply, grammar};

/// As many as the module serves at a time.
const KEYS_PER_CALL: usize = 64;

/// Locks are spread over so many keys.
const KEYS: usize = 1_024;

/// More than enough for every time to live here.
const MAX_TTL_MS: u64 = 100_000;

/// A node, its keys and its time. Keys are numbers: whoever looks one up should take no part in what is
/// counted.
struct NodeBench<'a> {
    node: Node,
    names: &'a [String],
    table: Vec<Occupant>,
    now: Millis,
}

/// Names of keys as long as lock names tend to be.
fn names() -> Vec<String> {
    (0..KEYS).map(|key| format!("lock:{key:012}")).collect()
}

impl<'a> NodeBench<'a> {
    fn new(names: &'a [String]) -> Self {
        let node = Node::new(DurableState::new("0".repeat(40), 0), Stripes::default());
        Self { node, names, table: vec![Occupant::Empty; KEYS], now: Millis::START }
    }

    fn name(&self, key: usize) -> &'a [u8] {
        self.names[key % KEYS].as_bytes()
    }

    /// Sends a command with one key.
    fn send(&mut self, verb: Verb, key: usize, argv: &[&[u8]]) -> Result<Reply, Fault> {
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

    fn acquire(&mut self, key: usize, owner: &str, ttl_ms: &str) -> Result<Reply, Fault> {
        self.send(Verb::Acquire, key, &[b"", self.name(key), owner.as_bytes(), ttl_ms.as_bytes()])
    }

    fn release(&mut self, key: usize, owner: &str) -> Result<Reply, Fault> {
        self.send(Verb::Release, key, &[b"", self.name(key), owner.as_bytes()])
    }

    /// Sends a command with eight keys.
    fn send_eight(&mut self, verb: Verb, argv: &[&[u8]]) -> Result<Reply, Fault> {
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

    /// Deletes what has run out.
    fn sweep(&mut self) -> usize {
        let mut deleted = 0;
        loop {
            match self.node.sweep(&mut self.now) {
                Sweep::Expired(lock) => {
                    if let Some(held) = self.table.iter_mut().find(|held| **held == Occupant::Lock(lock)) {
                        *held = Occupant::Empty;
                    }
                    self.node.expired(lock, Some(lock));
                    deleted += 1;
                }
                Sweep::Busy => {}
                Sweep::Until(_) | Sweep::Idle => return deleted,
            }
        }
    }

    /// Gives locks to those who wait for them.
    fn serve(&mut self) -> usize {
        let (mut served, mut keys_left) = (0, KEYS_PER_CALL);
        while let Some((waiter, _, _)) = self.node.next_due(&mut keys_left) {
            // Only the first key has a line.
            let keys = &mut SingleKeyspace { name: self.names[0].as_bytes(), held: &mut self.table[0] };
            served += usize::from(self.node.serve(keys, waiter, &mut self.now).is_some());
        }
        served
    }
}

/// Puts something in the place of what is there; the lock that is gone by that.
fn replace(held: &mut Occupant, by: Occupant) -> Option<LockId> {
    match std::mem::replace(held, by) {
        Occupant::Lock(gone) => Some(gone),
        _ => None,
    }
}

struct SingleKeyspace<'a> {
    name: &'a [u8],
    held: &'a mut Occupant,
}

struct EightKeys<'a> {
    names: &'a [String],
    table: &'a mut [Occupant],
}

/// The parts of a keyspace that are alike wherever the keys are.
macro_rules! alike {
    () => {
        fn database(&self) -> Database {
            0
        }
        fn connection(&self) -> Option<u64> {
            Some(1)
        }
        fn store(&mut self, _: &DurableState) -> Result<(), Fault> {
            Ok(())
        }
        fn replicate(&mut self, effect: Effect<'_>) {
            black_box(&effect);
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
    fn occupant(&self, _: usize) -> Occupant {
        *self.held
    }
    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        replace(self.held, Occupant::Lock(lock))
    }
    fn delete(&mut self, _: usize) -> Option<LockId> {
        replace(self.held, Occupant::Empty)
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
    fn occupant(&self, key: usize) -> Occupant {
        self.table[key]
    }
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        replace(&mut self.table[key], Occupant::Lock(lock))
    }
    fn delete(&mut self, key: usize) -> Option<LockId> {
        replace(&mut self.table[key], Occupant::Empty)
    }
    alike!();
}

const OWNER: &str = "0f8fad5b-d9cb-469f-a165-70867728950e";
const OTHER: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7";

/// Counts are small enough to be keys.
fn key(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

/// Counting refusals, or failures, would be worth nothing.
fn must(is_so: bool) {
    assert!(is_so, "the node answered something else");
}

fn is_granted(reply: Result<Reply, Fault>) -> bool {
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
        // Time stands still, so that the lock does not run out however often it is asked for.
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
