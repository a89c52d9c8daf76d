//! What a client remembers of the node at an address, and which nodes it refuses.
//!
//! A client that reaches another node at an address could count one node twice, or count a node that has
//! forgotten the promises of the first one. So the client refuses a node that it already knows at another
//! address, a node that is neither the known one nor admitted, and an older copy of the known node.

use redlock_contract::Origin;
use redlock_core::durable::DurableState;

/// What a client last saw of a node.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) node_id: String,
    incarnation: u64,
    high_water: u64,
}

impl Known {
    /// What a client remembers of a node with this state.
    pub(super) fn of(state: &DurableState) -> Self {
        let DurableState { node_id, incarnation, .. } = state;
        Self { node_id: node_id.clone(), incarnation: *incarnation, high_water: state.high_water.highest() }
    }

    fn is_followed_by(&self, state: &DurableState) -> bool {
        if state.node_id == self.node_id {
            return state.incarnation >= self.incarnation && state.high_water.highest() >= self.high_water;
        }
        state.origin == Origin::Admitted && state.non_voting.is_none()
    }
}

/// Whether a client that knows these nodes accepts the node that answers at address `slot`.
pub(super) fn is_taken(known: &[Known], slot: usize, state: &DurableState) -> bool {
    let mut others = known.iter().enumerate().filter(|(other, _)| *other != slot);
    known[slot].is_followed_by(state) && !others.any(|(_, other)| other.node_id == state.node_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::{HighWater, NonVoting};
    use redlock_core::fence::Stripes;

    #[test]
    fn another_node_and_an_older_one_are_refused() {
        let node = |name: &str| DurableState::new(name.repeat(40), 7).restarted().0;
        let (a, b, c) = (node("a"), node("b"), node("c"));
        let known = [Known::of(&a.restarted().0), Known::of(&b)];
        let is_taken = |state: &DurableState| is_taken(&known, 0, state);
        assert!(is_taken(&a.restarted().0), "the same");
        assert!(is_taken(&a.restarted().0.restarted().0), "the same, later");
        assert!(!is_taken(&a), "an older incarnation");
        let mut lower = a.restarted().0;
        lower.high_water = HighWater::new(5);
        assert!(!is_taken(&lower), "a smaller high-water mark");
        assert!(!is_taken(&c), "another node");
        assert!(is_taken(&c.admitted(&HighWater::new(9), &Stripes::default(), 9).0), "an admitted node");
        assert!(!is_taken(
            &c.admitted(&HighWater::new(9), &Stripes::default(), 9)
                .0
                .without_vote(NonVoting::Replica, "d".repeat(40))
        ));
        assert!(
            !is_taken(&b.admitted(&HighWater::new(9), &Stripes::default(), 9).0),
            "a node that has another address"
        );
    }
}
