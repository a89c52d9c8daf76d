//! The commands that a replica gets from its master, or a server from its AOF: `APPLY`, releases and high-water
//! marks, in any order and with any numbers.
//!
//! A copy executes all of them. It never panics, holds exactly the locks of the last commands, and its fences never
//! go back.

use crate::byte_reader::ByteReader;
use crate::{commands, vocabulary};
use redlock_contract::HighWater;
use redlock_contract::commands::Verb;
use redlock_contract::limits::MAX_TTL_LIMIT_MS;
use redlock_core::durable::DurableState;
use redlock_core::fence::{Stripe, Stripes};
use redlock_core::grammar;
use redlock_core::image::{LockImage, SavedLock};
use redlock_core::node::Sweep;
use redlock_core::table::Database;
use redlock_core::{CommandError, Effect, KeyState, Keyspace, LockEvent, LockId, LockNode, Millis};
use std::collections::BTreeMap;

const LONGEST_HISTORY: usize = 200;

/// Runs the target.
///
/// # Panics
/// If the copy breaks a rule.
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
        assert!(copy.node.largest_fence() >= largest, "the fences went back");
        let mut now = copy.now;
        let holders =
            copy.keys.values().map(|lock| copy.node.saved(*lock, &mut now).holders.len()).sum::<usize>();
        assert_eq!(copy.node.held(), holders as u64, "locks held");
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
        let before = self.saved(key);
        let mut view = FuzzedKeys { names: vec![key], keys: &mut self.keys };
        self.node.apply(&mut view, &request, &mut self.now).expect("a copy applies every lock");
        assert!(self.node.stripes().last(Stripe::of(key)) >= request.fence);
        let owner = request.owner.bytes();
        let after = self.saved(key);
        let of_owner = |lock: &SavedLock| lock.holders.iter().find(|image| image.owner == owner).cloned();
        // A shared lock keeps its other holders and its fence, if that is larger; an exclusive one has neither.
        let shared = before.clone().filter(|lock| lock.is_shared && request.is_shared);
        let others = |lock: &SavedLock| lock.holders.iter().filter(|image| image.owner != owner).count();
        if request.left_ms == 0 {
            if request.is_shared && before.as_ref().is_some_and(|before| !before.is_shared) {
                assert_eq!(after, before, "an exclusive lock has no holder that can leave");
                return;
            }
            let left = after.filter(|lock| others(lock) > 0 || of_owner(lock).is_some());
            assert_eq!(left.as_ref().and_then(of_owner), None, "the lease has expired on the master");
            assert_eq!(
                left.as_ref().map_or(0, others),
                shared.as_ref().map_or(0, others),
                "the other holders"
            );
            return;
        }
        let after = after.expect("a lock");
        assert_eq!(after.is_shared, request.is_shared);
        assert_eq!(others(&after), shared.as_ref().map_or(0, others), "the other holders");
        let fence = shared.iter().flat_map(|lock| &lock.holders).map(|image| image.fence).max().unwrap_or(0);
        let fence = fence.max(request.fence);
        assert!(after.holders.iter().all(|image| image.fence == fence), "{after:?}: one fence, {fence}");
        let image = of_owner(&after).expect("the lease of the owner");
        let before = if request.is_shared { shared } else { before.filter(|before| !before.is_shared) };
        let before = before.as_ref().and_then(of_owner);
        // An `APPLY` never shortens a lock: the time left is that of the command, or longer for the same lock.
        let goes_on = before.filter(|before| {
            before.owner == image.owner && request.extensions.is_some() && request.label.is_none()
        });
        let before_ms = goes_on.map_or(0, |before| before.left_ms);
        let said_ms = request.left_ms.min(MAX_TTL_LIMIT_MS);
        assert_eq!(image.left_ms, said_ms.max(before_ms), "time left");
    }

    fn saved(&mut self, key: &[u8]) -> Option<SavedLock> {
        self.keys.get(key).map(|lock| self.node.saved(*lock, &mut self.now))
    }

    fn release(&mut self, argv: &[Vec<u8>]) {
        let argv: Vec<&[u8]> = argv.iter().map(Vec::as_slice).collect();
        let Ok(request) = grammar::release(Verb::Mrelease, &argv) else { return };
        let names: Vec<&[u8]> = request.keys.indices().map(|word| argv[word]).collect();
        let mut view = FuzzedKeys { names: names.clone(), keys: &mut self.keys };
        self.node.replay_release(&mut view, &request);
        for name in names {
            let left = self.saved(name).map_or(vec![], |lock| lock.holders);
            let is_own = |image: &LockImage| image.owner == request.owner.bytes();
            assert!(!left.iter().any(is_own), "still held by the owner that released it");
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
        assert!(
            state.dataset_id == id && state.high_water.common() >= high_water.max(before.high_water.common())
        );
        // After any command, a node can start from this state and can be admitted.
        let (restarted, stripes) = state.restarted();
        assert!(
            restarted.high_water.highest() >= stripes.largest()
                && stripes.largest() >= state.high_water.highest()
        );
        assert!(
            state.admitted(&HighWater::new(high_water), &Stripes::default(), id).0.high_water.common()
                >= high_water
        );
        assert!(state.quarantine_ms() >= state.longest_lease_ms);
    }

    fn sweep(&mut self) {
        loop {
            match self.node.sweep(&mut self.now) {
                Sweep::Expired(lock) => {
                    let (_, key) = self.node.location(lock);
                    let key = key.to_vec();
                    let mut view = FuzzedKeys { names: vec![&key], keys: &mut self.keys };
                    assert!(self.node.expire(&mut view, lock), "a lock that no key holds has expired");
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

    fn notify(&mut self, _: usize, _: LockEvent) {}
}
