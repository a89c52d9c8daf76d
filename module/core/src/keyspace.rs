//! The interface between a node's decisions and the server that stores the keys.

use std::ffi::CStr;

use crate::command_error::CommandError;
use crate::durable::DurableState;
use crate::fence::Stripe;
use crate::table::{Database, LockId};

/// What the keyspace holds under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// The key does not exist.
    Empty,
    /// A lock of this node; it may have expired.
    Lock(LockId),
    /// A plain string: a lock that a `SET key value NX PX` client took.
    ForeignString,
    /// A value of any other type.
    OtherType,
}

/// The keys of one command, numbered in the order of the command.
///
/// The record of a lock outlives its value in the keyspace. `put` and `delete` return the lock if the server has freed
/// its value already. For every other lock the server calls [`LockNode::reclaim`](crate::LockNode::reclaim) later.
pub trait Keyspace {
    /// The number of keys, at least one. Where the compiler knows the number, it removes every loop over the keys.
    fn count(&self) -> usize;
    /// The database of the keys.
    fn database(&self) -> Database;
    /// The connection that sent the command; `None` for a command of a script.
    fn connection(&self) -> Option<u64>;
    /// The name of a key.
    fn name(&self, key: usize) -> &[u8];
    /// The stripe of a key. An implementation that knows it already overrides this.
    fn stripe(&self, key: usize) -> Stripe {
        Stripe::of(self.name(key))
    }
    /// What the keyspace holds under a key.
    fn key_state(&self, key: usize) -> KeyState;
    /// Sets a key to a lock. Returns the lock that was there, if its value is freed.
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId>;
    /// Deletes a key. Returns the lock that was there, if its value is freed.
    fn delete(&mut self, key: usize) -> Option<LockId>;
    /// Records that the lock of a key has changed although the value of the key has not: a holder has joined a shared
    /// lock or left it.
    fn touched(&mut self, _key: usize) {}
    /// Stores the durable state before it returns.
    ///
    /// # Errors
    /// [`CommandError::NotStored`].
    fn store(&mut self, state: &DurableState) -> Result<(), CommandError>;
    /// Sends an effect to replicas and the AOF.
    fn replicate(&mut self, effect: Effect<'_>);
    /// Notifies subscribers of an event of a key. A server sends it after it has closed the keys: a handler of another
    /// module may then use them.
    fn notify(&mut self, key: usize, event: LockEvent);
}

/// What has happened to the lock of a key, on a master and on its replicas alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockEvent {
    /// The node granted the lock to the owner that asked for it.
    Acquired,
    /// The owner extended the lock, or acquired it again.
    Extended,
    /// The owner released the lock, or an administrator broke it.
    Released,
    /// The node granted the lock to the first waiter.
    HandedOff,
    /// The lock expired, and the node deleted its key or granted it again.
    Expired,
}

impl LockEvent {
    /// All events.
    pub const ALL: [Self; 5] =
        [Self::Acquired, Self::Extended, Self::Released, Self::HandedOff, Self::Expired];

    /// The name of the event, as subscribers receive it.
    #[must_use]
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::Acquired => c"redlock.acquired",
            Self::Extended => c"redlock.extended",
            Self::Released => c"redlock.released",
            Self::HandedOff => c"redlock.handed-off",
            Self::Expired => c"redlock.expired",
        }
    }
}

/// The effect of a command, for replicas and the AOF. It says what the node did, never what the client asked for.
#[derive(Clone, Copy)]
pub enum Effect<'a> {
    /// The node granted a key.
    Granted {
        /// The key's number in the command.
        key: usize,
        /// The secret of the new holder.
        owner: &'a [u8],
        /// The fence of the grant.
        fence: u64,
        /// Time until the lock expires, in milliseconds.
        left_ms: u64,
        /// A text for people.
        label: &'a [u8],
        /// Whether the owner is a waiter that has got the lock by a hand-off.
        is_handed_off: bool,
        /// Whether the owner is one of the holders of a shared lock.
        is_shared: bool,
    },
    /// The node extended the lock of a key.
    Extended {
        /// The key's number in the command.
        key: usize,
        /// The secret of the holder.
        owner: &'a [u8],
        /// The fence of the lock from now on.
        fence: u64,
        /// Time until the lock expires, in milliseconds.
        left_ms: u64,
        /// Time since the lock was granted, in milliseconds.
        held_ms: u64,
        /// The number of extensions.
        extensions: u32,
        /// Whether the owner is one of the holders of a shared lock.
        is_shared: bool,
    },
    /// The lock of a key has expired, and the node has deleted the key. Of a shared lock, the lease of this owner has
    /// expired; the key is deleted with the last one.
    Expired {
        /// The key's number in the command.
        key: usize,
        /// The secret of the client that held the lock.
        owner: &'a [u8],
        /// The fence of the lock.
        fence: u64,
        /// Whether the owner is one of the holders of a shared lock.
        is_shared: bool,
    },
    /// The data set has this id and this common high-water mark from now on.
    Dataset {
        /// The id of the data set.
        id: u64,
        /// The common high-water mark: no fence in the data set is larger, except on far stripes.
        high_water: u64,
    },
    /// The node released or broke the locks of the command. A replica does the same with the same command,
    /// without a clock.
    Released,
}
