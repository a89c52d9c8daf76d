//! What the case table cannot show: renames, values that the server frees late, copies, and saved locks.

use super::*;
use crate::durable::DurableState;
use crate::fence::Stripes;
use crate::grammar;
use crate::image::LockImage;
use crate::memory::MemoryNode;
use crate::node::Sweep;
use redlock_contract::commands::Verb;

/// A server with several keys. Like a real one, it may free a value some time after it was replaced.
#[derive(Default)]
struct Server {
    keys: BTreeMap<Vec<u8>, LockId>,
    /// The key of the present command.
    key: Vec<u8>,
    frees_late: bool,
    freed_late: Vec<LockId>,
    /// The effects as a replica gets them.
    effects: Vec<String>,
}

impl Server {
    fn replace(&mut self, by: Option<LockId>) -> Option<LockId> {
        let old = match by {
            Some(lock) => self.keys.insert(self.key.clone(), lock),
            None => self.keys.remove(&self.key),
        };
        if self.frees_late {
            self.freed_late.extend(old);
            return None;
        }
        old
    }
}

impl Keyspace for Server {
    fn count(&self) -> usize {
        1
    }
    fn database(&self) -> Database {
        0
    }
    fn connection(&self) -> Option<u64> {
        Some(1)
    }
    fn name(&self, _: usize) -> &[u8] {
        &self.key
    }
    fn key_state(&self, _: usize) -> KeyState {
        self.keys.get(&self.key).map_or(KeyState::Empty, |lock| KeyState::Lock(*lock))
    }
    fn put(&mut self, _: usize, lock: LockId) -> Option<LockId> {
        self.replace(Some(lock))
    }
    fn delete(&mut self, _: usize) -> Option<LockId> {
        self.replace(None)
    }
    fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
        Ok(())
    }
    fn replicate(&mut self, effect: Effect<'_>) {
        let key = String::from_utf8_lossy(&self.key);
        let text = |owner: &[u8]| String::from_utf8_lossy(owner).into_owned();
        self.effects.extend(match effect {
            Effect::Granted { owner, fence, left_ms, is_shared: true, .. } => {
                Some(format!("REDLOCK.APPLY {key} {} {fence} {left_ms} SHARED", text(owner)))
            }
            Effect::Extended { owner, fence, left_ms, held_ms, extensions, is_shared: true, .. } => {
                let owner = text(owner);
                Some(format!(
                    "REDLOCK.APPLY {key} {owner} {fence} {left_ms} HELD {held_ms} EXT {extensions} SHARED"
                ))
            }
            Effect::Expired { owner, fence, is_shared: true, .. } => {
                Some(format!("REDLOCK.APPLY {key} {} {fence} 0 SHARED", text(owner)))
            }
            _ => None,
        });
    }
    fn notify(&mut self, _: usize, _: LockEvent) {}
}

/// A node on such a server.
struct Scene {
    node: LockNode,
    server: Server,
    now: Millis,
}

impl Scene {
    fn new() -> Self {
        let node = LockNode::new(DurableState::new("f".repeat(40), 0), Stripes::default());
        Self { node, server: Server::default(), now: Millis::START }
    }

    /// Sends a command, without its prefix; the key is its first argument.
    fn send(&mut self, line: &str) -> Result<Reply, CommandError> {
        let line = format!("REDLOCK.{line}");
        let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.server.key = argv[1].to_vec();
        let (server, clock) = (&mut self.server, &mut self.now);
        match Verb::named(argv[0]).unwrap() {
            Verb::Acquire => {
                let request = grammar::acquire(Verb::Acquire, &argv, 10_000_000)?;
                self.node.acquire(server, &request, clock)
            }
            Verb::Extend => {
                self.node.extend(server, &grammar::extend(Verb::Extend, &argv, 10_000_000)?, clock)
            }
            Verb::Release => self.node.release(server, &grammar::release(Verb::Release, &argv)?, clock),
            Verb::Break => self.node.break_lock(server, grammar::break_lock(&argv)?, clock),
            verb => panic!("{verb:?}"),
        }
    }

    fn fence(&mut self, line: &str) -> u64 {
        match self.send(line) {
            Ok(Reply::Integer(fence)) => fence,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn rename(&mut self, from: &[u8], to: &[u8]) {
        let lock = self.server.keys.remove(from).unwrap();
        if let Some(overwritten) = self.server.keys.insert(to.to_vec(), lock) {
            self.node.reclaim(overwritten);
        }
    }

    /// Serves waiters until no key is ready.
    fn serve(&mut self) {
        let mut budget = 100;
        while let Some((waiter, _, keys)) = self.node.next_ready(&mut budget) {
            self.server.key.clone_from(&keys[0]);
            self.node.serve(&mut self.server, waiter, &mut self.now);
        }
    }

    /// Lets time pass and does everything that the sweep asks for. Returns the locks that it did not find.
    fn pass(&mut self, ms: u64) -> Vec<LockId> {
        self.now.0 += ms;
        let mut missing = Vec::new();
        loop {
            match self.node.sweep(&mut self.now) {
                Sweep::Expired(lock) => {
                    self.server.key = self.node.location(lock).1.to_vec();
                    if !self.node.expire(&mut self.server, lock) {
                        missing.push(lock);
                    }
                }
                Sweep::Busy => {}
                Sweep::Until(_) | Sweep::Idle => return missing,
            }
        }
    }
}

#[test]
fn the_others_keep_the_lock_in_whatever_order_the_holders_leave() {
    for first in ["a", "b", "c"] {
        for frees_late in [false, true] {
            let mut scene = Scene::new();
            scene.server.frees_late = frees_late;
            for owner in ["b", "a", "c"] {
                assert_eq!(scene.fence(&format!("ACQUIRE k {owner} 1000 SHARED")), 1);
            }
            assert_eq!(scene.fence(&format!("RELEASE k {first}")), 1);
            assert_eq!(scene.send("ACQUIRE k w 1000"), Ok(Reply::Nil));
            for other in ["a", "b", "c"].into_iter().filter(|other| *other != first) {
                assert_eq!(scene.fence(&format!("EXTEND k {other} 1000")), 1, "{first} has left");
                assert_eq!(scene.fence(&format!("RELEASE k {other}")), 1);
            }
            for lock in std::mem::take(&mut scene.server.freed_late) {
                scene.node.reclaim(lock);
            }
            assert_eq!((scene.node.held(), scene.node.used_bytes()), (0, 0), "no record is left");
            assert!(scene.server.keys.is_empty() && scene.node.shared.is_empty());
            assert_eq!(scene.node.shared.bytes(), 0);
        }
    }
}

#[test]
fn a_lock_lasts_as_long_as_its_last_lease_before_the_sweep_has_removed_the_others() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 1000 SHARED");
    scene.fence("ACQUIRE k b 3000 SHARED");
    scene.now.0 += 1_001;
    assert_eq!(scene.send("ACQUIRE k w 1000"), Ok(Reply::Nil));
    assert_eq!(scene.send("EXTEND k a 1000"), Ok(Reply::Nil), "its lease is over");
    assert_eq!(scene.fence("ACQUIRE k c 1000 SHARED"), 1, "a reader joins");
    scene.server.effects.clear();
    assert_eq!(scene.fence("ACQUIRE k a 1000 SHARED"), 1, "a new lease");
    assert_eq!(scene.server.effects, ["REDLOCK.APPLY k a 1 0 SHARED", "REDLOCK.APPLY k a 1 1000 SHARED"]);
    assert_eq!(scene.node.counters().expirations, 1);
    scene.now.0 += 3_001;
    assert_eq!(scene.send("BREAK k"), Ok(Reply::Nil), "all leases are over");
    scene.server.effects.clear();
    assert_eq!(scene.fence("ACQUIRE k w 1000"), 2);
    let expired = ["a", "b", "c"].map(|owner| format!("REDLOCK.APPLY k {owner} 1 0 SHARED"));
    assert_eq!(scene.server.effects, expired);
    assert_eq!((scene.node.counters().expirations, scene.node.held()), (4, 1));
    assert!(scene.node.shared.is_empty());
}

#[test]
fn a_value_that_the_server_frees_late_takes_only_its_own_record() {
    let mut scene = Scene::new();
    scene.server.frees_late = true;
    scene.fence("ACQUIRE k a 1000 SHARED");
    scene.fence("ACQUIRE k b 1000 SHARED");
    scene.fence("RELEASE k a");
    let late = std::mem::take(&mut scene.server.freed_late);
    assert_eq!(late.len(), 1);
    scene.node.reclaim(late[0]);
    assert_eq!(scene.node.held(), 1);
    assert_eq!(scene.fence("EXTEND k b 1000"), 1);
}

#[test]
fn when_the_server_frees_the_value_all_holders_are_gone() {
    let mut scene = Scene::new();
    for owner in ["a", "b", "c"] {
        scene.fence(&format!("ACQUIRE k {owner} 1000 SHARED"));
    }
    scene.fence("RELEASE k a");
    let value = scene.server.keys.remove(&b"k"[..]).unwrap();
    scene.node.reclaim(value);
    assert_eq!(scene.node.held(), 0);
    assert!(scene.node.shared.is_empty());
    assert_eq!(scene.send("EXTEND k b 1000"), Ok(Reply::Nil));
    assert_eq!(scene.fence("ACQUIRE k b 1000 SHARED"), 2);
}

#[test]
fn the_holders_of_a_renamed_lock_are_swept_when_its_anchor_is_found() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3000 SHARED");
    scene.fence("ACQUIRE k b 1000 SHARED");
    scene.fence("ACQUIRE k c 2000 SHARED");
    scene.rename(b"k", b"renamed");
    let missing = scene.pass(1_001);
    assert_eq!(missing.len(), 1, "the lease of b has expired, and the key is not there");
    let anchor = scene.node.anchor_of(missing[0]);
    assert_eq!(scene.server.keys[&b"renamed"[..]], anchor, "what a search of the keyspace finds");
    scene.node.found_at(anchor, 0, b"renamed");
    assert_eq!(scene.pass(1), []);
    assert_eq!(scene.node.held(), 2);
    assert_eq!(scene.pass(2_000), [], "the others are found at once");
    assert!(scene.server.keys.is_empty());
    assert_eq!(scene.node.held(), 0);
}

/// The search would look for an anchor that is no longer one.
#[test]
fn a_command_on_a_renamed_lock_tells_the_sweep_where_it_is() {
    for line in ["RELEASE renamed a", "EXTEND renamed a 5000", "ACQUIRE renamed d 5000 SHARED"] {
        let mut scene = Scene::new();
        scene.fence("ACQUIRE k a 3000 SHARED");
        scene.fence("ACQUIRE k b 1000 SHARED");
        scene.rename(b"k", b"renamed");
        assert_eq!(scene.pass(1_001).len(), 1, "{line}");
        scene.fence(line);
        assert_eq!(scene.pass(5_001), [], "{line}");
        assert_eq!((scene.node.held(), scene.server.keys.len()), (0, 0), "{line}");
    }
}

#[test]
fn the_next_fence_of_a_renamed_shared_lock_is_larger() {
    for (line, passed) in [("RELEASE b r", 0), ("EXTEND b r 10", 20), ("BREAK b", 0)] {
        let mut scene = Scene::new();
        assert_eq!(scene.fence("ACQUIRE a r 1000 FENCE 50 SHARED"), 50);
        scene.rename(b"a", b"b");
        scene.fence(line);
        scene.now.0 += 1_000 + passed;
        assert_eq!(scene.fence("ACQUIRE b other 1000 SHARED"), 51, "{line}");
    }
}

#[test]
fn a_copy_has_the_holders_of_its_master_after_every_command() {
    let mut scene = Scene::new();
    let mut copy = MemoryNode::new("copy");
    for line in [
        "ACQUIRE k a 3000 SHARED",
        "ACQUIRE k b 1000 SHARED",
        "ACQUIRE k c 2000 FENCE 5 SHARED",
        "EXTEND k a 3000 FENCE 9",
        "ACQUIRE k b 1000 SHARED",
    ] {
        scene.fence(line);
        for effect in std::mem::take(&mut scene.server.effects) {
            let argv: Vec<&[u8]> = effect.split(' ').map(str::as_bytes).collect();
            copy.follow(&argv, scene.now).unwrap();
        }
        let lock = scene.server.keys[&b"k"[..]];
        assert_eq!(copy.saved(b"k", scene.now), Some(scene.node.saved(lock, &mut scene.now)), "{line}");
    }
    scene.pass(1_001);
    assert_eq!(scene.server.effects, ["REDLOCK.APPLY k b 9 0 SHARED"]);
    let argv: [&[u8]; 6] = [b"REDLOCK.APPLY", b"k", b"b", b"9", b"0", b"SHARED"];
    copy.follow(&argv, scene.now).unwrap();
    assert_eq!(copy.saved(b"k", scene.now).map(|lock| lock.holders.len()), Some(2));
    copy.follow(&[b"REDLOCK.RELEASE", b"k", b"a"], scene.now).unwrap();
    assert_eq!(copy.saved(b"k", scene.now).map(|lock| lock.holders.len()), Some(1));
    copy.follow(&[b"REDLOCK.BREAK", b"k"], scene.now).unwrap();
    assert_eq!((copy.saved(b"k", scene.now), copy.node().held()), (None, 0));
}

#[test]
fn an_exclusive_effect_replaces_a_shared_lock_on_a_copy() {
    let mut copy = MemoryNode::new("copy");
    let mut follow = |line: &str| {
        let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        copy.follow(&argv, Millis::START).unwrap();
        (copy.node().held(), copy.node().shared_holders())
    };
    assert_eq!(follow("REDLOCK.APPLY k a 4 1000 SHARED"), (1, 1));
    assert_eq!(follow("REDLOCK.APPLY k b 3 1000 SHARED"), (2, 2));
    assert_eq!(follow("REDLOCK.APPLY k c 5 1000"), (1, 0));
    assert_eq!(follow("REDLOCK.APPLY k d 6 1000 SHARED"), (1, 1));
    assert_eq!(follow("REDLOCK.APPLY k d 6 0"), (0, 0));
}

#[test]
fn a_saved_lock_is_loaded_with_all_its_holders_or_not_at_all() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3000 LABEL one SHARED");
    scene.fence("ACQUIRE k b 1000 FENCE 7 SHARED");
    let lock = scene.server.keys[&b"k"[..]];
    let saved = scene.node.saved(lock, &mut scene.now);
    let mut other = Scene::new();
    let loaded = other.node.load_saved(0, b"k", &saved, &mut other.now).unwrap();
    other.server.keys.insert(b"k".to_vec(), loaded);
    assert_eq!(other.node.saved(loaded, &mut other.now), saved);
    assert_eq!(other.node.locks_digest(), scene.node.locks_digest());
    assert_eq!(other.fence("EXTEND k b 1000"), 7);
    let held = other.node.held();
    let [first, second] = &saved.holders[..] else { panic!("two holders") };
    let nobody = LockImage { owner: vec![], ..second.clone() };
    for holders in
        [vec![], vec![first.clone(), first.clone()], vec![nobody.clone()], vec![first.clone(), nobody]]
    {
        let bad = SavedLock { is_shared: true, holders };
        assert!(other.node.load_saved(0, b"j", &bad, &mut other.now).is_err(), "{bad:?}");
        assert_eq!((other.node.held(), other.node.shared_holders()), (held, held), "{bad:?}");
    }
}

#[test]
fn a_quarantine_after_an_eviction_waits_for_the_last_holder() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 1000 SHARED");
    scene.fence("ACQUIRE k b 5000 SHARED");
    let evicted = scene.server.keys.remove(&b"k"[..]).unwrap();
    scene.node.quarantine_for(evicted, b"k", &mut scene.now);
    scene.node.reclaim(evicted);
    let left_ms = scene.node.quarantine_left_ms(&mut scene.now);
    assert!((5_000..5_010).contains(&left_ms), "{left_ms}");
    let refused = scene.send("ACQUIRE k c 1000 SHARED");
    assert!(matches!(refused, Err(CommandError::Quarantine { .. })), "{refused:?}");
}

#[test]
fn in_quarantine_a_reader_neither_joins_nor_refreshes_a_loaded_lease() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3000 SHARED");
    let lock = scene.server.keys[&b"k"[..]];
    let saved = scene.node.saved(lock, &mut scene.now);
    let mut other = Scene::new();
    other.node.quarantine(10_000, &mut other.now);
    let loaded = other.node.load_saved(0, b"k", &saved, &mut other.now).unwrap();
    other.server.keys.insert(b"k".to_vec(), loaded);
    for line in ["ACQUIRE k a 1000 SHARED", "EXTEND k a 1000", "ACQUIRE k b 1000 SHARED"] {
        let refused = other.send(line);
        assert!(matches!(refused, Err(CommandError::Quarantine { .. })), "{line}: {refused:?}");
    }
    assert_eq!(other.fence("RELEASE k a"), 1);
}

#[test]
fn the_longest_lease_counts_each_holder_until_it_leaves() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3600000 SHARED");
    scene.fence("ACQUIRE k b 1000 SHARED");
    let covered = scene.node.state().longest_lease_ms;
    assert!(covered >= 3_600_000);
    assert_eq!(scene.node.state_with_shorter_lease(&mut scene.now), None);
    scene.fence("RELEASE k a");
    let lowered = scene.node.state_with_shorter_lease(&mut scene.now).expect("the long lease is over");
    assert!(lowered.longest_lease_ms < covered);
}

#[test]
fn a_thousand_readers_share_a_lock_and_leave_in_any_order() {
    let mut scene = Scene::new();
    let owners: Vec<u64> = (0..1_000).map(|number| number * 617 % 1_000).collect();
    for owner in &owners {
        assert_eq!(scene.fence(&format!("ACQUIRE k o{owner} {} SHARED", 1_000 + owner)), 1);
    }
    assert_eq!(scene.fence("EXTEND k o5 1000 FENCE 4"), 4);
    assert_eq!(scene.node.shared_holders(), 1_000);
    scene.pass(1_500);
    assert_eq!(scene.node.shared_holders(), 500, "half of the leases have expired");
    for owner in owners.iter().filter(|owner| **owner >= 500) {
        assert_eq!(scene.fence(&format!("EXTEND k o{owner} 2000")), 4);
        assert_eq!(scene.fence(&format!("RELEASE k o{owner}")), 1);
    }
    assert_eq!((scene.node.held(), scene.fence("ACQUIRE k w 1000")), (0, 5));
}

/// Another key had the fence counter of the new name, and writers have used its fences.
#[test]
fn a_reader_of_a_renamed_lock_gets_a_larger_fence_than_every_earlier_writer() {
    for is_found in [false, true] {
        let mut scene = Scene::new();
        assert_eq!(scene.fence("ACQUIRE old r1 60000 SHARED"), 1);
        for fence in 1..=10 {
            assert_eq!(scene.fence("ACQUIRE k w 1000"), fence);
            assert_eq!(scene.send("RELEASE k w"), Ok(Reply::Integer(1)));
        }
        scene.rename(b"old", b"k");
        if is_found {
            let lock = scene.server.keys[&b"k"[..]];
            scene.node.found_at(lock, 0, b"k");
        }
        assert_eq!(scene.fence("ACQUIRE k r2 1000 SHARED"), 11, "found by the search: {is_found}");
        assert_eq!(scene.fence("EXTEND k r1 60000"), 11, "all holders have one fence");
        assert_eq!(scene.fence("ACQUIRE k r3 1000 SHARED"), 11, "further readers join");
    }
}

#[test]
fn a_reader_that_joins_on_an_admitted_node_gets_a_fence_above_the_floor() {
    let mut scene = Scene::new();
    assert_eq!(scene.fence("ACQUIRE k r1 60000 SHARED"), 1);
    let id = scene.node.state().node_id.clone();
    let admit = format!("REDLOCK.ADMIT {id} 500 0");
    let argv: Vec<&[u8]> = admit.split(' ').map(str::as_bytes).collect();
    let request = grammar::admit(&argv).unwrap();
    scene.node.admit(&request, |_| Ok(()), &mut scene.now).unwrap();
    assert!(scene.fence("ACQUIRE k r2 60000 SHARED") > 500);
}

#[test]
fn after_a_break_of_a_renamed_lock_a_writer_gets_a_larger_fence_than_its_readers() {
    let mut scene = Scene::new();
    assert_eq!(scene.fence("ACQUIRE a r 9000 FENCE 50 SHARED"), 50);
    assert_eq!(scene.fence("ACQUIRE a e 1000 SHARED"), 50);
    scene.rename(b"a", b"b");
    let missing = scene.pass(2_000);
    assert_eq!(missing.len(), 1, "the sweep searches for the expired holder");
    scene.node.found_at(missing[0], 0, b"b");
    assert_eq!(scene.fence("BREAK b"), 50);
    assert_eq!(scene.fence("ACQUIRE b w 1000"), 51);
}

/// The key has its old name again when the search passes, and its value names another holder.
#[test]
fn an_expired_holder_is_found_after_its_anchor_has_left() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3000 SHARED");
    scene.fence("ACQUIRE k b 1000 SHARED");
    scene.rename(b"k", b"x");
    let missing = scene.pass(2_000);
    scene.rename(b"x", b"k");
    assert_eq!(scene.send("RELEASE k a"), Ok(Reply::Integer(1)));
    let value = scene.server.keys[&b"k"[..]];
    assert!(scene.node.records_of(value).eq(missing.iter().copied()), "the search recognizes the holder");
    scene.node.found_at(missing[0], 0, b"k");
    assert!(scene.pass(1).is_empty());
    assert!(scene.server.keys.is_empty(), "the key is gone with its last holder");
    assert_eq!(scene.node.held(), 0);
}

#[test]
fn the_search_learns_that_a_missing_holder_was_removed() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE k a 3000 SHARED");
    scene.fence("ACQUIRE k b 1000 SHARED");
    scene.rename(b"k", b"x");
    let missing = scene.pass(2_000);
    scene.node.set_missing(missing[0]);
    assert_eq!(scene.node.take_no_longer_missing(), [], "the search goes on");
    scene.send("BREAK x").unwrap();
    assert_eq!(scene.node.take_no_longer_missing(), missing);
    assert_eq!(scene.node.take_no_longer_missing(), []);
}

#[test]
fn a_key_has_a_limited_number_of_holders() {
    let mut scene = Scene::new();
    for owner in 0..MAX_HOLDERS {
        assert_eq!(scene.fence(&format!("ACQUIRE k r{owner} 60000 SHARED")), 1);
    }
    assert_eq!(scene.send("ACQUIRE k late 60000 SHARED"), Ok(Reply::Nil));
    let queued = scene.send("ACQUIRE k late 60000 WAIT 1 60000 c SHARED");
    assert!(matches!(queued, Ok(Reply::Queued { position: 1, .. })), "{queued:?}");
    assert_eq!(scene.fence("ACQUIRE k r7 60000 SHARED"), 1, "a holder is not affected");
    scene.send("RELEASE k r0").unwrap();
    scene.serve();
    assert_eq!(scene.fence("EXTEND k late 60000"), 1, "the waiter has the place of the one that left");
    scene.now.0 += 70_000;
    assert_eq!(scene.fence("ACQUIRE k other 60000 SHARED"), 2, "all have expired");
}

#[test]
fn a_reader_that_releases_or_refreshes_its_lock_waits_for_nothing_any_more() {
    for line in ["RELEASE k a", "ACQUIRE k a 9000 SHARED"] {
        let mut scene = Scene::new();
        scene.fence("ACQUIRE k a 9000 SHARED");
        scene.fence("ACQUIRE k b 9000 SHARED");
        let queued = scene.send("ACQUIRE k a 9000 WAIT 1 60000 c");
        assert!(matches!(queued, Ok(Reply::Queued { .. })), "{queued:?}");
        scene.send(line).unwrap();
        assert_eq!(scene.node.waiters(), 0, "{line}");
    }
}

#[test]
fn a_reader_that_holds_the_lock_under_its_new_name_does_not_block_the_queue() {
    let mut scene = Scene::new();
    scene.fence("ACQUIRE a r 9000 SHARED");
    scene.fence("ACQUIRE b w 9000");
    for line in ["ACQUIRE b r 9000 WAIT 1 60000 c SHARED", "ACQUIRE b next 9000 WAIT 2 60000 c SHARED"] {
        assert!(matches!(scene.send(line), Ok(Reply::Queued { .. })), "{line}");
    }
    scene.rename(b"a", b"b");
    scene.node.key_changed(0, b"b");
    scene.serve();
    assert_eq!(scene.node.waiters(), 0);
    assert!(scene.send("EXTEND b next 9000").is_ok_and(|reply| reply != Reply::Nil));
}

/// The lock goes to another name and back, and is raised in between.
#[test]
fn a_fence_that_was_raised_under_another_name_counts_under_the_first_one() {
    for mode in ["", " SHARED"] {
        let mut scene = Scene::new();
        scene.fence(&format!("ACQUIRE a r 9000{mode}"));
        scene.rename(b"a", b"b");
        assert_eq!(scene.fence("EXTEND b r 9000 FENCE 50"), 50);
        scene.rename(b"b", b"a");
        assert_eq!(scene.send("RELEASE a r"), Ok(Reply::Integer(1)));
        assert!(scene.fence("ACQUIRE a w 9000") > 50, "{mode}");
    }
}
