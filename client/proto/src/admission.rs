//! The terms on which a node is admitted: the floor of its fences, and how long it grants nothing.
//!
//! A lock that the lost node voted for has the votes of at least q−1 of the other N−1 nodes, where q is the
//! quorum. Of any q of those N−1 nodes at least 2q−N ≥ 1 voted for that lock. So the largest high-water mark
//! that q other nodes have for its stripe is at least the fence of every lock that the lost node voted for,
//! and the largest `max-ttl` among them is at least the time to live of that lock. The only thing known about
//! the lost node is that it is stopped.
//!
//! The floor keeps the marks of at most [`MAX_FAR_STRIPES`](redlock_contract::limits::MAX_FAR_STRIPES) raised
//! stripes apart, like a node. If the answers have more together, the lower half joins the floor of all keys.
//!
//! The longest lease that the other nodes know of is not enough for the wait: a request that the lost node
//! has answered may still be in flight to another node when that node reports.

use crate::Quorum;
use redlock_contract::HighWater;
use std::collections::BTreeSet;
use std::fmt;

/// What a node reports about itself for the admission of another node, or of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node id.
    pub id: String,
    /// Whether the node is a master that votes. A node in quarantine votes: it knows its high-water mark.
    pub votes: bool,
    /// The high-water marks: no fence that the node has granted is larger.
    pub high_water: HighWater,
    /// The longest lease that the node grants now, in milliseconds.
    pub max_ttl_ms: u64,
    /// An upper bound of every lease that may still run on the node, in milliseconds. It is longer than
    /// `max_ttl_ms` if the limit was lowered.
    pub longest_lease_ms: u64,
}

/// The terms on which a node is admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The floor, by stripe: all fences of the admitted node are larger.
    pub floor: HighWater,
    /// How long the admitted node grants nothing, in milliseconds.
    pub wait_ms: u64,
    /// How many other nodes that vote have answered.
    pub answers: usize,
}

/// The error of an admission: too few of the other nodes vote and have answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewAnswers {
    /// How many other nodes that vote have answered.
    pub answers: usize,
    /// How many answers are needed: a quorum.
    pub needed: usize,
    /// How many other nodes the group has.
    pub others: usize,
}

impl fmt::Display for TooFewAnswers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { answers, needed, others } = self;
        write!(f, "{answers} of the other {others} nodes vote and answer, {needed} are needed")
    }
}

impl std::error::Error for TooFewAnswers {}

/// Computes the terms for `candidate` from the answers of the other nodes. `quorum` is the quorum of the
/// whole group, including the candidate. A node that is listed twice counts once.
///
/// # Errors
/// If fewer than a quorum of the other nodes vote and have answered.
pub fn terms(quorum: Quorum, candidate: &NodeFacts, answers: &[NodeFacts]) -> Result<Terms, TooFewAnswers> {
    let others = || answers.iter().filter(|node| node.id != candidate.id);
    let voting = || others().filter(|node| node.votes);
    let count = voting().map(|node| node.id.as_str()).collect::<BTreeSet<_>>().len();
    if !quorum.is_reached_by(count) {
        let (needed, others) = (quorum.needed(), quorum.nodes() - 1);
        return Err(TooFewAnswers { answers: count, needed, others });
    }
    let mut floor = HighWater::default();
    voting().for_each(|node| floor.include(&node.high_water));
    let leases = others().chain([candidate]).map(|node| node.max_ttl_ms.max(node.longest_lease_ms));
    Ok(Terms { floor, wait_ms: leases.fold(0, u64::max), answers: count })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use redlock_contract::limits::MAX_FAR_STRIPES;

    fn node(id: usize, high_water: u64, max_ttl_ms: u64) -> NodeFacts {
        let high_water = HighWater::new(high_water);
        NodeFacts { id: id.to_string(), votes: true, high_water, max_ttl_ms, longest_lease_ms: 0 }
    }

    fn candidate() -> NodeFacts {
        NodeFacts { votes: false, ..node(99, 7, 100) }
    }

    fn of(nodes: usize, answers: &[NodeFacts]) -> Result<Terms, TooFewAnswers> {
        terms(Quorum::of(nodes).unwrap(), &candidate(), answers)
    }

    #[test]
    fn the_terms_are_the_largest_values_of_a_quorum_of_the_other_nodes() {
        let answers = [node(1, 5, 100), node(2, 9, 300), node(3, 2, 200)];
        assert_eq!(of(5, &answers), Ok(Terms { floor: HighWater::new(9), wait_ms: 300, answers: 3 }));
        assert_eq!(of(3, &answers[..2]), Ok(Terms { floor: HighWater::new(9), wait_ms: 300, answers: 2 }));
        assert_eq!(of(4, &answers), Ok(Terms { floor: HighWater::new(9), wait_ms: 300, answers: 3 }));
    }

    #[test]
    fn fewer_answers_than_a_quorum_are_an_error() {
        let all = [node(1, 5, 100), node(2, 9, 300)];
        assert_eq!(of(1, &[]), Err(TooFewAnswers { answers: 0, needed: 1, others: 0 }));
        assert_eq!(of(2, &all[..1]), Err(TooFewAnswers { answers: 1, needed: 2, others: 1 }));
        assert_eq!(of(3, &all[..1]), Err(TooFewAnswers { answers: 1, needed: 2, others: 2 }));
        let error = of(5, &all).unwrap_err();
        assert_eq!(error.to_string(), "2 of the other 4 nodes vote and answer, 3 are needed");
    }

    #[test]
    fn a_non_voting_node_is_not_an_answer_but_its_limit_counts() {
        let mut answers = [node(1, 5, 100), node(2, 9, 300), node(3, 11, 900)];
        answers[2].votes = false;
        assert_eq!(of(3, &answers), Ok(Terms { floor: HighWater::new(9), wait_ms: 900, answers: 2 }));
        answers[1].votes = false;
        assert_eq!(of(3, &answers), Err(TooFewAnswers { answers: 1, needed: 2, others: 2 }));
    }

    #[test]
    fn a_raised_stripe_raises_the_floor_of_that_stripe_only() {
        let mut answers = [node(1, 5, 100), node(2, 9, 300)];
        answers[0].high_water.raise(7, 1 << 62);
        let floor = of(3, &answers).unwrap().floor;
        assert_eq!((floor.of(7), floor.of(8)), (1 << 62, 9));
    }

    /// A node keeps no more marks: see [`HighWater::raise`].
    #[test]
    fn too_many_raised_stripes_of_all_nodes_together_raise_the_floor_of_all_keys() {
        let with = |id: u16, far: u16| {
            let mut node = node(usize::from(id), 9, 100);
            (0..far).for_each(|stripe| node.high_water.raise(id * 1_000 + stripe, 1 << 62));
            node
        };
        let floor = |far| of(5, &[with(1, far), with(2, far), with(3, far)]).unwrap().floor;
        assert_eq!((floor(341).common(), floor(341).far().len()), (9, MAX_FAR_STRIPES - 1));
        assert_eq!((floor(500).common(), floor(500).far().len()), (1 << 62, 0));
    }

    #[test]
    fn a_node_with_two_addresses_counts_once_and_the_candidate_does_not_count() {
        let twice = [node(1, 5, 100), node(1, 5, 100)];
        assert_eq!(of(3, &twice).map_err(|error| error.answers), Err(1));
        let with_itself = [node(1, 5, 100), node(99, 5, 100)];
        assert_eq!(of(3, &with_itself).map_err(|error| error.answers), Err(1));
    }

    #[test]
    fn the_candidate_and_a_lowered_limit_count_for_the_wait() {
        let mut answers = [node(1, 5, 50), node(2, 9, 50)];
        assert_eq!(of(3, &answers).map(|terms| terms.wait_ms), Ok(100), "the candidate's own limit");
        answers[0].longest_lease_ms = 4_000;
        assert_eq!(
            of(3, &answers).map(|terms| terms.wait_ms),
            Ok(4_000),
            "a lease from before the limit was lowered"
        );
    }

    proptest! {
        /// Any lock that the lost node voted for has a fence up to the floor and a time to live up to the
        /// wait, whichever quorum voted for it and whichever quorum of the other nodes answers.
        #[test]
        fn no_lock_of_the_lost_node_is_missed(
            nodes in 3_usize..9,
            fence in 1_u64..1000,
            ttl_ms in 1_u64..1000,
            marks in proptest::collection::vec(0_u64..1000, 8),
            limits in proptest::collection::vec(0_u64..1000, 8),
            voted in any::<u8>(),
            silent in any::<u8>(),
        ) {
            let quorum = Quorum::of(nodes).unwrap();
            let has = |set: u8, node: usize| set >> node & 1 == 1;
            let others = 0..nodes - 1;
            // The lost node voted as well.
            prop_assume!(quorum.is_reached_by(1 + others.clone().filter(|node| has(voted, *node)).count()));
            let answers: Vec<NodeFacts> = others
                .filter(|place| !has(silent, *place))
                .map(|place| {
                    // A node that voted has a mark of at least the fence, and a limit of at least the lease.
                    let (mark, limit) = if has(voted, place) { (fence, ttl_ms) } else { (0, 0) };
                    node(place, marks[place].max(mark), limits[place].max(limit))
                })
                .collect();
            if let Ok(terms) = terms(quorum, &candidate(), &answers) {
                prop_assert!(fence <= terms.floor.common() && ttl_ms <= terms.wait_ms, "{terms:?} from {answers:?}");
            } else {
                prop_assert!(answers.len() < quorum.needed());
            }
        }
    }
}
