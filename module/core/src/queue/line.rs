//! Those who wait for one key, in their order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::WaiterId;

/// Ticket and owner: the order within a line.
pub(super) type Turn = (u64, Arc<[u8]>);

/// Those who wait for one key.
#[derive(Debug, Default)]
pub(super) struct Line {
    turns: BTreeMap<Turn, WaiterId>,
    /// The ticket of everybody: lines can be long, and whoever releases is looked for in them.
    tickets: HashMap<Arc<[u8]>, u64>,
}

impl Line {
    pub(super) fn len(&self) -> usize {
        self.turns.len()
    }

    pub(super) fn first(&self) -> Option<(&Turn, WaiterId)> {
        self.turns.first_key_value().map(|(turn, id)| (turn, *id))
    }

    pub(super) fn find(&self, owner: &[u8]) -> Option<WaiterId> {
        let (owner, ticket) = self.tickets.get_key_value(owner)?;
        self.turns.get(&(*ticket, Arc::clone(owner))).copied()
    }

    pub(super) fn insert(&mut self, turn: Turn, id: WaiterId) {
        self.tickets.insert(Arc::clone(&turn.1), turn.0);
        self.turns.insert(turn, id);
    }

    pub(super) fn remove(&mut self, turn: &Turn) {
        self.tickets.remove(&turn.1);
        self.turns.remove(turn);
    }

    /// How many come before a turn that is in the line. Counted from both ends at once: those who come last, and
    /// those who are next, are found soon.
    pub(super) fn ahead_of(&self, turn: &Turn) -> usize {
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
