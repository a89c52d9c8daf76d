//! Databases that have changed places, so that nobody has to go through what is in them.

use crate::table::Database;
use std::collections::HashMap;

/// Which number a database has now. What is kept by database is kept under the number that it had before any swap.
#[derive(Debug, Default)]
pub(crate) struct DatabaseSwaps {
    now: HashMap<Database, Database>,
}

impl DatabaseSwaps {
    /// Notes that two databases changed places.
    pub(crate) fn swap(&mut self, one: Database, other: Database) {
        let (from_one, from_other) = (self.before(one), self.before(other));
        self.now.insert(from_one, other);
        self.now.insert(from_other, one);
    }

    /// The number that a database has now.
    pub(crate) fn now(&self, before: Database) -> Database {
        self.now.get(&before).copied().unwrap_or(before)
    }

    /// The number that a database had before any swap.
    #[inline]
    pub(crate) fn before(&self, now: Database) -> Database {
        if self.now.is_empty() {
            return now;
        }
        self.now.iter().find(|(_, known)| **known == now).map_or(now, |(before, _)| *before)
    }
}
