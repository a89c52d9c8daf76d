//! The keys whose first waiter may be served, now or later.

use std::collections::{HashSet, VecDeque};

use crate::table::Database;
use crate::time::Millis;

/// A key in its database.
pub(super) type DatabaseKey = (Database, Box<[u8]>);

/// Ready keys, in the order in which they became ready.
#[derive(Debug, Default)]
pub(super) struct ReadyKeys {
    now: VecDeque<DatabaseKey>,
    /// Keys whose hand-off failed for a reason other than the key, in order, until `retry_at`.
    postponed: VecDeque<DatabaseKey>,
    /// The same keys, so that each is postponed once however often it becomes ready meanwhile.
    is_postponed: HashSet<DatabaseKey>,
    retry_at: Millis,
}

impl ReadyKeys {
    /// Makes a key ready. A postponed key stays postponed.
    pub(super) fn mark(&mut self, database: Database, key: &[u8]) {
        let key = (database, key.into());
        if self.is_postponed.is_empty() || !self.is_postponed.contains(&key) {
            self.now.push_back(key);
        }
    }

    /// Whether a key is ready now.
    pub(super) fn has_any(&self) -> bool {
        !self.now.is_empty()
    }

    /// The number of keys that are ready now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// Removes and returns the next ready key.
    pub(super) fn next(&mut self) -> Option<DatabaseKey> {
        self.now.pop_front()
    }

    /// Postpones all ready keys until `retry_at`, this key last.
    pub(super) fn postpone(&mut self, key: DatabaseKey, retry_at: Millis) {
        for key in self.now.drain(..).chain([key]) {
            if self.is_postponed.insert(key.clone()) {
                self.postponed.push_back(key);
            }
        }
        self.retry_at = retry_at;
    }

    /// When postponed keys become ready again; `None` if there are none.
    pub(super) fn next_retry(&self) -> Option<Millis> {
        (!self.postponed.is_empty()).then_some(self.retry_at)
    }

    /// Makes postponed keys ready again, if it is time.
    pub(super) fn retry(&mut self, now: Millis) {
        if self.next_retry().is_some_and(|at| at <= now) {
            self.is_postponed.clear();
            self.now.append(&mut self.postponed);
        }
    }
}
