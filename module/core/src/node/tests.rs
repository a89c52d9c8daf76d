//! Tests of the sweep, crashes, quarantines and the durable state. The contract of the commands is a table in
//! `tests/src/cases.rs`.

use super::*;
use crate::durable::Dataset;
use crate::grammar;
use crate::image::LockImage;
use crate::keyspace::{Effect, KeyState, LockEvent};
use crate::memory::MemoryNode;
use crate::table::{Database, LockId};
use redlock_contract::commands::Verb;
use redlock_contract::limits::{MAX_REPLICATED_FENCE, RAISE_CAP, RAISE_STEP};
use redlock_contract::{HighWater, NonVoting};

/// A keyspace of one key that no sweep visits.
struct SingleKey(KeyState);

impl SingleKey {
    fn replace(&mut self, key_state: KeyState) -> Option<LockId> {
        match std::mem::replace(&mut self.0, key_state) {
            KeyState::Lock(gone) => Some(gone),
            _ => None,
        }
    }
}

impl Keyspace for SingleKey {
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
    fn key_state(&self, _: usize) -> KeyState {
        self.0
    }
    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        self.replace(KeyState::Lock(lock))
    }
    fn delete(&mut self, _: usize) -> Option<LockId> {
        self.replace(KeyState::Empty)
    }
    fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
        Ok(())
    }
    fn replicate(&mut self, _: Effect<'_>) {}
    fn notify(&mut self, _: usize, _: LockEvent) {}
}

fn node() -> LockNode {
    LockNode::new(DurableState::new("f".repeat(40), 0), Stripes::default())
}

fn acquire(
    node: &mut LockNode,
    keys: &mut SingleKey,
    owner: &[u8],
    mut now: Millis,
) -> Result<Reply, CommandError> {
    let request = grammar::acquire(Verb::Acquire, &[b"", b"k", owner, b"1000"], 10_000).unwrap();
    node.acquire(keys, &request, &mut now)
}

#[test]
fn an_expired_lock_ends_before_the_sweep_deletes_it() {
    let (mut node, mut keys) = (node(), SingleKey(KeyState::Empty));
    let granted = Millis::START;
    assert_eq!(acquire(&mut node, &mut keys, b"a", granted), Ok(Reply::Integer(1)));
    let mut over = granted.deadline_after(1_000);
    let extend = grammar::extend(Verb::Extend, &[b"", b"k", b"a", b"1000"], 10_000).unwrap();
    assert_eq!(node.extend(&mut keys, &extend, &mut over), Ok(Reply::Nil));
    let release = grammar::release(Verb::Release, &[b"", b"k", b"a"]).unwrap();
    assert_eq!(node.release(&mut keys, &release, &mut over), Ok(Reply::Integer(0)));
    assert!(matches!(keys.0, KeyState::Lock(_)), "the sweep has not deleted it");
    assert_eq!(acquire(&mut node, &mut keys, b"b", over), Ok(Reply::Integer(2)));
}

#[test]
fn a_shorter_quarantine_does_not_end_a_longer_one() {
    let (mut node, mut keys) = (node(), SingleKey(KeyState::Empty));
    let mut now = Millis::START;
    node.quarantine(500, &mut now);
    node.quarantine(20, &mut now);
    let refused = Err(CommandError::Quarantine { left_ms: 1 });
    assert_eq!(acquire(&mut node, &mut keys, b"a", Millis(now.0 + 500)), refused);
    assert_eq!(acquire(&mut node, &mut keys, b"a", Millis(now.0 + 501)), Ok(Reply::Integer(1)));
}

#[test]
fn after_a_crash_no_fence_is_reused_and_no_lock_is_granted_too_early() {
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
    assert!(matches!(acquire(&mut memory, b"e", last_of_the_lock), Err(CommandError::Quarantine { .. })));
    now = Millis(now.0 + 2_000);
    let again = acquire(&mut memory, b"e", now);
    assert!(matches!(again, Ok(Reply::Integer(fence)) if fence > 4), "{again:?}");
}

/// A keyspace whose disk may be full, with the last state that it stored.
struct FallibleDisk {
    keys: SingleKey,
    is_full: bool,
    stored: Option<DurableState>,
}

impl Keyspace for FallibleDisk {
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
    fn key_state(&self, key: usize) -> KeyState {
        self.keys.key_state(key)
    }
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        self.keys.put(key, lock)
    }
    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.keys.delete(key)
    }
    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        if self.is_full {
            return Err(CommandError::NotStored);
        }
        self.stored = Some(state.clone());
        Ok(())
    }
    fn replicate(&mut self, _: Effect<'_>) {}
    fn notify(&mut self, _: usize, _: LockEvent) {}
}

#[test]
fn an_unsaved_state_is_stored_before_anything_is_granted() {
    let (mut node, mut now) = (node(), Millis::START);
    let high = LockImage {
        owner: b"theirs".to_vec(),
        label: Vec::new(),
        fence: 50_000_000,
        left_ms: 600_000,
        held_ms: 0,
        extensions: 0,
    };
    // A replica loads a lock and cannot store its state.
    let unsaved =
        node.state_to_load(b"elsewhere", &high).expect("neither the fence nor the lease is covered");
    assert!(
        unsaved.high_water.highest() > high.fence && unsaved.longest_lease_ms >= high.left_ms,
        "{unsaved:?}"
    );
    node.set_unsaved_state(unsaved.clone());
    node.load(0, b"elsewhere", &high, &mut now).unwrap();
    let mut disk = FallibleDisk { keys: SingleKey(KeyState::Empty), is_full: true, stored: None };
    // A fence and a lease far below the unsaved ones.
    let request = grammar::acquire(Verb::Acquire, &[b"", b"k", b"mine", b"1000"], 10_000).unwrap();
    assert_eq!(node.acquire(&mut disk, &request, &mut now), Err(CommandError::NotStored));
    disk.is_full = false;
    assert_eq!(node.acquire(&mut disk, &request, &mut now), Ok(Reply::Integer(1)));
    let stored = disk.stored.clone().expect("it is stored");
    assert!(
        stored.high_water.highest() >= unsaved.high_water.highest()
            && stored.longest_lease_ms == unsaved.longest_lease_ms
    );
    disk.is_full = true;
    assert_eq!(node.acquire(&mut disk, &request, &mut now), Ok(Reply::Integer(1)), "the state is stored");
}

#[test]
fn a_longer_lease_is_stored_before_it_is_granted() {
    let (mut node, mut now) = (node(), Millis::START);
    let mut disk = FallibleDisk { keys: SingleKey(KeyState::Empty), is_full: false, stored: None };
    for ttl_ms in [1_000, 60_000] {
        let ttl = ttl_ms.to_string();
        let request = grammar::acquire(Verb::Acquire, &[b"", b"k", b"me", ttl.as_bytes()], 100_000).unwrap();
        assert!(node.acquire(&mut disk, &request, &mut now).is_ok());
        assert!(disk.stored.as_ref().is_some_and(|state| state.longest_lease_ms >= ttl_ms), "{ttl_ms}");
    }
}

/// A lock as it is saved.
fn image(fence: u64, left_ms: u64) -> LockImage {
    LockImage { owner: b"theirs".to_vec(), label: Vec::new(), fence, left_ms, held_ms: 0, extensions: 0 }
}

/// Sends a line to a node in memory.
fn send(memory: &mut MemoryNode, line: &str, now: Millis) -> Result<Reply, CommandError> {
    let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
    memory.execute(&words, 1, now)
}

fn non_voting(reason: NonVoting) -> MemoryNode {
    let mut memory = MemoryNode::new(&"f".repeat(40));
    let state = memory.node_mut().without_vote(reason, "a".repeat(40), Dataset::default());
    memory.node_mut().set_state(state);
    memory
}

#[test]
fn a_non_voting_node_grants_and_extends_nothing_and_serves_all_other_commands() {
    let (mut memory, mut now) = (non_voting(NonVoting::Replica), Millis::START);
    let lock = memory.node_mut().load(0, b"k", &image(7, 10_000), &mut now).unwrap();
    memory.plant(b"k", KeyState::Lock(lock));
    for line in [
        "REDLOCK.ACQUIRE free me 1000",
        "REDLOCK.ACQUIRE k me 1000",
        "REDLOCK.ACQUIRE k me 1000 WAIT 1 1000 channel",
        "REDLOCK.ACQUIRE k theirs 1000",
        "REDLOCK.MACQUIRE 2 a b me 1000",
        "REDLOCK.EXTEND k theirs 1000",
        "REDLOCK.MEXTEND 1 k theirs 1000",
    ] {
        assert_eq!(send(&mut memory, line, now), Err(CommandError::NonVoting(NonVoting::Replica)), "{line}");
    }
    assert!(matches!(send(&mut memory, "REDLOCK.INSPECT k", now), Ok(Reply::Map(_))));
    assert!(matches!(send(&mut memory, "REDLOCK.NODE", now), Ok(Reply::Map(_))));
    assert_eq!(send(&mut memory, "REDLOCK.RELEASE k theirs", now), Ok(Reply::Integer(1)));
    let text = CommandError::NonVoting(NonVoting::Replica).to_string();
    assert!(text.starts_with("REDLOCKNOVOTE ") && text.contains("redlock admit"), "{text}");
}

#[test]
fn an_admitted_node_waits_and_then_votes_above_the_floor() {
    let (mut memory, now) = (non_voting(NonVoting::NoState), Millis::START);
    let (own, other) = ("a".repeat(40), "f".repeat(40));
    let admit = |id: &str| format!("REDLOCK.ADMIT {id} 5000000 1000");
    let refused = send(&mut memory, &admit(&other), now).map_err(|error| error.to_string());
    let text = "REDLOCKARG argument 1 (node-id) must be the id of this node, as REDLOCK.NODE returns it";
    assert_eq!(refused, Err(text.to_owned()));
    assert_eq!(send(&mut memory, &admit(&own), now), Ok(Reply::Integer(1)));
    let acquire = "REDLOCK.ACQUIRE k me 1000";
    assert_eq!(
        send(&mut memory, acquire, now),
        Err(CommandError::Quarantine { left_ms: 1_013 }),
        "with the drift"
    );
    memory.crash(now);
    assert!(matches!(
        send(&mut memory, acquire, Millis(now.0 + 1_012)),
        Err(CommandError::Quarantine { .. })
    ));
    let granted = send(&mut memory, acquire, Millis(now.0 + 2_000));
    assert!(matches!(granted, Ok(Reply::Integer(fence)) if fence > 5_000_000), "{granted:?}");

    let mut undecided = non_voting(NonVoting::SeveralStates);
    assert_eq!(
        send(&mut undecided, &admit(&own), now),
        Err(CommandError::NonVoting(NonVoting::SeveralStates))
    );
}

/// A lock that the node has loaded may be over for the other nodes, and its owner must not extend it.
#[test]
fn an_admitted_node_waits_until_its_loaded_locks_have_expired() {
    for wait_ms in [0, 1_000] {
        let (mut memory, mut now) = (non_voting(NonVoting::NoState), Millis::START);
        let lock = memory.node_mut().load(0, b"k", &image(7, 10_000), &mut now).unwrap();
        memory.plant(b"k", KeyState::Lock(lock));
        let admit = format!("REDLOCK.ADMIT {} 5000000 {wait_ms}", "a".repeat(40));
        assert_eq!(send(&mut memory, &admit, now), Ok(Reply::Integer(1)));
        let late = Millis(now.0 + 9_999);
        let extended = send(&mut memory, "REDLOCK.EXTEND k theirs 1000", late);
        // Without a wait, the sender has waited already.
        let is_refused = matches!(extended, Err(CommandError::Quarantine { .. }));
        assert_eq!(is_refused, wait_ms > 0, "{extended:?} after a wait of {wait_ms} ms");
    }
}

#[test]
fn nothing_changes_when_the_state_of_an_admitted_node_cannot_be_stored() {
    let (mut memory, mut now) = (non_voting(NonVoting::Asked), Millis::START);
    let id = "a".repeat(40);
    let request = grammar::Admit { node_id: id.as_bytes(), floor: HighWater::new(9), wait_ms: 5 };
    assert_eq!(
        memory.node_mut().admit(&request, |_| Err(CommandError::NotStored), &mut now),
        Err(CommandError::NotStored)
    );
    assert_eq!(memory.node().state().non_voting, Some(NonVoting::Asked));
    assert_eq!(memory.node().largest_fence(), 0);
    // The failed store may have replaced the file: at the next start, the server must not vote.
    let again = memory.node_mut().state_to_store(&mut now).expect("the present state is stored again");
    assert_eq!(again.non_voting, Some(NonVoting::Asked));
}

#[test]
fn a_loaded_lock_raises_the_fences_of_its_key() {
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    let lock = memory.node_mut().load(0, b"k", &image(77, 10_000), &mut now).unwrap();
    memory.plant(b"k", KeyState::Lock(lock));
    assert_eq!(send(&mut memory, "REDLOCK.RELEASE k theirs", now), Ok(Reply::Integer(1)));
    assert_eq!(send(&mut memory, "REDLOCK.ACQUIRE k me 1000", now), Ok(Reply::Integer(78)));
}

#[test]
fn a_lock_that_a_replica_copies_raises_the_fences_of_its_key() {
    let (mut node, mut keys, mut now) = (node(), SingleKey(KeyState::Empty), Millis::START);
    let apply = grammar::apply(&[b"REDLOCK.APPLY", b"k", b"theirs", b"77", b"1000"]).unwrap();
    node.apply(&mut keys, &apply, &mut now).unwrap();
    let release = grammar::release(Verb::Release, &[b"", b"k", b"theirs"]).unwrap();
    node.replay_release(&mut keys, &release);
    assert_eq!(acquire(&mut node, &mut keys, b"me", now), Ok(Reply::Integer(78)));
}

/// A replica does not vote, so it takes over what its master has granted, whatever its own limit is.
#[test]
fn a_replica_copies_a_lock_that_is_longer_than_its_own_limit_but_not_longer_than_any_limit() {
    for (said, copied) in [
        (60_001, 60_001),
        (MAX_TTL_LIMIT_MS, MAX_TTL_LIMIT_MS),
        (MAX_TTL_LIMIT_MS + 1, MAX_TTL_LIMIT_MS),
        (MAX_FENCE, MAX_TTL_LIMIT_MS),
    ] {
        let (mut node, mut keys, mut now) = (node(), SingleKey(KeyState::Empty), Millis::START);
        node.set_max_ttl_ms(60_000);
        let said = said.to_string();
        let apply = grammar::apply(&[b"REDLOCK.APPLY", b"k", b"theirs", b"77", said.as_bytes()]).unwrap();
        node.apply(&mut keys, &apply, &mut now).unwrap();
        let KeyState::Lock(lock) = keys.0 else { panic!("no lock") };
        assert_eq!(node.image(lock, &mut now).left_ms, copied, "{said}");
    }
}

/// The largest fence that a replica copies leaves enough fences for its key.
#[test]
fn a_key_has_fences_left_after_a_copied_lock() {
    let (mut node, mut keys, mut now) = (node(), SingleKey(KeyState::Empty), Millis::START);
    let line = |fence: u64| format!("REDLOCK.APPLY k theirs {fence} 1000");
    let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let of = |words: &[Vec<u8>]| {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        grammar::apply(&words).map(|apply| apply.fence)
    };
    assert!(of(&words(&line(MAX_REPLICATED_FENCE + 1))).is_err());
    let highest = words(&line(MAX_REPLICATED_FENCE));
    assert_eq!(of(&highest), Ok(MAX_REPLICATED_FENCE));
    let highest: Vec<&[u8]> = highest.iter().map(Vec::as_slice).collect();
    node.apply(&mut keys, &grammar::apply(&highest).unwrap(), &mut now).unwrap();
    let release = grammar::release(Verb::Release, &[b"", b"k", b"theirs"]).unwrap();
    node.replay_release(&mut keys, &release);
    let next = acquire(&mut node, &mut keys, b"me", now);
    assert_eq!(next, Ok(Reply::Integer(MAX_REPLICATED_FENCE + 1)));
    const { assert!(MAX_FENCE - MAX_REPLICATED_FENCE > RAISE_STEP << 32, "raises cannot use up the rest") };
}

#[test]
fn in_quarantine_a_loaded_lock_cannot_be_extended_but_can_be_released() {
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    assert!(send(&mut memory, "REDLOCK.ACQUIRE before me 1000", now).is_ok());
    memory.crash(now);
    let lock = memory.node_mut().load(0, b"k", &image(7, 10_000), &mut now).unwrap();
    memory.plant(b"k", KeyState::Lock(lock));
    for line in ["REDLOCK.EXTEND k theirs 1000", "REDLOCK.ACQUIRE k theirs 1000"] {
        assert!(matches!(send(&mut memory, line, now), Err(CommandError::Quarantine { .. })), "{line}");
    }
    let over = Millis(now.0 + 2_000);
    assert_eq!(send(&mut memory, "REDLOCK.EXTEND k theirs 1000", over), Ok(Reply::Integer(7)));
    assert_eq!(send(&mut memory, "REDLOCK.RELEASE k theirs", over), Ok(Reply::Integer(1)));
    // A lock that the node has granted since is certain, whatever else was flushed.
    assert!(send(&mut memory, "REDLOCK.ACQUIRE k me 1000", over).is_ok());
    memory.node_mut().quarantine(500, &mut over.clone());
    assert!(matches!(send(&mut memory, "REDLOCK.EXTEND k me 1000", over), Ok(Reply::Integer(_))));
}

/// A command or the sweep ends a quarantine, whichever comes first after its time. Both confirm the loaded locks.
#[test]
fn loaded_locks_count_as_granted_once_a_quarantine_is_over() {
    for ends_in_sweep in [false, true] {
        let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
        assert!(send(&mut memory, "REDLOCK.ACQUIRE before me 1000", now).is_ok());
        memory.crash(now);
        let lock = memory.node_mut().load(0, b"k", &image(7, 10_000), &mut now).unwrap();
        memory.plant(b"k", KeyState::Lock(lock));
        let wait = "REDLOCK.ACQUIRE k me 1000 WAIT 1 60000 channel";
        assert!(matches!(send(&mut memory, wait, now), Ok(Reply::Queued { .. })));
        let over = Millis(now.0 + 2_000);
        if ends_in_sweep {
            memory.sweep(over);
        } else {
            assert!(send(&mut memory, "REDLOCK.ACQUIRE other me 1000", over).is_ok());
        }
        memory.node_mut().quarantine(500, &mut over.clone());
        let extended = send(&mut memory, "REDLOCK.EXTEND k theirs 1000", over);
        assert_eq!(extended, Ok(Reply::Integer(7)), "ended by the sweep: {ends_in_sweep}");
    }
}

/// A long lock was saved, released and forgotten before the crash. It must not outlive the quarantine.
#[test]
fn a_lock_from_the_own_data_set_ends_with_the_quarantine() {
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    assert!(send(&mut memory, "REDLOCK.ACQUIRE k me 70000", now).is_ok());
    memory.crash(now);
    let quarantine = memory.node().quarantine_left_ms(&mut now);
    // The load takes ten minutes.
    now = Millis(now.0 + 600_000);
    let node = memory.node_mut();
    let (left_ms, held_ms) = node.times_of_own(3_600_000, 7);
    assert_eq!(left_ms + held_ms, 3_600_007, "the digest of the locks contains the sum");
    assert!((70_000..=quarantine).contains(&left_ms), "{left_ms} of {quarantine}");
    let lock = node.load(0, b"k", &image(7, left_ms), &mut now).unwrap();
    node.outlast_loaded_locks();
    memory.plant(b"k", KeyState::Lock(lock));
    let extend = "REDLOCK.EXTEND k theirs 1000";
    let deadline = now.deadline_after(left_ms);
    let before = Millis(deadline.0 - 1);
    assert!(matches!(send(&mut memory, extend, before), Err(CommandError::Quarantine { .. })));
    assert_eq!(send(&mut memory, extend, deadline), Ok(Reply::Nil));
    // A server that follows another one does not know how long its leases run.
    assert_eq!(non_voting(NonVoting::Replica).node().times_of_own(3_600_000, 7), (3_600_000, 7));
    assert_eq!(MemoryNode::new("me").node().times_of_own(3_600_000, 7), (3_600_000, 7));
}

/// The append-only file has each lock with its whole time to live, which may be longer than the longest lease that was
/// left at the end.
#[test]
fn a_lock_from_the_own_append_only_file_ends_with_the_quarantine_and_keeps_its_digest() {
    let (mut before, mut keys, mut now) = (node(), SingleKey(KeyState::Empty), Millis::START);
    let request = grammar::acquire(Verb::Acquire, &[b"", b"k", b"me", b"600000"], 600_000).unwrap();
    assert_eq!(before.acquire(&mut keys, &request, &mut now), Ok(Reply::Integer(1)));
    for longest_lease_ms in [70_000, 700_000] {
        let state = DurableState { longest_lease_ms, ..before.state().clone() };
        let (mut node, mut keys) = (LockNode::new(state, Stripes::default()), SingleKey(KeyState::Empty));
        node.set_resumed();
        let apply = grammar::apply(&[b"REDLOCK.APPLY", b"k", b"me", b"1", b"600000"]).unwrap();
        node.apply(&mut keys, &apply, &mut now).unwrap();
        let KeyState::Lock(lock) = keys.0 else { panic!("no lock") };
        let image = node.image(lock, &mut now);
        assert_eq!(image.left_ms, longest_lease_ms.min(600_000));
        assert_eq!(image.left_ms + image.held_ms, 600_000);
        assert_eq!(node.locks_digest(), before.locks_digest(), "{longest_lease_ms}");
    }
}

#[test]
fn a_node_could_not_have_granted_a_forged_image() {
    let mut node = node();
    node.set_max_ttl_ms(60_000);
    assert!(node.could_have_granted(b"k", &image(RAISE_CAP, 60_000)));
    assert!(!node.could_have_granted(b"k", &image(1, 60_001)));
    assert!(!node.could_have_granted(b"k", &image(1, u64::MAX)));
    assert!(!node.could_have_granted(b"k", &image(MAX_FENCE, 60_000)));
    // A lock from a master or from a file never lasts longer than any node grants.
    let mut now = Millis::START;
    let lock = node.load(0, b"k", &image(1, u64::MAX), &mut now).unwrap();
    assert!(node.image(lock, &mut now).left_ms <= MAX_TTL_LIMIT_MS);
}

#[test]
fn an_expired_long_lease_does_not_lengthen_the_quarantine_of_a_later_crash() {
    let day = 24 * 3_600 * 1_000;
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    memory.node_mut().set_max_ttl_ms(2 * day);
    assert!(send(&mut memory, &format!("REDLOCK.ACQUIRE k me {day}"), now).is_ok());
    assert_eq!(memory.node().state_with_shorter_lease(&mut now), None, "it may still be running");
    assert!(memory.node().state().quarantine_ms() >= day + day / 100 + 2);
    assert!(send(&mut memory, "REDLOCK.RELEASE k me", now).is_ok());
    let lowered = memory.node().state_with_shorter_lease(&mut now).unwrap();
    assert!(lowered.quarantine_ms() < 2 * 60_000, "{lowered:?}");
    // A lock that is granted again together with other keys keeps its deadline, and so its lease.
    assert!(send(&mut memory, &format!("REDLOCK.ACQUIRE k me {day}"), now).is_ok());
    memory.node_mut().set_state(lowered);
    assert!(send(&mut memory, &format!("REDLOCK.EXTEND k me {day}"), now).is_ok());
    assert!(send(&mut memory, "REDLOCK.MACQUIRE 2 k other me 1000", now).is_ok());
    assert_eq!(memory.node().state_with_shorter_lease(&mut now), None, "the owner was promised a day");
    assert!(send(&mut memory, "REDLOCK.MRELEASE 2 k other me", now).is_ok());
    // A flush makes the node forget locks. A crash during the quarantine must not shorten it.
    assert!(send(&mut memory, &format!("REDLOCK.ACQUIRE k me {day}"), now).is_ok());
    memory.node_mut().quarantine_for_locks_of(None, &mut now);
    assert!(memory.delete(b"k"));
    assert_eq!(memory.node().state_with_shorter_lease(&mut now), None);
}

#[test]
fn a_lower_longest_lease_is_stored_after_a_while_and_not_for_each_lock() {
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    let mut stored = 0;
    for _ in 0..300 {
        assert!(send(&mut memory, "REDLOCK.ACQUIRE k me 600000", now).is_ok());
        assert!(send(&mut memory, "REDLOCK.RELEASE k me", now).is_ok());
        now.0 += 100;
        stored += u32::from(memory.node_mut().state_to_store(&mut now).is_some());
        now.0 += 100;
    }
    // The lock is free at every check, so one minute passes once.
    assert!(stored <= 1, "{stored}");
    now.0 += 60_000;
    let lowered = memory.node_mut().state_to_store(&mut now).expect("nothing long is left");
    assert!(lowered.longest_lease_ms < 100_000);
    // The node retries a state that could not be stored, but not at every check.
    memory.node_mut().not_stored();
    let tries = (0..50).filter(|_| {
        now.0 += 100;
        memory.node_mut().state_to_store(&mut now).is_some()
    });
    assert!((4..=6).contains(&tries.count()));
}

#[test]
fn a_hostile_raise_of_one_key_leaves_the_others_where_they_are_over_a_restart() {
    let (mut memory, mut now) = (MemoryNode::new("me"), Millis::START);
    let most = MAX_FENCE;
    assert!(send(&mut memory, "REDLOCK.ACQUIRE evil me 1000", now).is_ok());
    for _ in 0..2_000 {
        assert!(send(&mut memory, &format!("REDLOCK.EXTEND evil me 1000 FENCE {most}"), now).is_ok());
    }
    assert!(send(&mut memory, "REDLOCK.ACQUIRE good me 1000", now).is_ok());
    memory.crash(now);
    now = Millis(now.0 + 100_000);
    let good = send(&mut memory, "REDLOCK.ACQUIRE good other 1000", now);
    assert!(matches!(good, Ok(Reply::Integer(fence)) if fence < 1 << 24), "{good:?}");
    let evil = send(&mut memory, "REDLOCK.ACQUIRE evil other 1000", now);
    assert!(matches!(evil, Ok(Reply::Integer(fence)) if fence > RAISE_CAP), "{evil:?}");
}
