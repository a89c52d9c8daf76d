//! Those who wait for one key, in their order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::WaiterId;

/// Ticket and owner: the order within a line.
pub(super) type Position = (u64, Arc<[u8]>);

/// Those who wait for one key.
#[derive(Debug, Default)]
pub(super) struct WaitQueue {
    positions: BTreeMap<Position, WaiterId>,
    /// The ticket of everybody: lines can be long, and whoever releases is looked for in them.
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

    /// How many come before a position that is in the line. Counted from both ends at once: those who come last, and
    /// those who are next, are found soon.
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
    fn everybody_knows_its_place() {
        for length in 1..12_u64 {
            let mut queue = WaitQueue::default();
            // Not in order: seven and every length up to eleven but seven have no factor in common.
            for ticket in (0..length).map(|number| number * 7 % length) {
                queue.insert((ticket, Arc::from(&b"owner"[..])), WaiterId(ticket));
            }
            let keys: Vec<usize> = queue.positions.keys().map(|position| queue.ahead_of(position)).collect();
            assert_eq!(keys, (0..queue.len()).collect::<Vec<_>>());
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
