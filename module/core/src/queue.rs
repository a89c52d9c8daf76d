//! Who waits for which key, and whose turn it is.
//!
//! The smallest ticket is first; of equal tickets, the smaller owner. All of this is soft: nothing is
//! saved, copied to a replica or needed for any promise but the order, and it is bounded.
//!
//! A waiter is served by giving it the lock for a short while, the claim window. Its first command after
//! that claims the lock for the time that it had asked for; unclaimed, the lock runs out and goes on to the
//! next. It does not go on sooner when the waiter's connection closes: whoever has heard of the grant may
//! hold by it, and need not know yet that a connection is gone.

mod due;
mod line;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Arc;

use due::Due;
use line::Line;
use redlock_contract::limits::MAX_WAIT_KEY_BYTES;

use crate::fault::Fault;
use crate::swaps::Swaps;
use crate::table::{Database, LockId};
use crate::time::Millis;

/// How many may wait, at most. Whoever waits for several keys counts once for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// On the whole node.
    pub node: u64,
    /// For one key.
    pub key: u64,
    /// On one connection.
    pub connection: u64,
    /// The memory that all of them take, in bytes, roughly.
    pub bytes: u64,
}

/// How many keys' worth of waiters are let go in one go: a few hundredths of a millisecond's work.
pub(crate) const KEYS_AT_ONCE: usize = 64;

/// What a waiter costs in the tables beside its own bytes, and what each of its keys does: roughly.
const BYTES_OF_A_PLACE: usize = 128;

/// The defaults of `redlock.max-waiters`, `-per-key`, `-per-connection` and `-memory`.
pub const DEFAULT_LIMITS: Limits = Limits { node: 65_536, key: 4_096, connection: 16_384, bytes: 64 << 20 };

impl Default for Limits {
    fn default() -> Self {
        DEFAULT_LIMITS
    }
}

/// Somebody who waits.
#[derive(Clone)]
pub struct Waiter {
    /// Where its keys are. Of one who is in line: [`Queues::database_of`] tells.
    pub database: Database,
    /// Its place in the order, chosen by itself.
    pub ticket: u64,
    /// For whom the lock is wanted.
    pub owner: Arc<[u8]>,
    /// What is wanted, all or none.
    pub keys: Box<[Box<[u8]>]>,
    /// For how long, once it is claimed.
    pub ttl_ms: u64,
    /// The least fence wished for; 0 for no wish.
    pub floor: u64,
    /// For people.
    pub label: Box<[u8]>,
    /// Where the grant is announced.
    pub channel: Box<[u8]>,
    /// What the announcement is to repeat, along with how long the waiter waited since it said so.
    pub stamp: Option<u64>,
    /// The least time that it needs to claim what it is given; 0 for no wish.
    pub claim_ms: u64,
    /// Where the request came from.
    pub connection: u64,
    /// Since when it waits: not earlier than its request came.
    pub since: Millis,
    /// Until when it waits.
    pub until: Millis,
}

impl Waiter {
    /// Roughly how much memory it takes. Each key is there twice: here, and as the name of its line.
    fn bytes(&self) -> usize {
        let keys: usize = self.keys.iter().map(|key| 2 * key.len() + BYTES_OF_A_PLACE).sum();
        let own = self.owner.len() + self.label.len() + self.channel.len();
        size_of::<Self>() + BYTES_OF_A_PLACE + keys + own
    }
}

/// An owner is a secret: it is never printed.
impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Names a waiter for as long as it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// What is known of a lock whose owner has a ticket.
#[derive(Clone, Copy, Debug)]
struct Holder {
    ticket: u64,
    is_claimed: bool,
}

/// All who wait on a node.
#[derive(Debug, Default)]
pub struct Queues {
    limits: Limits,
    last_id: u64,
    waiters: HashMap<WaiterId, Waiter>,
    /// How many keys they wait for, and how much memory that takes.
    keys: usize,
    bytes: usize,
    lines: BTreeMap<Database, HashMap<Box<[u8]>, Line>>,
    by_connection: HashMap<u64, OfOne>,
    /// Connections that have closed and had so many waiters that these are let go a few at a time.
    closing: HashSet<u64>,
    deadlines: BTreeSet<(Millis, WaiterId)>,
    holders: HashMap<LockId, Holder>,
    /// Where somebody may be served.
    due: Due,
    /// Every key may be free: how far those have been looked at who wait, in the order of their deadlines.
    looked_at: Option<(Millis, WaiterId)>,
    /// All of the above has databases under the numbers that they had before any swap.
    swaps: Swaps,
}

/// Those who wait on one connection.
#[derive(Debug, Default)]
struct OfOne {
    waiters: BTreeSet<WaiterId>,
    keys: usize,
}

impl Queues {
    /// How many may wait.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// How many may wait, to be set. Those who wait already stay.
    pub fn limits_mut(&mut self) -> &mut Limits {
        &mut self.limits
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiters.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait for a key.
    #[must_use]
    pub fn waiting_for(&self, database: Database, key: &[u8]) -> usize {
        self.line(self.swaps.before(database), key).map_or(0, Line::len)
    }

    /// Whether somebody waits for a key whose turn comes before this ticket and owner. Whoever has no ticket
    /// comes last.
    #[must_use]
    pub fn is_preceded(&self, database: Database, key: &[u8], ticket: Option<u64>, owner: &[u8]) -> bool {
        self.is_preceded_in(self.swaps.before(database), key, ticket, owner)
    }

    fn is_preceded_in(&self, database: Database, key: &[u8], ticket: Option<u64>, owner: &[u8]) -> bool {
        let first = self.line(database, key).and_then(Line::first);
        first.is_some_and(|((first, waits), _)| {
            ticket.is_none_or(|ticket| (*first, &**waits) < (ticket, owner))
        })
    }

    /// Takes a waiter in, in place of what the same owner waited for at any of the keys before, and tells how many
    /// of its first line come before it.
    ///
    /// # Errors
    /// [`Fault::TooManyWaiters`]; then nothing has changed.
    pub fn enter(&mut self, mut waiter: Waiter) -> Result<usize, Fault> {
        waiter.database = self.swaps.before(waiter.database);
        let (database, first_key) = (waiter.database, &waiter.keys[0]);
        let before = self.earlier(&waiter);
        self.has_room(&waiter, &before)?;
        for id in before {
            self.replace(id, &waiter);
        }
        self.last_id += 1;
        let id = WaiterId(self.last_id);
        let turn = (waiter.ticket, Arc::clone(&waiter.owner));
        for key in &waiter.keys {
            let line = self.lines.entry(database).or_default().entry(key.clone()).or_default();
            line.insert(turn.clone(), id);
        }
        let here = self.by_connection.entry(waiter.connection).or_default();
        here.waiters.insert(id);
        here.keys += waiter.keys.len();
        self.keys += waiter.keys.len();
        self.bytes += waiter.bytes();
        self.deadlines.insert((waiter.until, id));
        let ahead = self.line(database, first_key).map_or(0, |line| line.ahead_of(&turn));
        self.waiters.insert(id, waiter);
        Ok(ahead)
    }

    /// What the owner of a new waiter waits for already at one of its keys. Usually the same request, and then
    /// its first key tells; but the sets of keys may overlap in any way.
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

    /// Takes an earlier waiter out for a new one. Where the new one does not wait, others may be next.
    fn replace(&mut self, id: WaiterId, by: &Waiter) {
        let Some(old) = self.remove(id) else { return };
        if old.keys == by.keys {
            return;
        }
        let stays: HashSet<&[u8]> = by.keys.iter().map(|key| &**key).collect();
        for key in old.keys.iter().filter(|key| !stays.contains(&***key)) {
            self.note_free_in(old.database, key);
        }
    }

    fn has_room(&self, waiter: &Waiter, before: &[WaiterId]) -> Result<(), Fault> {
        let room = |scope, others: usize, more: usize, most: u64| {
            if (others + more) as u64 <= most { Ok(()) } else { Err(Fault::TooManyWaiters(scope)) }
        };
        if waiter.keys.iter().any(|key| key.len() > MAX_WAIT_KEY_BYTES) {
            return Err(Fault::TooManyWaiters("for a key of more than 4096 bytes"));
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
            let others = self.line(waiter.database, key).map_or(0, Line::len);
            let others = others.saturating_sub(usize::from(given_up));
            room("for this key", others, 1, self.limits.key)?;
        }
        Ok(())
    }

    /// Takes a waiter out. True if it waited.
    pub fn leave(&mut self, database: Database, key: &[u8], owner: &[u8]) -> bool {
        let waiter = self.find(self.swaps.before(database), key, owner);
        waiter.is_some_and(|id| self.drop_waiter(id) > 0)
    }

    fn find(&self, database: Database, key: &[u8], owner: &[u8]) -> Option<WaiterId> {
        self.line(database, key)?.find(owner)
    }

    fn line(&self, database: Database, key: &[u8]) -> Option<&Line> {
        self.lines.get(&database)?.get(key)
    }

    fn remove(&mut self, id: WaiterId) -> Option<Waiter> {
        let waiter = self.waiters.remove(&id)?;
        let turn = (waiter.ticket, Arc::clone(&waiter.owner));
        if let Some(lines) = self.lines.get_mut(&waiter.database) {
            for key in &waiter.keys {
                if let Some(line) = lines.get_mut(key) {
                    line.remove(&turn);
                    if line.len() == 0 {
                        lines.remove(key);
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
            if others.waiters.is_empty() {
                self.by_connection.remove(&waiter.connection);
                self.closing.remove(&waiter.connection);
            }
        }
        Some(waiter)
    }

    /// Takes a waiter out; those behind it may be next. Tells for how many keys it waited.
    fn drop_waiter(&mut self, id: WaiterId) -> usize {
        let Some(waiter) = self.remove(id) else { return 0 };
        for key in &waiter.keys {
            // The key may be free, and only this waiter's turn have kept it so.
            self.note_free_in(waiter.database, key);
        }
        waiter.keys.len()
    }

    /// Notes that a key may be free: whoever is first in its line is to be served.
    pub fn note_free(&mut self, database: Database, key: &[u8]) {
        self.note_free_in(self.swaps.before(database), key);
    }

    fn note_free_in(&mut self, database: Database, key: &[u8]) {
        if self.line(database, key).is_some() {
            self.due.note(database, key);
        }
    }

    /// Notes that every key may be free, as at the end of a quarantine. They are looked at little by little.
    pub fn note_all_free(&mut self) {
        self.looked_at = (!self.is_empty()).then_some((Millis(0), WaiterId(0)));
    }

    /// Looks at some more of the keys that may all be free, and tells at how many. Whoever has come since, or has
    /// become the first in a line, was seen to when that happened.
    fn note_some_free(&mut self, at_most: usize) -> usize {
        let mut keys = 0;
        while keys < at_most
            && let Some(before) = self.looked_at
        {
            let next = self.deadlines.range((Bound::Excluded(before), Bound::Unbounded)).next().copied();
            self.looked_at = next;
            let Some(waiter) = next.and_then(|(_, id)| self.waiters.get(&id)) else { continue };
            keys += waiter.keys.len();
            for key in &waiter.keys {
                // One look at a line is enough.
                let first = self.line(waiter.database, key).and_then(Line::first);
                if first.is_some_and(|(_, first)| next.is_some_and(|(_, id)| id == first)) {
                    self.due.note(waiter.database, key);
                }
            }
        }
        keys
    }

    /// Removes every waiter of a key: the key and its lock have gone to another server.
    pub fn moved_away(&mut self, database: Database, key: &[u8]) {
        let database = self.swaps.before(database);
        while let Some((_, id)) = self.line(database, key).and_then(Line::first) {
            self.drop_waiter(id);
        }
    }

    /// Somebody could not be served though the keys were free. It is tried again at that time, after all others
    /// that are due: these would meet with the same, and if not, nobody is kept waiting by somebody else's trouble.
    pub fn postpone(&mut self, id: WaiterId, until: Millis) {
        let Some(waiter) = self.waiters.get(&id) else { return };
        self.due.postpone((waiter.database, waiter.keys[0].clone()), until);
    }

    /// When those are looked at again who could not be served.
    #[must_use]
    pub fn retries_at(&self) -> Option<Millis> {
        self.due.retries_at()
    }

    /// Looks again at those who could not be served, if it is time.
    pub fn retry(&mut self, now: Millis) {
        self.due.retry(now);
    }

    /// Whether somebody may have to be served.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.due.is_any() || self.looked_at.is_some()
    }

    /// Who is to be served next, if the keys it waits for are free. What was looked at and cleared away to find it is
    /// taken off `keys_left`, how many keys there is still time for; its own keys are not. `None` while
    /// [`is_due`](Self::is_due) means that this was not enough: ask again later.
    pub fn next_due(&mut self, keys_left: &mut usize) -> Option<WaiterId> {
        if !self.due.is_any() && self.looked_at.is_some() {
            // Half of it, so that something comes of the look.
            let looked_at = self.note_some_free(keys_left.div_ceil(2));
            *keys_left = keys_left.saturating_sub(looked_at);
        }
        while *keys_left > 0
            && let Some((database, key)) = self.due.next()
        {
            let first = self.line(database, &key).and_then(Line::first).map(|(_, id)| id);
            let Some(id) = first.filter(|id| !self.is_gone(*id)) else {
                let cleared = first.map_or(0, |id| self.drop_waiter(id));
                *keys_left = keys_left.saturating_sub(1 + cleared);
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

    /// Somebody who waits.
    #[must_use]
    pub fn waiter(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// The database in which the keys are that somebody waits for.
    #[must_use]
    pub fn database_of(&self, waiter: &Waiter) -> Database {
        self.swaps.now(waiter.database)
    }

    /// Whether a waiter is the first in every line in which it stands.
    #[must_use]
    pub fn is_first(&self, waiter: &Waiter) -> bool {
        let turn = Some(waiter.ticket);
        !waiter.keys.iter().any(|key| self.is_preceded_in(waiter.database, key, turn, &waiter.owner))
    }

    /// A waiter was given these locks: it waits no longer, and has to claim them.
    pub fn served(&mut self, id: WaiterId, locks: impl IntoIterator<Item = LockId>) {
        let Some(waiter) = self.remove(id) else { return };
        let holder = Holder { ticket: waiter.ticket, is_claimed: false };
        self.holders.extend(locks.into_iter().map(|lock| (lock, holder)));
    }

    /// Notes under which ticket a lock was granted at once.
    pub fn holds(&mut self, lock: LockId, ticket: u64) {
        self.holders.insert(lock, Holder { ticket, is_claimed: true });
    }

    /// The ticket under which a lock is held; 0 for none.
    #[must_use]
    pub fn ticket_of(&self, lock: LockId) -> u64 {
        self.holders.get(&lock).map_or(0, |holder| holder.ticket)
    }

    /// The owner of a lock has sent a command.
    pub fn claimed(&mut self, lock: LockId) {
        if !self.holders.is_empty()
            && let Some(holder) = self.holders.get_mut(&lock)
        {
            holder.is_claimed = true;
        }
    }

    /// A lock is gone. True if it was handed over and never claimed.
    pub fn forget_lock(&mut self, lock: LockId) -> bool {
        !self.holders.is_empty() && self.holders.remove(&lock).is_some_and(|holder| !holder.is_claimed)
    }

    /// A connection has closed: nobody waits on it any longer. Few are let go at once; many by
    /// [`let_go`](Self::let_go), and nobody serves them until then.
    pub fn closed(&mut self, connection: u64) {
        if self.by_connection.contains_key(&connection) {
            self.closing.insert(connection);
            self.let_go_of_closed(connection);
        }
    }

    fn let_go_of_closed(&mut self, connection: u64) {
        let mut keys = 0;
        while keys < KEYS_AT_ONCE
            && let Some(here) = self.by_connection.get(&connection)
            && let Some(id) = here.waiters.first().copied()
        {
            keys += self.drop_waiter(id);
        }
    }

    /// When the first waiter gives up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Lets some of those go who have waited long enough or whose connection has closed. True if there may be more.
    pub fn let_go(&mut self, now: Millis) -> bool {
        if let Some(connection) = self.closing.iter().next().copied() {
            self.let_go_of_closed(connection);
            return true;
        }
        let mut keys = 0;
        while keys < KEYS_AT_ONCE {
            match self.deadlines.first().copied() {
                Some((until, id)) if until <= now => keys += self.drop_waiter(id),
                _ => return false,
            }
        }
        true
    }

    /// Lets one go who has waited long enough.
    pub fn give_up(&mut self, id: WaiterId) {
        self.drop_waiter(id);
    }

    /// Whether there is somebody to be let go whose connection has closed.
    #[must_use]
    pub fn is_closing(&self) -> bool {
        !self.closing.is_empty()
    }

    /// Roughly how much memory those who wait take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Two databases have changed places.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        self.swaps.swap(one, other);
        self.note_all_free();
    }

    /// Nobody waits any longer, and no lock has a ticket.
    pub fn clear(&mut self) {
        *self = Self { limits: self.limits, last_id: self.last_id, ..Self::default() };
    }
}
