//! A node without a server: the same decisions over a hash map.
//!
//! It serves simulations, models, and programs that need locks in their own tests. It also does what a server does with
//! keys, so that tests can compare it with one.

use std::collections::HashMap;

use crate::command_error::CommandError;
use crate::durable::DurableState;
use crate::fence::Stripes;
use crate::grammar::{self, KeyArgs};
use crate::image::{LockImage, SavedLock};
use crate::keyspace::{Effect, KeyState, Keyspace, LockEvent};
use crate::node::{GrantPush, LockNode, Sweep};
use crate::queue::KEYS_PER_STEP;
use crate::reply::Reply;
use crate::start::{Grace, Start};
use crate::table::{Database, LockId};
use crate::time::Millis;
use redlock_contract::Role;
use redlock_contract::commands::Verb;

/// The server of a node: it stores the durable state and replicates effects.
pub trait NodeHost {
    /// Stores the durable state before it returns.
    ///
    /// # Errors
    /// [`CommandError::NotStored`]: the node grants nothing that relies on the state then.
    fn store(&mut self, state: &DurableState) -> Result<(), CommandError>;
    /// Sends an effect of the command `argv` on its key `key` to the replicas.
    fn replicate(&mut self, argv: &[&[u8]], key: &[u8], effect: Effect<'_>);
    /// Notifies subscribers of an event of a key.
    fn notify(&mut self, _key: &[u8], _event: LockEvent) {}
}

/// A host without a disk and without replicas.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl NodeHost for NoHost {
    fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
        Ok(())
    }

    fn replicate(&mut self, _: &[&[u8]], _: &[u8], _: Effect<'_>) {}
}

/// A node whose keys are in memory.
#[derive(Debug)]
pub struct MemoryNode<H = NoHost> {
    node: LockNode,
    keys: HashMap<Vec<u8>, KeyState>,
    pushes: Vec<GrantPush>,
    host: H,
}

/// The keys of one command.
struct MemoryKeys<'a, H> {
    keys: &'a mut HashMap<Vec<u8>, KeyState>,
    host: &'a mut H,
    argv: &'a [&'a [u8]],
    words: KeyArgs,
    connection: Option<u64>,
}

/// The lock under a key, if there is one.
fn lock_of(key_state: Option<KeyState>) -> Option<LockId> {
    match key_state {
        Some(KeyState::Lock(lock)) => Some(lock),
        _ => None,
    }
}

impl<H: NodeHost> Keyspace for MemoryKeys<'_, H> {
    fn count(&self) -> usize {
        self.words.len()
    }

    fn database(&self) -> Database {
        0
    }

    fn connection(&self) -> Option<u64> {
        self.connection
    }

    fn name(&self, key: usize) -> &[u8] {
        self.argv.get(self.words.index(key)).copied().unwrap_or(&[])
    }

    fn key_state(&self, key: usize) -> KeyState {
        self.keys.get(self.name(key)).copied().unwrap_or(KeyState::Empty)
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        let name = self.name(key).to_vec();
        lock_of(self.keys.insert(name, KeyState::Lock(lock)))
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        let name = self.name(key).to_vec();
        lock_of(self.keys.remove(&name))
    }

    fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
        self.host.store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        let key = match effect {
            Effect::Granted { key, .. } | Effect::Extended { key, .. } | Effect::Expired { key, .. } => key,
            Effect::Dataset { .. } | Effect::Released => 0,
        };
        let name = self.argv.get(self.words.index(key)).copied().unwrap_or(&[]);
        self.host.replicate(self.argv, name, effect);
    }

    fn notify(&mut self, key: usize, event: LockEvent) {
        let name = self.argv.get(self.words.index(key)).copied().unwrap_or(&[]);
        self.host.notify(name, event);
    }
}

impl MemoryNode {
    /// A node with this node id and without locks.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self::hosted(DurableState::new(id.to_owned(), 0), NoHost)
    }
}

impl<H: NodeHost> MemoryNode<H> {
    /// A node without locks, with a state that its host has stored.
    #[must_use]
    pub fn hosted(state: DurableState, host: H) -> Self {
        Self {
            node: LockNode::new(state, Stripes::default()),
            keys: HashMap::new(),
            pushes: Vec::new(),
            host,
        }
    }

    /// The host.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// The host, for the caller to change.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// The node itself.
    #[must_use]
    pub fn node(&self) -> &LockNode {
        &self.node
    }

    /// The node itself, for the caller to configure.
    pub fn node_mut(&mut self) -> &mut LockNode {
        &mut self.node
    }

    /// Runs a command, its name first, as it arrives on `connection` at `now`.
    ///
    /// # Errors
    /// The error that a server with the module replies.
    pub fn execute(
        &mut self,
        argv: &[&[u8]],
        connection: u64,
        mut now: Millis,
    ) -> Result<Reply, CommandError> {
        let verb = argv.first().and_then(|name| Verb::named(name)).ok_or(CommandError::UnknownCommand)?;
        self.sweep(now);
        let reply = self.run(verb, argv, connection, &mut now);
        self.serve(now);
        reply
    }

    /// The pushes to waiters since the last call, in order.
    pub fn take_pushes(&mut self) -> Vec<GrantPush> {
        std::mem::take(&mut self.pushes)
    }

    /// Closes a connection: the node removes its waiters.
    pub fn close(&mut self, connection: u64, now: Millis) {
        self.node.connection_closed(connection);
        self.serve(now);
    }

    /// Hands free locks on to their waiters.
    fn serve(&mut self, mut now: Millis) {
        while self.node.has_ready() {
            let mut keys_left = KEYS_PER_STEP;
            let Some((waiter, _, keys)) = self.node.next_ready(&mut keys_left) else { continue };
            let argv: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let words = KeyArgs::Many((0..argv.len()).collect());
            let push = self.on(&argv, words, None, |node, keys| node.serve(keys, waiter, &mut now));
            self.pushes.extend(push);
        }
    }

    fn run(
        &mut self,
        verb: Verb,
        argv: &[&[u8]],
        connection: u64,
        clock: &mut Millis,
    ) -> Result<Reply, CommandError> {
        let connection = Some(connection);
        let max_ttl_ms = self.node.max_ttl_ms();
        match verb {
            Verb::Acquire | Verb::Macquire => {
                let request = grammar::acquire(verb, argv, max_ttl_ms)?;
                self.on(argv, request.keys.clone(), connection, |node, keys| {
                    node.acquire(keys, &request, clock)
                })
            }
            Verb::Extend | Verb::Mextend => {
                let request = grammar::extend(verb, argv, max_ttl_ms)?;
                self.on(argv, request.keys.clone(), connection, |node, keys| {
                    node.extend(keys, &request, clock)
                })
            }
            Verb::Release | Verb::Mrelease => {
                let request = grammar::release(verb, argv)?;
                self.on(argv, request.keys.clone(), connection, |node, keys| {
                    node.release(keys, &request, clock)
                })
            }
            Verb::Inspect => {
                grammar::exactly(verb, argv)?;
                self.on(argv, KeyArgs::One, connection, |node, keys| node.inspect(keys, clock))
            }
            Verb::Node => {
                grammar::exactly(verb, argv)?;
                Ok(self.node.describe(0, Role::Master, clock))
            }
            Verb::Admit => {
                let (node, host) = (&mut self.node, &mut self.host);
                node.admit(&grammar::admit(argv)?, |state| host.store(state), clock)
            }
            Verb::Break => {
                let fence = grammar::break_lock(argv)?;
                self.on(argv, KeyArgs::One, connection, |node, keys| node.break_lock(keys, fence, clock))
            }
            Verb::Apply | Verb::Dataset | Verb::Mark => Err(CommandError::Internal),
        }
    }

    /// Applies an effect of the master on a replica: `APPLY`, `DATASET`, a release or a break.
    ///
    /// # Errors
    /// Another command, the node can hold no more locks, or the state cannot be stored.
    pub fn follow(&mut self, argv: &[&[u8]], mut now: Millis) -> Result<(), CommandError> {
        match argv.first().and_then(|name| Verb::named(name)) {
            Some(Verb::Apply) => {
                let request = grammar::apply(argv)?;
                self.on(argv, KeyArgs::One, None, |node, keys| node.apply(keys, &request, &mut now))
            }
            Some(verb @ (Verb::Release | Verb::Mrelease)) => {
                let request = grammar::release(verb, argv)?;
                let keys = request.keys.clone();
                self.on(argv, keys, None, |node, keys| node.replay_release(keys, &request));
                Ok(())
            }
            Some(Verb::Break) => {
                grammar::break_lock(argv)?;
                self.on(argv, KeyArgs::One, None, |node, keys| node.replay_break(keys));
                Ok(())
            }
            Some(Verb::Dataset) => {
                let (id, common) = grammar::dataset(argv)?;
                if let Some(next) = self.node.state().following(Some(id), common) {
                    self.host.store(&next)?;
                    self.node.set_state(next);
                }
                Ok(())
            }
            _ => Err(CommandError::Internal),
        }
    }

    /// Crashes and starts again at `now`: the locks are lost, the durable state is not. Fences continue above the
    /// high-water mark, and the node is in quarantine for the locks that it has forgotten.
    pub fn crash(&mut self, now: Millis) {
        let start = Start { state: self.node.state().clone(), continues: true };
        // A node that could not store its state grants nothing.
        if self.restart_with(&start, now).is_err() {
            let state = self.node.state().clone();
            self.node.set_unsaved_state(state);
        }
    }

    /// Starts at `now` without locks.
    ///
    /// # Errors
    /// The state of this start cannot be stored. A server does not start then.
    pub fn restart_with(&mut self, start: &Start, mut now: Millis) -> Result<(), CommandError> {
        let wait_ms = start.quarantine_ms(Grace::Auto, self.node.max_ttl_ms());
        let (state, stripes) = start.state.restarted();
        let stored = self.host.store(&state);
        let mut node = LockNode::new(state, stripes);
        node.set_max_ttl_ms(self.node.max_ttl_ms());
        self.node = node;
        self.keys.clear();
        self.pushes.clear();
        if wait_ms > 0 {
            self.node.quarantine(wait_ms, &mut now);
        }
        if start.continues {
            self.node.set_resumed();
        }
        stored
    }

    /// Deletes a key as an administrator's `DEL` does. Returns true if the key existed.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.keys.remove(key);
        self.forget(old);
        self.node.key_changed(0, key);
        old.is_some()
    }

    /// Sets a key, as another client's command or a load does.
    pub fn plant(&mut self, key: &[u8], key_state: KeyState) {
        let old = self.keys.insert(key.to_vec(), key_state);
        self.forget(old);
    }

    /// Whether a key exists at `now`.
    pub fn exists(&mut self, key: &[u8], now: Millis) -> bool {
        self.sweep(now);
        self.keys.contains_key(key)
    }

    /// The saved form of the lock under a key at `now`, if there is one. An expired lock is there until the next sweep.
    #[must_use]
    pub fn image(&self, key: &[u8], mut now: Millis) -> Option<LockImage> {
        let lock = lock_of(self.keys.get(key).copied())?;
        Some(self.node.image(lock, &mut now))
    }

    /// The saved form of the lock under a key at `now` with all its holders, if there is one. An expired
    /// holder is there until the next sweep.
    #[must_use]
    pub fn saved(&self, key: &[u8], mut now: Millis) -> Option<SavedLock> {
        let lock = lock_of(self.keys.get(key).copied())?;
        Some(self.node.saved(lock, &mut now))
    }

    /// Deletes every expired lock, and hands free locks on.
    pub fn sweep(&mut self, mut now: Millis) {
        loop {
            match self.node.sweep(&mut now) {
                Sweep::Expired(lock) => {
                    let (_, key) = self.node.location(lock);
                    let key = key.to_vec();
                    self.on(&[&key], KeyArgs::Many(vec![0]), None, |node, keys| node.expire(keys, lock));
                }
                Sweep::Busy => {}
                Sweep::Until(_) | Sweep::Idle => return self.serve(now),
            }
        }
    }

    fn on<T>(
        &mut self,
        argv: &[&[u8]],
        words: KeyArgs,
        connection: Option<u64>,
        run: impl FnOnce(&mut LockNode, &mut MemoryKeys<'_, H>) -> T,
    ) -> T {
        let mut keys = MemoryKeys { keys: &mut self.keys, host: &mut self.host, argv, words, connection };
        run(&mut self.node, &mut keys)
    }

    fn forget(&mut self, key_state: Option<KeyState>) {
        if let Some(lock) = lock_of(key_state) {
            self.node.reclaim(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::HIGH_WATER_STEP;

    #[test]
    fn an_image_is_the_saved_form_of_a_lock() {
        let mut memory = MemoryNode::new("me");
        let argv: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", b"job", b"mine", b"30"];
        assert_eq!(memory.execute(&argv, 1, Millis(100)), Ok(Reply::Integer(1)));
        let image = memory.image(b"job", Millis(110)).expect("it is held");
        assert_eq!((&image.owner[..], image.fence, image.left_ms, image.held_ms), (&b"mine"[..], 1, 20, 10));
        assert_eq!(memory.image(b"other", Millis(110)), None);
        memory.sweep(Millis(131));
        assert_eq!(memory.image(b"job", Millis(131)), None, "it has expired");
    }

    #[test]
    fn a_host_stores_every_state_before_the_node_uses_it() {
        #[derive(Default)]
        struct StoringHost(Vec<DurableState>, bool);
        impl NodeHost for StoringHost {
            fn store(&mut self, state: &DurableState) -> Result<(), CommandError> {
                self.0.push(state.clone());
                if self.1 { Err(CommandError::NotStored) } else { Ok(()) }
            }
            fn replicate(&mut self, _: &[&[u8]], _: &[u8], _: Effect<'_>) {}
        }
        let mut memory = MemoryNode::hosted(DurableState::new("me".into(), 7), StoringHost::default());
        let argv: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", b"job", b"mine", b"30"];
        assert_eq!(memory.execute(&argv, 1, Millis(100)), Ok(Reply::Integer(1)));
        assert_eq!(memory.host().0.last(), Some(memory.node().state()));
        memory.crash(Millis(110));
        assert_eq!((memory.host().0.len(), memory.host().0[1].incarnation), (2, 1));
        memory.host_mut().1 = true;
        let start = Start { state: memory.node().state().clone(), continues: true };
        assert_eq!(memory.restart_with(&start, Millis(120)), Err(CommandError::NotStored));
        memory.crash(Millis(130));
        assert_eq!(memory.execute(&argv, 1, Millis(1_000)), Err(CommandError::NotStored));
    }

    /// A host that keeps the events of keys.
    #[derive(Default)]
    struct ListeningHost(Vec<String>);

    impl NodeHost for ListeningHost {
        fn store(&mut self, _: &DurableState) -> Result<(), CommandError> {
            Ok(())
        }
        fn replicate(&mut self, _: &[&[u8]], _: &[u8], _: Effect<'_>) {}
        fn notify(&mut self, key: &[u8], event: LockEvent) {
            self.0.push(format!("{} {}", String::from_utf8_lossy(key), event.name().to_string_lossy()));
        }
    }

    /// The events of these commands, each sent at its time.
    fn events_of(lines: &[(u64, &str)]) -> Vec<String> {
        let mut memory = MemoryNode::hosted(DurableState::new("me".into(), 7), ListeningHost::default());
        for (at, line) in lines {
            let argv: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            match Verb::named(argv[0]) {
                Some(Verb::Apply) => memory.follow(&argv, Millis(*at)).expect("an effect"),
                _ => drop(memory.execute(&argv, 1, Millis(*at))),
            }
        }
        memory.host_mut().0.iter().map(|event| event.replace("redlock.", "")).collect()
    }

    #[test]
    fn every_change_of_a_lock_is_an_event_and_no_refusal_is() {
        let events = events_of(&[
            (1, "REDLOCK.ACQUIRE k a 100"),
            (2, "REDLOCK.ACQUIRE k b 100"),
            (3, "REDLOCK.EXTEND k b 100"),
            (4, "REDLOCK.RELEASE k b"),
            (5, "REDLOCK.ACQUIRE k a 100"),
            (6, "REDLOCK.EXTEND k a 100"),
            (7, "REDLOCK.ACQUIRE k c 100 WAIT 1 10000 channel"),
            (8, "REDLOCK.RELEASE k a"),
            (200, "REDLOCK.MACQUIRE 2 k l d 100"),
            (201, "REDLOCK.MRELEASE 2 k l d"),
        ]);
        let expected = [
            "k acquired",
            "k extended",
            "k extended",
            "k released",
            "k handed-off",
            "k expired",
            "k acquired",
            "l acquired",
            "k released",
            "l released",
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn a_replica_has_the_events_of_its_master() {
        let events = events_of(&[
            (1, "REDLOCK.APPLY k a 1 100 LABEL text"),
            (2, "REDLOCK.APPLY k a 1 100 HELD 1 EXT 1"),
            (3, "REDLOCK.APPLY k b 2 100 HANDOFF LABEL text"),
            (4, "REDLOCK.APPLY k b 2 0"),
            (5, "REDLOCK.APPLY k b 2 0"),
        ]);
        assert_eq!(events, ["k acquired", "k extended", "k handed-off", "k expired"]);
    }

    #[test]
    fn a_replica_follows_its_master() {
        let (mut memory, now) = (MemoryNode::new("me"), Millis(100));
        let mut follow = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            memory.follow(&words, now)?;
            Ok::<_, CommandError>((
                memory.image(b"job", now).map(|image| image.fence),
                memory.node().state().high_water.highest(),
            ))
        };
        let state = HIGH_WATER_STEP;
        assert_eq!(follow("REDLOCK.DATASET 7 5"), Ok((None, state + 5)));
        assert_eq!(follow("REDLOCK.APPLY job mine 4 30"), Ok((Some(4), state + 5)));
        assert_eq!(follow("REDLOCK.RELEASE job yours"), Ok((Some(4), state + 5)));
        assert_eq!(follow("REDLOCK.RELEASE job mine"), Ok((None, state + 5)));
        assert_eq!(follow("REDLOCK.ACQUIRE job mine 30"), Err(CommandError::Internal));
    }
}
