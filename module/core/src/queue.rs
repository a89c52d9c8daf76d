//! The wait queues of a node: one FIFO for each key.
//!
//! The smallest ticket is first; of equal tickets, the smaller owner. The queues are soft state: the node neither saves
//! nor replicates them, no promise but the order relies on them, and their size is bounded.
//!
//! The node serves a waiter by granting it the lock for a short time, the claim window. The waiter's next command
//! claims the lock for the time that the waiter asked for. An unclaimed lock expires and passes to the next waiter. A
//! closed connection does not end the claim window: a client that received the push may rely on the grant before it
//! notices that its connection is closed.

mod ready_keys;
mod sizes;
#[cfg(test)]
mod tests;
mod wait_queue;

use redlock_contract::limits::MAX_WAIT_KEY_BYTES;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use ready_keys::ReadyKeys;
use sizes::Sizes;
use wait_queue::WaitQueue;

use crate::command_error::CommandError;
use crate::database_swaps::DatabaseSwaps;
use crate::table::{Database, LockId};
use crate::time::Millis;

/// Limits of the wait queues. A waiter for several keys counts once for each key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Waiters on the whole node.
    pub node: u64,
    /// Waiters for one key.
    pub key: u64,
    /// Waiters on one connection.
    pub connection: u64,
    /// Memory of all waiters, in bytes, approximate.
    pub bytes: u64,
}

/// What the wait queues use of each of their [`Limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitUse {
    /// Waiters on the whole node, each counted once for each of its keys.
    pub node: u64,
    /// Waiters for the key with the longest queue.
    pub key: u64,
    /// Waiters on the connection with the most, each counted once for each of its keys.
    pub connection: u64,
    /// Memory of all waiters, in bytes, approximate.
    pub bytes: u64,
}

/// The number of keys whose waiters one step removes or visits: about 0.03 ms of work.
pub(crate) const KEYS_PER_STEP: usize = 64;

/// The approximate memory of one table entry, in bytes: one for each waiter and one for each of its keys.
const BYTES_PER_ENTRY: usize = 128;

/// The defaults of `redlock.max-waiters`, `-per-key`, `-per-connection` and `-memory`.
pub const DEFAULT_LIMITS: Limits = Limits { node: 65_536, key: 4_096, connection: 16_384, bytes: 64 << 20 };

impl Default for Limits {
    fn default() -> Self {
        DEFAULT_LIMITS
    }
}

/// A request that waits for its keys.
#[derive(Clone)]
pub struct Waiter {
    /// The database of its keys. For a queued waiter, use [`WaitQueues::database_of`].
    pub database: Database,
    /// Its order in the queue, chosen by the client: the smallest ticket is first.
    pub ticket: u64,
    /// The owner of the lock once it is granted.
    pub owner: Arc<[u8]>,
    /// The keys; the waiter gets all or none.
    pub keys: Box<[Box<[u8]>]>,
    /// The time to live of the lock once it is claimed, in milliseconds.
    pub ttl_ms: u64,
    /// The smallest fence that the client accepts; 0 for any.
    pub floor: u64,
    /// A text for people.
    pub label: Box<[u8]>,
    /// Whether it waits to share the lock of its only key.
    pub is_shared: bool,
    /// The channel of the grant push, without its prefix.
    pub channel: Box<[u8]>,
    /// A number that the push repeats, together with the time waited.
    pub stamp: Option<u64>,
    /// The shortest claim window that the client accepts, in milliseconds; 0 for any.
    pub claim_ms: u64,
    /// The connection that sent the request.
    pub connection: u64,
    /// When it was queued; not earlier than its request arrived.
    pub since: Millis,
    /// When it expires.
    pub until: Millis,
}

impl Waiter {
    /// The approximate memory of the waiter, in bytes. Each key counts twice: here, and as the name of its queue.
    fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| 2 * key.len() + BYTES_PER_ENTRY).sum();
        let own = self.owner.len() + self.label.len() + self.channel.len();
        size_of::<Self>() + BYTES_PER_ENTRY + keys + own
    }
}

/// An owner is a secret: it is never printed.
impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// The id of a waiter while it is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// The holder of a lock whose request carried a ticket.
#[derive(Clone, Copy, Debug)]
struct TicketHolder {
    ticket: u64,
    is_claimed: bool,
}

/// The wait queues of a node.
#[derive(Debug, Default)]
pub struct WaitQueues {
    limits: Limits,
    last_id: u64,
    waiters: HashMap<WaiterId, Waiter>,
    /// The number of keys of all waiters, each waiter's counted.
    keys: usize,
    /// The approximate memory of all waiters.
    bytes: usize,
    queues: BTreeMap<Database, HashMap<Box<[u8]>, WaitQueue>>,
    /// The lengths of the queues.
    lengths: Sizes,
    /// The numbers of keys of the waiters of each connection.
    connection_sizes: Sizes,
    by_connection: HashMap<u64, ConnectionWaiters>,
    /// Closed connections whose waiters are removed a few at a time.
    closing: HashSet<u64>,
    deadlines: BTreeSet<(Millis, WaiterId)>,
    holders: HashMap<LockId, TicketHolder>,
    /// Keys whose first waiter may be served.
    ready: ReadyKeys,
    /// The progress of a scan over all waiters, in the order of their deadlines, that makes their keys ready; `None` if
    /// there is no scan.
    scanned_to: Option<(Millis, WaiterId)>,
    /// Everything above names a database by its number before any swap.
    swaps: DatabaseSwaps,
}

/// The waiters of one connection.
#[derive(Debug, Default)]
struct ConnectionWaiters {
    waiters: BTreeSet<WaiterId>,
    keys: usize,
}

impl WaitQueues {
    /// The limits.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The limits, for the caller to set. Queued waiters stay.
    pub fn limits_mut(&mut self) -> &mut Limits {
        &mut self.limits
    }

    /// What the waiters use of each limit.
    #[must_use]
    pub fn usage(&self) -> LimitUse {
        LimitUse {
            node: self.keys as u64,
            key: self.lengths.largest() as u64,
            connection: self.connection_sizes.largest() as u64,
            bytes: self.bytes as u64,
        }
    }

    /// The number of waiters.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether there are no waiters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// The number of waiters for a key.
    #[must_use]
    pub fn waiting_for(&self, database: Database, key: &[u8]) -> usize {
        self.queue(self.swaps.before(database), key).map_or(0, WaitQueue::len)
    }

    /// Whether a waiter for a key comes before this ticket and owner. A request without a ticket comes last.
    #[must_use]
    pub fn is_preceded(&self, database: Database, key: &[u8], ticket: Option<u64>, owner: &[u8]) -> bool {
        self.is_preceded_in(self.swaps.before(database), key, ticket, owner)
    }

    fn is_preceded_in(&self, database: Database, key: &[u8], ticket: Option<u64>, owner: &[u8]) -> bool {
        let first = self.queue(database, key).and_then(WaitQueue::first);
        first.is_some_and(|((first, waits), _)| {
            ticket.is_none_or(|ticket| (*first, &**waits) < (ticket, owner))
        })
    }

    /// Queues a waiter, in place of earlier waiters of the same owner at any of its keys. Returns the number of waiters
    /// ahead of it in the queue of its first key.
    ///
    /// # Errors
    /// [`CommandError::TooManyWaiters`]; nothing has changed then.
    pub fn enqueue(&mut self, mut waiter: Waiter) -> Result<usize, CommandError> {
        waiter.database = self.swaps.before(waiter.database);
        let (database, first_key) = (waiter.database, &waiter.keys[0]);
        let before = self.earlier(&waiter);
        self.has_room(&waiter, &before)?;
        for id in before {
            self.replace(id, &waiter);
        }
        self.last_id += 1;
        let id = WaiterId(self.last_id);
        let position = (waiter.ticket, Arc::clone(&waiter.owner));
        for key in &waiter.keys {
            let queue = self.queues.entry(database).or_default().entry(key.clone()).or_default();
            let before = queue.len();
            queue.insert(position.clone(), id);
            self.lengths.change(before, queue.len());
        }
        let here = self.by_connection.entry(waiter.connection).or_default();
        here.waiters.insert(id);
        here.keys += waiter.keys.len();
        self.connection_sizes.change(here.keys - waiter.keys.len(), here.keys);
        self.keys += waiter.keys.len();
        self.bytes += waiter.bytes();
        self.deadlines.insert((waiter.until, id));
        let ahead = self.queue(database, first_key).map_or(0, |queue| queue.ahead_of(&position));
        self.waiters.insert(id, waiter);
        Ok(ahead)
    }

    /// The waiters that the owner of a new waiter already has at one of its keys. Usually that is the same request
    /// repeated, but the sets of keys may overlap in any way.
    fn earlier(&self, waiter: &Waiter) -> Vec<WaiterId> {
        let mut found = Vec::new();
        for key in &waiter.keys {
            if let Some(id) = self.find(waiter.database, key, &waiter.owner)
                && !found.contains(&id)
            {
                found.push(id);
            }
        }
        found
    }

    /// Removes an earlier waiter for a new one. At keys where the new one does not wait, the next waiter may be served.
    fn replace(&mut self, id: WaiterId, by: &Waiter) {
        let Some(old) = self.remove(id) else { return };
        if old.keys == by.keys {
            return;
        }
        let stays: HashSet<&[u8]> = by.keys.iter().map(|key| &**key).collect();
        for key in old.keys.iter().filter(|key| !stays.contains(&***key)) {
            self.mark_ready_in(old.database, key);
        }
    }

    fn has_room(&self, waiter: &Waiter, before: &[WaiterId]) -> Result<(), CommandError> {
        let room = |scope, others: usize, more: usize, most: u64| {
            if (others + more) as u64 <= most { Ok(()) } else { Err(CommandError::TooManyWaiters(scope)) }
        };
        if waiter.keys.iter().any(|key| key.len() > MAX_WAIT_KEY_BYTES) {
            return Err(CommandError::WaitKeyTooLong);
        }
        let is_new = before.is_empty();
        let before = || before.iter().filter_map(|id| self.waiters.get(id));
        let count = waiter.keys.len();
        let given_up: usize = before().map(|old| old.keys.len()).sum();
        room("on this node", self.keys.saturating_sub(given_up), count, self.limits.node)?;
        let given_up: usize = before().map(Waiter::bytes).sum();
        let others = self.bytes.saturating_sub(given_up);
        room("in the memory of this node", others, waiter.bytes(), self.limits.bytes)?;
        let on_this = before().filter(|old| old.connection == waiter.connection);
        let given_up: usize = on_this.map(|old| old.keys.len()).sum();
        let here = self.by_connection.get(&waiter.connection).map_or(0, |here| here.keys);
        room("on this connection", here.saturating_sub(given_up), count, self.limits.connection)?;
        for key in &waiter.keys {
            let given_up = !is_new && self.find(waiter.database, key, &waiter.owner).is_some();
            let others = self.queue(waiter.database, key).map_or(0, WaitQueue::len);
            let others = others.saturating_sub(usize::from(given_up));
            room("for this key", others, 1, self.limits.key)?;
        }
        Ok(())
    }

    /// Removes the waiter of an owner at a key. Returns true if there was one.
    pub fn leave(&mut self, database: Database, key: &[u8], owner: &[u8]) -> bool {
        let waiter = self.find(self.swaps.before(database), key, owner);
        waiter.is_some_and(|id| self.drop_waiter(id) > 0)
    }

    fn find(&self, database: Database, key: &[u8], owner: &[u8]) -> Option<WaiterId> {
        self.queue(database, key)?.find(owner)
    }

    fn queue(&self, database: Database, key: &[u8]) -> Option<&WaitQueue> {
        self.queues.get(&database)?.get(key)
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        let position = (waiter.ticket, Arc::clone(&waiter.owner));
        if let Some(queues) = self.queues.get_mut(&waiter.database) {
            for key in &waiter.keys {
                if let Some(queue) = queues.get_mut(key) {
                    let before = queue.len();
                    queue.remove(&position);
                    self.lengths.change(before, queue.len());
                    if queue.len() == 0 {
                        queues.remove(key);
                    }
                }
            }
        }
        self.deadlines.remove(&(waiter.until, id));
        self.keys -= waiter.keys.len();
        self.bytes -= waiter.bytes();
        if let Some(others) = self.by_connection.get_mut(&waiter.connection) {
            others.waiters.remove(&id);
            others.keys -= waiter.keys.len();
            self.connection_sizes.change(others.keys + waiter.keys.len(), others.keys);
            if others.waiters.is_empty() {
                self.by_connection.remove(&waiter.connection);
                self.closing.remove(&waiter.connection);
            }
        }
        Some(waiter)
    }

    /// Removes a waiter; the waiters behind it may be served. Returns the number of its keys.
    fn drop_waiter(&mut self, id: WaiterId) -> usize {
        let Some(waiter) = self.remove(id) else { return 0 };
        for key in &waiter.keys {
            // The key may have been free, reserved for this waiter by its position.
            self.mark_ready_in(waiter.database, key);
        }
        waiter.keys.len()
    }

    /// Makes a key ready: it may be free, so its first waiter may be served.
    pub fn mark_ready(&mut self, database: Database, key: &[u8]) {
        self.mark_ready_in(self.swaps.before(database), key);
    }

    fn mark_ready_in(&mut self, database: Database, key: &[u8]) {
        if self.queue(database, key).is_some() {
            self.ready.mark(database, key);
        }
    }

    /// Makes every key with waiters ready, as at the end of a quarantine. A scan does it a few keys at a time.
    pub fn mark_all_ready(&mut self) {
        self.scanned_to = (!self.is_empty()).then_some((Millis(0), WaiterId(0)));
    }

    /// Continues the scan that makes all keys ready, and returns the number of keys visited. The scan need not see
    /// waiters that arrived or became first after it began: their keys became ready then.
    fn mark_some_ready(&mut self, at_most: usize) -> usize {
        let mut keys = 0;
        while keys < at_most
            && let Some(before) = self.scanned_to
        {
            let next = self.deadlines.range((Bound::Excluded(before), Bound::Unbounded)).next().copied();
            self.scanned_to = next;
            let Some(waiter) = next.and_then(|(_, id)| self.waiters.get(&id)) else { continue };
            keys += waiter.keys.len();
            for key in &waiter.keys {
                // Only the first waiter of a queue makes its key ready, so each queue counts once.
                let first = self.queue(waiter.database, key).and_then(WaitQueue::first);
                if first.is_some_and(|(_, first)| next.is_some_and(|(_, id)| id == first)) {
                    self.ready.mark(waiter.database, key);
                }
            }
        }
        keys
    }

    /// Removes every waiter of a key that has moved to another server with its lock.
    pub fn moved_away(&mut self, database: Database, key: &[u8]) {
        let database = self.swaps.before(database);
        while let Some((_, id)) = self.queue(database, key).and_then(WaitQueue::first) {
            self.drop_waiter(id);
        }
    }

    /// Postpones a waiter that could not be served although its keys were free, and all other ready keys with it. They
    /// would fail for the same reason; if not, they are served before this waiter when the time comes.
    pub fn postpone(&mut self, id: WaiterId, until: Millis) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        self.ready.postpone((waiter.database, waiter.keys[0].clone()), until);
    }

    /// When postponed keys become ready again; `None` if there are none.
    #[must_use]
    pub fn next_retry(&self) -> Option<Millis> {
        self.ready.next_retry()
    }

    /// Makes postponed keys ready again, if it is time.
    pub fn retry(&mut self, now: Millis) {
        self.ready.retry(now);
    }

    /// Whether a key is ready, or a scan may find one.
    #[must_use]
    pub fn has_ready(&self) -> bool {
        self.ready.has_any() || self.scanned_to.is_some()
    }

    /// The waiter to serve next, if its keys are free. `keys_left` is the caller's budget: the search
    /// subtracts the keys that it visited or removed, but not the keys of the waiter that it returns. `None`
    /// while [`has_ready`](Self::has_ready) means that the budget is used up.
    pub fn next_ready(&mut self, keys_left: &mut usize) -> Option<WaiterId> {
        if !self.ready.has_any() && self.scanned_to.is_some() {
            // Half of the budget, so that the rest can serve waiters.
            let visited = self.mark_some_ready(keys_left.div_ceil(2));
            *keys_left = keys_left.saturating_sub(visited);
        }
        while *keys_left > 0
            && let Some((database, key)) = self.ready.next()
        {
            let first = self.queue(database, &key).and_then(WaitQueue::first).map(|(_, id)| id);
            let Some(id) = first.filter(|id| !self.is_gone(*id)) else {
                let removed = first.map_or(0, |id| self.drop_waiter(id));
                *keys_left = keys_left.saturating_sub(1 + removed);
                continue;
            };
            return Some(id);
        }
        None
    }

    /// Whether the connection of a waiter has closed.
    fn is_gone(&self, id: WaiterId) -> bool {
        !self.closing.is_empty()
            && self.waiters.get(&id).is_some_and(|waiter| self.closing.contains(&waiter.connection))
    }

    /// A waiter by its id.
    #[must_use]
    pub fn waiter(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// The present database of a waiter's keys.
    #[must_use]
    pub fn database_of(&self, waiter: &Waiter) -> Database {
        self.swaps.now(waiter.database)
    }

    /// Whether a waiter is first in the queue of each of its keys.
    #[must_use]
    pub fn is_first(&self, waiter: &Waiter) -> bool {
        let ticket = Some(waiter.ticket);
        !waiter.keys.iter().any(|key| self.is_preceded_in(waiter.database, key, ticket, &waiter.owner))
    }

    /// Removes a waiter that was granted these locks. Its owner has to claim them.
    pub fn served(&mut self, id: WaiterId, locks: impl IntoIterator<Item = LockId>) {
        let Some(waiter) = self.remove(id) else { return };
        let holder = TicketHolder { ticket: waiter.ticket, is_claimed: false };
        self.holders.extend(locks.into_iter().map(|lock| (lock, holder)));
    }

    /// Records the ticket of a request that was granted without waiting.
    pub fn set_holder(&mut self, lock: LockId, ticket: u64) {
        self.holders.insert(lock, TicketHolder { ticket, is_claimed: true });
    }

    /// The ticket of the request that holds a lock; 0 for none.
    #[must_use]
    pub fn ticket_of(&self, lock: LockId) -> u64 {
        self.holders.get(&lock).map_or(0, |holder| holder.ticket)
    }

    /// Records that the owner of a lock has sent a command, which claims the lock.
    pub fn claimed(&mut self, lock: LockId) {
        if !self.holders.is_empty()
            && let Some(holder) = self.holders.get_mut(&lock)
        {
            holder.is_claimed = true;
        }
    }

    /// Forgets the holder of a lock. Returns true if the lock was handed on and never claimed.
    pub fn forget_lock(&mut self, lock: LockId) -> bool {
        !self.holders.is_empty() && self.holders.remove(&lock).is_some_and(|holder| !holder.is_claimed)
    }

    /// Removes the waiters of a closed connection: some at once, the rest in later calls of [`expire`](Self::expire).
    /// They are not served meanwhile.
    pub fn connection_closed(&mut self, connection: u64) {
        if self.by_connection.contains_key(&connection) {
            self.closing.insert(connection);
            self.remove_closed(connection);
        }
    }

    fn remove_closed(&mut self, connection: u64) {
        let mut keys = 0;
        while keys < KEYS_PER_STEP
            && let Some(here) = self.by_connection.get(&connection)
            && let Some(id) = here.waiters.first().copied()
        {
            keys += self.drop_waiter(id);
        }
    }

    /// When the first waiter expires.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Removes some waiters whose time is up or whose connection has closed. Returns true if there may be more.
    pub fn expire(&mut self, now: Millis) -> bool {
        if let Some(connection) = self.closing.iter().next().copied() {
            self.remove_closed(connection);
            return true;
        }
        let mut keys = 0;
        while keys < KEYS_PER_STEP {
            match self.deadlines.first().copied() {
                Some((until, id)) if until <= now => keys += self.drop_waiter(id),
                _ => return false,
            }
        }
        true
    }

    /// Removes one waiter whose time is up.
    pub fn expire_waiter(&mut self, id: WaiterId) {
        self.drop_waiter(id);
    }

    /// Whether waiters of closed connections are left to be removed.
    #[must_use]
    pub fn has_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// The approximate memory of all waiters, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Records that two databases were swapped. Every key with waiters becomes ready.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        self.swaps.swap(one, other);
        self.mark_all_ready();
    }

    /// Removes all waiters, and forgets the tickets of all locks.
    pub fn clear(&mut self) {
        *self = Self { limits: self.limits, last_id: self.last_id, ..Self::default() };
    }
}
