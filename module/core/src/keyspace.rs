//! The seam between a node's decisions and the place where keys live.

use crate::durable::DurableState;
use crate::fault::Fault;
use crate::fence::Stripe;
use crate::table::{Database, LockId};

/// What stands under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyState {
    /// Nothing.
    Empty,
    /// A lock of this node; it may have run out.
    Lock(LockId),
    /// A plain string: a lock that a `SET key value NX PX` client took.
    ForeignString,
    /// A value that is no lock of any kind.
    OtherType,
}

/// The keys that one command names, by their number in the command.
///
/// A lock's record outlives its value in the keyspace. Where `put` and `delete` can tell that the old
/// value is gone they say so; of all others the node is told later, by [`LockNode::reclaim`](crate::LockNode::reclaim).
pub trait Keyspace {
    /// How many keys there are, one or more. Where that is known to the compiler, every loop over them is
    /// gone.
    fn count(&self) -> usize;
    /// The database in which the keys are.
    fn database(&self) -> Database;
    /// The connection that sent the command, if it is known: a script hides it.
    fn connection(&self) -> Option<u64>;
    /// The name of a key.
    fn name(&self, key: usize) -> &[u8];
    /// The stripe of a key, for those who know it already.
    fn stripe(&self, key: usize) -> Stripe {
        Stripe::of(self.name(key))
    }
    /// What stands under a key.
    fn key_state(&self, key: usize) -> KeyState;
    /// Puts a lock under a key, in place of whatever is there; tells the lock that is gone by that.
    fn put(&mut self, key: usize, lock: LockId) -> Option<LockId>;
    /// Removes what is under a key; tells the lock that is gone by that.
    fn delete(&mut self, key: usize) -> Option<LockId>;
    /// Stores the durable state before it returns.
    ///
    /// # Errors
    /// [`Fault::NotStored`].
    fn store(&mut self, state: &DurableState) -> Result<(), Fault>;
    /// Hands an effect on to replicas and the AOF.
    fn replicate(&mut self, effect: Effect<'_>);
}

/// What a command did, for replicas and the AOF: never what it asked for.
#[derive(Clone, Copy)]
pub enum Effect<'a> {
    /// The key is now held like this.
    Granted {
        /// The key's number in the command.
        key: usize,
        /// By whom, as spelled.
        owner: &'a [u8],
        /// With this fence.
        fence: u64,
        /// For so long.
        left_ms: u64,
        /// For people.
        label: &'a [u8],
    },
    /// The owner's lock of the key goes on.
    Extended {
        /// The key's number in the command.
        key: usize,
        /// Whose, as spelled.
        owner: &'a [u8],
        /// Its fence now.
        fence: u64,
        /// Time until it is over.
        left_ms: u64,
        /// Time since it was granted.
        held_ms: u64,
        /// How often it was extended.
        extensions: u32,
    },
    /// What the data set says about itself, from now on.
    Dataset {
        /// The id of the data set.
        id: u64,
        /// At least every fence in it.
        high_water: u64,
    },
    /// The command's keys are free. The same words do the same on a copy, without a clock.
    Released,
}
