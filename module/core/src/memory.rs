//! A node without a server: the same decisions over a hash map.
//!
//! It serves simulations, models, and programs that need locks in their own tests. It also does what a server does with
//! keys, so that tests can compare it with one.

use std::collections::HashMap;

use crate::command_error::CommandError;
use crate::durable::DurableState;
use crate::fence::Stripes;
use crate::grammar::{self, KeyArgs};
use crate::image::LockImage;
use crate::keyspace::{Effect, KeyState, Keyspace};
use crate::node::{GrantPush, LockNode, Sweep};
use crate::queue::KEYS_PER_STEP;
use crate::reply::Reply;
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
            Effect::Granted { key, .. } | Effect::Extended { key, .. } => key,
            Effect::Dataset { .. } | Effect::Released => 0,
        };
        let name = self.argv.get(self.words.index(key)).copied().unwrap_or(&[]);
        self.host.replicate(self.argv, name, effect);
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
        let verb =
            argv.first().and_then(|name| Verb::named(name)).ok_or(CommandError::Arg("unknown command"))?;
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
            Verb::Apply | Verb::Dataset | Verb::Mark => Err(CommandError::Internal),
        }
    }

    /// Applies an effect of the master on a replica: `APPLY`, `DATASET`, or a release.
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
            Some(Verb::Dataset) => {
                let (id, highest) = grammar::dataset(argv)?;
                if let Some(next) = self.node.state().following(Some(id), highest) {
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
        let state = self.node.state().clone();
        // A node that could not store its state grants nothing.
        if self.restart_with(&state, now).is_err() {
            let state = self.node.state().clone();
            self.node.set_unsaved_state(state);
        }
    }

    /// Starts at `now` without locks, with the durable state from a disk.
    ///
    /// # Errors
    /// The state of this start cannot be stored. A server does not start then.
    pub fn restart_with(&mut self, state: &DurableState, mut now: Millis) -> Result<(), CommandError> {
        let wait_ms = state.quarantine_ms();
        let (state, stripes) = state.restarted();
        let stored = self.host.store(&state);
        let mut node = LockNode::new(state, stripes);
        node.set_max_ttl_ms(self.node.max_ttl_ms());
        self.node = node;
        self.keys.clear();
        self.pushes.clear();
        if wait_ms > 0 {
            self.node.quarantine(wait_ms, &mut now);
        }
        self.node.set_resumed();
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

    /// Deletes every expired lock, and hands free locks on.
    pub fn sweep(&mut self, mut now: Millis) {
        loop {
            match self.node.sweep(&mut now) {
                Sweep::Expired(lock) => {
                    let (_, key) = self.node.location(lock);
                    if self.keys.get(key) == Some(&KeyState::Lock(lock)) {
                        let key = key.to_vec();
                        self.keys.remove(&key);
                        self.node.lock_expired(lock, Some(lock));
                    }
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
        let state = memory.node().state().clone();
        assert_eq!(memory.restart_with(&state, Millis(120)), Err(CommandError::NotStored));
        memory.crash(Millis(130));
        assert_eq!(memory.execute(&argv, 1, Millis(1_000)), Err(CommandError::NotStored));
    }

    #[test]
    fn a_replica_follows_its_master() {
        let (mut memory, now) = (MemoryNode::new("me"), Millis(100));
        let mut follow = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            memory.follow(&words, now)?;
            Ok::<_, CommandError>((
                memory.image(b"job", now).map(|image| image.fence),
                memory.node().state().highest(),
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
