//! Databases that `SWAPDB` has swapped. Tables keep the old numbers, so a swap does not rewrite them.

use crate::table::Database;
use std::collections::HashMap;

/// The present number of each database. A table names a database by its number before any swap.
#[derive(Debug, Default)]
pub(crate) struct DatabaseSwaps {
    now: HashMap<Database, Database>,
}

impl DatabaseSwaps {
    /// Records a swap of two databases.
    pub(crate) fn swap(&mut self, one: Database, other: Database) {
        let (from_one, from_other) = (self.before(one), self.before(other));
        self.now.insert(from_one, other);
        self.now.insert(from_other, one);
    }

    /// The present number of a database that had the number `before`.
    pub(crate) fn now(&self, before: Database) -> Database {
        self.now.get(&before).copied().unwrap_or(before)
    }

    /// The number before any swap of the database that has the number `now`.
    #[inline]
    pub(crate) fn before(&self, now: Database) -> Database {
        if self.now.is_empty() {
            return now;
        }
        self.now.iter().find(|(_, known)| **known == now).map_or(now, |(before, _)| *before)
    }
}
