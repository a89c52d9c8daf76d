//! A node without a server: the same decisions over a hash map.
//!
//! For simulations, models and programs that want locks in their own tests. It also knows just enough
//! of a server to be compared with one.

use std::collections::HashMap;

use crate::durable::DurableState;
use crate::fault::Fault;
use crate::fence::Stripes;
use crate::grammar::{self, Keys};
use crate::image::LockImage;
use crate::keyspace::{Effect, Keyspace, Occupant};
use crate::node::{Announcement, Node, Sweep};
use crate::queue::KEYS_AT_ONCE;
use crate::reply::Reply;
use crate::table::{Database, LockId};
use crate::time::Millis;
use redlock_contract::Role;
use redlock_contract::commands::Verb;

/// What a server does for the node in it: stores its durable state, and passes on what the node did.
pub trait Host {
    /// Stores the durable state before it returns.
    ///
    /// # Errors
    /// [`Fault::NotStored`]: then the node grants nothing that relies on the state.
    fn store(&mut self, state: &DurableState) -> Result<(), Fault>;
    /// Passes an effect of the command `argv` on its key `key` to the replicas.
    fn replicate(&mut self, argv: &[&[u8]], key: &[u8], effect: Effect<'_>);
}

/// A host without a disk and without replicas: memory is all there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHost;

impl Host for NoHost {
    fn store(&mut self, _: &DurableState) -> Result<(), Fault> {
        Ok(())
    }

    fn replicate(&mut self, _: &[&[u8]], _: &[u8], _: Effect<'_>) {}
}

/// A node whose keys live in memory.
#[derive(Debug)]
pub struct MemoryNode<H = NoHost> {
    node: Node,
    keys: HashMap<Vec<u8>, Occupant>,
    announcements: Vec<Announcement>,
    host: H,
}

/// The keys of one command.
struct View<'a, H> {
    keys: &'a mut HashMap<Vec<u8>, Occupant>,
    host: &'a mut H,
    argv: &'a [&'a [u8]],
    words: Keys,
    connection: Option<u64>,
}

/// The lock that an occupant is.
fn lock_of(occupant: Option<Occupant>) -> Option<LockId> {
    match occupant {
        Some(Occupant::Lock(lock)) => Some(lock),
        _ => None,
    }
}

impl<H: Host> Keyspace for View<'_, H> {
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
        self.argv.get(self.words.word(key)).copied().unwrap_or(&[])
    }

    fn occupant(&self, key: usize) -> Occupant {
        self.keys.get(self.name(key)).copied().unwrap_or(Occupant::Empty)
    }

    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId> {
        let name = self.name(key).to_vec();
        lock_of(self.keys.insert(name, Occupant::Lock(lock)))
    }

    fn delete(&mut self, key: usize) -> Option<LockId> {
        let name = self.name(key).to_vec();
        lock_of(self.keys.remove(&name))
    }

    fn store(&mut self, state: &DurableState) -> Result<(), Fault> {
        self.host.store(state)
    }

    fn replicate(&mut self, effect: Effect<'_>) {
        let key = match effect {
            Effect::Granted { key, .. } | Effect::Prolonged { key, .. } => key,
            Effect::Dataset { .. } | Effect::Released => 0,
        };
        let name = self.argv.get(self.words.word(key)).copied().unwrap_or(&[]);
        self.host.replicate(self.argv, name, effect);
    }
}

impl MemoryNode {
    /// A node with this identity that holds nothing.
    #[must_use]
    pub fn new(id: &str) -> Self {
        Self::hosted(DurableState::new(id.to_owned(), 0), NoHost)
    }
}

impl<H: Host> MemoryNode<H> {
    /// A node with this state, which its host has stored, that holds nothing.
    #[must_use]
    pub fn hosted(state: DurableState, host: H) -> Self {
        Self {
            node: Node::new(state, Stripes::default()),
            keys: HashMap::new(),
            announcements: Vec::new(),
            host,
        }
    }

    /// What is around the node.
    #[must_use]
    pub fn host(&self) -> &H {
        &self.host
    }

    /// What is around the node, to be changed.
    pub fn host_mut(&mut self) -> &mut H {
        &mut self.host
    }

    /// The node itself.
    #[must_use]
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node itself, to be configured.
    pub fn node_mut(&mut self) -> &mut Node {
        &mut self.node
    }

    /// Runs a command, its name first, as it arrives on `connection` at `now`.
    ///
    /// # Errors
    /// What a server with the module would answer as an error.
    pub fn execute(&mut self, argv: &[&[u8]], connection: u64, mut now: Millis) -> Result<Reply, Fault> {
        let verb = argv.first().and_then(|name| Verb::named(name)).ok_or(Fault::Arg("unknown command"))?;
        self.sweep(now);
        let reply = self.run(verb, argv, connection, &mut now);
        self.serve(now);
        reply
    }

    /// What was announced to those who wait since the last time this was asked, in order.
    pub fn take_announcements(&mut self) -> Vec<Announcement> {
        std::mem::take(&mut self.announcements)
    }

    /// Lets nobody wait on a connection any longer that is closed.
    pub fn close(&mut self, connection: u64, now: Millis) {
        self.node.connection_closed(connection);
        self.serve(now);
    }

    /// Gives locks to those who wait for them, as far as they are free.
    fn serve(&mut self, mut now: Millis) {
        while self.node.has_due() {
            let mut keys_left = KEYS_AT_ONCE;
            let Some((waiter, _, keys)) = self.node.next_due(&mut keys_left) else { continue };
            let argv: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let words = Keys::Many((0..argv.len()).collect());
            let announcement = self.on(&argv, words, None, |node, keys| node.serve(keys, waiter, &mut now));
            self.announcements.extend(announcement);
        }
    }

    fn run(
        &mut self,
        verb: Verb,
        argv: &[&[u8]],
        connection: u64,
        clock: &mut Millis,
    ) -> Result<Reply, Fault> {
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
                self.on(argv, Keys::One, connection, |node, keys| node.inspect(keys, clock))
            }
            Verb::Node => {
                grammar::exactly(verb, argv)?;
                Ok(self.node.describe(0, Role::Master, clock))
            }
            Verb::Admit => {
                let (node, host) = (&mut self.node, &mut self.host);
                node.admit(&grammar::admit(argv)?, |state| host.store(state), clock)
            }
            Verb::Apply | Verb::Dataset | Verb::Mark => Err(Fault::Internal),
        }
    }

    /// Does as a replica what its master says that it has done. The words are those of `APPLY`, `DATASET`, or a release.
    ///
    /// # Errors
    /// Other words, no more locks can be held, or the state cannot be stored.
    pub fn follow(&mut self, argv: &[&[u8]], mut now: Millis) -> Result<(), Fault> {
        match argv.first().and_then(|name| Verb::named(name)) {
            Some(Verb::Apply) => {
                let request = grammar::apply(argv)?;
                self.on(argv, Keys::One, None, |node, keys| node.apply(keys, &request, &mut now))
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
            _ => Err(Fault::Internal),
        }
    }

    /// Crashes and starts again at `now`: the locks are gone, the durable state is not. So the fences go on above the
    /// high-water mark, and the node waits for the locks that it has forgotten.
    pub fn crash(&mut self, now: Millis) {
        let state = self.node.state().clone();
        // A node that cannot store its state grants nothing that relies on it.
        if self.restart_with(&state, now).is_err() {
            let state = self.node.state().clone();
            self.node.set_unsaved_state(state);
        }
    }

    /// Starts at `now` without any lock, with the durable state that a disk has kept.
    ///
    /// # Errors
    /// The state of this start cannot be stored: a server does not start then.
    pub fn restart_with(&mut self, state: &DurableState, mut now: Millis) -> Result<(), Fault> {
        let wait_ms = state.quarantine_ms();
        let (state, stripes) = state.restarted();
        let stored = self.host.store(&state);
        let mut node = Node::new(state, stripes);
        node.set_max_ttl_ms(self.node.max_ttl_ms());
        self.node = node;
        self.keys.clear();
        self.announcements.clear();
        if wait_ms > 0 {
            self.node.quarantine(wait_ms, &mut now);
        }
        self.node.set_resumed();
        stored
    }

    /// Deletes a key as an administrator's `DEL` does; true if there was one.
    pub fn delete(&mut self, key: &[u8]) -> bool {
        let old = self.keys.remove(key);
        self.forget(old);
        self.node.key_changed(0, key);
        old.is_some()
    }

    /// Puts something under a key that is not a lock of this node.
    pub fn plant(&mut self, key: &[u8], occupant: Occupant) {
        let old = self.keys.insert(key.to_vec(), occupant);
        self.forget(old);
    }

    /// Whether there is anything under a key at `now`.
    pub fn exists(&mut self, key: &[u8], now: Millis) -> bool {
        self.sweep(now);
        self.keys.contains_key(key)
    }

    /// The lock under a key as it would be saved at `now`, if there is one. One that has run out stands there
    /// until the next sweep.
    #[must_use]
    pub fn image(&self, key: &[u8], mut now: Millis) -> Option<LockImage> {
        let lock = lock_of(self.keys.get(key).copied())?;
        Some(self.node.image(lock, &mut now))
    }

    /// Deletes every lock that has run out.
    pub fn sweep(&mut self, mut now: Millis) {
        loop {
            match self.node.sweep(&mut now) {
                Sweep::Expired(lock) => {
                    let (_, key) = self.node.place(lock);
                    if self.keys.get(key) == Some(&Occupant::Lock(lock)) {
                        let key = key.to_vec();
                        self.keys.remove(&key);
                        self.node.expired(lock, Some(lock));
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
        words: Keys,
        connection: Option<u64>,
        run: impl FnOnce(&mut Node, &mut View<'_, H>) -> T,
    ) -> T {
        let mut view = View { keys: &mut self.keys, host: &mut self.host, argv, words, connection };
        run(&mut self.node, &mut view)
    }

    fn forget(&mut self, occupant: Option<Occupant>) {
        if let Some(lock) = lock_of(occupant) {
            self.node.reclaim(lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::durable::HIGH_WATER_STEP;

    #[test]
    fn a_lock_can_be_seen_as_it_would_be_saved() {
        let mut memory = MemoryNode::new("me");
        let argv: [&[u8]; 4] = [b"REDLOCK.ACQUIRE", b"job", b"mine", b"30"];
        assert_eq!(memory.execute(&argv, 1, Millis(100)), Ok(Reply::Integer(1)));
        let image = memory.image(b"job", Millis(110)).expect("it is held");
        assert_eq!((&image.owner[..], image.fence, image.left_ms, image.held_ms), (&b"mine"[..], 1, 20, 10));
        assert_eq!(memory.image(b"other", Millis(110)), None);
        memory.sweep(Millis(131));
        assert_eq!(memory.image(b"job", Millis(131)), None, "it has run out");
    }

    #[test]
    fn a_host_stores_every_state_before_it_counts() {
        #[derive(Default)]
        struct StoringHost(Vec<DurableState>, bool);
        impl Host for StoringHost {
            fn store(&mut self, state: &DurableState) -> Result<(), Fault> {
                self.0.push(state.clone());
                if self.1 { Err(Fault::NotStored) } else { Ok(()) }
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
        assert_eq!(memory.restart_with(&state, Millis(120)), Err(Fault::NotStored));
        memory.crash(Millis(130));
        assert_eq!(memory.execute(&argv, 1, Millis(1_000)), Err(Fault::NotStored));
    }

    #[test]
    fn a_replica_follows_its_master() {
        let (mut memory, now) = (MemoryNode::new("me"), Millis(100));
        let mut follow = |line: &str| {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            memory.follow(&words, now)?;
            Ok::<_, Fault>((
                memory.image(b"job", now).map(|image| image.fence),
                memory.node().state().highest(),
            ))
        };
        let state = HIGH_WATER_STEP;
        assert_eq!(follow("REDLOCK.DATASET 7 5"), Ok((None, state + 5)));
        assert_eq!(follow("REDLOCK.APPLY job mine 4 30"), Ok((Some(4), state + 5)));
        assert_eq!(follow("REDLOCK.RELEASE job yours"), Ok((Some(4), state + 5)));
        assert_eq!(follow("REDLOCK.RELEASE job mine"), Ok((None, state + 5)));
        assert_eq!(follow("REDLOCK.ACQUIRE job mine 30"), Err(Fault::Internal));
    }
}
