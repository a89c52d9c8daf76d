//! The wait queue of one key.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::WaiterId;

/// The sort key of a waiter in a wait queue: its ticket and its owner.
pub(super) type Position = (u64, Arc<[u8]>);

/// The waiters of one key, in their order.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    positions: BTreeMap<Position, WaiterId>,
    /// The ticket of each owner: a release finds its waiter without a walk through a long queue.
    tickets: HashMap<Arc<[u8]>, u64>,
}

impl WaitQueue {
    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn first(&self) -> Option<(&Position, WaiterId)> {
        self.positions.first_key_value().map(|(position, id)| (position, *id))
    }

    pub(super) fn find(&self, owner: &[u8]) -> Option<WaiterId> {
        let (owner, ticket) = self.tickets.get_key_value(owner)?;
        self.positions.get(&(*ticket, Arc::clone(owner))).copied()
    }

    pub(super) fn insert(&mut self, position: Position, id: WaiterId) {
        self.tickets.insert(Arc::clone(&position.1), position.0);
        self.positions.insert(position, id);
    }

    pub(super) fn remove(&mut self, position: &Position) {
        self.tickets.remove(&position.1);
        self.positions.remove(position);
    }

    /// The number of waiters before a queued position. It counts from both ends at once, so it takes
    /// O(min(k, n - k)) steps for position k of n waiters.
    pub(super) fn ahead_of(&self, position: &Position) -> usize {
        let mut before = self.positions.range(..position);
        let mut from_here = self.positions.range(position..);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_position_knows_the_number_of_waiters_ahead() {
        for length in 1..12_u64 {
            let mut queue = WaitQueue::default();
            // Not in order: seven has no factor in common with any length up to eleven but seven.
            for ticket in (0..length).map(|number| number * 7 % length) {
                queue.insert((ticket, Arc::from(&b"owner"[..])), WaiterId(ticket));
            }
            let ahead: Vec<usize> = queue.positions.keys().map(|position| queue.ahead_of(position)).collect();
            assert_eq!(ahead, (0..queue.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn an_owner_is_found_until_it_leaves() {
        let mut queue = WaitQueue::default();
        let position = |ticket: u64, owner: &str| -> Position { (ticket, Arc::from(owner.as_bytes())) };
        queue.insert(position(5, "a"), WaiterId(1));
        queue.insert(position(3, "b"), WaiterId(2));
        assert_eq!(
            (queue.find(b"a"), queue.find(b"b"), queue.find(b"c")),
            (Some(WaiterId(1)), Some(WaiterId(2)), None)
        );
        assert_eq!(queue.first().map(|(_, id)| id), Some(WaiterId(2)));
        queue.remove(&position(3, "b"));
        assert_eq!((queue.find(b"b"), queue.first().map(|(_, id)| id)), (None, Some(WaiterId(1))));
    }
}
