//! What a client remembers of the node under an address, and which nodes it refuses.
//!
//! A client that is led to another node would count one node twice, or a node that has forgotten what the first one
//! promised. So it refuses a node that another address has already, a node that is neither the one it knows nor
//! admitted, and a node that is older than it was.

use redlock_contract::Origin;
use redlock_core::durable::DurableState;

/// What a client has last seen of a node.
#[derive(Clone, Debug)]
pub(super) struct Known {
    node_id: String,
    incarnation: u64,
    high_water: u64,
}

impl Known {
    /// What a client remembers of a node that says this about itself.
    pub(super) fn of(state: &DurableState) -> Self {
        let DurableState { node_id, incarnation, .. } = state;
        Self { node_id: node_id.clone(), incarnation: *incarnation, high_water: state.highest() }
    }

    fn is_followed_by(&self, state: &DurableState) -> bool {
        if state.node_id == self.node_id {
            return state.incarnation >= self.incarnation && state.highest() >= self.high_water;
        }
        state.origin == Origin::Admitted && state.non_voting.is_none()
    }
}

/// Whether a client that knows these nodes takes the one that answers under address `slot`.
pub(super) fn is_taken(known: &[Known], slot: usize, state: &DurableState) -> bool {
    let mut others = known.iter().enumerate().filter(|(other, _)| *other != slot);
    known[slot].is_followed_by(state) && !others.any(|(_, other)| other.node_id == state.node_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redlock_contract::NonVoting;

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
        lower.high_water = 5;
        assert!(!is_taken(&lower), "a smaller high-water mark");
        assert!(!is_taken(&c), "another node");
        assert!(is_taken(&c.admitted(9, 9)), "an admitted node");
        assert!(!is_taken(&c.admitted(9, 9).without_vote(NonVoting::Replica, "d".repeat(40))));
        assert!(!is_taken(&b.admitted(9, 9)), "a node that has another address");
    }
}
