//! Where somebody may be served, now or later.

use std::collections::{HashSet, VecDeque};

use crate::table::Database;
use crate::time::Millis;

/// A key in its database.
pub(super) type Place = (Database, Box<[u8]>);

/// Places to be looked at, in the order in which that came about.
#[derive(Debug, Default)]
pub(super) struct Due {
    now: VecDeque<Place>,
    /// Where somebody was to be served and could not be, for want of something else than the key: each place once,
    /// for others may ask about it all the while.
    later: VecDeque<Place>,
    known: HashSet<Place>,
    until: Millis,
}

impl Due {
    /// Notes that a place is to be looked at. One that is to be looked at later stays there.
    pub(super) fn note(&mut self, database: Database, key: &[u8]) {
        let place = (database, key.into());
        if self.known.is_empty() || !self.known.contains(&place) {
            self.now.push_back(place);
        }
    }

    /// Whether a place is to be looked at now.
    pub(super) fn is_any(&self) -> bool {
        !self.now.is_empty()
    }

    /// How many places are to be looked at now.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.now.len()
    }

    /// The next place to be looked at.
    pub(super) fn next(&mut self) -> Option<Place> {
        self.now.pop_front()
    }

    /// Looks at everything later, and at this place last of all.
    pub(super) fn postpone(&mut self, place: Place, until: Millis) {
        for place in self.now.drain(..).chain([place]) {
            if self.known.insert(place.clone()) {
                self.later.push_back(place);
            }
        }
        self.until = until;
    }

    /// When places are looked at that were postponed.
    pub(super) fn retries_at(&self) -> Option<Millis> {
        (!self.later.is_empty()).then_some(self.until)
    }

    /// Looks at what was postponed, if it is time.
    pub(super) fn retry(&mut self, now: Millis) {
        if self.retries_at().is_some_and(|at| at <= now) {
            self.known.clear();
            self.now.append(&mut self.later);
        }
    }
}
