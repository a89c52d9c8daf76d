//! Who waits for which key, and whose turn it is.
//!
//! The smallest ticket is first; of equal tickets, the smaller owner. All of this is soft: nothing is
//! saved, copied to a replica or needed for any promise but the order, and it is bounded.
//!
//! A waiter is served by giving it the lock for a short while, the claim window. Its first command after
//! that claims the lock for the time that it had asked for; unclaimed, the lock runs out and goes on to the
//! next. It does not go on sooner when the waiter's connection closes: whoever has heard of the grant may
//! hold by it, and need not know yet that a connection is gone.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use crate::fault::Fault;
use crate::table::{Database, LockId};
use crate::time::Millis;

/// The default of `redlock.claim-window`.
pub const DEFAULT_CLAIM_WINDOW_MS: u64 = 100;

/// How many may wait, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// On the whole node.
    pub node: u64,
    /// For one key.
    pub key: u64,
    /// On one connection.
    pub connection: u64,
}

/// The defaults of `redlock.max-waiters`, `-per-key` and `-per-connection`.
pub const DEFAULT_LIMITS: Limits = Limits { node: 65_536, key: 4_096, connection: 16_384 };

impl Default for Limits {
    fn default() -> Self {
        DEFAULT_LIMITS
    }
}

/// Somebody who waits.
#[derive(Clone)]
pub struct Waiter {
    /// Where its keys are.
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

/// An owner is a secret: it is never printed.
impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiter").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

/// Names a waiter for as long as it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaiterId(u64);

/// Ticket and owner: the order within a line.
type Turn = (u64, Arc<[u8]>);

/// Those who wait for one key.
#[derive(Debug, Default)]
struct Line {
    turns: BTreeMap<Turn, WaiterId>,
    /// The ticket of everybody: lines can be long, and whoever releases is looked for in them.
    tickets: HashMap<Arc<[u8]>, u64>,
}

impl Line {
    fn len(&self) -> usize {
        self.turns.len()
    }

    fn first(&self) -> Option<(&Turn, WaiterId)> {
        self.turns.first_key_value().map(|(turn, id)| (turn, *id))
    }

    fn find(&self, owner: &[u8]) -> Option<WaiterId> {
        let (owner, ticket) = self.tickets.get_key_value(owner)?;
        self.turns.get(&(*ticket, Arc::clone(owner))).copied()
    }

    fn insert(&mut self, turn: Turn, id: WaiterId) {
        self.tickets.insert(Arc::clone(&turn.1), turn.0);
        self.turns.insert(turn, id);
    }

    fn remove(&mut self, turn: &Turn) {
        self.tickets.remove(&turn.1);
        self.turns.remove(turn);
    }

    /// How many come before a turn that is in the line. Counted from both ends at once: those who come last, and
    /// those who are next, are found soon.
    fn ahead_of(&self, turn: &Turn) -> usize {
        let mut before = self.turns.range(..turn);
        let mut from_here = self.turns.range(turn..);
        let mut steps = 0;
        loop {
            if before.next().is_none() {
                return steps;
            }
            if from_here.next().is_none() {
                return self.len() - steps;
            }
            steps += 1;
        }
    }
}

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
    lines: BTreeMap<Database, HashMap<Box<[u8]>, Line>>,
    by_connection: HashMap<u64, BTreeSet<WaiterId>>,
    deadlines: BTreeSet<(Millis, WaiterId)>,
    holders: HashMap<LockId, Holder>,
    /// Where somebody may be served, in the order in which that came about.
    due: VecDeque<(Database, Box<[u8]>)>,
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
        self.line(database, key).map_or(0, Line::len)
    }

    /// Whether somebody waits for a key whose turn comes before this ticket and owner. Whoever has no ticket
    /// comes last.
    #[must_use]
    pub fn is_preceded(&self, database: Database, key: &[u8], ticket: Option<u64>, owner: &[u8]) -> bool {
        let first = self.line(database, key).and_then(Line::first);
        first.is_some_and(|((first, waits), _)| {
            ticket.is_none_or(|ticket| (*first, &**waits) < (ticket, owner))
        })
    }

    /// Takes a waiter in, in place of the one it was before, and tells how many of its line come before it.
    ///
    /// # Errors
    /// [`Fault::TooManyWaiters`]; then nothing has changed.
    pub fn enter(&mut self, waiter: Waiter) -> Result<usize, Fault> {
        let (database, first_key) = (waiter.database, &waiter.keys[0]);
        let before = self.find(database, first_key, &waiter.owner);
        self.has_room(&waiter, before.is_some())?;
        if let Some(id) = before {
            self.remove(id);
        }
        self.last_id += 1;
        let id = WaiterId(self.last_id);
        let turn = (waiter.ticket, Arc::clone(&waiter.owner));
        for key in &waiter.keys {
            let line = self.lines.entry(database).or_default().entry(key.clone()).or_default();
            line.insert(turn.clone(), id);
        }
        self.by_connection.entry(waiter.connection).or_default().insert(id);
        self.deadlines.insert((waiter.until, id));
        let ahead = self.line(database, first_key).map_or(0, |line| line.ahead_of(&turn));
        self.waiters.insert(id, waiter);
        Ok(ahead)
    }

    fn has_room(&self, waiter: &Waiter, waits_already: bool) -> Result<(), Fault> {
        let room = |scope, count: usize, most: u64| {
            let others = count.saturating_sub(usize::from(waits_already));
            if (others as u64) < most { Ok(()) } else { Err(Fault::TooManyWaiters(scope)) }
        };
        room("on this node", self.waiters.len(), self.limits.node)?;
        let here = self.by_connection.get(&waiter.connection).map_or(0, BTreeSet::len);
        room("on this connection", here, self.limits.connection)?;
        for key in &waiter.keys {
            room("for this key", self.waiting_for(waiter.database, key), self.limits.key)?;
        }
        Ok(())
    }

    /// Takes a waiter out. True if it waited.
    pub fn leave(&mut self, database: Database, key: &[u8], owner: &[u8]) -> bool {
        let waiter = self.find(database, key, owner);
        waiter.is_some_and(|id| self.drop_waiter(id))
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
        if let Some(others) = self.by_connection.get_mut(&waiter.connection) {
            others.remove(&id);
            if others.is_empty() {
                self.by_connection.remove(&waiter.connection);
            }
        }
        Some(waiter)
    }

    /// Takes a waiter out; those behind it may be next.
    fn drop_waiter(&mut self, id: WaiterId) -> bool {
        let Some(waiter) = self.remove(id) else { return false };
        for key in &waiter.keys {
            // The key may be free, and only this waiter's turn have kept it so.
            self.note_free(waiter.database, key);
        }
        true
    }

    /// Notes that a key may be free: whoever is first in its line is to be served.
    pub fn note_free(&mut self, database: Database, key: &[u8]) {
        if self.line(database, key).is_some() {
            self.due.push_back((database, key.into()));
        }
    }

    /// Notes that every key may be free, as at the end of a quarantine.
    pub fn note_all_free(&mut self) {
        let lines = self.lines.iter();
        let places = lines.flat_map(|(database, lines)| lines.keys().map(|key| (*database, key.clone())));
        self.due = places.collect();
    }

    /// Whether somebody may have to be served.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Who is to be served next, if the keys it waits for are free.
    pub fn next_due(&mut self) -> Option<WaiterId> {
        while let Some((database, key)) = self.due.pop_front() {
            if let Some((_, id)) = self.line(database, &key).and_then(Line::first) {
                return Some(id);
            }
        }
        None
    }

    /// Somebody who waits.
    #[must_use]
    pub fn waiter(&self, id: WaiterId) -> Option<&Waiter> {
        self.waiters.get(&id)
    }

    /// Whether a waiter is the first in every line in which it stands.
    #[must_use]
    pub fn is_first(&self, waiter: &Waiter) -> bool {
        let turn = Some(waiter.ticket);
        !waiter.keys.iter().any(|key| self.is_preceded(waiter.database, key, turn, &waiter.owner))
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

    /// A connection has closed: nobody waits on it any longer.
    pub fn closed(&mut self, connection: u64) {
        for id in self.by_connection.remove(&connection).unwrap_or_default() {
            self.drop_waiter(id);
        }
    }

    /// When the first waiter gives up.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Millis> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Lets those go who have waited long enough.
    pub fn drop_overdue(&mut self, now: Millis) {
        while let Some((until, id)) = self.deadlines.first().copied()
            && until <= now
        {
            self.drop_waiter(id);
        }
    }

    /// Two databases have changed places.
    pub fn databases_swapped(&mut self, one: Database, other: Database) {
        let (first, second) = (self.lines.remove(&one), self.lines.remove(&other));
        self.lines.extend(first.map(|lines| (other, lines)));
        self.lines.extend(second.map(|lines| (one, lines)));
        for waiter in self.waiters.values_mut() {
            if waiter.database == one {
                waiter.database = other;
            } else if waiter.database == other {
                waiter.database = one;
            }
        }
        self.note_all_free();
    }

    /// Nobody waits any longer, and no lock has a ticket.
    pub fn clear(&mut self) {
        *self = Self { limits: self.limits, last_id: self.last_id, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_knows_its_place() {
        for length in 1..12_u64 {
            let mut line = Line::default();
            // Not in order: seven and every length up to eleven but seven have no factor in common.
            for ticket in (0..length).map(|number| number * 7 % length) {
                line.insert((ticket, Arc::from(&b"owner"[..])), WaiterId(ticket));
            }
            let places: Vec<usize> = line.turns.keys().map(|turn| line.ahead_of(turn)).collect();
            assert_eq!(places, (0..line.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_owner_is_found_until_it_leaves() {
        let mut line = Line::default();
        let turn = |ticket: u64, owner: &str| -> Turn { (ticket, Arc::from(owner.as_bytes())) };
        line.insert(turn(5, "a"), WaiterId(1));
        line.insert(turn(3, "b"), WaiterId(2));
        assert_eq!(
            (line.find(b"a"), line.find(b"b"), line.find(b"c")),
            (Some(WaiterId(1)), Some(WaiterId(2)), None)
        );
        assert_eq!(line.first().map(|(_, id)| id), Some(WaiterId(2)));
        line.remove(&turn(3, "b"));
        assert_eq!((line.find(b"b"), line.first().map(|(_, id)| id)), (None, Some(WaiterId(1))));
    }
}
