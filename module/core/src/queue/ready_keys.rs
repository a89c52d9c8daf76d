//! Where somebody may be served, now or later.

use std::collections::{HashSet, VecDeque};

use crate::table::Database;
use crate::time::Millis;

/// A key in its database.
pub(super) type DatabaseKey = (Database, Box<[u8]>);

/// Places to be looked at, in the order in which that came about.
#[derive(Debug, Default)]
pub(super) struct ReadyKeys {
    now: VecDeque<DatabaseKey>,
    /// Where somebody was to be served and could not be, for want of something else than the key: each place once,
    /// for others may ask about it all the while.
    later: VecDeque<DatabaseKey>,
    known: HashSet<DatabaseKey>,
    until: Millis,
}

impl ReadyKeys {
    /// Notes that a place is to be looked at. One that is to be looked at later stays there.
    pub(super) fn mark(&mut self, database: Database, key: &[u8]) {
        let key = (database, key.into());
        if self.known.is_empty() || !self.known.contains(&key) {
            self.now.push_back(key);
        }
    }

    /// Whether a place is to be looked at now.
    pub(super) fn has_any(&self) -> bool {
        !self.now.is_empty()
    }

    /// How many keys are to be looked at now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// The next place to be looked at.
    pub(super) fn next(&mut self) -> Option<DatabaseKey> {
        self.now.pop_front()
    }

    /// Looks at everything later, and at this place last of all.
    pub(super) fn postpone(&mut self, key: DatabaseKey, until: Millis) {
        for key in self.now.drain(..).chain([key]) {
            if self.known.insert(key.clone()) {
                self.later.push_back(key);
            }
        }
        self.until = until;
    }

    /// When keys are looked at that were postponed.
    pub(super) fn next_retry(&self) -> Option<Millis> {
        (!self.later.is_empty()).then_some(self.until)
    }

    /// Looks at what was postponed, if it is time.
    pub(super) fn retry(&mut self, now: Millis) {
        if self.next_retry().is_some_and(|at| at <= now) {
            self.known.clear();
            self.now.append(&mut self.later);
        }
    }
}
