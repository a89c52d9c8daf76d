//! What the sweep, a crash and a quarantine must not change. The contract of commands is a table, elsewhere.

use super::*;
use crate::catalog::Verb;
use crate::grammar;
use crate::image::LockImage;
use crate::keyspace::{Effect, Occupant};
use crate::memory::MemoryNode;
use crate::table::{Database, LockId};

/// A keyspace of one key that nobody sweeps.
struct OneKey(Occupant);

impl OneKey {
    fn now_has(&mut self, occupant: Occupant) -> Option<LockId> {
        match std::mem::replace(&mut self.0, occupant) {
            Occupant::Lock(gone) => Some(gone),
            _ => None,
        }
    }
}

impl Keyspace for OneKey {
    fn count(&self) -> usize {
        1
    }
    fn database(&self) -> Database {
        0
    }
    fn connection(&self) -> Option<u64> {
        None
    }
    fn name(&self, _: usize) -> &[u8] {
        b"k"
    }
    fn occupant(&self, _: usize) -> Occupant {
        self.0
    }
    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        self.now_has(Occupant::Lock(lock))
    }
    fn delete(&mut self, _: usize) -> Option<LockId> {
        self.now_has(Occupant::Empty)
    }
    fn store(&mut self, _: &Ledger) -> Result<(), Fault> {
        Ok(())
    }
    fn replicate(&mut self, _: Effect<'_>) {}
}

fn node() -> Node {
    Node::new(Ledger::new("f".repeat(40)), 0)
}

fn acquire(node: &mut Node, keys: &mut OneKey, owner: &[u8], mut now: Millis) -> Result<Reply, Fault> {
    let request = grammar::acquire(Verb::Acquire, &[b"", b"k", owner, b"1000"], 10_000).unwrap();
    node.acquire(keys, &request, &mut now)
}

#[test]
fn a_lock_that_has_run_out_is_over_before_it_is_swept() {
    let (mut node, mut keys) = (node(), OneKey(Occupant::Empty));
    let granted = Millis::START;
    assert_eq!(acquire(&mut node, &mut keys, b"a", granted), Ok(Reply::Integer(1)));
    let mut over = granted.deadline_after(1_000);
    let extend = grammar::extend(Verb::Extend, &[b"", b"k", b"a", b"1000"], 10_000).unwrap();
    assert_eq!(node.extend(&mut keys, &extend, &mut over), Ok(Reply::Nil));
    let release = grammar::release(Verb::Release, &[b"", b"k", b"a"]).unwrap();
    assert_eq!(node.release(&mut keys, &release, &mut over), Ok(Reply::Integer(0)));
    assert!(matches!(keys.0, Occupant::Lock(_)), "it still stands there");
    assert_eq!(acquire(&mut node, &mut keys, b"b", over), Ok(Reply::Integer(2)));
}

#[test]
fn a_shorter_reason_to_wait_does_not_end_a_longer_one() {
    let (mut node, mut keys) = (node(), OneKey(Occupant::Empty));
    let mut now = Millis::START;
    node.quarantine(500, &mut now);
    node.quarantine(20, &mut now);
    let refused = Err(Fault::Quarantine { left_ms: 1 });
    assert_eq!(acquire(&mut node, &mut keys, b"a", Millis(now.0 + 500)), refused);
    assert_eq!(acquire(&mut node, &mut keys, b"a", Millis(now.0 + 501)), Ok(Reply::Integer(1)));
}

#[test]
fn after_a_crash_no_number_comes_again_and_no_lock_too_early() {
    let mut memory = MemoryNode::new(&"f".repeat(40));
    let mut now = Millis::START;
    let acquire = |memory: &mut MemoryNode, owner: &[u8], now| {
        memory.execute(&[b"REDLOCK.ACQUIRE", b"k", owner, b"1000"], 1, now)
    };
    for owner in [b"a", b"b", b"c"] {
        assert!(matches!(acquire(&mut memory, owner, now), Ok(Reply::Integer(_))));
        now = now.deadline_after(1_000);
    }
    assert_eq!(acquire(&mut memory, b"d", now), Ok(Reply::Integer(4)));
    memory.crash(now);
    let last_of_the_lock = Millis(now.deadline_after(1_000).0 - 1);
    assert!(matches!(acquire(&mut memory, b"e", last_of_the_lock), Err(Fault::Quarantine { .. })));
    now = Millis(now.0 + 2_000);
    let again = acquire(&mut memory, b"e", now);
    assert!(matches!(again, Ok(Reply::Integer(fence)) if fence > 4), "{again:?}");
}

/// A keyspace whose ledger can be stored or not, and was last stored like this.
struct Disk {
    keys: OneKey,
    is_full: bool,
    stored: Option<Ledger>,
}

impl Keyspace for Disk {
    fn count(&self) -> usize {
        1
    }
    fn database(&self) -> Database {
        0
    }
    fn connection(&self) -> Option<u64> {
        None
    }
    fn name(&self, _: usize) -> &[u8] {
        b"k"
    }
    fn occupant(&self, key: usize) -> Occupant {
        self.keys.occupant(key)
    }
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        self.keys.put(key, lock)
    }
    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.keys.delete(key)
    }
    fn store(&mut self, ledger: &Ledger) -> Result<(), Fault> {
        if self.is_full {
            return Err(Fault::NotStored);
        }
        self.stored = Some(ledger.clone());
        Ok(())
    }
    fn replicate(&mut self, _: Effect<'_>) {}
}

#[test]
fn a_ledger_that_is_owed_is_stored_whole_before_anything_is_granted() {
    let (mut node, mut now) = (node(), Millis::START);
    let high = LockImage {
        owner: b"theirs".to_vec(),
        label: Vec::new(),
        fence: 50_000_000,
        left_ms: 600_000,
        held_ms: 0,
        extensions: 0,
    };
    // A copy takes a lock that it cannot remember.
    let owed = node.ledger_for(&high).expect("neither the number nor the time is covered");
    assert!(owed.mark > high.fence && owed.longest_ttl_ms >= high.left_ms, "{owed:?}");
    node.owe_ledger(owed.clone());
    node.load(0, b"elsewhere", &high, &mut now).unwrap();
    let mut disk = Disk { keys: OneKey(Occupant::Empty), is_full: true, stored: None };
    // A number and a time far below those that are owed.
    let request = grammar::acquire(Verb::Acquire, &[b"", b"k", b"mine", b"1000"], 10_000).unwrap();
    assert_eq!(node.acquire(&mut disk, &request, &mut now), Err(Fault::NotStored));
    disk.is_full = false;
    assert_eq!(node.acquire(&mut disk, &request, &mut now), Ok(Reply::Integer(1)));
    assert_eq!(disk.stored, Some(owed), "and it does not go back by that");
    disk.is_full = true;
    assert_eq!(
        node.acquire(&mut disk, &request, &mut now),
        Ok(Reply::Integer(1)),
        "nothing is owed any longer"
    );
}
