//! What a master or an AOF tells a copy: `APPLY`, releases and marks, in any order and with any numbers.
//!
//! A copy follows without a question. It never panics, holds exactly what it was told last, and its numbers never
//! go back.

use crate::byte_reader::ByteReader;
use crate::{commands, vocabulary};
use redlock_contract::commands::Verb;
use redlock_contract::limits::MAX_TTL_LIMIT_MS;
use redlock_core::durable::DurableState;
use redlock_core::fence::{Stripe, Stripes};
use redlock_core::grammar;
use redlock_core::node::Sweep;
use redlock_core::table::Database;
use redlock_core::{CommandError, Effect, KeyState, Keyspace, LockId, LockNode, Millis};
use std::collections::BTreeMap;

const LONGEST_HISTORY: usize = 200;

/// Tries a copy.
///
/// # Panics
/// When it breaks a promise.
pub fn run(bytes: &[u8]) {
    let mut reader = ByteReader::new(bytes);
    let mut copy = Copy {
        node: LockNode::new(DurableState::new("f".repeat(40), 0), Stripes::default()),
        keys: BTreeMap::new(),
        now: Millis::START,
    };
    for _ in 0..LONGEST_HISTORY {
        if reader.is_over() {
            break;
        }
        let largest = copy.node.largest_fence();
        copy.step(&mut reader);
        assert!(copy.node.largest_fence() >= largest, "numbers went back");
        assert_eq!(copy.node.held(), copy.keys.len() as u64, "locks held");
    }
}

struct Copy {
    node: LockNode,
    keys: BTreeMap<Vec<u8>, LockId>,
    now: Millis,
}

/// The keys of one command.
struct FuzzedKeys<'a> {
    names: Vec<&'a [u8]>,
    keys: &'a mut BTreeMap<Vec<u8>, LockId>,
}

impl Copy {
    fn step(&mut self, reader: &mut ByteReader<'_>) {
        match reader.below(8) {
            0..=3 => self.apply(&vocabulary::command_of(reader, Verb::Apply)),
            4 | 5 => self.release(&vocabulary::command_of(reader, Verb::Mrelease)),
            6 => self.dataset(&vocabulary::command_of(reader, Verb::Dataset)),
            _ => {
                self.now = commands::later(self.now, reader.sized_number());
                self.sweep();
            }
        }
    }

    fn apply(&mut self, argv: &[Vec<u8>]) {
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let Ok(request) = grammar::apply(&argv) else { return };
        let key = argv[1];
        let before = self.keys.get(key).map(|lock| self.node.image(*lock, &mut self.now));
        let mut view = FuzzedKeys { names: vec![key], keys: &mut self.keys };
        self.node.apply(&mut view, &request, &mut self.now).expect("there is room");
        let image = self.node.image(self.keys[key], &mut self.now);
        assert_eq!((&image.owner[..], image.fence), (request.owner.bytes(), request.fence));
        assert!(self.node.stripes().last(Stripe::of(key)) >= request.fence);
        // A deadline is never moved forward: it is as far away as was said, or further for the same lock.
        let goes_on = before.filter(|before| {
            before.owner == image.owner && request.extensions.is_some() && request.label.is_none()
        });
        let before_ms = goes_on.map_or(0, |before| before.left_ms);
        let said_ms = request.left_ms.min(MAX_TTL_LIMIT_MS);
        assert_eq!(image.left_ms, said_ms.max(before_ms), "time left");
    }

    fn release(&mut self, argv: &[Vec<u8>]) {
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let Ok(request) = grammar::release(Verb::Mrelease, &argv) else { return };
        let names: Vec<&[u8]> = request.keys.indices().map(|word| argv[word]).collect();
        let mut view = FuzzedKeys { names: names.clone(), keys: &mut self.keys };
        self.node.replay_release(&mut view, &request);
        for name in names {
            let left = self.keys.get(name).map(|lock| self.node.image(*lock, &mut self.now).owner);
            assert_ne!(left.as_deref(), Some(request.owner.bytes()), "still held by who has released it");
        }
    }

    fn dataset(&mut self, argv: &[Vec<u8>]) {
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let Ok((id, high_water)) = grammar::dataset(&argv) else { return };
        let before = self.node.state().clone();
        if let Some(state) = before.following(Some(id), high_water) {
            self.node.set_state(state);
        }
        let state = self.node.state();
        assert!(state.dataset_id == id && state.highest() >= high_water.max(before.highest()));
        // Whatever was said, a node can start from it and can be admitted.
        let (restarted, stripes) = state.restarted();
        assert!(restarted.highest() >= stripes.largest() && stripes.largest() >= state.highest());
        assert!(state.admitted(high_water, id).highest() >= high_water);
        assert!(state.quarantine_ms() >= state.longest_lease_ms);
    }

    fn sweep(&mut self) {
        loop {
            match self.node.sweep(&mut self.now) {
                Sweep::Expired(lock) => {
                    let (_, key) = self.node.location(lock);
                    let removed = self.keys.remove(key);
                    assert_eq!(removed, Some(lock), "a lock that nobody holds has run out");
                    self.node.lock_expired(lock, removed);
                }
                Sweep::Busy => {}
                Sweep::Until(_) | Sweep::Idle => return,
            }
        }
    }
}

impl Keyspace for FuzzedKeys<'_> {
    fn count(&self) -> usize {
        self.names.len()
    }

    fn database(&self) -> Database {
        0
    }

    fn connection(&self) -> Option<u64> {
        None
    }

    fn name(&self, key: usize) -> &[u8] {
        self.names[key]
    }

    fn key_state(&self, key: usize) -> KeyState {
        self.keys.get(self.names[key]).copied().map_or(KeyState::Empty, KeyState::Lock)
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        self.keys.insert(self.names[key].to_vec(), lock)
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        self.keys.remove(self.names[key])
    }

    fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
        Ok(())
    }

    fn replicate(&mut self, _: Effect<'_>) {}
}
